"""Decide what happens next in a study: events in, decisions out.

The conductor never sleeps, reads no clock and no random source of its own, and does no IO. Its driver (driver.py
on real machines, a simulator on a virtual clock) brings events, records what handle() returns in the store, and
then carries out the decisions among it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from thriftune.errors import SpaceError, ThriftuneError
from thriftune.loop.failures import failed_alike, retry_seconds, why_given_up
from thriftune.loop.limits import SEARCHER_EXHAUSTED, Limits
from thriftune.loop.preemption_notices import moves_away
from thriftune.loop.trial_time import TrialTime, upload_grace_seconds
from thriftune.provisioning.protocol import Provisioner
from thriftune.search.protocol import GainPredictor, Searcher
from thriftune.state import events as ev
from thriftune.state.enqueued import complete_config
from thriftune.state.history import History
from thriftune.state.reports import value_at
from thriftune.state.spec import Spec
from thriftune.state.trial_record import State, TrialRecord
from thriftune.stopping.protocol import Stopper, Verdict
from thriftune.system.protocol import Tuner

GRACE_SECONDS = 5.0
"""At a limit, a trial may take this long to end its step before it is killed. An upload adds to it."""

UNSAVED = (
    "it is paused without a checkpoint, so if it goes on it begins again at step 1, as will others: "
    "save checkpoints, with report(..., save=...), or use a rule that only stops"
)

_GO_ON = Verdict.GO_ON  # a global, as most reports need it and Python 3.11 looks enum members up slowly


class Conductor:
    """Decides for one study. All its state is the history, which is a fold of the log."""

    def __init__(
        self,
        spec: Spec,
        history: History,
        searcher: Searcher,
        provisioner: Provisioner,
        stopper: Stopper | None = None,
        tuner: Tuner | None = None,
    ) -> None:
        self.spec = spec
        self.history = history
        self.stopper = stopper
        self._searcher = searcher
        self._provisioner = provisioner
        self._tuner = tuner
        self._limits = Limits(spec, history)
        self._limits_at_any_report = self._limits.may_be_reached_at_any_report
        # True from DriverStarted to DriverStopped. The history may name an earlier driver, which was killed.
        self._driving = False
        self._warned_unsaved = False
        self._trial_time = None if spec.max_trial_seconds is None else TrialTime(spec.max_trial_seconds)
        self._trial_due: float | None = None  # no running trial uses up its time before
        self._exhausted = False  # the searcher has nothing left; it is asked again after a restart
        self._log: list[ev.Event] = []  # what the current handle() returns

    @property
    def tunes(self) -> bool:
        """Whether trials are measured."""
        return self._tuner is not None

    @property
    def halted(self) -> str | None:
        """Why the study has to stop now, to be resumed later; None if it has not."""
        if self.history.stop_requested_by:
            return self.history.stop_requested_by
        if self.history.failed_alike:
            return "failures that are all alike"
        if self.history.disk_full and self.spec.disk_full == "stop":
            return "disk full"
        return None

    def handle(self, events: Iterable[ev.Event], now: float) -> list[ev.Event]:
        """Take events in. Return what to record: the events that were new, then decisions."""
        log: list[ev.Event] = []
        self._log = log
        only_reports = True
        for event in events:
            if event.at > now:  # another machine's clock is ahead; it must not move limits and bills
                event = replace(event, at=now)
            if type(event) is ev.Reported:
                self._take_in_report(event, now)
            else:
                only_reports = False
                self._take_in(event, now)
        if not only_reports:
            self._give_up_failed(now)
            self._stop_if_all_fail(now)
            self._answer_requests(now)
        # Reports end no attempt. After reports alone there is something to do only where a slot was free before
        # (a rule may now promote another trial), or where a limit may be reached.
        if not only_reports or not log or self._limits_at_any_report or self.history.fleet.free_slots:
            self._go_on(now, machines_may_change=not only_reports or not log)
        if self._trial_time is not None and any(type(entry) is not ev.Reported for entry in log):
            self._trial_due = self._trial_time.due(self._running())
            self._enforce_trial_time(now)  # a trial that was placed just now may have used up its time before
        if self._tuner is not None and self._driving:
            self._tune(self._tuner)
        return log

    def wake_at(self, now: float) -> float | None:
        """Return when to call handle() if nothing happens before; `now` or earlier if something is due."""
        history = self.history
        if not self._driving or history.finish_reason is not None:
            return None
        times = []
        if self._trial_due is not None:
            times.append(max(math.nextafter(now, math.inf), self._trial_due))
        if self.spec.timeout_seconds is not None:
            earliest = next((trial.started_at for trial in self._running()), None)
            times += [earliest + self.spec.timeout_seconds] if earliest is not None else []
        if self._limit_reached(now):
            requested = ((trial.end_requested_at, _grace_seconds(trial)) for trial in self._running())
            times += [now if at is None else at + grace for at, grace in requested]
            if not history.running:
                times.append(now)
        else:
            times += self._limits.due_times(now)
            if self.halted is None:
                retries = map(self._retry_at, history.retrying)
                times += [at for at in retries if at > now]  # trials due before wait for something else
                policy_at = self._provisioner.wake_at(history, now)
                if policy_at is not None:
                    times.append(max(math.nextafter(now, math.inf), policy_at))
        return min(times) if times else None

    # --- events -------------------------------------------------------------------------------------------

    def _take_in_report(self, event: ev.Reported, now: float) -> None:
        stopper = self.stopper if self._is_to_judge(event) else None
        if self.history.apply(event):
            self._log.append(event)
            if self.spec.target_value is not None:
                self._stop_at_target(self.history.trials[event.trial], now)
            if stopper is not None:
                self._judge(stopper, event, now)
            self._ask_provisioner(event)

    def _take_in(self, event: ev.Event, now: float) -> None:
        if isinstance(event, ev.Ended) and event.cut and not self._warned_unsaved:
            self._warn_of_unsaved_pause(event, now)
        if self.history.apply(event):
            self._log.append(event)
        elif type(event) is not ev.Tick:
            return
        match event:
            case ev.MachineNotice():
                for move in list(moves_away(event, self.history, now)):
                    self._decide(move)
            case ev.DriverStarted():
                self._driving = True
            case ev.DriverStopped():
                self._driving = False
            case _:
                pass
        self._ask_provisioner(event)

    def _warn_of_unsaved_pause(self, event: ev.Ended, now: float) -> None:
        """Warn if an attempt ends now that was to pause and has saved nothing. Until then, it may still upload."""
        trial = self.history.trials[event.trial] if 0 <= event.trial < len(self.history.trials) else None
        if trial is None or trial.end_request != "pause" or trial.attempts != event.attempt:
            return
        if not (trial.resume_step or trial.resume_partial):
            self._warned_unsaved = True
            self._take_in(ev.Warned(now, trial.id, trial.attempts, UNSAVED), now)

    def _ask_provisioner(self, event: ev.Event) -> None:
        """Let the policy react to an event. It may rent only while there is something to run.

        A machine that is rented later would be released at once, which is an event, and so on without end.
        """
        may_rent = self._driving and self.halted is None and self.history.finish_reason is None
        for decision in self._provisioner.react(event, self.history):
            if may_rent or type(decision) is not ev.Rent:
                self._decide(decision)

    def _tune(self, tuner: Tuner) -> None:
        """Let the tuner react. Called last, so that it sees which trials run on each machine in the end."""
        for event in [event for event in self._log if type(event) is not ev.Reported]:
            for decision in tuner.react(event, self.history):
                self._decide(decision)

    def _decide(self, decision: ev.Decision) -> bool:
        """Apply and record a decision. Return False if the history refuses it."""
        if not self.history.apply(decision):
            return False
        self._log.append(decision)
        return True

    # --- reports ------------------------------------------------------------------------------------------

    def _is_to_judge(self, event: ev.Reported) -> bool:
        """Return whether a report is of a new step, or has the newest step's first value of the objective.

        Called before the history takes the report in. A step that an attempt repeats was judged when it was new.
        """
        trials = self.history.trials
        if not 0 <= event.trial < len(trials):
            return True
        trial = trials[event.trial]
        if event.step <= trial.step_before_attempt or event.step < trial.step:
            return False
        metric = self.history.metric
        if event.step > trial.step:
            return True
        return metric in event.metrics and value_at(trial, event.step, metric) is None

    def _judge(self, stopper: Stopper, event: ev.Reported, now: float) -> None:
        trial = self.history.trials[event.trial]
        verdict = stopper.judge(trial, self.history)
        if verdict is _GO_ON:
            return
        if not isinstance(verdict, Verdict):
            rule = type(stopper).__name__
            raise ThriftuneError(f"{rule}.judge returned {verdict!r}, which is not a tt.stopping.Verdict")
        # A trial that is about to move is judged too, as the rule does not see this step again.
        if trial.end_request not in (None, "move") or trial.kill_reason is not None:
            return
        if verdict is Verdict.STOP:
            self._decide(ev.Stop(now, trial.id, trial.attempts, f"by {self.spec.stopping}"))
        elif verdict is Verdict.CONVERGED:
            why = f"converged, by {self.spec.stopping}"
            self._decide(ev.Stop(now, trial.id, trial.attempts, why, converged=True))
        elif verdict is Verdict.PAUSE:
            self._decide(ev.Pause(now, trial.id, trial.attempts, f"by {self.spec.stopping}"))

    def _stop_at_target(self, trial: TrialRecord, now: float) -> None:
        completion = self._limits.completion
        if trial.machine != ev.OUTSIDE and trial.kill_reason is None and completion.reaches(trial):
            completion.take_in(trial)
            self._decide(ev.Stop(now, trial.id, trial.attempts, self._limits.target_name, reached=True))

    # --- limits -------------------------------------------------------------------------------------------

    def _limit_reached(self, now: float) -> str | None:
        """Return the name of a limit on time or money that is reached, or of the target; None if none is."""
        return self._limits.reached(now, now if self._driving else self.history.last_at)

    def _go_on(self, now: float, *, machines_may_change: bool) -> None:
        """Enforce limits, fill free slots, and finish the study if it is done.

        `machines_may_change`: the policy may want to rent or release other machines than before.
        """
        if self._driving and self.history.finish_reason is None:
            reached = self._limit_reached(now)
            self._enforce_limits(now, reached)
            if reached is None and self.halted is None:
                self._fill_slots(now)
                if machines_may_change:
                    # A driver may have rented these machines and then been killed. No other will release them.
                    for machine_id in sorted(self.history.fleet.uncertain):
                        self._decide(ev.Release(now, machine_id))
                    self._create_waiting_trials(now)
                    self._ask_provisioner(ev.Tick(now))
            self._finish_if_done(now, reached)
        if self.history.finish_reason is not None or (self.halted and not self.history.running):
            self._release_all(now)

    def _enforce_limits(self, now: float, reached: str | None) -> None:
        """End or kill the trials whose time is up. At a limit of the study, end all trials."""
        timeout, halted = self.spec.timeout_seconds, self.halted
        if timeout is not None:
            for trial in self._running():  # in order of start: after the first that still has time, all have time
                if trial.started_at is not None and now < trial.started_at + timeout:
                    break
                self._decide(
                    ev.Kill(now, trial.id, trial.attempts, f"still running after its limit of {timeout:g} s")
                )
        self._enforce_trial_time(now)
        if not (reached or halted):
            return
        for trial in list(self._running()):
            if self.history.failed_alike and trial.step == trial.resumed_from:  # a kill loses nothing
                self._decide(ev.Move(now, trial.id, trial.attempts, halted or ""))
                self._decide(ev.Kill(now, trial.id, trial.attempts, halted or ""))
            elif trial.end_requested_at is None:
                end = ev.Stop if reached else ev.Move
                self._decide(end(now, trial.id, trial.attempts, reached or halted or ""))
            elif reached and now >= trial.end_requested_at + _grace_seconds(trial):
                why = f"did not end within {_grace_seconds(trial):.3g} s of the {reached}"
                self._decide(ev.Kill(now, trial.id, trial.attempts, why))

    def _enforce_trial_time(self, now: float) -> None:
        """End the trials that have used up the time that each may take."""
        if self._trial_time is None or self._trial_due is None or now < self._trial_due or not self._driving:
            return
        for decision in self._trial_time.enforced(list(self._running()), now):
            self._decide(decision)
        self._trial_due = self._trial_time.due(self._running())

    def _finish_if_done(self, now: float, reached: str | None) -> None:
        """Finish the study if nothing runs and nothing will. A study with trials left is resumed later."""
        history, limits = self.history, self._limits
        if history.running:
            return
        all_trials_done = f"all {len(history.created_ids)} trials done"
        if limits.completion.reached:
            why = f"{limits.target_name} reached by {limits.completion.by_whom}"
        elif reached:
            why = f"{reached} reached"
        elif (
            history.failed_alike
            or history.waiting
            or not limits.all_tried(self.stopper, searcher_exhausted=self._exhausted)
        ):
            return
        elif self._exhausted:
            why = SEARCHER_EXHAUSTED
        elif limits.has_all_trials:
            why = all_trials_done
        else:
            why = limits.completion.why_no_more or all_trials_done
        self._decide(ev.Finish(now, why))

    # --- failures and lost machines -----------------------------------------------------------------------

    def _give_up_failed(self, now: float) -> None:
        """Let trials fail for good that failed too often, or would fail again."""
        for event in list(self._log):
            if not isinstance(event, (ev.Failed, ev.Killed, ev.Ended, ev.Lost, ev.MachineLost)):
                continue
            ids = [event.trial] if not isinstance(event, ev.MachineLost) else list(self.history.waiting)
            for trial_id in ids:
                trial = self.history.trials[trial_id]
                if trial.state in (State.WAITING, State.PAUSED) and (
                    why := why_given_up(trial, self.spec.retries)
                ):
                    self._decide(ev.GiveUp(now, trial.id, why))
        if self._trial_time is not None:
            for decision in self._trial_time.given_up(self.history, now):
                self._decide(decision)

    def _stop_if_all_fail(self, now: float) -> None:
        """Stop the study if its first trials all failed with the same error, as the others would too."""
        spec, history = self.spec, self.history
        if spec.on_failure != "stop" or spec.target.kind == "outside" or history.failed_alike:
            return
        failed = any(isinstance(event, (ev.Failed, ev.Killed, ev.Ended)) for event in self._log)
        if failed and (trials := failed_alike(history)):
            self._decide(ev.StopAfterFailures(now, list(trials)))

    def _release_all(self, now: float) -> None:
        """Release all rented machines. Called when nothing will run."""
        fleet = self.history.fleet
        for machine_id in [*fleet.present, *fleet.renting, *sorted(fleet.uncertain)]:
            if machine_id in fleet.rented_ids:
                self._decide(ev.Release(now, machine_id))

    # --- which trial runs next ----------------------------------------------------------------------------

    def _running(self) -> Iterator[TrialRecord]:
        """Yield the trials that can be ended or killed, in order of start."""
        for trial in map(self.history.trials.__getitem__, self.history.running):
            if trial.machine != ev.OUTSIDE and trial.kill_reason is None:
                yield trial

    def _fill_slots(self, now: float) -> None:
        """Place trials on free slots: waiting ones first, then promoted ones, then new ones."""
        history = self.history
        while history.fleet.free_slots and (next_trial := self._next_trial(now)) is not None:
            trial, workers = history.trials[next_trial[0]], next_trial[1]
            first = next(iter(workers), "")
            several = workers if workers != {first: 1} else None
            save_every = self._provisioner.save_every(trial, first, history)
            place = ev.Place(now, trial.id, trial.attempts + 1, first, trial.resume_step, several, save_every)
            if not self._decide(place):
                policy, where = type(self._provisioner).__name__, ", ".join(workers) or "nowhere"
                raise ThriftuneError(f"{policy} placed trial {trial.id} on {where}, which has no room for it")

    def _next_trial(self, now: float) -> tuple[int, Mapping[str, int]] | None:
        """Return the trial that runs next and how many workers it gets on which machine.

        Return None if no trial can run now.
        """
        history, workers_for = self.history, self._provisioner.workers_for
        for trial_id in history.waiting:
            if trial_id in history.retrying and now < self._retry_at(trial_id):
                continue
            if (workers := workers_for(history.trials[trial_id], history)) is not None:
                return trial_id, workers
        if (paused := self._promotable()) is not None:
            workers = workers_for(history.trials[paused], history)
            if workers is None:
                return None
            self._decide(ev.Promote(now, paused))
            return paused, workers
        if not self._may_create or (workers := workers_for(None, history)) is None:
            return None
        created = self._create(now)
        if created is not None:
            return created, workers
        # The searcher has nothing left, so the stopping rule may now promote a trial.
        return None if self.stopper is None else self._next_trial(now)

    def _create_waiting_trials(self, now: float) -> None:
        """Promote or create as many trials as the policy would rent machines for."""
        history = self.history
        while self._provisioner.trials_wanted(history) > len(history.running) + len(history.waiting):
            if (paused := self._promotable()) is not None:
                self._decide(ev.Promote(now, paused))
            elif not self._may_create or self._create(now) is None:
                return

    def _answer_requests(self, now: float) -> None:
        """Create a trial for each request of ask().

        A request that finds nothing left is dropped, or a later one would be answered twice.
        """
        for _ in range(sum(type(event) is ev.TrialRequested for event in self._log)):
            created = self._create(now)
            if created is None:
                break
            self._decide(ev.Place(now, created, 1, ev.OUTSIDE, 0))

    def _promotable(self) -> int | None:
        """Return the paused trial that the stopping rule promotes; None if it promotes none."""
        trials = self.history.trials
        paused = None if self.stopper is None else self.stopper.promote(self.history, self._may_create)
        if paused is None:
            return None
        if paused not in range(len(trials)) or trials[paused].state is not State.PAUSED:
            state = (
                f"is {trials[paused].state} and not PAUSED" if paused in range(len(trials)) else "does not exist"
            )
            raise ThriftuneError(f"{type(self.stopper).__name__} promoted trial {paused!r}, which {state}")
        return paused

    def _retry_at(self, trial_id: int) -> float:
        """Return when a waiting trial whose last attempt failed may begin again."""
        trial = self.history.trials[trial_id]
        wait = retry_seconds(trial.failures_since_retry) if self._provisioner.backs_off else 0.0
        return (trial.failed_at or 0.0) + wait

    @property
    def _may_create(self) -> bool:
        return self._limits.allow_trial(searcher_exhausted=self._exhausted)

    def _create(self, now: float) -> int | None:
        """Create a trial: the next enqueued configuration, else the searcher's suggestion.

        Return its id; None if the searcher has nothing left.
        """
        number = len(self.history.trials)
        rng = np.random.default_rng((self.spec.seed, number))
        if self.history.queue:
            enqueued = complete_config(self.spec.space, self.history.queue[0], rng, self.history.times)
            self._decide(ev.Create(now, number, enqueued, ev.ENQUEUED))
            return number
        config = None if self._exhausted else self._searcher.suggest(self.history, rng)
        if config is None:
            self._exhausted = True
            return None
        gain = None
        if self.spec.stop_when_converged and isinstance(self._searcher, GainPredictor):
            gain = self._searcher.expected_gain(self.history)
        gain = None if gain is None else float(gain)
        self._decide(ev.Create(now, number, self._checked(config), expected_gain=gain))
        return number

    def _checked(self, config: ev.Config) -> ev.Config:
        """Return the configuration if it is in the space; a user's own searcher may suggest others."""
        try:
            return self.spec.space.check(config)
        except SpaceError as error:
            raise SpaceError(f"{type(self._searcher).__name__} suggested {config!r}: {error}") from None


def _grace_seconds(trial: TrialRecord) -> float:
    """Return how long a trial may take to end at a limit: its step, and the upload of its last state."""
    return GRACE_SECONDS + upload_grace_seconds(trial)
