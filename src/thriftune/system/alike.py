"""Which trials of a study are alike, before anything is measured? Those that are near by one hyperparameter.

It is the one by which past trials tell best what was best for each other; with equals, the size of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from thriftune.space.space import Space
from thriftune.system.known_work import UNTURNED, best, merged, setting_of

_LEAST_TRIALS, _LEAST_RIGHT = 3, 0.85
_HELPS = 0.97
_NEAR = 3
"""So many of the nearest trials are asked."""

Known = tuple[Mapping[str, Any], Mapping[str, float]]
"""A trial's configuration, and by setting what a step cost relative to nothing turned."""


def by_parameter(
    config: Mapping[str, Any], known: Sequence[Known], space: Space
) -> tuple[Mapping[str, float], str] | None:
    """What the trials that are alike say of settings, and in words which these are; None: nobody can tell."""
    if len(known) < _LEAST_TRIALS:
        return None
    labels = [_best(effects) for _, effects in known]
    units = {name: space.axes[name].unit for name in space.names if name in config}
    right: dict[str, float] = {}
    for name, unit in units.items():
        have = [
            (unit(other[name]), label) for (other, _), label in zip(known, labels, strict=True) if name in other
        ]
        if len(have) >= _LEAST_TRIALS:
            right[name] = fmean(_nearest_says(have, i) == have[i][1] for i in range(len(have)))
    if not right:
        return None
    name = max(right, key=lambda each: (right[each], "batch" in each.lower()))
    if right[name] < _LEAST_RIGHT:
        return None
    here = units[name](config[name])
    far = {i: abs(units[name](other[name]) - here) for i, (other, _) in enumerate(known) if name in other}
    near = sorted(far, key=lambda i: far[i])
    alike = [known[i][1] for i in near if labels[i] == labels[near[0]]]
    return merged(alike[:_NEAR]), f"{name} near {config[name]}"


def _best(effects: Mapping[str, float]) -> str:
    """Without the number of threads, which depends on who else is on the machine."""
    plain = {
        each: ratio for each, ratio in effects.items() if not {"threads", "at_a_time"} & setting_of(each).keys()
    }
    return best(plain) if plain and min(plain.values()) < _HELPS else UNTURNED


def _nearest_says(have: Sequence[tuple[float, str]], i: int) -> str:
    others = [each for j, each in enumerate(have) if j != i]
    return min(others, key=lambda each: abs(each[0] - have[i][0]))[1]
