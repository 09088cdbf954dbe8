"""Are a rule's options what they must be, and is it told what it needs to know?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thriftune.errors import SettingError

_NEEDS = {"max_steps": "how many steps a trial has", "trials": "after how many trials there are no more"}


def check_needs(rule: type, options: Mapping[str, Any], max_steps: int | None, trials: int | None) -> None:
    """`rule.needs`: which of these settings it cannot do without. `options`: its own."""
    given = {"max_steps": max_steps, "trials": trials}
    for setting in getattr(rule, "needs", ()):
        if given[setting] is None:
            raise SettingError(f"stopping: {rule.__name__} needs to know {_NEEDS[setting]}: give {setting}=")
    first = options.get("min_steps")
    if first is not None and max_steps is not None and first > max_steps:
        raise SettingError(
            f"stopping: min_steps {first} is above max_steps {max_steps}, so nothing would be judged"
        )
