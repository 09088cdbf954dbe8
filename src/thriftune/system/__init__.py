"""How should a trial use its machine?

This module has the settings. The other modules measure the machine's use, and choose and apply knob settings. They
are imported only when they are needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from thriftune.errors import SettingError

if TYPE_CHECKING:  # workers import this package, too, and need only a part of it
    from thriftune.system.knobs import CannotTurn as CannotTurn
    from thriftune.system.knobs import Knob as Knob
    from thriftune.system.knobs import Memory as Memory
    from thriftune.system.knobs import Threads as Threads
    from thriftune.system.protocol import Tuner as Tuner

_MODULES = {
    "protocol": ["Tuner"],
    "knobs": ["CannotTurn", "Knob", "Memory", "Threads"],
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["System", "system_of", *_MODULE_OF]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        from thriftune.system.removed import NAMES

        why = "was removed in 0.2.0" if name in NAMES else "does not exist"
        raise AttributeError(f"module {__name__!r}: {name} {why}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


AIMS = ("time", "energy", "dollars")


@dataclass(frozen=True, slots=True)
class System:
    """Settings for system tuning: how trials use their machine while they train.

    - `knobs`: the knobs to use: "memory" (the process keeps freed memory), "threads" (the number of threads of
      linear algebra, at most the trial's cores), or objects of your own that follow the protocol Knob.
    - `options`: settings that your training code lets thriftune change. Each name has the values to try, the usual
      one first. The code reads `trial.system["name"]` at the beginning of each step.
    - `aim`: the cost of a step to minimise: "time", "energy", or "dollars" (time multiplied by the cores in use).
    """

    knobs: Sequence[str | Knob] = ("memory", "threads")
    options: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    aim: str = "time"

    def __post_init__(self) -> None:
        if self.aim not in AIMS:
            raise SettingError(f"system: aim: {self.aim!r} must be one of {', '.join(map(repr, AIMS))}")
        if isinstance(self.knobs, str) or not isinstance(self.knobs, Sequence):
            raise SettingError(f"system: knobs: {self.knobs!r} must be a list, such as ['memory', 'threads']")
        if not isinstance(self.options, Mapping):
            raise SettingError(f"system: options: {self.options!r} must be a table, such as {{loaders = [0, 2]}}")
        from thriftune.system.checks import check_knobs_and_options  # late: it loads the knobs

        check_knobs_and_options(self.knobs, self.options)

    @property
    def own(self) -> dict[str, Any]:
        """Return the user's own knobs, which are objects that a study cannot store."""
        return {"knobs": [knob for knob in self.knobs if not isinstance(knob, str)]}

    @property
    def written(self) -> dict[str, Any]:
        """Return the settings as a study stores them, with the user's own knobs by name."""
        return {
            "knobs": [knob if isinstance(knob, str) else knob.name for knob in self.knobs],
            "options": {name: list(values) for name, values in self.options.items()},
            "aim": self.aim,
        }


def system_of(setting: str | System | Mapping[str, Any] | None) -> System | None:
    """Return the System for the value of the setting `system`.

    `setting`: "auto", "off", a System, or a table of a study file. Returns None for "off" and None.
    """
    if setting is None or setting == "off":
        return None
    if setting == "auto":
        return System()
    if isinstance(setting, System):
        return setting
    if isinstance(setting, Mapping):
        from thriftune.system.removed import check_settings

        check_settings(setting)
        fields = System.__dataclass_fields__
        if unknown := [name for name in setting if name not in fields]:
            raise SettingError(f"system: {', '.join(unknown)} is not known; it has {', '.join(fields)}")
        return System(**setting)
    raise SettingError(f"system: {setting!r} must be 'auto', 'off', or tt.System(...)")
