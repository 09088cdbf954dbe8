"""Apply events about drivers and machines to a study's state.

Each function applies one kind of event. It returns False if the event changes nothing and need not be recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thriftune.state import events as ev
from thriftune.state.study_state import StudyState
from thriftune.state.trial_changes import lose_attempt


def _apply_driver_started(state: StudyState, event: ev.DriverStarted) -> bool:
    for trial_id in list(state.running):
        trial = state.trials[trial_id]
        if trial.machine != ev.OUTSIDE:
            lose_attempt(state, trial, state.last_at, stalls=False)
    _end_drive(state)
    state.fleet.apply_new_driver()
    state.driver = event
    state.drive_ids.add(event.drive)
    state.last_at = event.at  # may be earlier than before: the clock may have been set back between drives
    state.finish_reason = state.stop_requested_by = state.disk_full = None
    state.failed_alike = ()
    if state.started_at is None:
        state.started_at = event.at
    return True


def _apply_driver_stopped(state: StudyState, event: ev.DriverStopped) -> bool:
    state.last_at = max(state.last_at, event.at)
    _end_drive(state)
    return True


def _end_drive(state: StudyState) -> None:
    """End the current drive, if any, at the time of the last entry.

    This is the last time at which a killed driver is known to have run.
    """
    if state.driver is not None:
        state.drives.append((state.driver.at, state.last_at))
        state.past_driven_seconds += max(0.0, state.last_at - state.driver.at)
    # Machines that were not rented belong to the driver, and are not billed without one.
    for machine_id in [each for each in state.machines if each not in state.fleet.rented_ids]:
        _end_machine(state, machine_id, state.last_at, stalls=False)
    state.driver, state.machine_share = None, None


def _end_machine(state: StudyState, machine_id: str, at: float, *, stalls: bool, lost: bool = False) -> bool:
    """End a machine and the attempts on it; return whether anything changed.

    - `stalls`: a trial may be the cause.
    - `lost`: the machine was not released.
    """
    running = state.machines[machine_id].running if machine_id in state.machines else ()
    for trial_id in sorted(running):  # sorted, so that the result does not depend on the order of placement
        lose_attempt(state, state.trials[trial_id], at, stalls=stalls)
    return state.fleet.apply_end(machine_id, at, lost=lost)


def _apply_machine_lost(state: StudyState, event: ev.MachineLost) -> bool:
    machine = state.machines.get(event.machine)
    # The provider ended a machine that was revoked or has a notice. Any other machine may have crashed because of
    # one of its trials.
    stalls = not event.revoked and machine is not None and machine.notice is None
    return _end_machine(state, event.machine, event.at, stalls=stalls, lost=True)


def _apply_machine_released(state: StudyState, event: ev.MachineReleased) -> bool:
    return _end_machine(state, event.machine, event.at, stalls=False)


def _apply_share_changed(state: StudyState, event: ev.ShareChanged) -> bool:
    before = None if state.machine_share is None else state.machine_share.workers
    state.machine_share = event
    return event.workers != before


HANDLERS: dict[type[ev.Event], Callable[[StudyState, Any], bool]] = {
    ev.DriverStarted: _apply_driver_started,
    ev.DriverStopped: _apply_driver_stopped,
    ev.Rent: lambda state, event: state.fleet.apply_rent(event),
    ev.MachineRented: lambda state, event: state.fleet.apply_rented(event),
    ev.MachineRefused: lambda state, event: state.fleet.apply_refused(event),
    ev.MachineReady: lambda state, event: state.fleet.apply_ready(event),
    ev.MachineNotice: lambda state, event: state.fleet.apply_notice(event),
    ev.MachineLost: _apply_machine_lost,
    ev.Release: lambda state, event: state.fleet.apply_release(event),
    ev.MachineReleased: _apply_machine_released,
    ev.MachineBilled: lambda state, event: state.fleet.apply_bill(event),
    ev.MachineShared: lambda state, event: state.fleet.apply_shared(event),
    ev.ShareChanged: _apply_share_changed,
}
