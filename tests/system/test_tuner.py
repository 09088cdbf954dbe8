"""The tuner, on studies whose steps take as long as the test says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

import thriftune as tt
from thriftune.space.objectives import Objective
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.system import Knob
from thriftune.system.knobs import Memory, Threads
from thriftune.system.knowledge import OTHERS, OWN, PROCESS
from thriftune.system.tuner import CoreShares, SystemTuner

MAX_STEPS = 12
SPACE = tt.Space({"batch_size": tt.Choice([32, 1024]), "lr": tt.Float(0.0, 1.0)})

Speed = Callable[[Mapping[str, Any], Mapping[str, Any], int], float]
"""Returns the seconds of a step, by configuration, setting, and number of trials on the machine."""


def profile(config: Mapping[str, Any]) -> dict[str, float]:
    large = config["batch_size"] == 1024
    return {"user_seconds": 0.6 if large else 0.98, "system_seconds": 0.4 if large else 0.01,
            "minor_faults": 90_000.0 if large else 10.0, "resident_bytes": 4e8}  # fmt: skip


def by_batch(config: Mapping[str, Any], setting: Mapping[str, Any], beside: int) -> float:
    """Large batches are faster with memory kept; all are faster with two threads."""
    seconds = 0.6 if config["batch_size"] == 1024 and setting.get("memory") == "kept" else 1.0
    return seconds / {1: 1.0, 2: 1.7}.get(setting.get("threads", 1), 2.0)


@dataclass
class Machine:
    """The history of a machine, and the decisions about its trials."""

    tuner: SystemTuner
    speed: Speed = by_batch
    slots: int = 2
    history: History = field(default_factory=lambda: History(SPACE, [Objective("loss", False)], 0, (), MAX_STEPS))
    now: float = 0.0
    kind: str = "one"
    refuses: frozenset[str] = frozenset()  # knobs that cannot be applied here
    always: Mapping[str, Any] = field(default_factory=dict)  # the setting that the process has anyway
    waiting: float = 0.0  # the share of the time in which programs wait for a core

    def __post_init__(self) -> None:
        self.take(ev.DriverStarted(0.0, 1, "here"))
        self.take(ev.MachineReady(0.0, "here", "any", self.slots, 1.0))

    def take(self, event: ev.Event) -> list[ev.Decision]:
        assert self.history.apply(event), event
        found = list(self.tuner.react(event, self.history))
        for decision in found:
            assert self.history.apply(decision), decision
        return found

    def start(self, batch_size: int, lr: float = 0.5) -> int:
        trial = len(self.history.trials)
        self.take(ev.Create(self.now, trial, {"batch_size": batch_size, "lr": lr}))
        self.take(ev.Place(self.now, trial, 1, "here", 0))
        return trial

    def step(self, trial: int) -> Mapping[str, Any]:
        """Let the trial train a step; return the setting it had."""
        record = self.history.trials[trial]
        setting = {name: value for name, value in record.knob_setting.items() if name not in self.refuses}
        setting |= self.always
        beside = len(self.history.machines["here"].running)
        step = len(record.windows) + 1
        cold = 1.3 if step == 1 else 1.0
        seconds = cold * self.speed(record.config, setting, beside)
        self.now += seconds
        self.take(
            ev.UsageMeasured(
                self.now,
                trial,
                1,
                step,
                1,
                seconds,
                setting,
                step == 1,
                {**profile(record.config), "cpu_pressure_seconds": self.waiting},
                self.kind,
            )
        )
        self.history.apply(ev.Reported(self.now, trial, 1, step, step, {"loss": 1.0}))
        return setting

    def train(self, trial: int, steps: int = MAX_STEPS) -> list[Mapping[str, Any]]:
        settings = [self.step(trial) for _ in range(steps)]
        self.end(trial)
        return settings

    def end(self, trial: int) -> None:
        self.take(ev.Ended(self.now, trial, 1, 1.0))

    def why(self, trial: int) -> str:
        return self.history.trials[trial].knob_changes[-1][1].why


class Plain(Memory):
    """Memory that can be restored."""

    lasts = False


def tuner(*, cores: int = 2, slots: int = 2, knobs: Sequence[Knob] | None = None, **more: Any) -> SystemTuner:
    knobs = [Plain(), Threads()] if knobs is None else knobs
    return SystemTuner(knobs, more.pop("options", {}), CoreShares(cores / slots), **more)


def test_a_trial_with_several_workers_is_not_tuned() -> None:
    """A plan for a deadline may give a trial more workers in its next attempt."""
    machine = Machine(tuner())
    trial, other = machine.start(1024), machine.start(1024)
    machine.train(other)
    machine.step(trial)
    machine.step(trial)
    assert machine.history.trials[trial].knob_setting
    machine.take(ev.Pause(machine.now, trial, 1, "its stage is over"))
    machine.take(ev.Ended(machine.now, trial, 1, 1.0, cut=True))
    machine.take(ev.Promote(machine.now, trial))
    machine.take(ev.Place(machine.now, trial, 2, "here", 2, {"here": 2}))
    assert machine.history.trials[trial].knob_setting == {}
    assert machine.why(trial) == "trials with several workers are not tuned"


def test_a_trial_is_measured_before_built_in_knobs_are_applied() -> None:
    machine = Machine(tuner())
    trial, _ = machine.start(1024), machine.start(32)
    settings = machine.train(trial)
    assert settings[:2] == [{}, {}], "the first step alone does not tell what the others take"
    assert settings[2:] == [{"memory": "kept"}] * 10
    changes = machine.history.trials[trial].knob_changes
    assert [change.by for _, change in changes] == [ev.PROBE, OWN]
    first, then = (change.why for _, change in changes)
    assert re.fullmatch(r"\d% less a step than with no knob expected \(error \d\d%\)", first)
    assert re.fullmatch(r"[23]\d% less a step than with no knob \(error \d+%\)", then)


def test_an_option_that_does_not_help_is_not_used() -> None:
    machine = Machine(tuner(knobs=[], options={"mode": ["a", "b"]}), speed=lambda *_: 1.0)
    settings = machine.train(machine.start(32))
    assert settings[2] == {"mode": "b"}
    assert settings.count({"mode": "b"}) <= 3
    assert settings[-4:] == [{}] * 4


def test_a_knob_that_is_clearly_worse_is_removed_after_one_window() -> None:
    machine = Machine(tuner(knobs=[Plain()]), speed=lambda config, setting, beside: 2.0 if setting else 1.0)
    settings = machine.train(machine.start(32))
    assert settings.count({"memory": "kept"}) == 1


def test_a_knob_that_trials_found_bad_is_not_applied_again() -> None:
    machine = Machine(
        tuner(knobs=[Threads()]), speed=lambda config, setting, beside: 1.5 if "threads" in setting else 1.0
    )
    counts = [machine.train(machine.start(32)).count({"threads": 2}) for _ in range(4)]
    assert counts[0] <= 3
    assert sum(counts) <= 6
    assert counts[-1] == 0


def test_a_bad_effect_in_one_trial_does_not_stop_others_that_gain() -> None:
    """A probe may meet a bad minute of the machine."""

    def speed(config: Mapping[str, Any], setting: Mapping[str, Any], beside: int) -> float:
        return threads if "threads" in setting else 1.0

    threads = 1.3
    machine = Machine(tuner(knobs=[Threads()]), speed=speed)
    assert machine.train(machine.start(32))[-1] == {}
    threads = 0.6
    machine.train(machine.start(32))
    assert machine.train(machine.start(32))[-6:] == [{"threads": 2}] * 6


def test_later_trials_begin_with_knobs_that_helped_all_others() -> None:
    machine = Machine(tuner())
    for _ in range(5):
        trial, beside = machine.start(1024), machine.start(1024)
        machine.train(trial)
        machine.train(beside)
    trial, _ = machine.start(1024), machine.start(1024)
    assert machine.history.trials[trial].knob_setting["memory"] == "kept"
    assert machine.history.trials[trial].knob_changes[-1][1].by == OTHERS
    assert re.fullmatch(r"\d\d% less a step than with no knob expected \(error \d+%\)", machine.why(trial))


def test_a_trial_is_measured_first_where_others_disagree() -> None:
    """Large batches gain by kept memory, and small ones lose."""

    def speed(config: Mapping[str, Any], setting: Mapping[str, Any], beside: int) -> float:
        gain = 0.6 if config["batch_size"] == 1024 else 1.4
        return gain if "memory" in setting else 1.0

    machine = Machine(tuner(knobs=[Plain()]), speed=speed)
    for batch_size in (1024, 32) * 4:
        machine.train(machine.start(batch_size))
    large, small = machine.start(1024), machine.start(32)
    assert machine.train(large)[0] == {}
    assert machine.history.trials[large].knob_setting == {"memory": "kept"}
    machine.train(small)
    assert machine.history.trials[small].knob_setting == {}


def test_idle_cores_are_used_and_returned() -> None:
    machine = Machine(tuner(knobs=[Threads()]))
    trial, other = machine.start(32), machine.start(32)
    for _ in range(8):
        machine.step(trial)
    machine.end(other)
    assert machine.history.trials[trial].knob_setting == {"threads": 2}, "as soon as they are idle"
    assert [machine.step(trial) for _ in range(3)] == [{"threads": 2}] * 3
    machine.start(32)
    assert machine.history.trials[trial].knob_setting == {}, "another trial uses them again"


def test_an_attempt_that_begins_leaves_cores_to_trials_that_may_follow() -> None:
    """One that leaves still has its slot: another of the same rung may be about to begin there, and a step with
    more threads than cores may take long."""
    machine = Machine(tuner(knobs=[Threads()]))
    trial, leaving = machine.start(32), machine.start(32)
    for _ in range(8):
        machine.step(trial)
    machine.take(ev.Lost(machine.now, trial, 1, "its machine is gone"))
    machine.take(ev.Pause(machine.now, leaving, 1, "by halving"))
    machine.take(ev.Place(machine.now, trial, 2, "here", 8))
    assert machine.history.trials[trial].knob_setting == {}


@pytest.mark.parametrize(
    ("trials", "decision", "setting"),
    [(2, ev.Stop, {"threads": 2}), (3, ev.Stop, {}), (2, ev.Pause, {})],
)
def test_the_cores_of_a_stopping_trial_are_idle_if_no_trial_follows(
    trials: int, decision: type[ev.Stop | ev.Pause], setting: Mapping[str, Any]
) -> None:
    """Else a step begins with threads that share a core with whoever comes, and takes ten times as long."""
    machine = Machine(tuner(knobs=[Threads()], trials=trials))
    trial, leaving = machine.start(32), machine.start(32)
    for _ in range(3):
        machine.step(trial)
    machine.take(decision(machine.now, leaving, 1, "by a rule"))
    machine.step(trial)
    assert machine.history.trials[trial].knob_setting == setting


def test_an_attempt_that_begins_beside_an_idle_slot_has_its_cores_at_once() -> None:
    machine = Machine(tuner(knobs=[Threads()]))
    trial = machine.start(32)
    for _ in range(6):
        machine.step(trial)
    assert machine.history.trials[trial].knob_setting == {"threads": 2}
    machine.take(ev.Lost(machine.now, trial, 1, "its machine is gone"))
    machine.take(ev.Place(machine.now, trial, 2, "here", 6))
    assert machine.history.trials[trial].knob_setting == {"threads": 2}


def test_a_knob_that_refuses_is_not_applied_again() -> None:
    machine = Machine(tuner(), refuses=frozenset(["memory"]))
    trial, other = machine.start(1024), machine.start(1024)
    machine.train(trial)
    third = machine.start(1024)
    machine.train(other)
    for each in (trial, other):
        applied = [change.setting for _, change in machine.history.trials[each].knob_changes]
        assert applied == [{"memory": "kept"}, {}]
    machine.start(1024)
    machine.train(third)
    assert not machine.history.trials[third].knob_changes, "two have been refused it"


class Dial(Plain):
    """With many values."""

    name = "dial"

    def values(self, cores: int) -> Sequence[int]:  # type: ignore[override]
        return range(1, 9)


def test_a_knob_that_has_refused_three_values_is_not_tried_with_others() -> None:
    machine = Machine(tuner(knobs=[Dial(), Plain()]), refuses=frozenset(["dial"]))
    first, second = machine.start(1024), machine.start(1024)
    for trial in (first, second):
        settings = [machine.step(trial) for _ in range(MAX_STEPS)]
        applied = [
            change.setting["dial"]
            for _, change in machine.history.trials[trial].knob_changes
            if "dial" in change.setting
        ]
        assert applied == sorted(set(applied))
        assert len(applied) == 3
        assert settings[-1] == {"memory": "kept"}, "there is time for the others"
    machine.end(first)
    third = machine.start(1024)
    machine.train(third)
    assert not any("dial" in change.setting for _, change in machine.history.trials[third].knob_changes), (
        "two have found out"
    )
    again = tuner(knobs=[Dial(), Plain()])
    for trial in (first, second, third):
        record = machine.history.trials[trial]
        assert again._refused(record, machine.history) == machine.tuner._refused(record, machine.history)


def test_options_are_probed() -> None:
    def loaders(config: Mapping[str, Any], setting: Mapping[str, Any], beside: int) -> float:
        return {0: 1.0, 1: 0.8, 2: 0.5}[setting.get("loaders", 0)]

    machine = Machine(tuner(knobs=[], options={"loaders": [0, 1, 2]}), speed=loaders)
    trial, _ = machine.start(32), machine.start(32)
    assert machine.train(trial)[-1] == {"loaders": 2}


@pytest.mark.parametrize(("aim", "threads"), [("time", {"threads": 2}), ("dollars", {})])
def test_for_dollars_a_core_that_helps_little_is_not_used(aim: str, threads: dict[str, int]) -> None:
    machine = Machine(tuner(knobs=[Threads()], aim=aim))
    assert machine.train(machine.start(32))[-1] == threads


def test_energy_may_be_the_aim() -> None:
    machine = Machine(tuner(knobs=[Plain()], aim="energy"))
    trial = machine.start(32)
    for step in range(1, 9):
        setting = dict(machine.history.trials[trial].knob_setting)
        joules = 3.0 if setting else 5.0
        counters = profile({"batch_size": 32})
        machine.take(
            ev.UsageMeasured(
                float(step), trial, 1, step, 1, 1.0, setting, step == 1, counters, "one", joules, "RAPL"
            )
        )
    assert machine.history.trials[trial].knob_setting == {"memory": "kept"}


@pytest.mark.parametrize(
    ("cores", "slots", "running", "usual", "share"),
    [(2, 2, 2, 1, 1), (2, 2, 1, 1, 2), (16, 4, 4, 4, 4), (16, 4, 3, 4, 5), (16, 16, 1, 1, 16), (2, 4, 4, 1, 1)],
)
def test_core_shares(cores: int, slots: int, running: int, usual: int, share: int) -> None:
    room = CoreShares(cores / slots)
    assert room.usual_threads == usual
    assert room.share(slots, running) == share


def test_a_trial_that_began_with_a_knob_still_gets_idle_cores() -> None:
    machine = Machine(tuner(knobs=[Memory(), Threads()]), always={"memory": "kept"})
    trial, other = machine.start(1024), machine.start(1024)
    for _ in range(3):
        machine.step(trial)
    machine.end(other)
    assert [machine.step(trial) for _ in range(3)] == [{"memory": "kept", "threads": 2}] * 3
    assert " less a step than with memory kept" in machine.why(trial)


class Restarted(Plain):
    restarts = True


def test_a_knob_that_restarts_is_applied_when_an_attempt_begins() -> None:
    machine = Machine(tuner(knobs=[Restarted()]))
    trial, _ = machine.start(1024), machine.start(32)
    assert [machine.step(trial) for _ in range(4)] == [{}] * 4
    machine.take(ev.Lost(machine.now, trial, 1, "gone"))
    machine.take(ev.Place(machine.now, trial, 2, "here", 4))
    record = machine.history.trials[trial]
    assert record.knob_setting == {"memory": "kept"}
    for step in range(5, 8):
        now = machine.now + step
        machine.take(
            ev.UsageMeasured(
                now, trial, 2, step, 1, 0.6, record.knob_setting, False, profile(record.config), "one"
            )
        )
        assert record.knob_setting == {"memory": "kept"}
    assert record.knob_changes[-1][1].by == OWN


def test_windows_on_another_kind_of_machine_do_not_count() -> None:
    machine = Machine(
        tuner(knobs=[], options={"mode": ["a", "b"]}), speed=lambda _, setting, __: 0.5 if setting else 1.0
    )
    trial, _ = machine.start(1024), machine.start(32)
    for _ in range(5):
        machine.step(trial)
    assert machine.history.trials[trial].knob_setting == {"mode": "b"}
    machine.kind = "another"
    machine.speed = lambda _, setting, beside: 2.0 if setting else 1.0
    assert [machine.step(trial) for _ in range(5)][-2:] == [{}, {}]


def test_a_retry_does_not_begin_with_the_setting_that_failed() -> None:
    machine = Machine(tuner(knobs=[], options={"mode": ["a", "b"]}))
    trial, _ = machine.start(32), machine.start(32)
    for _ in range(2):
        machine.step(trial)
    assert machine.history.trials[trial].knob_setting == {"mode": "b"}
    machine.take(ev.Failed(machine.now, trial, 1, "raised", "no such mode"))
    machine.take(ev.Place(machine.now, trial, 2, "here", 2))
    assert machine.history.trials[trial].knob_setting == {}
    assert machine.why(trial) == "it failed with mode b"


def test_a_setting_with_which_two_trials_failed_is_not_probed_again() -> None:
    machine = Machine(tuner(knobs=[], options={"mode": ["a", "b"]}))
    for _ in range(2):
        trial = machine.start(32)
        for _ in range(MAX_STEPS):
            if machine.history.trials[trial].knob_setting != {"mode": "b"}:
                machine.step(trial)
        assert machine.history.trials[trial].knob_setting == {"mode": "b"}
        machine.take(ev.Failed(machine.now, trial, 1, "raised", "no such mode"))
    third = machine.start(32)
    assert machine.train(third) == [{}] * MAX_STEPS


def test_a_knob_that_lasts_stays_for_the_next_trial_of_the_process() -> None:
    machine = Machine(tuner(knobs=[Memory(), Threads()]))
    trial, _ = machine.start(32), machine.start(32)
    machine.always = {"memory": "kept"}
    settings = machine.train(trial)
    assert settings == [{"memory": "kept"}] * MAX_STEPS
    assert {change.by for _, change in machine.history.trials[trial].knob_changes} == {PROCESS}, (
        "it has found out nothing"
    )
    assert machine.history.trials[trial].knob_setting == {"memory": "kept"}


def test_thousands_of_short_trials_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tuner())
    monkeypatch.setattr(machine.tuner, "_decide_all", lambda *_: pytest.fail("it decides"))
    for _ in range(10):
        machine.end(machine.start(32))


def test_a_knob_that_lasts_is_in_every_later_setting() -> None:
    """Memory stays kept in the process, so a setting without it cannot be measured again."""
    machine = Machine(tuner(knobs=[Memory(), Threads()]))
    trial, other = machine.start(1024), machine.start(32)
    for _ in range(4):
        machine.step(trial)
    machine.end(other)
    machine.always = {"memory": "kept"}
    settings = [machine.step(trial) for _ in range(6)]
    assert settings == [{"memory": "kept", "threads": 2}] * 6
    applied = [change.setting for _, change in machine.history.trials[trial].knob_changes]
    assert applied == [{"memory": "kept"}, {"memory": "kept"}, *[{"memory": "kept", "threads": 2}] * 2]


@pytest.mark.parametrize(
    "seconds",
    [
        lambda step: 0.9 if step % 3 == 0 else 0.3,  # every third one validates
        lambda step: 0.9 if step % 3 == 1 else 0.3,
        lambda step: 0.1 * step,
        lambda step: 1.5 / step,
        lambda step: [0.05, 1.5, 0.1, 0.6, 0.3, 0.3, 1.2][step % 7],
    ],
)
def test_steps_of_unequal_length_are_no_effect_of_an_option(seconds: Callable[[int], float]) -> None:
    machine = Machine(tuner(knobs=[], options={"mode": ["a", "b"]}), speed=lambda *_: 1.0)
    for _ in range(4):
        trial = machine.start(32)
        machine.speed = lambda *_, of=machine.history.trials[trial]: seconds(len(of.windows) + 1)
        machine.train(trial, 18)
    estimate = machine.tuner._knowledge.estimate(machine.history.trials[3], machine.history)
    effect = estimate.effect({"mode": "b"}, {})
    assert abs(effect.log_ratio) < max(0.15, 2 * effect.error)


def test_cores_that_other_programs_wait_for_are_not_used() -> None:
    machine = Machine(tuner(knobs=[Threads()]), waiting=0.6)
    trial = machine.start(32)
    assert [machine.step(trial) for _ in range(5)] == [{}] * 5
    machine.waiting = 0.02
    machine.step(trial)
    assert machine.step(trial) == {"threads": 2}, "they are free again"
    machine.waiting = 0.6
    assert [machine.step(trial) for _ in range(2)] == [{"threads": 2}] * 2, "what it has seen to be good is kept"


def test_a_trial_with_noisy_steps_is_probed_too() -> None:
    """After three windows more of them would tell little."""
    machine = Machine(tuner(knobs=[Plain()]), speed=lambda *_: 1.0)
    trial = machine.start(32)
    record = machine.history.trials[trial]
    machine.speed = lambda *_: 1.0 + 0.6 * (len(record.windows) % 2)
    assert {"memory": "kept"} in machine.train(trial, 8)
