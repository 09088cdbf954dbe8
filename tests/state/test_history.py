"""Tests of the history: random sequences of events, and the questions that it answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.loop.test_conductor import TwoStepRule
from tests.support.tables import SPACE, START, Table, replayed, state
from thriftune.errors import NoBestTrial
from thriftune.loop.failures import MAX_BACKOFF_SECONDS, STALLED_LOSSES_LIMIT, to_retry
from thriftune.search.random import Random
from thriftune.space.objectives import Objective, parse_constraints
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.spec import Target
from thriftune.state.trial_record import State

LOSS = (Objective("loss", False),)

# --- the engine -------------------------------------------------------------------------------------------


@dataclass
class Attempt:
    """An attempt that the simulated engine runs."""

    trial: int
    attempt: int
    machine: str
    step: int
    end_request: type[ev.Event] | None = None
    killed: bool = False
    saves: int = 0


@dataclass
class World:
    """A simulated engine around a table. It obeys decisions and checks that they are consistent."""

    table: Table
    live: dict[int, Attempt] = field(default_factory=dict)
    sent: list[ev.Event] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)
    done: int = 0  # entries of the log that were carried out

    def send(self, *events: ev.Event) -> None:
        self.sent += [event for event in events if not isinstance(event, ev.Tick)]
        self.table(*events)
        self.carry_out()

    def carry_out(self) -> None:
        history = self.table.history
        for entry in self.table.log[self.done :]:
            match entry:
                case ev.Place():
                    assert entry.trial not in self.live, "a trial runs twice"
                    assert entry.trial not in self.ended, "a trial that ended is run again"
                    at_once = [one for one in self.live.values() if one.machine == entry.machine]
                    assert len(at_once) < history.machines[entry.machine].slots
                    assert history.machines[entry.machine].notice is None
                    live = Attempt(entry.trial, entry.attempt, entry.machine, entry.resume_step)
                    self.live[entry.trial] = live
                case ev.Move() | ev.Pause() | ev.Stop() if one := self.of(entry):
                    reached = type(entry) is ev.Stop and entry.reached
                    assert (
                        one.end_request is None
                        or reached
                        or (one.end_request is ev.Move and type(entry) is not ev.Move)
                    )
                    one.end_request = type(entry)
                case ev.Kill() if one := self.of(entry):
                    assert not one.killed
                    one.killed = True
                case _:
                    pass
        self.done = len(self.table.log)
        self.ended |= {trial.id for trial in history.trials if trial.state.ended}

    def of(self, decision: Any) -> Attempt | None:
        """Return the running attempt of a decision; None if it died with its driver."""
        one = self.live.get(decision.trial)
        assert one is None or one.attempt == decision.attempt
        return one

    # Actions of an attempt. All but report() end the attempt.

    def report(self, one: Attempt, loss: float | None, saved: bool, latency: float | None = 0.5) -> None:
        one.step += 1
        more: dict[str, Any] = {} if latency is None else {"latency": latency}
        self.send(self.table.a_report(one.trial, one.step, loss, saved=saved, **more))

    def save(self, one: Attempt, step: int, partial: bool) -> None:
        one.saves += 1
        self.send(self.table.a_checkpoint(one.trial, step, one.saves, partial=partial))

    def end(self, one: Attempt) -> None:
        del self.live[one.trial]
        self.send(self.table.an_end(one.trial, cut=one.end_request is not None))

    def over(self, one: Attempt, kind: str) -> None:
        del self.live[one.trial]
        now = self.table.now
        self.send(
            {
                "fail": ev.Failed(now, one.trial, one.attempt, "raised", "boom"),
                "lose": ev.Lost(now, one.trial, one.attempt, "SIGKILL"),
                "kill": ev.Killed(now, one.trial, one.attempt),
            }[kind]
        )

    def start(self, slots: int) -> None:
        self.live.clear()
        self.table.start(slots)
        self.carry_out()


LOSSES = st.sampled_from([0.1, 0.5, 0.5, 0.9, 2.0, math.nan, math.inf])
LATENCIES = st.sampled_from([None, 0.2, 0.5, 1.5, math.nan])
LATENCY = Objective("latency", True)


class Walk(RuleBasedStateMachine):
    """Random sequences of possible events, with impossible events between them."""

    world: World
    slots: int
    machines: int
    raised: int

    @initialize(
        slots=st.integers(1, 3),
        trials=st.integers(1, 5),
        retries=st.integers(0, 2),
        timeout=st.sampled_from([None, 40.0]),
        limit=st.sampled_from(
            [{}, {"deadline_seconds": 300.0}, {"budget_dollars": 0.5}, {"max_trial_seconds": 50.0}]
        ),
        goal=st.sampled_from([{}, {}, {"target_value": 0.3}, {"patience": 2}]),
        disk_full=st.sampled_from(["stop", "go_on"]),
        on_failure=st.sampled_from(["stop", "go_on"]),
        rungs=st.booleans(),
        maximize=st.booleans(),
        several=st.booleans(),
        constraints=st.sampled_from([(), ("latency <= 1",), ("latency <= 1", "loss >= 0.4")]),
    )
    def begin(
        self,
        slots: int,
        trials: int,
        retries: int,
        timeout: float | None,
        limit: dict[str, Any],
        goal: dict[str, Any],
        disk_full: str,
        on_failure: str,
        rungs: bool,
        maximize: bool,
        several: bool,
        constraints: tuple[str, ...],
    ) -> None:
        table = Table(
            slots=0,
            trials=trials,
            retries=retries,
            timeout_seconds=timeout,
            disk_full=disk_full,
            on_failure=on_failure,
            target=Target("pickled"),
            objectives=(Objective("loss", maximize), *([LATENCY] if several else [])),
            constraints=parse_constraints(constraints),
            stopper=TwoStepRule() if rungs else None,
            **limit,
            **({} if several else goal),
        )
        self.world, self.slots, self.machines, self.raised = World(table), slots, 0, 0
        self.world.start(slots)

    @property
    def table(self) -> Table:
        return self.world.table

    def is_driven(self) -> bool:
        return self.table.history.finish_reason is None

    def one(self, data: st.DataObject) -> Attempt | None:
        live = list(self.world.live.values())
        return data.draw(st.sampled_from(live)) if live else None

    # --- possible events

    @precondition(is_driven)
    @rule(data=st.data(), loss=st.none() | LOSSES, saved=st.booleans(), latency=LATENCIES)
    def reports(self, data: st.DataObject, loss: float | None, saved: bool, latency: float | None) -> None:
        if one := self.one(data):
            self.world.report(one, loss, saved, latency)

    @precondition(is_driven)
    @rule(data=st.data(), ago=st.integers(0, 2), partial=st.booleans())
    def a_checkpoint_is_complete(self, data: st.DataObject, ago: int, partial: bool) -> None:
        """An upload takes a while, so the checkpoint may be of an earlier step, or of one without a report."""
        if not (one := self.one(data)):
            return
        trial, step = self.table.trial(one.trial), max(0, one.step - ago)
        before = trial.resume_step, trial.resume_partial
        self.world.save(one, step, partial)
        if any(report.step == step for report in trial.reports) or (partial and step == 0):
            assert (trial.resume_step, trial.resume_partial) == (step, partial)
            assert trial.checkpoints[-1].step == step
        else:
            assert (trial.resume_step, trial.resume_partial) == before

    @precondition(is_driven)
    @rule(data=st.data())
    def ends(self, data: st.DataObject) -> None:
        if one := self.one(data):
            self.world.end(one)

    @precondition(is_driven)
    @rule(data=st.data(), kind=st.sampled_from(["fail", "lose", "kill"]))
    def is_over(self, data: st.DataObject, kind: str) -> None:
        one = self.one(data)
        if one and (kind != "kill" or one.killed):
            self.world.over(one, kind)

    @precondition(is_driven)
    @rule(data=st.data(), message=st.sampled_from(["corrupt", "no room"]))
    def is_warned(self, data: st.DataObject, message: str) -> None:
        if one := self.one(data):
            kind = ev.Warned if message == "corrupt" else ev.DiskFull
            self.world.send(kind(self.table.now, one.trial, one.attempt, message))

    @precondition(is_driven)
    @rule(seconds=st.sampled_from([0.0, 1.0, 39.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.table.now += seconds
        self.world.send(ev.Tick(self.table.now))

    @precondition(is_driven)
    @rule()
    def somebody_wants_it_to_stop(self) -> None:
        self.world.send(ev.StopRequested(self.table.now, "Ctrl-C"))

    @rule(lr=st.sampled_from([0.001, 0.01, 0.02]), act=st.sampled_from([None, "relu", "tanh"]))
    def somebody_enqueues(self, lr: float, act: str | None) -> None:
        self.world.send(ev.Enqueued(self.table.now, {"lr": lr} if act is None else {"lr": lr, "act": act}))

    @rule(lr=st.sampled_from([0.001, 0.01, 0.02]), loss=st.sampled_from([None, 0.1, 2.0]))
    def somebody_knows_a_result(self, lr: float, loss: float | None) -> None:
        result = ({}, "diverged") if loss is None else (dict.fromkeys(self.table.spec.needed_metrics, loss), "")
        self.world.send(ev.ResultAdded(self.table.now, {"lr": lr, "act": "relu"}, *result))

    @rule(value=st.sampled_from([1, True, "a", None]), data=st.data(), in_trial=st.booleans())
    def somebody_attaches_something(self, value: object, data: st.DataObject, in_trial: bool) -> None:
        if not in_trial:
            trial = data.draw(st.none() | st.integers(0, 3))
            self.world.send(ev.AttributeSet(self.table.now, "note", value, trial))
        elif one := self.one(data):
            self.world.send(ev.AttributeSet(self.table.now, "note", value, one.trial, one.attempt))

    @precondition(is_driven)
    @rule(slots=st.integers(1, 2), rented=st.booleans())
    def a_machine_comes(self, slots: int, rented: bool) -> None:
        self.machines += 1
        name = f"m{self.machines}"
        first = [ev.MachineRented(self.table.now, name, "spot", 1.0)] if rented else []
        self.world.send(*first, ev.MachineReady(self.table.now, name, "spot", slots, 1.0))

    @precondition(is_driven)
    @rule(data=st.data(), what=st.sampled_from(["notice", "lost", "released"]))
    def a_machine_goes(self, data: st.DataObject, what: str) -> None:
        names = [name for name in self.table.history.machines if name != ev.THIS_MACHINE]
        if not names:
            return
        name, now = data.draw(st.sampled_from(names)), self.table.now
        if what == "notice":
            self.world.send(ev.MachineNotice(now, name, now + 30))
            return
        for one in [one for one in self.world.live.values() if one.machine == name]:
            del self.world.live[one.trial]
        self.world.send(ev.MachineLost(now, name, "gone") if what == "lost" else ev.MachineReleased(now, name))

    @rule(data=st.data(), away=st.sampled_from([0.0, 10_000.0]), loss=LOSSES, clock=st.sampled_from([0.0, -50.0]))
    def the_driver_is_killed(self, data: st.DataObject, away: float, loss: float, clock: float) -> None:
        """Workers write last events to their spool files. The next driver reads them, once or twice."""
        unheard: list[ev.Event] = []
        for one in list(self.world.live.values()):
            last = data.draw(st.sampled_from(["nothing", "report", "end", "fail"]))
            if last != "nothing":
                saved = data.draw(st.sampled_from([None, False, True]))  # None: with the report
                unheard.append(self.table.a_report(one.trial, one.step + 1, loss, saved=saved is None))
                if saved is not None:
                    unheard.append(self.table.a_checkpoint(one.trial, one.step + 1, 99, partial=saved))
            if last == "end":
                unheard.append(self.table.an_end(one.trial, cut=one.end_request is not None))
            if last == "fail":
                unheard.append(ev.Failed(self.table.now, one.trial, one.attempt, "raised", "boom"))
        before = state(self.table.history)
        self.table.kill_driver()
        assert state(self.table.history) == before
        self.table.now += away + clock
        self.world.live.clear()
        for _ in range(data.draw(st.integers(1, 2))):
            self.world.send(*unheard)
            assert not self.world.live, "a trial was started before there was an engine to run it"
            self.table.kill_driver()
        assert self.table.dropped(*unheard)
        self.world.start(self.slots)

    # --- repeated and late events

    @rule(data=st.data())
    def something_comes_twice(self, data: st.DataObject) -> None:
        ends = (ev.Ended, ev.Failed, ev.Killed, ev.Lost)
        once = (ev.Reported, ev.CheckpointSaved, *ends, ev.Warned, ev.Enqueued, ev.ResultAdded)
        sent = [event for event in self.world.sent if isinstance(event, once) and not self.is_early(event)]
        if sent:
            assert self.table.dropped(data.draw(st.sampled_from(sent)))

    def is_early(self, event: ev.Event) -> bool:
        """Return whether it is a checkpoint that was ignored, as its step had no report, and may count now."""
        if not isinstance(event, ev.CheckpointSaved):
            return False
        return all(each.name != event.name for each in self.table.trial(event.trial).checkpoints)

    @rule(
        trial=st.integers(-2, 9),
        ago=st.integers(1, 3),
        kind=st.sampled_from(["report", "save", "end", "fail", "lose"]),
    )
    def something_comes_late(self, trial: int, ago: int, kind: str) -> None:
        known = 0 <= trial < len(self.table.history.trials)
        attempt = self.table.trial(trial).attempts - ago if known else ago
        now = self.table.now
        late: dict[str, ev.Event] = {
            "report": ev.Reported(now, trial, attempt, 99, 1, {"loss": 0.0}, True),
            "save": ev.CheckpointSaved(now, trial, attempt, f"{attempt}-late/000001", 1),
            "end": ev.Ended(now, trial, attempt, 1.0),
            "fail": ev.Failed(now, trial, attempt, "raised", "late"),
            "lose": ev.Lost(now, trial, attempt, "late"),
        }
        assert self.table.dropped(late[kind])

    # --- resuming, and invariants

    @precondition(lambda self: self.table.history.finish_reason and self.raised < 2)
    @rule()
    def the_limits_are_raised(self) -> None:
        history, spec = self.table.history, self.table.spec
        self.raised += 1
        self.table.stop()
        deadline = spec.deadline_seconds and history.driven_seconds(self.table.now) + 300
        budget = spec.budget_dollars and history.dollars(self.table.now) + 0.5
        limits = {"trials": len(history.trials) + 1, "deadline_seconds": deadline, "budget_dollars": budget}
        self.table.kill_driver(**limits, target_value=None, patience=None)
        self.world.start(self.slots)

    @precondition(lambda self: not self.table.history.running and self.raised < 2)
    @rule()
    def failed_trials_are_retried(self) -> None:
        """The user has fixed the cause of failures. The retries are recorded between two drives."""
        self.raised += 1
        self.table.stop()
        self.table.kill_driver()
        retried = to_retry(self.table.history.trials)
        self.table(*(ev.Retry(self.table.now, trial) for trial in retried))
        assert not to_retry(self.table.history.trials)
        self.world.ended -= set(retried)
        self.world.start(self.slots)

    @invariant()
    def a_halted_study_is_resumed(self) -> None:
        history = self.table.history
        if history.finish_reason is None and self.table.conductor.halted and not history.running:
            self.table.stop()
            self.table.kill_driver()
            self.world.start(self.slots)

    @invariant()
    def promises_are_kept(self) -> None:
        history, spec = self.table.history, self.table.spec
        assert set(history.running) == set(self.world.live)
        for trial in history.trials:
            assert trial.failures_since_retry <= spec.retries + 1
            assert trial.stalled_losses <= STALLED_LOSSES_LIMIT
            assert trial.state is not State.COMPLETED or history.has_values(trial)
            if trial.origin == ev.SEARCHER:
                assert trial.config == suggestion(trial.id)
            else:
                assert trial.config["lr"] in (0.001, 0.01, 0.02)

    @invariant()
    def a_target_that_was_reached_is_the_best(self) -> None:
        history, target = self.table.history, self.table.spec.target_value
        if target is not None and (history.finish_reason or "").startswith("target"):
            if history.best.origin == ev.KNOWN:  # added after the study had finished
                return
            value = history.best.value
            assert value is not None
            assert value >= target if history.maximize else value <= target
            assert history.finish_reason == f"target {target:g} reached by trial {history.best.id}"

    def teardown(self) -> None:
        """Check that every study finishes if the engine obeys and the trials do nothing unusual."""
        if not hasattr(self, "world"):
            return
        for _ in range(200):
            if self.table.history.finish_reason:
                return
            self.a_halted_study_is_resumed()
            if not any(machine.free_slots > 0 for machine in self.table.history.machines.values()):
                self.a_machine_comes(1, True)
            if self.table.history.retrying:
                self.table.now += MAX_BACKOFF_SECONDS
                self.world.send()
            for one in list(self.world.live.values()):
                if one.killed:
                    self.world.over(one, "kill")
                elif one.end_request is not None or one.step >= 4:
                    self.world.end(one)
                else:
                    self.world.report(one, 0.5, True)
        raise AssertionError("the study does not come to an end")


def suggestion(number: int) -> Any:
    """Return the suggestion for a trial. The space is infinite, so it does not depend on earlier trials."""
    return Random().suggest(History(SPACE, LOSS, 7), np.random.default_rng((7, number)))


TestWalk = Walk.TestCase
TestWalk.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


# --- stored checkpoints -----------------------------------------------------------------------------------


def test_a_report_counts_as_saved_once_its_checkpoint_is_complete() -> None:
    table = Table(trials=1)
    table.report(0, 1, 0.5)
    table.report(0, 2, 0.4)
    assert table.trial(0).resume_step == 0
    table(table.a_checkpoint(0, 1, 1))
    trial = table.trial(0)
    assert [report.saved for report in trial.reports] == [True, False]
    assert trial.resume_step == 1
    assert table.dropped(table.a_checkpoint(0, 1, 1))
    assert table.dropped(table.a_checkpoint(0, 3, 2))  # no report of step 3 is known


def test_a_partial_checkpoint_counts_until_its_step_is_saved() -> None:
    table = Table(trials=1)
    table(table.a_checkpoint(0, 0, 1, partial=True))
    trial = table.trial(0)
    assert (trial.resume_step, trial.resume_partial) == (0, True)
    table.report(0, 1, 0.5)
    assert trial.resume_partial  # the report was not saved
    table(table.a_checkpoint(0, 1, 2))
    assert (trial.resume_step, trial.resume_partial) == (1, False)
    table(table.a_checkpoint(0, 1, 3, partial=True))
    assert (trial.resume_step, trial.resume_partial) == (1, True)
    assert trial.reports[0].saved
    table.report(0, 2, 0.4, saved=True)
    assert (trial.resume_step, trial.resume_partial) == (2, False)


def test_the_next_attempt_resumes_from_the_last_checkpoint_of_a_lost_one() -> None:
    table = Table(trials=1)
    table.report(0, 1, 0.5)
    late = table.a_checkpoint(0, 1, 1)
    assert table(table.a_checkpoint(0, 1, 2, partial=True)) == []
    table.lose(0)
    trial = table.trial(0)
    assert (trial.attempts, trial.resumed_from, trial.resume_partial) == (2, 1, True)
    assert table.dropped(late)  # of an attempt that is over
    assert [each.attempt for each in trial.checkpoints] == [1]


# --- queries ----------------------------------------------------------------------------------------------


def test_the_best_trial_is_the_earliest_of_equals_and_has_not_failed() -> None:
    table = Table(slots=4, trials=4, retries=0)
    with pytest.raises(NoBestTrial, match=r"no trial has reported 'loss' yet$"):
        _ = table.history.best
    for trial, loss in enumerate([0.5, 0.1, 0.3, 0.3]):
        table.report(trial, 1, loss)
    assert table.history.best.id == 1
    table.report(1, 1, 0.4)  # the best became worse
    assert table.history.best.id == 2
    table.report(3, 1, math.nan)
    table.report(0, 1, 0.3)
    assert table.history.best.id == 0
    table.fail(0)
    assert table.history.best.id == 2
    for trial in (1, 2, 3):
        table.fail(trial)
    with pytest.raises(NoBestTrial, match="all 4 trials failed, the first with: "):
        _ = table.history.best


def test_the_best_of_a_study_that_maximizes() -> None:
    table = Table(slots=3, trials=3, maximize=True)
    for trial, loss in enumerate([0.5, 0.9, math.inf]):
        table.report(trial, 1, loss)
    assert table.history.best.id == 1
    assert table.history.better(0.9, 0.5)


def test_several_objectives_have_a_front_and_no_best_trial() -> None:
    table = Table(slots=5, trials=5, retries=0, objectives=[Objective("loss", False), Objective("accuracy", True)])
    assert table.history.front == []
    for trial, (loss, accuracy) in enumerate([(0.5, 0.9), (0.1, 0.2), (0.5, 0.9), (0.6, 0.8), (0.0, 1.0)]):
        table.report(trial, 1, loss)
        assert table.trial(trial).values is None
        table.report(trial, 1, accuracy=accuracy)
        assert (table.trial(trial).value, table.trial(trial).values) == (loss, (loss, accuracy))
    assert [trial.id for trial in table.history.front] == [4]
    table.fail(4)
    assert [trial.id for trial in table.history.front] == [1, 0, 2]
    table.report(1, 2, 0.7)  # the other objective keeps the value of the step before
    assert table.trial(1).values == (0.7, 0.2)
    assert [trial.id for trial in table.history.front] == [1, 0, 2]  # all by their values at step 1
    table.report(1, 2, accuracy=0.3)
    assert [trial.id for trial in table.history.front] == [1]  # the only trial with a step 2
    for trial in (0, 2):
        table.report(trial, 2, 0.5, accuracy=0.9)
    assert [trial.id for trial in table.history.front] == [0, 2]
    with pytest.raises(NoBestTrial, match="there are 2 objectives, so no single best; see front"):
        _ = table.history.best


def test_the_front_of_one_objective_has_all_trials_with_the_best_value() -> None:
    table = Table(slots=4, trials=4, constraints=parse_constraints("size <= 9"))
    for trial, (loss, size) in enumerate([(0.5, 1.0), (0.1, 2.0), (0.1, 3.0), (0.1, 10.0)]):
        table.report(trial, 1, loss, size=size)
    assert [trial.id for trial in table.history.front] == [1, 2]
    assert table.history.best.id == 1


def test_only_feasible_trials_can_be_the_best() -> None:
    table = Table(slots=3, trials=3, retries=0, constraints=parse_constraints("latency <= 10"))
    history = table.history
    table.report(0, 1, 0.1)
    assert history.feasible(table.trial(0)) is None
    with pytest.raises(NoBestTrial, match=r"no trial has reported 'loss' and 'latency' yet$"):
        _ = history.best
    table.report(0, 2, latency=13.5)
    table.report(1, 1, 0.2, latency=11.25)
    assert history.feasible(table.trial(0)) is False
    with pytest.raises(NoBestTrial) as none:
        _ = history.best
    assert str(none.value) == "none of 2 trials meets latency <= 10; the nearest is trial 1 with 11.25"
    table.report(2, 1, 0.9, latency=10.0)
    assert (history.best.id, history.feasible(table.trial(2))) == (2, True)
    table.report(1, 2, latency=9.0)
    assert history.best.id == 1
    table.report(1, 3, latency=11.0)  # the best trial misses the constraint again
    assert history.best.id == 2
    table.fail(2)
    with pytest.raises(NoBestTrial, match="the nearest is trial 1 with 11"):
        _ = history.best


def test_the_trial_nearest_to_several_constraints_is_named() -> None:
    table = Table(slots=3, trials=3, constraints=parse_constraints(["size <= 1e6", "score >= 0.5"]))
    for trial, (size, score) in enumerate([(9e6, 0.6), (2e6, 0.4), (1e6, 0.1)]):
        table.report(trial, 1, 0.5, size=size, score=score)
    misses = "none of 3 trials meets size <= 1000000 and score >= 0.5; the nearest is trial 1 with "
    assert table.history.why_infeasible() == misses + "size 2e+06 and score 0.4"
    table.report(0, 2, size=1e6, score=0.5)
    assert table.history.why_infeasible() == ""


def test_ended_machines_stay_on_the_bill() -> None:
    table = Table(slots=0, trials=1)
    table(ev.DriverStarted(table.now, 1, "host"))
    for number in range(3):
        table(ev.MachineReady(table.now, f"m{number}", f"offer {number % 2}", 1, 3.6))
        table.now += 100
        table(ev.MachineLost(table.now, f"m{number}", "gone"))
        table.now += 1000
    assert table.history.dollars(table.now) == pytest.approx(0.3)
    assert table.history.fleet.offers() == ["offer 0", "offer 1"]


def test_an_unconfirmed_rental_is_remembered() -> None:
    table = Table(slots=0)
    history = table.history
    rent = ev.Rent(START, "a", "spot")
    assert history.apply(rent)
    assert not history.apply(rent)
    assert history.fleet.renting == {"a": rent}
    assert state(replayed(table.spec, [rent])) == state(history)
    assert history.apply(ev.MachineRented(START, "a", "spot", 1.0))
    assert not history.fleet.renting
    assert history.apply(ev.Rent(START, "b", "spot"))
    assert history.apply(ev.MachineLost(START, "b", "no capacity"))
    assert not history.fleet.renting
    assert list(history.machines) == ["a"]
    history.validate()


def test_entries_that_change_nothing_in_this_version_still_count() -> None:
    """Otherwise the next read and the next write would use a wrong entry number."""
    started = ev.DriverStarted(START, 1, "host")
    log = [
        started,
        ev.MachineReleased(START, "unknown"),
        ev.StopRequested(START, "a"),
        ev.StopRequested(START, "b"),
    ]
    history = History(SPACE, LOSS, 0).apply_log(log)
    assert history.entries == 4
    assert history.stop_requested_by == "a"


def test_driven_seconds_leave_out_the_time_between_drives() -> None:
    table = Table(trials=1)
    table.later(10)
    table(ev.StopRequested(table.now, "Ctrl-C"))
    table.end(0, cut=True)
    table.stop()
    table.now += 1000
    assert table.history.driven_seconds(table.now) == 10
    table.kill_driver()
    table.start()
    table.now += 5
    assert table.history.driven_seconds(table.now) == 15
    assert table.history.started_at == START
    assert table.trial(0).seconds == 10
    assert table.trial(0).state is State.RUNNING


def test_driven_seconds_at_any_past_time() -> None:
    table = Table()
    table.now += 10
    table.stop()
    table.now += 1000
    table.start()
    table.now += 5
    table.report(0, 1, loss=0.5)
    table.kill_driver()
    table.now += 100
    table.start()
    table.now += 20
    moments = [START, START + 4, START + 10, START + 1010, START + 1013, START + 1015, START + 1115, START + 1135]
    assert [table.history.driven_seconds_until(at) for at in moments] == [0, 4, 10, 10, 13, 15, 15, 35]
    assert table.history.driven_seconds(table.now) == 35


def test_timed_steps_of_a_past_attempt_do_not_change_later() -> None:
    table = Table(max_steps=9)
    for step, seconds in ((1, 30), (2, 4), (4, 8)):
        table.now += seconds
        table.report(0, step, loss=0.5, saved=step == 2)
    table.lose(0)
    assert [(stay.timed_steps, stay.timed_seconds) for stay in table.trial(0).past_attempts] == [(3, 12)]
    table.now += 50
    table.report(0, 3, loss=0.5)  # a step that the first attempt did not report
    table.now += 5
    table.report(0, 4, loss=0.5)
    table.now += 5
    table.lose(0)
    table.lose(0)
    assert [(stay.timed_steps, stay.timed_seconds) for stay in table.trial(0).past_attempts] == [
        (3, 12),
        (1, 5),
        (0, 0.0),
    ]
