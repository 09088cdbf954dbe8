"""Recordings that are shipped with thriftune: six workloads like those of SpotTune's Table II.

Each is a grid of 16 configurations. They were trained on one core by examples/workloads and recorded by `thriftune
record`: logistic regression, a support vector machine, boosted trees, linear regression, and two small networks
with a decreasing learning rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from thriftune.common.checks import check_whole
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
        raise SettingError(f"recording {name!r} is not shipped with thriftune; choose one of {', '.join(names())}")
    return read(_FOLDER / f"{name}.npz")


def seconds_by_cores(name: str) -> Mapping[int, float]:
    """Return the measured seconds of a step by number of cores, for 1 and 2 cores and one configuration."""
    return load(name).seconds_by_cores


def pace(name: str, cores: int) -> float:
    """Return the time of a step with that many cores over its time with one: by Amdahl's law, s + (1 - s) / cores.

    The serial share s is fitted to the measurements by least squares, and lies between 0 and 1.
    """
    check_whole("cores", cores, 1)
    measured = seconds_by_cores(name)
    ratios = [(1.0 / count, seconds / measured[1]) for count, seconds in measured.items() if count > 1]
    weight = sum((1.0 - ideal) ** 2 for ideal, _ in ratios)
    serial = sum((ratio - ideal) * (1.0 - ideal) for ideal, ratio in ratios) / weight
    serial = min(1.0, max(0.0, serial))
    return serial + (1.0 - serial) / cores
