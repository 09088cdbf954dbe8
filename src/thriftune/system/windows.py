"""What of a trial's windows can be compared? Those on one kind of machine, with what it began with there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from thriftune.state.events import UsageMeasured
from thriftune.state.trial_record import TrialRecord, UsageWindow
from thriftune.system.estimate import Cost
from thriftune.system.known_work import key

_BUSY, _SHARED = 0.25, 0.4
"""For such parts of the time programs wait for a core: where none is idle; and where a trial's threads have to
share them with others, and can take twenty times as long, as they wait for each other."""


def kind_of(trial: TrialRecord) -> str:
    """Of the machine that it was measured on last."""
    return trial.windows[-1].usage.kind if trial.windows else ""


def windows_of(trial: TrialRecord) -> list[UsageWindow]:
    """On machines of that kind: others cannot be compared."""
    return [window for window in trial.windows if window.usage.kind == kind_of(trial)]


def first_setting(trial: TrialRecord) -> Mapping[str, Any]:
    """What it began with there, with which all else is compared."""
    first = next(iter(windows_of(trial)), None)
    return {} if first is None else first.usage.setting


def profile_of(trial: TrialRecord) -> Mapping[str, float] | None:
    """Of its first window there."""
    return next(iter(profiles_of(trial).values()), None)


def first_profiles_of(trial: TrialRecord) -> list[Mapping[str, float]]:
    """Of its first window there, and of the last that has the same setting: of a process's first trial, the first
    window has much in it that no later trial of the process does again."""
    windows, base = windows_of(trial), first_setting(trial)
    alike = [window.usage.counters for window in windows if window.usage.setting == base]
    return alike if len(alike) < 2 else [alike[0], alike[-1]]


def profiles_of(trial: TrialRecord) -> dict[str, Mapping[str, float]]:
    """By key of each setting that it had there, the one that it began with first: of its first window with it."""
    found: dict[str, Mapping[str, float]] = {}
    for window in windows_of(trial):
        found.setdefault(key(window.usage.setting), window.usage.counters)
    return found


def costs_of(windows: Sequence[UsageWindow], cost_of: Callable[[UsageMeasured], float]) -> list[Cost]:
    found = []
    before: Mapping[str, Any] | None = None
    for measured, beside in windows:
        turned = not measured.cold and before is not None and measured.setting != before
        before = measured.setting
        if (cost := cost_of(measured)) > 0.0:
            disturbed = "threads" in measured.setting and _waiting(measured) > _SHARED
            found.append(
                Cost(key(measured.setting), beside, measured.cold, cost, measured.step, turned, disturbed)
            )
    return found


def is_busy(measured: UsageMeasured) -> bool:
    """None of the machine's cores was idle."""
    return _waiting(measured) > _BUSY


def _waiting(measured: UsageMeasured) -> float:
    return measured.counters.get("cpu_pressure_seconds", 0.0)
