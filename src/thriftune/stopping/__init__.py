"""Is this trial worth another step? The stopper protocol, and the rules by name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from thriftune.errors import SettingError

if TYPE_CHECKING:
    from thriftune.history import History
    from thriftune.stopping.asha import ASHA as ASHA
    from thriftune.stopping.halving import Hyperband as Hyperband
    from thriftune.stopping.halving import SuccessiveHalving as SuccessiveHalving
    from thriftune.stopping.median import Median as Median
    from thriftune.trial import TrialRecord


class Verdict(Enum):
    GO_ON = "go on"
    PAUSE = "pause"
    STOP = "stop"


class Stopper(Protocol):
    """A pure function of what has been observed; what it keeps between calls is only a cache."""

    def judge(self, trial: TrialRecord, history: History) -> Verdict:
        """Asked after every report of a running trial on a new step, which is the last of `trial.reports`.

        A step that is done again after a loss is not judged again. What is decided here stands, however the
        attempt ends that it was said to; so does what was decided before, when a trial that is to end says more.
        """
        ...

    def promote(self, history: History, more: bool) -> int | None:
        """A paused trial that deserves more steps now, if any; asked when a machine has room.

        `more`: further trials may still be made.
        """
        ...


BY_NAME = {
    "median": ("median", "Median"),
    "asha": ("asha", "ASHA"),
    "halving": ("halving", "SuccessiveHalving"),
    "hyperband": ("halving", "Hyperband"),
}
"""The rules that a name stands for: their module and their class."""

NONE = "none"
"""Every trial goes on to its end."""


def make_stopper(name: str, options: Mapping[str, Any]) -> Stopper | None:
    """The rule of that name, with options as a study file gives them."""
    if name == NONE and not options:
        return None
    if name not in BY_NAME:
        raise SettingError(f"stopping: {name!r} is not known; use one of {', '.join([*BY_NAME, NONE])}")
    kind = _class_of(name)
    known = inspect.signature(kind).parameters
    if unknown := [option for option in options if option not in known]:
        raise SettingError(f"stopping: {name} does not take {', '.join(unknown)}; its options: {', '.join(known)}")
    made: Stopper = kind(**options)
    return made


def check_stopper(given: object) -> None:
    """Whether it is the name of a rule, or one that can be asked; SettingError if not."""
    if isinstance(given, str):
        make_stopper(given, {})
    elif isinstance(given, type):
        raise SettingError(f"stopping: {given.__name__} is a class; give an object, {given.__name__}()")
    elif not (callable(getattr(given, "judge", None)) and callable(getattr(given, "promote", None))):
        raise SettingError(
            f"stopping: {given!r} has no methods judge(trial, history) and promote(history, more); give an object "
            f"that has them, or one of {', '.join(map(repr, [*BY_NAME, NONE]))}"
        )


def written(stopper: str | Stopper) -> tuple[str, dict[str, Any]]:
    """Its name and its options, as a study file has them; of a user's own, the name of its class."""
    if isinstance(stopper, str):
        return stopper, {}
    kind = type(stopper)
    for name in BY_NAME:
        if _class_of(name) is kind:
            return name, dict(getattr(stopper, "options", {}))
    return kind.__name__, {}


def _class_of(name: str) -> Any:
    module, found = BY_NAME[name]
    return getattr(import_module(f"{__name__}.{module}"), found)


def __getattr__(name: str) -> Any:
    for module, found in BY_NAME.values():
        if name == found:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
