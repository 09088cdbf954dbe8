"""The state of a study: its trials, machines and drives, and their properties."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from math import isfinite, nan
from typing import Any

from thriftune.errors import NoBestTrial
from thriftune.space.objectives import Constraint, Objective, feasible, needed_metrics
from thriftune.space.space import Space
from thriftune.state import events as ev
from thriftune.state.earlier_results import EarlierStudy
from thriftune.state.fleet import Fleet
from thriftune.state.leaders import Leaders
from thriftune.state.reports import counted_reports, step_of_values
from thriftune.state.trial_record import NO_FILES, State, TrialFiles, TrialRecord, ValueRule
from thriftune.state.trials_since_best import TrialsSinceBest
from thriftune.state.unread_parameters import UnreadParameters


class StudyState:
    """The state that follows from the log of a study.

    Only History changes it. All other code only reads it.
    """

    def __init__(
        self,
        space: Space,
        objectives: Sequence[Objective],
        seed: int,
        constraints: Sequence[Constraint] = (),
        max_steps: int | None = None,
        folder: str = "",
        files: TrialFiles = NO_FILES,
        best_counts: bool = False,
    ) -> None:
        """Create the state of a study whose log is empty.

        - `max_steps`: the largest number of steps of a trial; None if there is no limit.
        - `folder`: the folder of the study's files; empty if it is not known.
        - `files`: reads the files of trials.
        - `best_counts`: a trial's value is the best of all steps, and not the last.
        """
        # The definition of the study. It never changes.
        self.space = space
        self.objectives = tuple(objectives)
        self.metric, self.maximize = objectives[0].metric, objectives[0].maximize  # the first objective
        self.constraints = tuple(constraints)
        self.value_rule = ValueRule(self.metric, self.maximize, best_counts)
        self.needed_metrics = dict.fromkeys(needed_metrics(objectives, constraints)).keys()
        self.seed = seed
        self.max_steps = max_steps
        self.folder = folder
        self.files = files

        # Trials.
        self.trials: list[TrialRecord] = []  # all trials in order of creation: trials[i].id == i
        self.created_ids: list[int] = []  # ids of all trials except known results, ascending
        self.counts: Counter[State] = Counter()  # number of trials in each state, without known results
        self.waiting: dict[int, None] = {}  # ids of all and only trials in state WAITING, the next to place first
        self.running: dict[int, None] = {}  # ids of all and only trials in state RUNNING, in order of start
        self.retrying: dict[int, None] = {}  # ids of all and only trials of `waiting` whose last attempt failed
        self.ended: list[TrialRecord] = []  # all and only trials in an ended state, in order of their end
        self.past_attempt_count = 0  # the number of attempts that have ended, over all trials
        self.rewritten_values = (
            0  # how often a report replaced a value of `metric` that stopping rules had already judged
        )
        self.leaders = Leaders(self.trials, self.objectives, self.constraints)
        self.trials_since_best = TrialsSinceBest(self.objectives)

        # Configurations.
        self.queue: list[ev.Config] = []  # enqueued configurations without a trial, the oldest first
        self.enqueued_keys: set[tuple[Any, ...]] = set()  # Space.key() of every configuration ever enqueued
        self.tried: Counter[tuple[Any, ...]] = Counter()  # the number of trials for each Space.key()
        self.known_results: set[tuple[Any, ...]] = set()  # (Space.key(), sorted metrics, error) of known results
        self.earlier: list[EarlierStudy] = []  # the studies with whose results this one was started
        self.unread = UnreadParameters()

        # Machines.
        self.fleet = Fleet()
        self.machines = self.fleet.present  # all and only machines that have not ended, by id
        self.machine_share: ev.ShareChanged | None = None  # this study's share; None if no machine is shared
        self.trial_limits: dict[int, ev.LimitTrialsPerMachine] = {}  # by the number of slots of the machine
        self.measured_trials: list[TrialRecord] = []  # trials with a usage window, in order of their first window
        self.failed_with_knobs: list[TrialRecord] = []  # trials that failed while they had a knob setting

        # Drives: the periods in which a driver ran the study.
        self.driver: ev.DriverStarted | None = None  # the current driver; None between drives
        self.started_at: float | None = None  # unix seconds of the first driver's start
        self.drive_ids: set[str] = set()  # DriverStarted.drive of all drives until now
        self.drives: list[tuple[float, float]] = []  # start and end of each past drive, in unix seconds
        self.past_driven_seconds = 0.0  # sum of the lengths of `drives`
        self.stop_requested_by: str | None = (
            None  # StopRequested.by of the last drive; None if no stop was requested
        )
        self.disk_full: str | None = None  # the error if the disk was full in the last drive
        self.failed_alike: tuple[int, ...] = ()  # ids of the trials whose equal failures stopped the last drive
        self.finish_reason: str | None = None  # why the study is finished; None while it is not

        # The log.
        self.entries = 0  # the number of entries applied
        self.last_at = 0.0  # unix seconds of the latest entry that shows that a driver was running

        self.attrs: dict[str, Any] = {}  # the study's attributes, by name
        self.warnings: list[str] = []  # warnings about the training function, each once

    # --- configurations and trials ------------------------------------------------------------------------

    def times(self, config: ev.Config) -> int:
        """Return the number of trials with this configuration."""
        return self.tried[self.space.key(config)]

    def is_new(self, config: ev.Config) -> bool:
        """Return whether a configuration was neither enqueued nor tried before.

        `config`: a result of Space.check_part().
        """
        key = self.space.key(config)
        return key not in self.enqueued_keys and not self.tried[key]

    @property
    def known_result_count(self) -> int:
        """Return the number of known results.

        They are trials, but do not count towards any limit.
        """
        return len(self.trials) - len(self.created_ids)

    def created_before(self, trial_id: int) -> int:
        """Return how many trials the study created before this one.

        Known results do not count.
        """
        return bisect_left(self.created_ids, trial_id) if self.known_result_count else trial_id

    @property
    def all_warnings(self) -> list[str]:
        """Return the warnings about the training function.

        When the study is finished, they include its unread parameters.
        """
        return [*self.warnings, *(self.unread.sentences() if self.finish_reason else ())]

    # --- time and money -----------------------------------------------------------------------------------

    def driven_seconds(self, now: float) -> float:
        """Return how long drivers have run the study, in seconds.

        The time between drives does not count.
        """
        if self.driver is None:
            return self.past_driven_seconds
        return self.past_driven_seconds + max(0.0, now - self.driver.at)

    def driven_seconds_until(self, at: float) -> float:
        """Return the value that driven_seconds() had at a time in the past.

        `at`: the time, in unix seconds.
        """
        before = 0.0
        for start, end in self.drives:
            if start <= at <= end:
                return before + at - start
            before += max(0.0, end - start)
        return self.driven_seconds(at)

    def dollars(self, now: float) -> float:
        """Return the cost of the study's machines until now, in dollars."""
        return self.fleet.dollars(now)

    # --- values -------------------------------------------------------------------------------------------

    def better(self, a: float, b: float) -> bool:
        """Return whether `a` is a better value of the first objective than `b`."""
        return a > b if self.maximize else a < b

    def feasible(self, trial: TrialRecord) -> bool | None:
        """Return whether the trial's metrics meet all constraints.

        Returns None if a metric has not been reported.
        """
        return feasible(trial.metrics, self.constraints)

    def eligible(self, trial: TrialRecord) -> bool:
        """Return whether the trial may be the best or on the front.

        It must not have failed, must have all values, and must meet all constraints.
        """
        return self.leaders.eligible(trial)

    def missing_metrics(self, trial: TrialRecord) -> list[str]:
        """Return the needed metrics for which the trial has no finite number."""
        return [name for name in self.needed_metrics if not isfinite(trial.metrics.get(name, nan))]

    def has_values(self, trial: TrialRecord) -> bool:
        """Return whether the trial has a finite number for every needed metric."""
        return not self.missing_metrics(trial)

    def may_lead(self, trial: TrialRecord) -> bool:
        """Return whether the trial is eligible and was trained as far as the leaders."""
        return self.leaders.may_lead(trial)

    def step_of_values(self, trial: TrialRecord) -> int:
        """Return the step of each objective's last report; the lowest if they differ."""
        return step_of_values(trial, [each.metric for each in self.objectives])

    def metric_of(self, trial: TrialRecord, metric: str) -> float | None:
        """Return the trial's number for a metric; None if it has not reported it.

        This is the trial's value for the first objective, and the last reported number for any other metric.
        """
        return trial.value if metric == self.metric else trial.metrics.get(metric)

    def value_step(self, trial: TrialRecord) -> int:
        """Return the step at which the trial reported its value; 0 if it has none.

        If the best value counts, this is the first step with that value, else the last step with a value.
        """
        reports = counted_reports(trial) if trial.state is State.COMPLETED else trial.reports
        last = next((report.step for report in reversed(reports) if report.value is not None), 0)
        if not self.value_rule.best:
            return last
        return next((r.step for r in reports if r.value is not None and r.value == trial.value), last)

    @property
    def best(self) -> TrialRecord:
        """Return the eligible trial with the best value, the earliest of equal trials.

        Raises NoBestTrial if no trial is eligible. If any eligible trial has finished, only finished trials
        compete. Otherwise the trials with the most steps compete.
        """
        if len(self.objectives) > 1:
            raise NoBestTrial(f"there are {len(self.objectives)} objectives, so no single best; see front")
        leading = self.leaders.current()
        if not leading:
            raise NoBestTrial(self.why_no_best())
        return leading[0]

    @property
    def front(self) -> list[TrialRecord]:
        """Return the trials that no other trial dominates.

        They are sorted by the first objective, then by id. With a single objective, these are all trials with the
        best value. The same trials compete as for `best`.
        """
        leading = self.leaders.current()
        if len(self.objectives) > 1 or not leading:
            return leading
        return [trial for trial in self.trials if trial.value == leading[0].value and self.may_lead(trial)]

    def why_no_best(self) -> str:
        """Return a sentence that says why no trial is the best or on the front."""
        return self.leaders.why_none()

    def why_infeasible(self) -> str:
        """Return why no trial with values meets the constraints, as a sentence.

        Returns an empty string if a trial meets them, or no trial has values.
        """
        return self.leaders.why_infeasible()
