"""The work of a study, its deadline, and the cost of moves, for policies."""

from __future__ import annotations

import math
from dataclasses import dataclass

from thriftune.common.checks import check_number, check_whole
from thriftune.market.checkpoint_schedule import young_daly_hours
from thriftune.planning.job import JobSpec
from thriftune.state.history import History

_ROUNDING_SECONDS = 1e-3  # times this close count as equal


@dataclass(frozen=True)
class StudyWorkload:
    """The work of one study, as its user describes it before it starts.

    - `at_a_time`: trials that should run in parallel. `trials`: all trials; None if unknown.
    - `deadline_seconds`: the time until all trials should be done, counted while the study is driven.
    - `seconds_per_step`: the time of a step on a machine of speed 1, used until steps were timed.
    - `restart_seconds`: time until a trial resumes from its checkpoint. `save_seconds`: time to write one.
    - `saves`: whether trials write checkpoints. Trials that write none must not use spot machines.
    - `job`: the stages of a stopping rule that trains in stages; None if all trials train to the last step.
    """

    at_a_time: int = 1
    trials: int | None = None
    deadline_seconds: float | None = None
    seconds_per_step: float = 1.0
    restart_seconds: float = 0.0
    save_seconds: float = 0.0
    saves: bool = True
    seed: int = 0
    job: JobSpec | None = None

    def __post_init__(self) -> None:
        check_whole("at_a_time", self.at_a_time, 1)
        if self.trials is not None:
            check_whole("trials", self.trials, 1)
        if self.deadline_seconds is not None:
            check_number("deadline_seconds", self.deadline_seconds, above_zero=True)
        for name in ("seconds_per_step", "restart_seconds", "save_seconds"):
            check_number(name, getattr(self, name), above_zero=name == "seconds_per_step")

    def time_left(self, history: History, now: float) -> float | None:
        """Return the seconds until the deadline; None without one."""
        if self.deadline_seconds is None:
            return None
        return self.deadline_seconds - history.driven_seconds(now)

    def can_save_within(
        self, notice_seconds: float, step_seconds: float, save_seconds: float | None = None
    ) -> bool:
        """Return whether a notice leaves time to finish the current step and to save.

        `save_seconds`: the measured time to save; by default the stated one.
        """
        save_seconds = self.save_seconds if save_seconds is None else save_seconds
        return notice_seconds + _ROUNDING_SECONDS >= step_seconds + save_seconds

    def save_interval_hours(self, hazard: float, save_seconds: float | None = None) -> float:
        """Return Young and Daly's time between checkpoints.

        The result is 0 if saving takes no time, and infinite if machines are never preempted.

        - `hazard`: in preemptions per hour.
        - `save_seconds`: the measured time to save; by default the stated one.
        """
        save_seconds = self.save_seconds if save_seconds is None else save_seconds
        if not save_seconds:
            return 0.0
        if not hazard:
            return math.inf
        return young_daly_hours(save_seconds / 3600.0, 1.0 / hazard)
