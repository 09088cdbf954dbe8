"""Which studies come with thriftune, to be replayed? Six workloads in the manner of SpotTune's Table II.

Each is a grid of 16 configurations that was really trained, on one core, by examples/workloads, and kept by
`thriftune record`: logistic regression, a support vector machine, boosted trees, linear regression, and two small
networks whose learning rate drops.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from thriftune.errors import SettingError

if TYPE_CHECKING:
    from thriftune.replay.recordings import Recording

_FOLDER = Path(__file__).parent


def names() -> list[str]:
    return sorted(path.stem for path in _FOLDER.glob("*.npz"))


@cache
def load(name: str) -> Recording:
    from thriftune.replay.recordings import read

    if name not in names():
        raise SettingError(f"recording {name!r} does not come with thriftune; there are {', '.join(names())}")
    return read(_FOLDER / f"{name}.npz")


def seconds_by_cores(name: str) -> Mapping[int, float]:
    """Of a step of one configuration, as they were measured: with 1 core, and with 2."""
    return load(name).seconds_by_cores


def pace(name: str, cores: int) -> float:
    """How long a step takes with so many cores, over what it takes with one: by Amdahl's law, s + (1 - s) / cores.

    The serial share s is fitted to what was measured, by least squares; it is at least 0 and at most 1.
    """
    if isinstance(cores, bool) or not isinstance(cores, int) or cores < 1:
        raise SettingError(f"cores: {cores!r} must be a whole number, at least 1")
    measured = seconds_by_cores(name)
    pairs = [(1.0 / each, seconds / measured[1]) for each, seconds in measured.items() if each > 1]
    weight = sum((1.0 - part) ** 2 for part, _ in pairs)
    serial = sum((ratio - part) * (1.0 - part) for part, ratio in pairs) / weight
    serial = min(1.0, max(0.0, serial))
    return serial + (1.0 - serial) / cores
