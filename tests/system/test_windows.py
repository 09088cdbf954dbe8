"""What of a trial's windows can be compared?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from thriftune.state.events import UsageMeasured
from thriftune.state.trial_record import TrialRecord, UsageWindow
from thriftune.system.windows import costs_of, first_profiles_of, first_setting, is_busy, profiles_of, windows_of

KEPT: Mapping[str, Any] = {"memory": "kept"}
TWO: Mapping[str, Any] = {"threads": 2}


def window(
    step: int, setting: Mapping[str, Any], *, waiting: float = 0.0, cold: bool = False, kind: str = "here"
) -> UsageWindow:
    counters = {"cpu_pressure_seconds": waiting, "minor_faults": float(step)}
    return UsageWindow(UsageMeasured(0.0, 0, 1, step, 1, 1.0, setting, cold, counters, kind), 1)


def a_trial(*windows: UsageWindow) -> TrialRecord:
    trial = TrialRecord(0, {}, 0.0)
    trial.windows.extend(windows)
    return trial


def test_what_was_just_turned_is_told_but_not_of_an_attempts_first_window() -> None:
    windows = [window(1, {}, cold=True), window(2, {}), window(3, KEPT), window(4, KEPT), window(5, {}, cold=True)]
    costs = costs_of(windows, lambda measured: measured.seconds)
    assert [cost.turned for cost in costs] == [False, False, True, False, False]


@pytest.mark.parametrize(
    ("setting", "waiting", "disturbed"), [(TWO, 0.51, True), (TWO, 0.3, False), (KEPT, 0.51, False)]
)
def test_threads_that_shared_their_cores_tell_nothing(
    setting: Mapping[str, Any], waiting: float, disturbed: bool
) -> None:
    (cost,) = costs_of([window(1, setting, waiting=waiting)], lambda measured: measured.seconds)
    assert cost.disturbed is disturbed
    assert is_busy(window(1, setting, waiting=waiting).usage)


def test_windows_of_other_kinds_of_machines_are_left_out() -> None:
    trial = a_trial(window(1, {}, kind="there"), window(2, KEPT), window(3, TWO))
    assert [each.usage.step for each in windows_of(trial)] == [2, 3]
    assert first_setting(trial) == KEPT


def test_profiles_are_of_the_first_window_of_each_setting_and_of_the_first_and_last_of_the_first() -> None:
    trial = a_trial(window(1, {}), window(2, {}), window(3, KEPT), window(4, {}), window(5, KEPT))
    faults = [profile["minor_faults"] for profile in profiles_of(trial).values()]
    assert faults == [1.0, 3.0]
    assert [profile["minor_faults"] for profile in first_profiles_of(trial)] == [1.0, 4.0]
    assert len(first_profiles_of(a_trial(window(1, {}), window(2, KEPT)))) == 1
    assert first_profiles_of(a_trial()) == []
