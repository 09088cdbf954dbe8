"""Checks that a study has the settings its stopping rule needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thriftune.errors import SettingError

_NEEDS = {"max_steps": "how many steps a trial has", "trials": "the number of trials"}


def check_needs(rule: type, options: Mapping[str, Any], max_steps: int | None, trials: int | None) -> None:
    """Raise SettingError if the study lacks a setting that `rule.needs` names; `options` are the rule's."""
    given = {"max_steps": max_steps, "trials": trials}
    for setting in getattr(rule, "needs", ()):
        if given[setting] is None:
            raise SettingError(f"stopping: {rule.__name__} needs to know {_NEEDS[setting]}: give {setting}=")
    min_steps = options.get("min_steps")
    if min_steps is not None and max_steps is not None and min_steps > max_steps:
        raise SettingError(
            f"stopping: min_steps {min_steps} is above max_steps {max_steps}, so nothing would be judged"
        )
