"""What happens next? Events in, decisions out.

The conductor never sleeps, never reads a clock or a random source of its own, and does no IO: whoever drives it
(driver.py on real machines, a simulator on a virtual clock) brings the events, records what handle() returns in
the store, and only then has the decisions among it carried out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from thriftune.errors import SpaceError, ThriftuneError
from thriftune.loop.completion import Completion
from thriftune.loop.failures import failed_alike, is_permanent, retry_seconds
from thriftune.loop.trial_time import TrialTime
from thriftune.provisioning.protocol import Provisioner
from thriftune.search.protocol import Foresighted, Searcher
from thriftune.state import events as ev
from thriftune.state.enqueued import complete_config
from thriftune.state.history import History
from thriftune.state.reports import value_at
from thriftune.state.spec import Spec
from thriftune.state.trial_record import State, TrialRecord
from thriftune.stopping.protocol import Stopper, Verdict
from thriftune.system.protocol import Tuner

STALLED_LOSSES_LIMIT = 5
"""A trial whose worker vanished this often in a row without a step of progress is given up on."""

GRACE_SECONDS = 5.0
"""How long a trial that was told to end at the deadline may take to its next step before it is killed."""


UNSAVED = (
    "it is set aside without a checkpoint, so if it goes on it begins anew, and so will others: "
    "have trials save, with report(..., save=...), or take a rule that only stops"
)

_GO_ON = Verdict.GO_ON  # after most reports; Python 3.11 is slow to look a member up


class Conductor:
    """One study's loop, turned by its driver. All its state is the history, which is a fold of the log."""

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
        self._searcher = searcher
        self._provisioner = provisioner
        self.stopper = stopper
        self._tuner = tuner
        self._driving = (
            False  # from DriverStarted to DriverStopped; the driver in the log may be one that was killed
        )
        self._said_unsaved = False  # that trials are set aside without a checkpoint
        self._completion = Completion(spec, history)
        self._trial_time = None if spec.max_trial_seconds is None else TrialTime(spec.max_trial_seconds)
        self._trial_due: float | None = None  # no running trial has used up its time before
        time = (spec.timeout_seconds, spec.deadline_seconds, spec.deadline_at, spec.max_trial_seconds)
        limits = (*time, spec.budget_dollars, spec.target_value)
        self._limited = any(limit is not None for limit in limits)  # there may be something to do after any report
        self._exhausted = False  # the searcher has nothing left; asked again only after a restart
        self._log: list[ev.Event] = []

    def handle(self, events: Iterable[ev.Event], now: float) -> list[ev.Event]:
        """Takes events in; returns what is to be recorded: the events that told something new, then decisions."""
        log: list[ev.Event] = []
        self._log = log
        told_of_more = False
        for event in events:
            if event.at > now:  # a clock elsewhere that is ahead of the driver's shall move no limit and no bill
                event = replace(event, at=now)
            if type(event) is ev.Reported:  # which nearly all are
                self._take_in_report(event, now)
            else:
                told_of_more = True
                self._take_in(event, now)
        if told_of_more:
            self._give_up(now)
            if self._trial_time is not None:
                for decision in self._trial_time.given_up(self.history, now):
                    self._decide(decision)
            self._stop_if_all_fail(now)
            self._answer_asks(now)
        # Reports end no attempt, so after these alone there is something to do only where a slot was free already
        # (what a rule says of a paused trial may have changed) or where time counts.
        if told_of_more or not log or self._limited or self.history.fleet.free_slots:
            self._go_on(now, settle=told_of_more or not log)
        if self._trial_time is not None and any(type(entry) is not ev.Reported for entry in log):
            self._trial_due = self._trial_time.due(self._running())
            self._enforce_trial_time(
                now
            )  # on a trial that was just placed, as it had failed with its time used up
        if self._tuner is not None and self._driving:
            self._tune(self._tuner)
        return log

    def _go_on(self, now: float, *, settle: bool) -> None:
        """`settle`: there may be other machines to rent or to give back than before."""
        if self._driving and self.history.finish_reason is None:
            out_of = self._out_of(now)
            self._enforce_limits(now, out_of)
            if out_of is None and self.halted is None:
                self._fill(now)
                if settle:
                    # Nobody knows whether an earlier driver asked for these: they shall not be billed for ever.
                    for machine_id in sorted(self.history.fleet.uncertain):
                        self._decide(ev.Release(now, machine_id))
                    self._let_wait(now)
                    self._react(ev.Tick(now))
            self._finish_if_done(now, out_of)
        if self.history.finish_reason is not None or (self.halted and not self.history.running):
            self._give_back(now)

    def _take_in_report(self, event: ev.Reported, now: float) -> None:
        stopper = self.stopper if self._is_to_judge(event) else None
        if self.history.apply(event):
            self._log.append(event)
            if self.spec.target_value is not None:
                self._look_at_target(self.history.trials[event.trial], now)
            if stopper is not None:
                self._judge(stopper, event, now)
            self._react(event)

    def _look_at_target(self, trial: TrialRecord, now: float) -> None:
        if trial.machine != ev.OUTSIDE and trial.kill_reason is None and self._completion.reaches(trial):
            self._completion.take_in(trial)
            self._decide(ev.Stop(now, trial.id, trial.attempts, self._target, reached=True))

    def _take_in(self, event: ev.Event, now: float) -> None:
        if self.history.apply(event):
            self._log.append(event)
        elif type(event) is not ev.Tick:
            return
        match event:
            case ev.MachineNotice():
                self._clear(event, now)
            case ev.DriverStarted():
                self._driving = True
            case ev.DriverStopped():
                self._driving = False
            case _:
                pass
        self._react(event)

    def _tune(self, tuner: Tuner) -> None:
        """When all else is decided: of who comes and goes in the same turn, who is there in the end counts."""
        for event in [event for event in self._log if type(event) is not ev.Reported]:
            for decision in tuner.react(event, self.history):
                self._decide(decision)

    def _react(self, event: ev.Event) -> None:
        # What is rented when nothing more will run is given back at once, which is an event, and so on for ever.
        may_rent = self._driving and self.halted is None and self.history.finish_reason is None
        for decision in self._provisioner.react(event, self.history):
            if may_rent or type(decision) is not ev.Rent:
                self._decide(decision)

    def _give_back(self, now: float) -> None:
        """Nothing will run: whatever was rented is billed in vain."""
        fleet = self.history.fleet
        for machine_id in [*fleet.present, *fleet.renting, *sorted(fleet.uncertain)]:
            if machine_id in fleet.rented_ids:
                self._decide(ev.Release(now, machine_id))

    def limit_reached(self, now: float) -> bool:
        """Return whether time, money or the target would keep every trial from running."""
        return self._out_of(now) is not None

    def nothing_left(self, now: float) -> bool:
        """Whether a drive would have nothing to do, so that it need not begin."""
        if self.history.running:  # with a driver that was killed: there may be reports to recover
            return False
        return self._out_of(now) is not None or (not self.history.waiting and self._all_tried())

    def wake_at(self, now: float) -> float | None:
        """When handle() should be called again even if nothing happens. `now` or before: something is due."""
        history, spec = self.history, self.spec
        if not self._driving or history.finish_reason is not None:
            return None
        times = []
        if self._trial_due is not None:
            times.append(max(math.nextafter(now, math.inf), self._trial_due))
        if spec.timeout_seconds is not None:
            earliest = next((trial.started_at for trial in self._running()), None)
            times += [earliest + spec.timeout_seconds] if earliest is not None else []
        if self._out_of(now):
            told = (trial.end_requested_at for trial in self._running())
            times += [now if at is None else at + GRACE_SECONDS for at in told]
            if not history.running:
                times.append(now)
        else:
            # Not due yet, so later than now, also where the difference is too small for the clock.
            later = math.nextafter(now, math.inf)
            if spec.deadline_at is not None:
                times.append(max(later, spec.deadline_at))
            if spec.deadline_seconds is not None:
                times.append(max(later, now + spec.deadline_seconds - history.driven_seconds(now)))
            if spec.budget_dollars is not None:  # else nobody looks at the machines, which may be many
                rate = sum(machine.price_per_hour for machine in history.machines.values()) / 3600
                if rate > 0:
                    times.append(max(later, now + (spec.budget_dollars - history.dollars(now)) / rate))
            if self.halted is None:
                retries = map(self._retry_at, history.retrying)
                times += [at for at in retries if at > now]  # those due wait for something else
            if self.halted is None and (policy := self._provisioner.wake_at(history, now)) is not None:
                times.append(max(later, policy))
        return min(times) if times else None

    # --- limits -----------------------------------------------------------------------------------------

    def _out_of(self, now: float) -> str | None:
        """Which limit on time or money is used up; or that the target is reached."""
        spec, history = self.spec, self.history
        if self._completion.reached:
            return self._target
        if spec.deadline_at is not None and now >= spec.deadline_at:
            return "deadline"
        # Time runs only while driven: of a driver that was killed, until the last thing it recorded.
        until = now if self._driving else history.last_at
        if spec.deadline_seconds is not None and history.driven_seconds(until) >= spec.deadline_seconds:
            return "deadline"
        if spec.budget_dollars is not None and history.dollars(until) >= spec.budget_dollars:
            return "budget"
        return None

    @property
    def _target(self) -> str:
        return f"target {self.spec.target_value:g}"

    @property
    def tunes(self) -> bool:
        """Whether trials are to be measured."""
        return self._tuner is not None

    @property
    def halted(self) -> str | None:
        """Why the study is to stop now and be resumed later."""
        if self.history.stop_requested_by:
            return self.history.stop_requested_by
        if self.history.failed_alike:
            return "failures that are all alike"
        if self.history.disk_full and self.spec.disk_full == "stop":
            return "disk full"
        return None

    def _enforce_limits(self, now: float, out_of: str | None) -> None:
        """On the way of every report where time counts: it looks at no trial that it has nothing to say to."""
        limit, halted = self.spec.timeout_seconds, self.halted
        if limit is not None:
            for trial in self._running():  # the earliest first
                if trial.started_at is not None and now < trial.started_at + limit:
                    break
                self._decide(
                    ev.Kill(now, trial.id, trial.attempts, f"still running after its limit of {limit:g} s")
                )
        self._enforce_trial_time(now)
        if not (out_of or halted):
            return
        for trial in list(self._running()):
            if self.history.failed_alike and trial.step == trial.resumed_from:  # so that nothing is lost
                self._decide(ev.Move(now, trial.id, trial.attempts, halted or ""))
                self._decide(ev.Kill(now, trial.id, trial.attempts, halted or ""))
            elif trial.end_requested_at is None:
                told = ev.Stop if out_of else ev.Move
                self._decide(told(now, trial.id, trial.attempts, out_of or halted or ""))
            elif out_of and now >= trial.end_requested_at + GRACE_SECONDS:
                why = f"did not end within {GRACE_SECONDS:g} s of the {out_of}"
                self._decide(ev.Kill(now, trial.id, trial.attempts, why))

    def _enforce_trial_time(self, now: float) -> None:
        """End the trials that have used up the time that each may take."""
        if self._trial_time is None or self._trial_due is None or now < self._trial_due or not self._driving:
            return
        for decision in self._trial_time.enforced(list(self._running()), now):
            self._decide(decision)
        self._trial_due = self._trial_time.due(self._running())

    def _running(self) -> Iterator[TrialRecord]:
        """Those that can be told or killed, in the order of their start."""
        for trial in map(self.history.trials.__getitem__, self.history.running):
            if trial.machine != ev.OUTSIDE and trial.kill_reason is None:
                yield trial

    # --- trials -----------------------------------------------------------------------------------------

    def _is_to_judge(self, event: ev.Reported) -> bool:
        """Return whether a report tells a new step, or the first value of the objective at the newest step.

        Called before the history takes it in. A step that an attempt repeats, as the one before was cut or lost,
        was judged when it was new.
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
            raise ThriftuneError(f"{rule}.judge returned {verdict!r}, which is no tt.stopping.Verdict")
        if trial.end_request not in (None, "move") or trial.kill_reason is not None:  # it goes, whatever it says
            return
        # One that leaves its machine is judged like any other: it would not be asked at this step again.
        if verdict is Verdict.STOP:
            self._decide(ev.Stop(now, trial.id, trial.attempts, f"by {self.spec.stopping}"))
        elif verdict is Verdict.CONVERGED:
            why = f"converged, by {self.spec.stopping}"
            self._decide(ev.Stop(now, trial.id, trial.attempts, why, converged=True))
        elif verdict is Verdict.PAUSE:
            saves_late = trial.save_every != 0.0  # when it is told to end, if not before
            if not (trial.resume_step or saves_late or self._said_unsaved):
                self._said_unsaved = True
                self._take_in(ev.Warned(now, trial.id, trial.attempts, UNSAVED), now)
            self._decide(ev.Pause(now, trial.id, trial.attempts, f"by {self.spec.stopping}"))

    def _clear(self, notice: ev.MachineNotice, now: float) -> None:
        """Whatever runs on a machine that will be taken away saves its state and goes elsewhere."""
        for trial_id in sorted(self.history.machines[notice.machine].running):
            attempt = self.history.trials[trial_id].attempts
            self._decide(ev.Move(now, trial_id, attempt, "the machine will be taken away"))

    def _give_up(self, now: float) -> None:
        for event in list(self._log):
            if not isinstance(event, (ev.Failed, ev.Killed, ev.Ended, ev.Lost, ev.MachineLost)):
                continue
            ids = [event.trial] if not isinstance(event, ev.MachineLost) else list(self.history.waiting)
            for trial_id in ids:
                trial = self.history.trials[trial_id]
                if trial.state not in (State.WAITING, State.PAUSED):
                    continue
                failures = trial.failures_since_retry
                if failures > self.spec.retries:
                    self._decide(ev.GiveUp(now, trial.id, f"failed {failures} times"))
                elif trial.failed_at is not None and is_permanent(trial):
                    self._decide(ev.GiveUp(now, trial.id, "another attempt would fail in the same way"))
                elif trial.stalled_losses >= STALLED_LOSSES_LIMIT:
                    why = f"its worker vanished {trial.stalled_losses} times in a row without a step of progress"
                    self._decide(ev.GiveUp(now, trial.id, why))

    def _stop_if_all_fail(self, now: float) -> None:
        """Stop the study if its first trials have all failed alike: the others would, too."""
        spec, history = self.spec, self.history
        if spec.on_failure != "stop" or spec.target.kind == "outside" or history.failed_alike:
            return
        failed = any(isinstance(event, (ev.Failed, ev.Killed, ev.Ended)) for event in self._log)
        if failed and (trials := failed_alike(history)):
            self._decide(ev.StopAfterFailures(now, list(trials)))

    def _answer_asks(self, now: float) -> None:
        """Now or never: an ask that finds nothing left is not kept, or a later one would be answered twice."""
        for _ in range(sum(type(event) is ev.TrialRequested for event in self._log)):
            created = self._create(now)
            if created is None:
                break
            self._decide(ev.Place(now, created, 1, ev.OUTSIDE, 0))

    def _fill(self, now: float) -> None:
        """Gives trials to free slots: those that wait, else a promoted one, else a new one."""
        history = self.history
        while history.fleet.free_slots and (found := self._next_trial(now)) is not None:
            trial, workers = history.trials[found[0]], found[1]
            first = next(iter(workers), "")
            several = workers if workers != {first: 1} else None
            every = self._provisioner.save_every(trial, first, history)
            place = ev.Place(now, trial.id, trial.attempts + 1, first, trial.resume_step, several, every)
            if not self._decide(place):
                policy, where = type(self._provisioner).__name__, ", ".join(workers) or "nowhere"
                raise ThriftuneError(f"{policy} gave trial {trial.id} to {where}, which has no room for it")

    def _let_wait(self, now: float) -> None:
        """Has so many trials wait as the provisioner would rent machines for."""
        history = self.history
        while self._provisioner.wants(history) > len(history.running) + len(history.waiting):
            if (paused := self._promotable()) is not None:
                self._decide(ev.Promote(now, paused))
            elif not self._more or self._create(now) is None:
                return

    def _promotable(self) -> int | None:
        """The paused trial that deserves more steps, if there is one."""
        trials = self.history.trials
        paused = None if self.stopper is None else self.stopper.promote(self.history, self._more)
        if paused is None:
            return None
        if paused not in range(len(trials)) or trials[paused].state is not State.PAUSED:
            state = f"is {trials[paused].state} and not PAUSED" if paused in range(len(trials)) else "is not there"
            raise ThriftuneError(f"{type(self.stopper).__name__} promoted trial {paused!r}, which {state}")
        return paused

    def _next_trial(self, now: float) -> tuple[int, Mapping[str, int]] | None:
        """Which one is to run, and its workers."""
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
        if not self._more or (workers := workers_for(None, history)) is None:
            return None
        created = self._create(now)
        if created is not None:
            return created, workers
        # That the searcher has nothing left may be what a rule has waited for.
        return None if self.stopper is None else self._next_trial(now)

    def _retry_at(self, trial_id: int) -> float:
        """Return when a waiting trial whose last attempt failed may begin again."""
        trial = self.history.trials[trial_id]
        wait = retry_seconds(trial.failures_since_retry) if self._provisioner.backs_off else 0.0
        return (trial.failed_at or 0.0) + wait

    @property
    def _more(self) -> bool:
        """Whether further trials may be made."""
        trials = self.spec.trials
        if trials is not None and len(self.history.created_ids) >= trials:
            return False
        return bool(self.history.queue) or not (self._exhausted or self._completion.why_no_more)

    def _create(self, now: float) -> int | None:
        number = len(self.history.trials)
        rng = np.random.default_rng((self.spec.seed, number))
        if self.history.queue:
            wanted = complete_config(self.spec.space, self.history.queue[0], rng, self.history.times)
            self._decide(ev.Create(now, number, wanted, ev.ENQUEUED))
            return number
        config = None if self._exhausted else self._searcher.suggest(self.history, rng)
        if config is None:
            self._exhausted = True
            return None
        gain = None
        if self.spec.stop_when_converged and isinstance(self._searcher, Foresighted):
            gain = self._searcher.expected_gain(self.history)
        gain = None if gain is None else float(gain)
        self._decide(ev.Create(now, number, self._checked(config), expected_gain=gain))
        return number

    def _checked(self, config: ev.Config) -> ev.Config:
        """A searcher may be a user's own: what it suggests is recorded only if it is of the space."""
        try:
            return self.spec.space.check(config)
        except SpaceError as error:
            raise SpaceError(f"{type(self._searcher).__name__} suggested {config!r}: {error}") from None

    def _all_tried(self) -> bool:
        """No further trial may be made, and none that is set aside deserves more."""
        if self._more:
            return False
        return self.stopper is None or self.stopper.promote(self.history, more=False) is None

    def _finish_if_done(self, now: float, out_of: str | None) -> None:
        """Nothing runs and nothing will: say why. Halted or not, what has something left is resumed later."""
        history = self.history
        if history.running:
            return
        if self._completion.reached:
            why = f"{self._target} reached by {self._completion.by_whom}"
        elif out_of:
            why = f"{out_of} reached"
        elif history.failed_alike or history.waiting or not self._all_tried():
            return
        elif self._exhausted:
            why = "the searcher has nothing left to suggest"
        elif self.spec.trials is not None and len(history.created_ids) >= self.spec.trials:
            why = f"all {len(history.created_ids)} trials done"
        else:
            why = self._completion.why_no_more or f"all {len(history.created_ids)} trials done"
        self._decide(ev.Finish(now, why))

    def _decide(self, decision: ev.Decision) -> bool:
        if not self.history.apply(decision):
            return False
        self._log.append(decision)
        return True
