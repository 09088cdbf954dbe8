"""What is known? The fold of a study's log: its trials, its machines, its time and money.

`History.apply` is the only way state changes, for a running driver and for a reader of the store alike. It takes
no decisions: what the conductor decided is in the log too, and is applied like anything else that happened.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import isfinite, nan
from typing import Any

from thriftune.errors import NoBestTrial
from thriftune.space.objectives import Constraint, Objective, feasible, join_with_and, needed_metrics
from thriftune.space.space import Space
from thriftune.state import events as ev
from thriftune.state.attributes import set_attribute
from thriftune.state.earlier_results import EarlierStudy
from thriftune.state.fleet import Fleet
from thriftune.state.leaders import Leaders
from thriftune.state.metrics import missing_metrics_error
from thriftune.state.reports import (
    add_report,
    counted_reports,
    current_value,
    last_step_of_attempt,
    latest_metrics,
    step_of_values,
    timed_steps_of_attempt,
    value_at,
)
from thriftune.state.trial_record import (
    FINISHING_REQUESTS,
    NO_FILES,
    PastAttempt,
    Report,
    State,
    TrialFiles,
    TrialRecord,
    UsageWindow,
    ValueRule,
)
from thriftune.state.trials_since_best import TrialsSinceBest
from thriftune.state.unread_parameters import UnreadParameters


class History:
    """The state of a study, as far as its log goes. Searchers and stoppers read it; only apply() writes it."""

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
        self.space = space
        self.objectives = tuple(objectives)
        self.metric, self.maximize = objectives[0].metric, objectives[0].maximize  # the first objective's
        self.constraints = tuple(constraints)
        self.value_rule = ValueRule(self.metric, self.maximize, best_counts)
        self.seed = seed
        self.max_steps = max_steps  # of a trial
        self.folder = folder  # of the study's files; empty where not known
        self.files = files  # reads what trials left there
        self.earlier: list[EarlierStudy] = []  # what it began with
        self.trials: list[TrialRecord] = []  # trials[i].id == i
        self.created_ids: list[int] = []  # ids of the trials that the study makes, rising: all but known results
        self.attrs: dict[str, Any] = {}  # what the user attached to the study
        self.counts: Counter[State] = Counter()  # of the trials that it makes, in each state
        self.waiting: dict[int, None] = {}  # ids in the order in which they shall be placed
        self.running: dict[int, None] = {}  # ids in the order in which they were placed
        self.retrying: dict[int, None] = {}  # ids of the waiting trials whose last attempt failed
        self.ended: list[TrialRecord] = []  # in the order in which they did
        self.fleet = Fleet()
        self.machine_share: ev.ShareChanged | None = None  # of the machines, where others want them, too
        self.measured_trials: list[TrialRecord] = []  # trials with a usage window, in the order of their first
        self.failed_with_knobs: list[TrialRecord] = []  # those that have failed with something turned
        self.trial_limits: dict[int, ev.LimitTrialsPerMachine] = {}  # by the slots of a machine
        self.machines = self.fleet.present  # by id
        self.entries = 0  # length of the log so far
        self.last_at = 0.0  # time of the latest entry but those of _BETWEEN_DRIVES
        self.started_at: float | None = None  # when the first driver started
        self.driver: ev.DriverStarted | None = None  # None: not being driven, as far as the log knows
        self.stop_requested_by: str | None = None  # by whom, in the last drive
        self.disk_full: str | None = None  # the error, in the last drive
        self.failed_alike: tuple[int, ...] = ()  # trials whose failures have stopped the last drive
        self.finish_reason: str | None = None  # why nothing is left to do
        self.rewritten_values = 0  # values of the first objective that changed at a step that rules had seen
        self.past_attempt_count = 0  # attempts that are over, of all trials
        self.drives: list[tuple[float, float]] = []  # from when to when, of those that are over
        self._driven_before = 0.0  # seconds of these
        self.warnings: list[str] = []  # about the training function, so of no one trial
        self.unread = UnreadParameters()
        self.queue: list[ev.Config] = []  # enqueued by the user and not yet tried, the oldest first
        self._enqueued_keys: set[tuple[Any, ...]] = set()  # of all that were ever enqueued
        self._tried: Counter[tuple[Any, ...]] = Counter()
        self._known_results: set[tuple[Any, ...]] = set()  # configuration, metrics and error of each
        self.trials_since_best = TrialsSinceBest(self.objectives)
        self._needed = dict.fromkeys(
            needed_metrics(objectives, constraints)
        ).keys()  # metrics that a trial must end with
        self._leaders = Leaders(self.trials, self.objectives, self.constraints)

    # --- reading --------------------------------------------------------------------------------------

    def times(self, config: ev.Config) -> int:
        return self._tried[self.space.key(config)]

    @property
    def all_warnings(self) -> list[str]:
        """Return warnings about the training function. What it never read is among them once the study is over."""
        return [*self.warnings, *(self.unread.sentences() if self.finish_reason else ())]

    @property
    def known_result_count(self) -> int:
        """How many results the user knew; they are trials that count in no limit."""
        return len(self.trials) - len(self.created_ids)

    def created_before(self, trial_id: int) -> int:
        """Return how many trials the study had made before this one."""
        return bisect_left(self.created_ids, trial_id) if self.known_result_count else trial_id

    def would_enqueue(self, config: ev.Config) -> bool:
        """Return whether a configuration from Space.check_part() was neither enqueued nor tried before."""
        key = self.space.key(config)
        return key not in self._enqueued_keys and not self._tried[key]

    def driven_seconds(self, now: float) -> float:
        """How long the study has been driven, over all its drives; pauses between drives do not count."""
        if self.driver is None:
            return self._driven_before
        return self._driven_before + max(0.0, now - self.driver.at)

    def driven_seconds_until(self, at: float) -> float:
        """How long it had been driven at a moment that has passed."""
        before = 0.0
        for start, end in self.drives:
            if start <= at <= end:
                return before + at - start
            before += max(0.0, end - start)
        return self.driven_seconds(at)

    def dollars(self, now: float) -> float:
        """What its machines cost so far, at the price of their offers."""
        return self.fleet.dollars(now)

    def better(self, a: float, b: float) -> bool:
        """By the first objective."""
        return a > b if self.maximize else a < b

    def feasible(self, trial: TrialRecord) -> bool | None:
        """Whether it meets all constraints, by the metrics it has; None: not known yet."""
        return feasible(trial.metrics, self.constraints)

    def eligible(self, trial: TrialRecord) -> bool:
        """Whether it may be the best: it has not failed, and has all values, and meets all constraints."""
        return self._leaders.eligible(trial)

    def has_values(self, trial: TrialRecord) -> bool:
        """Return whether it has a number for every metric that a trial must end with."""
        return not self._unsound(trial)

    def may_lead(self, trial: TrialRecord) -> bool:
        """Tell whether it competes to be the best: eligible, and trained as far as the leaders are."""
        return self._leaders.may_lead(trial)

    def step_of_values(self, trial: TrialRecord) -> int:
        """Return the step of its objectives' last values; where the steps differ, the lowest."""
        return step_of_values(trial, [each.metric for each in self.objectives])

    def metric_of(self, trial: TrialRecord, metric: str) -> float | None:
        """Return the trial's value if the metric is the first objective, else the metric's last report."""
        return trial.value if metric == self.metric else trial.metrics.get(metric)

    def value_step(self, trial: TrialRecord) -> int:
        """Return the step that its value is of: of its best value the first, or its last; 0 if it has none."""
        told = counted_reports(trial) if trial.state is State.COMPLETED else trial.reports
        of_value = (report.step for report in told if report.value is not None and report.value == trial.value)
        last = next((report.step for report in reversed(told) if report.value is not None), 0)
        return next(of_value, last) if self.value_rule.best else last

    @property
    def best(self) -> TrialRecord:
        """The trial with the best value, the earliest of equals; raises NoBestTrial if there is none.

        Only finished trials compete while there are any; else those that have come furthest.
        """
        if len(self.objectives) > 1:
            raise NoBestTrial(f"there are {len(self.objectives)} objectives, so no single best; see front")
        leading = self._leaders.leading()
        if not leading:
            raise NoBestTrial(self.why_no_best())
        return leading[0]

    @property
    def front(self) -> list[TrialRecord]:
        """The trials that no other dominates, the best by the first objective first, then by id.

        With a single objective, all trials that have the best value. Those compete that compete for `best`.
        """
        leading = self._leaders.leading()
        if len(self.objectives) > 1 or not leading:
            return leading
        return [trial for trial in self.trials if trial.value == leading[0].value and self.may_lead(trial)]

    def why_no_best(self) -> str:
        """Why there is no best trial, or no front."""
        return self._leaders.why_no_best()

    def why_infeasible(self) -> str:
        """That trials have values, but none meets the constraints, and which one is nearest; empty if not so."""
        return self._leaders.why_infeasible()

    # --- writing --------------------------------------------------------------------------------------

    def replay(self, log: Iterable[ev.Event]) -> History:
        """Apply recorded entries. Each counts, also one that was news to another version and is not to this.

        Raises an error of any kind for an entry that cannot be where it is, which is the one numbered entries + 1.
        The history must not be used any more then.
        """
        for entry in log:
            if type(entry) is ev.Create:
                self.space.check(entry.config)
            if not self.apply(entry):
                self._check_trial(entry)
                self.entries += 1
        return self

    def _check_trial(self, entry: ev.Event) -> None:
        """Raise ValueError if the entry is about a trial that does not exist. Called for entries without news."""
        trial: int | None = getattr(entry, "trial", None)
        if type(entry) is ev.Create and trial != len(self.trials):
            raise ValueError(f"it creates trial {trial} where trial {len(self.trials)} is next")
        if trial is not None and trial >= len(self.trials):
            raise ValueError(f"there is no trial {trial} yet")

    def apply(self, event: ev.Event) -> bool:
        """Takes one entry in. False: it tells nothing new (late, or told twice), and need not be recorded."""
        handler = _HANDLERS.get(type(event))
        if handler is None or not handler(self, event):
            return False
        self.entries += 1
        if event.at > self.last_at and type(event) not in _BETWEEN_DRIVES:
            self.last_at = event.at
        return True

    def _current(self, event: Any) -> TrialRecord | None:
        """The trial an attempt's event is about, unless that attempt is over."""
        trial: TrialRecord | None = self.trials[event.trial] if 0 <= event.trial < len(self.trials) else None
        if trial is None or trial.machine is None or trial.attempts != event.attempt:
            return None
        return trial

    def _set(self, trial: TrialRecord, state: State) -> None:
        self.counts[trial.state] -= 1
        self.counts[state] += 1
        self.waiting.pop(trial.id, None)
        self.running.pop(trial.id, None)
        self.retrying.pop(trial.id, None)
        trial.state = state
        if state is State.RUNNING:
            self.running[trial.id] = None
            return
        if state is State.WAITING:
            self.waiting[trial.id] = None
            if trial.failed_at is not None:
                self.retrying[trial.id] = None
        self._leaders.changed(trial)  # a rule may have given it up, or taken it up again

    def _set_values(self, trial: TrialRecord, told: Sequence[Report]) -> None:
        """Bring its values up to date after its metrics have changed. `told`: the reports that count."""
        of_steps = self.value_rule.best and trial.origin != ev.KNOWN
        value = trial.value = current_value(told) if of_steps else trial.metrics.get(self.metric)
        if len(self.objectives) == 1:  # as nearly always, and on the way of every report
            trial.values = None if value is None else (value,)
        else:
            values = [trial.metrics.get(objective.metric) for objective in self.objectives]
            trial.values = None if None in values else tuple(values)  # type: ignore[arg-type]
        self._leaders.changed(trial)

    def _count_all_reports(self, trial: TrialRecord) -> None:
        """Undo that a failed attempt which came to its own end left out reports of those before it."""
        trial.metrics = latest_metrics(trial.reports)
        self._set_values(trial, trial.reports)

    def _unsound(self, trial: TrialRecord) -> list[str]:
        """The metrics it must end with that are not there, or no numbers."""
        return [name for name in self._needed if not isfinite(trial.metrics.get(name, nan))]

    def _leave(self, trial: TrialRecord, at: float, state: State) -> None:
        """The running attempt is over."""
        self.fleet.remove_trial(trial.workers, trial.id)
        if trial.started_at is not None:
            trial.seconds += max(0.0, at - trial.started_at)
            if trial.workers:
                trial.past_attempts.append(_stay(trial, at, state))
                self.past_attempt_count += 1
        trial.workers = {}
        trial.machine = trial.end_request = trial.end_requested_at = trial.kill_reason = None
        trial.last_report_number = 0
        self._set(trial, state)
        self.trials_since_best.take_in(trial, self.eligible(trial))
        if state.ended:
            self._end(trial, at)

    def _end(self, trial: TrialRecord, at: float) -> None:
        trial.ended_at = at
        self.ended.append(trial)

    def _fail(self, trial: TrialRecord, at: float, kind: str, error: str, output: str) -> None:
        """A failed attempt leaves the trial waiting; whether it gets another one is decided elsewhere."""
        trial.failures += 1
        trial.stalled_losses = 0
        if trial.knob_setting:
            if not trial.failed_settings:
                self.failed_with_knobs.append(trial)
            trial.failed_settings.append(trial.knob_setting)
        trial.failed_at, trial.error_kind, trial.error, trial.output = at, kind, error, output
        if self._unsound(trial):
            self._leave(trial, at, State.WAITING)
        else:
            self._cut(trial, at)

    def _lose(self, trial: TrialRecord, at: float, *, stalls: bool = True) -> None:
        trial.losses += 1
        trial.stalled_losses += stalls
        self._cut(trial, at)

    def _cut(self, trial: TrialRecord, at: float) -> None:
        """End the running attempt before its own end. What it was told, if anything, stands however it ended."""
        told = trial.end_request
        finishes = told in FINISHING_REQUESTS
        if (finishes or (told == "stop" and self._at_last_step(trial))) and self._complete(trial, at):
            trial.ended_early, trial.converged = finishes, told == "converge"
            return
        self._leave(trial, at, _THEN.get(trial.end_request or "", State.WAITING))

    def _at_last_step(self, trial: TrialRecord) -> bool:
        return self.max_steps is not None and trial.step >= self.max_steps

    def _complete(self, trial: TrialRecord, at: float) -> bool:
        """End the trial well, unless it lacks a metric that it must have; returns whether it did."""
        told = counted_reports(trial)
        if len(told) < len(trial.reports):
            trial.metrics = latest_metrics(told)
            self._set_values(trial, told)
        if self._unsound(trial):
            return False
        self._leave(trial, at, State.COMPLETED)
        return True

    # --- before anything else

    def _warm_started(self, event: ev.WarmStarted) -> bool:
        if self.trials or any((known.id, known.study) == (event.id, event.study) for known in self.earlier):
            return False
        trials = tuple((config, value) for config, value in event.trials)
        space = Space.from_json(event.space)
        variances = tuple(event.variances)
        if len(variances) not in (0, len(trials)):
            raise ValueError(f"{len(variances)} variances of {len(trials)} trials")
        about = event.study, space, event.metric, event.maximize
        self.earlier.append(EarlierStudy(*about, trials, event.id, variances, event.step))
        return True

    # --- the driver

    def _driver_started(self, event: ev.DriverStarted) -> bool:
        for trial_id in list(self.running):
            trial = self.trials[trial_id]
            if trial.machine != ev.OUTSIDE:
                self._lose(trial, self.last_at, stalls=False)
        self._end_drive()
        self.fleet.new_driver()
        self.driver = event
        self.last_at = event.at  # the clock may have been set back since the last drive
        self.finish_reason = self.stop_requested_by = self.disk_full = None
        self.failed_alike = ()
        if self.started_at is None:
            self.started_at = event.at
        return True

    def _driver_stopped(self, event: ev.DriverStopped) -> bool:
        self.last_at = max(self.last_at, event.at)
        self._end_drive()
        return True

    def _end_drive(self) -> None:
        """Of a driver that was killed, the last thing it recorded is the last that is known."""
        if self.driver is not None:
            self.drives.append((self.driver.at, self.last_at))
            self._driven_before += max(0.0, self.last_at - self.driver.at)
        # What was not rented was there for the driver, and is not billed without one.
        for machine_id in [each for each in self.machines if each not in self.fleet.rented_ids]:
            self._machine_gone(machine_id, self.last_at, stalls=False)
        self.driver, self.machine_share = None, None

    def _stop_was_requested(self, event: ev.StopRequested) -> bool:
        if self.stop_requested_by:
            return False
        self.stop_requested_by = event.by
        return True

    # --- trials

    def _asked(self, event: ev.TrialRequested) -> bool:  # noqa: ARG002 (its answer is what changes the state)
        return True

    def _enqueued(self, event: ev.Enqueued) -> bool:
        config = self.space.check_part(event.config)
        if not self.would_enqueue(config):
            return False
        self.queue.append(config)
        self._enqueued_keys.add(self.space.key(config))
        return True

    def _known(self, event: ev.ResultAdded) -> bool:
        config = self.space.restored(self.space.check(event.config))
        result = self.space.key(config), tuple(sorted(event.metrics.items())), event.error
        if result in self._known_results:
            return False
        state = State.FAILED if event.error else State.COMPLETED
        trial = TrialRecord(len(self.trials), config, event.at, state, origin=ev.KNOWN)
        trial.metrics = dict(event.metrics)
        if event.error:
            trial.error, trial.error_kind = event.error, "told"
        elif unsound := self._unsound(trial):
            raise ValueError(f"a known result has no number for {join_with_and(unsound)}")
        self._known_results.add(result)
        self._tried[self.space.key(config)] += 1
        self.trials.append(trial)
        self._set_values(trial, ())
        self._end(trial, event.at)
        return True

    def _attribute_set(self, event: ev.AttributeSet) -> bool:
        if event.trial is None:
            return set_attribute(self.attrs, event.name, event.value)
        if event.attempt is not None:
            trial = self._current(event)
        else:
            trial = self.trials[event.trial] if event.trial < len(self.trials) else None
        return trial is not None and set_attribute(trial.attrs, event.name, event.value)

    def _create(self, event: ev.Create) -> bool:
        if event.trial != len(self.trials):
            return False
        if event.origin == ev.ENQUEUED:
            self.queue.pop(0)
        self.created_ids.append(event.trial)
        folder = f"{self.folder}/trials/{event.trial}" if self.folder else ""
        config = self.space.restored(event.config)
        trial = TrialRecord(event.trial, config, event.at, folder=folder, files=self.files, origin=event.origin)
        trial.value_rule, trial.expected_gain = self.value_rule, event.expected_gain
        self.trials.append(trial)
        self.counts[State.WAITING] += 1
        self.waiting[event.trial] = None
        self._tried[self.space.key(event.config)] += 1
        return True

    def _place(self, event: ev.Place) -> bool:
        trial = self.trials[event.trial]
        if trial.state is not State.WAITING:
            return False
        if event.machine != ev.OUTSIDE:
            workers = event.workers or {event.machine: 1}
            if not self.fleet.place_trial(workers, trial.id):
                return False
            trial.workers, trial.save_every = workers, event.save_every
        trial.attempts, trial.end_reason, trial.failed_at = event.attempt, None, None
        trial.machine = event.machine
        trial.started_at = event.at
        trial.resumed_from, trial.step_before_attempt = event.resume_step, trial.step
        if trial.failures_since_retry:
            self._count_all_reports(trial)
        self._set(trial, State.RUNNING)
        return True

    def _reported(self, event: ev.Reported) -> bool:
        trial = self._current(event)
        if trial is None or event.number <= trial.last_report_number:
            return False
        if trial.end_request == "reach" and not self.value_rule.best:
            return False  # its value stays the one that reached the target
        trial.last_report_number = event.number
        if trial.stalled_losses and event.step > trial.step:
            trial.stalled_losses = 0
        if trial.reports and event.step <= trial.reports[-1].step:
            before = value_at(trial, event.step, self.metric)
            told = add_report(trial, event, self.value_rule)
            # A first value at a new step is judged like any other. Rules must learn of every other change.
            is_first = before is None and trial.step_before_attempt < event.step == trial.step
            self.rewritten_values += not is_first and value_at(trial, event.step, self.metric) != before
        else:
            told = add_report(trial, event, self.value_rule)
        if event.saved:
            trial.resume_step = event.step
        if not self._needed.isdisjoint(told):
            self._set_values(trial, trial.reports)
        return True

    def _ended(self, event: ev.Ended) -> bool:
        trial = self._current(event)
        if trial is None:
            return False
        self.unread.ended(trial.config, event.unread, cut=event.cut)
        if event.cut:
            self._cut(trial, event.at)
            return True
        if self._complete(trial, event.at):
            return True
        unsound = self._unsound(trial)
        if missing := [name for name in unsound if name not in trial.metrics]:
            error, output = missing_metrics_error(missing, trial.metrics), ""
            if trial.error_kind == "no_value" and trial.error and trial.error.startswith(error):
                error, output = trial.error, trial.output  # as before, of which more is known
            self._fail(trial, event.at, "no_value", error, output)
        else:
            error = join_with_and(f"{name} ended as {trial.metrics[name]}" for name in unsound)
            self._fail(trial, event.at, "nan", error, "")
        return True

    def _failed(self, event: ev.Failed) -> bool:
        trial = self._current(event)
        if trial is None:
            return False
        self._fail(trial, event.at, event.kind, event.error, event.output)
        return True

    def _killed(self, event: ev.Killed) -> bool:
        trial = self._current(event)
        if trial is None:
            return False
        if trial.end_request:
            self._cut(trial, event.at)
        else:
            self._fail(trial, event.at, "timeout", trial.kill_reason or "killed", event.output)
        return True

    def _lost(self, event: ev.Lost) -> bool:
        trial = self._current(event)
        if trial is None:
            return False
        self._lose(trial, event.at)
        return True

    def _warned(self, event: ev.Warned) -> bool:
        trial = self._current(event)
        if trial is None:
            return False
        told = self.warnings if event.once else trial.warnings
        if event.message in told:
            return False
        told.append(event.message)
        return True

    def _disk_was_full(self, event: ev.DiskFull) -> bool:
        trial = self._current(event)
        if trial is None or (self.disk_full and event.error in trial.warnings):
            return False
        if event.error not in trial.warnings:
            trial.warnings.append(event.error)
        self.disk_full = event.error
        return True

    def _measured(self, event: ev.UsageMeasured) -> bool:
        trial = self._current(event)
        if trial is None:
            return False
        last = trial.windows[-1].usage if trial.windows else None
        if last is not None and (event.attempt, event.step) <= (last.attempt, last.step):
            return False
        if not trial.windows:
            self.measured_trials.append(trial)
        machine = self.machines.get(trial.machine or "")
        trial.windows.append(UsageWindow(event, len(machine.running) if machine else 1))
        return True

    def _turn(self, event: ev.SetKnobs) -> bool:
        trial = self.trials[event.trial]
        looked = bool(trial.knob_changes) and trial.knob_changes[-1][1].by == ev.PROBE
        if trial.state.ended or (event.setting == trial.knob_setting and not (looked and event.by != ev.PROBE)):
            return False  # but that what was only looked at is kept is news
        trial.knob_setting = event.setting
        trial.knob_changes.append((len(trial.windows), event))
        return True

    def _narrow(self, event: ev.LimitTrialsPerMachine) -> bool:
        if event.slots in self.trial_limits:
            return False
        self.trial_limits[event.slots] = event
        return True

    def _move(self, event: ev.Move) -> bool:
        return self._tell(event, "move")

    def _pause(self, event: ev.Pause) -> bool:
        return self._tell(event, "pause")

    def _stop(self, event: ev.Stop) -> bool:
        reasons = {"reach": event.reached, "expire": event.expired, "converge": event.converged}
        return self._tell(event, next((what for what, holds in reasons.items() if holds), "stop"))

    def _tell(self, event: ev.Move | ev.Pause | ev.Stop, what: str) -> bool:
        trial = self._current(event)
        if trial is None or trial.end_request == what:
            return False
        if trial.end_request not in (None, "move") and what != "reach":
            return False  # the first word stands, but for one that only moves, and one that reaches the target
        trial.end_request, trial.end_requested_at, trial.end_reason = what, event.at, event.why
        return True

    def _promote(self, event: ev.Promote) -> bool:
        trial = self.trials[event.trial]
        if trial.state is not State.PAUSED:
            return False
        self._set(trial, State.WAITING)
        return True

    def _kill(self, event: ev.Kill) -> bool:
        trial = self._current(event)
        if trial is None or trial.kill_reason is not None:
            return False
        trial.kill_reason = event.why
        return True

    def _give_up(self, event: ev.GiveUp) -> bool:
        trial = self.trials[event.trial]
        if trial.state not in (State.WAITING, State.PAUSED):
            return False
        if event.kind:
            trial.error_kind, trial.error = event.kind, event.why
        elif trial.stalled_losses:  # since its last failure, if it had one
            earlier = f"; before that: {trial.error}" if trial.error else ""
            trial.error_kind, trial.error = "lost", event.why + earlier
        elif not trial.error:
            trial.error = event.why
        self._set(trial, State.FAILED)
        self._end(trial, event.at)
        self._leaders.changed(trial)
        return True

    def _stop_failing(self, event: ev.StopAfterFailures) -> bool:
        if self.failed_alike:
            return False
        self.failed_alike = tuple(event.trials)
        return True

    def _retry(self, event: ev.Retry) -> bool:
        trial = self.trials[event.trial]
        has_failed = trial.state is State.FAILED and trial.origin != ev.KNOWN
        if not has_failed and not (trial.state is State.WAITING and trial.failures_since_retry):
            return False
        if trial.state is State.FAILED:
            self.ended.remove(trial)
            trial.ended_at = None
        self._count_all_reports(trial)
        trial.failures_before_retry, trial.stalled_losses = trial.failures, 0
        trial.failed_at, trial.seconds_before_retry = None, trial.seconds
        self._set(trial, State.WAITING)
        return True

    def _finish(self, event: ev.Finish) -> bool:
        self.finish_reason = event.why
        return True

    # --- machines

    def _rent(self, event: ev.Rent) -> bool:
        return self.fleet.rent(event)

    def _machine_rented(self, event: ev.MachineRented) -> bool:
        return self.fleet.rented(event)

    def _machine_ready(self, event: ev.MachineReady) -> bool:
        return self.fleet.ready(event)

    def _machine_notice(self, event: ev.MachineNotice) -> bool:
        return self.fleet.notice(event)

    def _release(self, event: ev.Release) -> bool:
        return self.fleet.release(event)

    def _machine_lost(self, event: ev.MachineLost) -> bool:
        machine = self.machines.get(event.machine)
        # One that was announced is the cloud's doing; else a trial may well have brought its machine down.
        stalls = not event.revoked and machine is not None and machine.notice is None
        return self._machine_gone(event.machine, event.at, stalls=stalls, taken_away=True)

    def _machine_released(self, event: ev.MachineReleased) -> bool:
        return self._machine_gone(event.machine, event.at, stalls=False)

    def _machine_was_refused(self, event: ev.MachineRefused) -> bool:
        return self.fleet.was_refused(event)

    def _machine_shared(self, event: ev.MachineShared) -> bool:
        return self.fleet.shared(event)

    def _share_changed(self, event: ev.ShareChanged) -> bool:
        before = None if self.machine_share is None else self.machine_share.workers
        self.machine_share = event
        return event.workers != before

    def _machine_billed(self, event: ev.MachineBilled) -> bool:
        return self.fleet.billed(event)

    def _machine_gone(self, machine_id: str, at: float, *, stalls: bool, taken_away: bool = False) -> bool:
        running = self.machines[machine_id].running if machine_id in self.machines else ()
        for trial_id in sorted(running):  # in whatever order they came
            self._lose(self.trials[trial_id], at, stalls=stalls)
        return self.fleet.gone(machine_id, at, taken_away=taken_away)

    def _best_value(self, told: Sequence[Report]) -> float | None:
        values = (report.metrics.get(self.metric) for report in told)
        there = [value for value in values if value is not None and isfinite(value)]
        return (max if self.maximize else min)(there) if there else None

    # --- invariants -----------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raises AssertionError where the state contradicts itself; run after every event in tests."""
        assert [trial.id for trial in self.trials] == list(range(len(self.trials)))
        assert self.created_ids == [trial.id for trial in self.trials if trial.origin != ev.KNOWN]
        assert +self.counts == Counter(self.trials[i].state for i in self.created_ids)
        assert sum(self._tried.values()) == len(self.trials)
        assert {self.space.key(config) for config in self.queue} <= self._enqueued_keys
        of_queue = sum(trial.origin == ev.ENQUEUED for trial in self.trials)
        assert len(self.queue) + of_queue == len(self._enqueued_keys)
        assert sorted(trial.id for trial in self.ended) == [t.id for t in self.trials if t.state.ended]
        for trial in self.trials:
            if trial.origin == ev.KNOWN:
                assert trial.state is (State.FAILED if trial.error else State.COMPLETED)
                assert not trial.attempts
                assert not trial.reports
                assert trial.value == trial.metrics.get(self.metric)
                continue
            running = trial.state is State.RUNNING
            assert (trial.id in self.waiting) == (trial.state is State.WAITING)
            assert (trial.id in self.running) == running
            assert (trial.machine is not None) == running
            failed_last = trial.state is State.WAITING and trial.failed_at is not None
            assert (trial.id in self.retrying) == failed_last
            assert running or (trial.end_request is None and trial.kill_reason is None)
            assert (trial.ended_at is not None) == trial.state.ended
            assert trial.attempts >= trial.failures + trial.losses
            assert trial.state is not State.COMPLETED or not self._unsound(trial)
            assert trial.state is State.COMPLETED or not trial.ended_early
            assert trial.ended_early or not trial.converged
            told = counted_reports(trial) if trial.state is State.COMPLETED else trial.reports
            assert trial.value is (current_value(told) if self.value_rule.best else trial.metrics.get(self.metric))
            assert (
                not self.value_rule.best
                or trial.value == self._best_value(told)
                or not isfinite(trial.value or 0.0)
            )
            assert (trial.values is None) == any(each.metric not in trial.metrics for each in self.objectives)
            if running or trial.state is State.COMPLETED:
                assert trial.metrics == latest_metrics(trial.reports if running else counted_reports(trial))
            assert trial.state is not State.FAILED or trial.error
            steps = [report.step for report in trial.reports]
            assert steps == sorted(set(steps))
            assert not trial.resume_step or trial.resume_step in steps
            if running and trial.machine != ev.OUTSIDE:
                assert trial.machine in trial.workers
            for machine_id, count in trial.workers.items():
                assert self.machines[machine_id].running[trial.id] == count
        for machine in self.machines.values():
            assert all(self.trials[i].workers[machine.id] == count for i, count in machine.running.items())
        self.fleet.validate()
        self._leaders.validate()


