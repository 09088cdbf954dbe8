"""The time between the saves of a trial whose state does not reach the object store within a preemption notice.

Uploads are measured: each checkpoint in the history has its size and the time of its upload. The upload of a state
is expected to take as long as the newest one on the same machine type, in proportion to its size.
"""

from __future__ import annotations

from collections.abc import Iterator

from thriftune.errors import SettingError
from thriftune.market.checkpoint_schedule import MIN_WORK_HOURS, Job, best_schedule
from thriftune.market.survival import Survival
from thriftune.state.history import History
from thriftune.state.trial_record import StoredCheckpoint, TrialRecord

HORIZON_HOURS = 4.0
"""Plan at most this much work ahead: the first save hardly depends on what comes later."""

_PIECES = 60
"""The interval is a multiple of this share of the work ahead. One takes about 10 ms to choose."""


class UploadTimes:
    """The measured upload times of a study, by machine type."""

    def __init__(self) -> None:
        self._history: History | None = None  # the caches are from it
        self._type_of: dict[str, str] = {}  # by id of a machine that has ended
        self._counted = 0  # the machines that are in it

    def seconds(self, trial: TrialRecord, type_name: str, history: History) -> float | None:
        """Return how long the upload of the trial's state takes on a machine type; None if none was measured.

        Uploads on other types count only while none on this type was measured.
        """
        past = history.fleet.past
        if self._history is not history:
            self._history, self._type_of, self._counted = history, {}, 0
        for machine in past[self._counted :]:
            self._type_of[machine.id] = machine.offer
        self._counted = len(past)
        size = next((each.size_bytes for each in reversed(trial.checkpoints) if each.size_bytes), None)
        anywhere: StoredCheckpoint | None = None
        for each, machine_id in _uploads(trial, history):
            anywhere = anywhere or each
            present = history.machines.get(machine_id)
            if (present.offer if present is not None else self._type_of.get(machine_id)) == type_name:
                return _scaled(each, size)
        return None if anywhere is None else _scaled(anywhere, size)


def _uploads(trial: TrialRecord, history: History) -> Iterator[tuple[StoredCheckpoint, str]]:
    """Yield measured uploads and their machines: first those of the trial, the newest first, then of others."""
    for each in (trial, *(other for other in reversed(history.trials) if other is not trial)):
        if not each.checkpoints:
            continue
        machines = {past.attempt: next(iter(past.workers), "") for past in each.past_attempts}
        if each.machine is not None:
            machines[each.attempts] = each.machine
        for checkpoint in reversed(each.checkpoints):
            if checkpoint.size_bytes and checkpoint.upload_seconds:
                yield checkpoint, machines.get(checkpoint.attempt, "")


def _scaled(measured: StoredCheckpoint, size: int | None) -> float:
    """Return the time for a state of this size; of the same size if that is not known."""
    return measured.upload_seconds * (measured.size_bytes if size is None else size) / measured.size_bytes


def seconds_until_save(
    work_seconds: float, upload_seconds: float, restart_seconds: float, age_seconds: float, survival: Survival
) -> float | None:
    """Return the time until the first save of the schedule with the least expected time.

    Returns None if no machine is expected to live long enough for a schedule.

    - `work_seconds`: what the trial has left to do.
    - `age_seconds`: how long the machine has lived.
    """
    work = min(HORIZON_HOURS, max(MIN_WORK_HOURS, work_seconds / 3600.0))
    job = Job(work, upload_seconds / 3600.0, restart_seconds / 3600.0, age_seconds / 3600.0)
    try:
        schedule = best_schedule(job, survival, resolution_hours=work / _PIECES)
    except SettingError:
        return None
    return schedule.segments[0] * 3600.0
