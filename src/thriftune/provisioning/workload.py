"""What does a policy over machines know of the study? How much there is to do, by when, and what moving costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from thriftune.common.checks import check_number, check_whole
from thriftune.market.checkpoint_schedule import young_daly_hours
from thriftune.planning.job import JobSpec
from thriftune.state.history import History

_MOMENT_SECONDS = 1e-3  # what is as near is the same, but for rounding


@dataclass(frozen=True)
class Workload:
    """Of one study.

    - `at_a_time`: trials that shall run side by side; `trials`: in all, None if nobody knows.
    - `deadline_seconds`: of driving, by which all of them shall be done.
    - `seconds_per_step`: where nothing has been measured yet, on a machine of speed 1.
    - `restart_seconds`: until a trial goes on from its checkpoint; `save_seconds`: to write one. `saves`: whether
      trials write any; if not, they cannot be on machines that may be taken away.
    - `job`: the stages in which trials train, where a stopping rule makes such; None: all go on to the last step.
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
        """Seconds until the deadline."""
        if self.deadline_seconds is None:
            return None
        return self.deadline_seconds - history.driven_seconds(now)

    def saves_within(self, notice_seconds: float, step_seconds: float) -> bool:
        """Whether a notice is long enough for the step that a trial is in, and to save."""
        return notice_seconds + _MOMENT_SECONDS >= step_seconds + self.save_seconds

    def save_interval_hours(self, losses_an_hour: float) -> float:
        """Between checkpoints (Young and Daly's); 0 where they cost nothing, inf where nothing is lost."""
        if not self.save_seconds:
            return 0.0
        if not losses_an_hour:
            return math.inf
        return young_daly_hours(self.save_seconds / 3600.0, 1.0 / losses_an_hour)