def _stay(trial: TrialRecord, at: float, state: State) -> PastAttempt:
    """Of the attempt that is over now; what it leaves to one that comes after it, which there is none if the trial
    has ended well."""
    last = last_step_of_attempt(trial)
    kept = last if state in (State.COMPLETED, State.STOPPED) else trial.resume_step
    since = at if trial.started_at is None else trial.started_at
    timed = timed_steps_of_attempt(trial)
    return PastAttempt(
        trial.attempts, trial.workers, since, max(since, at), trial.resumed_from, last, kept, *timed
    )


_BETWEEN_DRIVES = frozenset({ev.Enqueued, ev.ResultAdded, ev.AttributeSet, ev.Retry})
"""Events that may be recorded while nobody drives the study. They do not tell that a driver was still there."""

_THEN = {
    "stop": State.STOPPED,
    "converge": State.STOPPED,
    "reach": State.STOPPED,
    "pause": State.PAUSED,
}
"""The state of a trial whose attempt was cut after it was told so; one told nothing, or to move, waits again.

One whose time is used up waits, too, if it lacks a value: the conductor gives it up.
"""

_HANDLERS: dict[type[ev.Event], Callable[[History, Any], bool]] = {
    ev.WarmStarted: History._warm_started,
    ev.DriverStarted: History._driver_started,
    ev.DriverStopped: History._driver_stopped,
    ev.StopRequested: History._stop_was_requested,
    ev.TrialRequested: History._asked,
    ev.Enqueued: History._enqueued,
    ev.ResultAdded: History._known,
    ev.AttributeSet: History._attribute_set,
    ev.Create: History._create,
    ev.Place: History._place,
    ev.Reported: History._reported,
    ev.Ended: History._ended,
    ev.Failed: History._failed,
    ev.Killed: History._killed,
    ev.Lost: History._lost,
    ev.Warned: History._warned,
    ev.UsageMeasured: History._measured,
    ev.SetKnobs: History._turn,
    ev.LimitTrialsPerMachine: History._narrow,
    ev.DiskFull: History._disk_was_full,
    ev.Move: History._move,
    ev.Pause: History._pause,
    ev.Stop: History._stop,
    ev.Promote: History._promote,
    ev.Kill: History._kill,
    ev.GiveUp: History._give_up,
    ev.StopAfterFailures: History._stop_failing,
    ev.Retry: History._retry,
    ev.Finish: History._finish,
    ev.Rent: History._rent,
    ev.MachineRented: History._machine_rented,
    ev.MachineReady: History._machine_ready,
    ev.MachineNotice: History._machine_notice,
    ev.MachineLost: History._machine_lost,
    ev.Release: History._release,
    ev.MachineReleased: History._machine_released,
    ev.MachineRefused: History._machine_was_refused,
    ev.MachineBilled: History._machine_billed,
    ev.MachineShared: History._machine_shared,
    ev.ShareChanged: History._share_changed,
}
