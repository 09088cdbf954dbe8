"""What happens next? Events in, decisions out.

The conductor never sleeps, never reads a clock or a random source of its own, and does no IO: whoever drives it
(driver.py on real machines, a simulator on a virtual clock) brings the events, records what handle() returns in
the store, and only then has the decisions among it carried out.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from thriftune import events as ev
from thriftune.history import History
from thriftune.planning import Provisioner
from thriftune.search import Searcher
from thriftune.spec import Spec
from thriftune.stopping import Stopper, Verdict
from thriftune.trial import State

STALLED_LOSSES_LIMIT = 5
"""A trial whose worker vanished this often in a row without a step of progress is given up on."""

GRACE_SECONDS = 5.0
"""How long a trial that was told to end at the deadline may take to its next step before it is killed."""


class Conductor:
    """One study's loop, turned by its driver. All its state is the history, which is a fold of the log."""

    def __init__(
        self,
        spec: Spec,
        history: History,
        searcher: Searcher,
        provisioner: Provisioner,
        stopper: Stopper | None = None,
    ) -> None:
        self.spec = spec
        self.history = history
        self._searcher = searcher
        self._provisioner = provisioner
        self._stopper = stopper
        self._exhausted = False  # the searcher has nothing left; asked again only after a restart
        self._log: list[ev.Event] = []

    def handle(self, events: Iterable[ev.Event], now: float) -> list[ev.Event]:
        """Takes events in; returns what is to be recorded: the events that told something new, then decisions."""
        self._log = log = []
        for event in events:
            if not self.history.apply(event):
                continue
            log.append(event)
            if self._stopper is not None and type(event) is ev.Reported:
                self._judge(event, now)
            for decision in self._provisioner.react(event, self.history):
                self._decide(decision)
            if type(event) is ev.MachineNotice:
                self._clear(event, now)
        self._give_up(now)
        self._answer_asks(now)
        if self.history.driver is not None and self.history.finished is None:
            self._enforce_limits(now)
            if not self._closing(now):
                self._fill(now)
            self._finish_if_done(now)
        return log

    def nothing_left(self, now: float) -> bool:
        """Whether a drive would have nothing to do, so that it need not begin."""
        history, trials = self.history, self.spec.trials
        if history.waiting or history.running or history.counts[State.PAUSED]:
            return False
        return self._out_of(now) is not None or (trials is not None and len(history.trials) >= trials)

    def wake_at(self, now: float) -> float | None:
        """When handle() should be called again even if nothing happens."""
        history, spec = self.history, self.spec
        if history.driver is None:
            return None
        times = []
        out_of = self._out_of(now)
        for trial in (history.trials[trial_id] for trial_id in history.running):
            if trial.killed_because or trial.started_at is None:
                continue
            if spec.timeout_seconds is not None:
                times.append(trial.started_at + spec.timeout_seconds)
            if out_of and trial.asked_at is not None:
                times.append(trial.asked_at + GRACE_SECONDS)
        if not out_of:
            if spec.deadline_seconds is not None:
                times.append(now + spec.deadline_seconds - history.driven_seconds(now))
            rate = sum(machine.price_per_hour for machine in history.machines.values()) / 3600
            if spec.budget_dollars is not None and rate > 0:
                times.append(now + (spec.budget_dollars - history.dollars(now)) / rate)
        return min(times) if times else None

    # --- limits -----------------------------------------------------------------------------------------

    def _out_of(self, now: float) -> str | None:
        """Which limit on time or money is used up."""
        spec, history = self.spec, self.history
        if spec.deadline_seconds is not None and history.driven_seconds(now) >= spec.deadline_seconds:
            return "deadline"
        if spec.budget_dollars is not None and history.dollars(now) >= spec.budget_dollars:
            return "budget"
        return None

    @property
    def halted(self) -> str | None:
        """Why the study is to stop now and be resumed later."""
        if self.history.stop_requested:
            return self.history.stop_requested
        if self.history.disk_full and self.spec.disk_full == "stop":
            return "disk full"
        return None

    def _closing(self, now: float) -> bool:
        return self.halted is not None or self._out_of(now) is not None

    def _enforce_limits(self, now: float) -> None:
        halted, out_of = self.halted, self._out_of(now)
        for trial_id in list(self.history.running):
            trial = self.history.trials[trial_id]
            if trial.machine == ev.OUTSIDE or trial.killed_because or trial.started_at is None:
                continue
            if trial.asked is None and out_of:
                self._decide(ev.Stop(now, trial.id, trial.attempts, out_of))
            elif trial.asked is None and halted:
                self._decide(ev.Move(now, trial.id, trial.attempts, halted))
            limit = self.spec.timeout_seconds
            if limit is not None and now >= trial.started_at + limit:
                why = f"still running after its limit of {limit:g} s"
                self._decide(ev.Kill(now, trial.id, trial.attempts, why))
            elif out_of and trial.asked_at is not None and now >= trial.asked_at + GRACE_SECONDS:
                why = f"did not end within {GRACE_SECONDS:g} s of the {out_of}"
                self._decide(ev.Kill(now, trial.id, trial.attempts, why))

    # --- trials -----------------------------------------------------------------------------------------

    def _judge(self, event: ev.Reported, now: float) -> None:
        trial = self.history.trials[event.trial]
        if self._stopper is None or trial.asked is not None:
            return
        verdict = self._stopper.judge(trial, self.history)
        if verdict is Verdict.STOP:
            self._decide(ev.Stop(now, trial.id, trial.attempts, "stopping rule"))
        elif verdict is Verdict.PAUSE:
            self._decide(ev.Pause(now, trial.id, trial.attempts, "stopping rule"))

    def _clear(self, notice: ev.MachineNotice, now: float) -> None:
        """Whatever runs on a machine that will be taken away saves its state and goes elsewhere."""
        for trial_id in sorted(self.history.machines[notice.machine].running):
            trial = self.history.trials[trial_id]
            if trial.asked is None:
                self._decide(ev.Move(now, trial.id, trial.attempts, "the machine will be taken away"))

    def _give_up(self, now: float) -> None:
        for event in list(self._log):
            if not isinstance(event, (ev.Failed, ev.Killed, ev.Ended, ev.Lost, ev.MachineLost)):
                continue
            ids = [event.trial] if not isinstance(event, ev.MachineLost) else list(self.history.waiting)
            for trial_id in ids:
                trial = self.history.trials[trial_id]
                if trial.state is not State.WAITING:
                    continue
                if trial.failures > self.spec.retries:
                    self._decide(ev.GiveUp(now, trial.id, f"failed {trial.failures} times"))
                elif trial.stalled_losses >= STALLED_LOSSES_LIMIT:
                    why = f"its worker vanished {trial.stalled_losses} times in a row without a step of progress"
                    self._decide(ev.GiveUp(now, trial.id, why))

    def _answer_asks(self, now: float) -> None:
        while self.history.open_asks > 0:
            created = self._create(now)
            if created is None:
                break
            self._decide(ev.Place(now, created, 1, ev.OUTSIDE, 0))

    def _fill(self, now: float) -> None:
        """Gives every free slot a trial: one that waits, else a promoted one, else a new one."""
        while (machine := self._provisioner.machine_for_next(self.history)) is not None:
            trial_id = self._next_trial(now)
            if trial_id is None:
                break
            trial = self.history.trials[trial_id]
            self._decide(ev.Place(now, trial_id, trial.attempts + 1, machine, trial.resume_step))

    def _next_trial(self, now: float) -> int | None:
        history = self.history
        if history.waiting:
            return next(iter(history.waiting))
        if self._stopper is not None and (paused := self._stopper.promote(history)) is not None:
            self._decide(ev.Promote(now, paused))
            return paused
        if self.spec.trials is not None and len(history.trials) >= self.spec.trials:
            return None
        return self._create(now)

    def _create(self, now: float) -> int | None:
        number = len(self.history.trials)
        rng = np.random.default_rng((self.spec.seed, number))
        config = None if self._exhausted else self._searcher.suggest(self.history, rng)
        if config is None:
            self._exhausted = True
            return None
        self._decide(ev.Create(now, number, config))
        return number

    def _finish_if_done(self, now: float) -> None:
        """Nothing runs and nothing will: say why. A halted study is not done; it is resumed later."""
        history = self.history
        if history.running or self.halted:
            return
        if out_of := self._out_of(now):
            self._decide(ev.Finish(now, f"{out_of} reached"))
        elif history.waiting or self._provisioner.machine_for_next(history) is None:
            return
        elif self._exhausted:
            self._decide(ev.Finish(now, "the searcher has nothing left to suggest"))
        else:
            self._decide(ev.Finish(now, f"all {len(history.trials)} trials done"))

    def _decide(self, decision: ev.Decision) -> None:
        if self.history.apply(decision):
            self._log.append(decision)


def decisions(log: Iterable[ev.Event]) -> list[ev.Decision]:
    return [entry for entry in log if isinstance(entry, ev.Decision)]
