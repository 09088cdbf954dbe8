"""How shall each trial use its machine now? The policy, on studies whose steps take as long as the test says."""

from __future__ import annotations

import math
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
from thriftune.system.knowledge import OWN, PROCESS
from thriftune.system.known_work import Work, key
from thriftune.system.similarity import Nearest
from thriftune.system.together import AT_A_TIME
from thriftune.system.tuner import Room, SystemTuner

MAX_STEPS = 12
SPACE = tt.Space({"batch_size": tt.Choice([32, 1024]), "lr": tt.Float(0.0, 1.0)})

Speed = Callable[[Mapping[str, Any], Mapping[str, Any], int], float]
"""Seconds of a step: of the configuration, the setting, and how many trials there are on the machine."""


def profile(config: Mapping[str, Any]) -> dict[str, float]:
    large = config["batch_size"] == 1024
    return {"user_seconds": 0.6 if large else 0.98, "system_seconds": 0.4 if large else 0.01,
            "minor_faults": 90_000.0 if large else 10.0, "resident_bytes": 4e8}  # fmt: skip


def by_batch(config: Mapping[str, Any], setting: Mapping[str, Any], beside: int) -> float:
    """Large batches are quicker with memory kept; two threads help everybody."""
    seconds = 0.6 if config["batch_size"] == 1024 and setting.get("memory") == "kept" else 1.0
    return seconds / {1: 1.0, 2: 1.7}.get(setting.get("threads", 1), 2.0)


@dataclass
class Machine:
    """A history of a machine with so many cores, and what is decided about its trials."""

    tuner: SystemTuner
    speed: Speed = by_batch
    slots: int = 2
    history: History = field(default_factory=lambda: History(SPACE, [Objective("loss", False)], 0, (), MAX_STEPS))
    now: float = 0.0
    kind: str = "one"
    deaf: frozenset[str] = frozenset()  # knobs that do not turn here
    always: Mapping[str, Any] = field(default_factory=dict)  # in force from before
    waiting: float = 0.0  # for cores, by whatever else runs there

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
        """Has it train for a step; returns the setting it did that with."""
        record = self.history.trials[trial]
        setting = {name: value for name, value in record.knob_setting.items() if name not in self.deaf}
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
    """One that can be taken back."""

    lasts = False


def tuner(
    known: Sequence[Work] = (), *, cores: int = 2, slots: int = 2, knobs: Sequence[Knob] | None = None, **more: Any
) -> SystemTuner:
    knobs = [Plain(), Threads()] if knobs is None else knobs
    return SystemTuner(knobs, more.pop("options", {}), Room(cores / slots), lambda _: known, Nearest(), **more)


def test_a_trial_is_measured_then_looks_then_keeps_what_is_best() -> None:
    machine = Machine(tuner())
    trial, _ = machine.start(1024), machine.start(32)
    settings = machine.train(trial)
    assert settings[:2] == [{}, {}], "the first step is no measure of the others"
    assert settings[2] == {"memory": "kept"}
    assert settings[3:] == [{"memory": "kept"}] * 9
    turn = machine.history.trials[trial].knob_changes
    assert [each.by for _, each in turn] == [ev.PROBE, OWN]
    first, then = (each.why for _, each in turn)
    assert first == "looks at it"
    assert re.fullmatch(r"3\d% less a step than with nothing turned \(error 1\d%\)", then)


def test_where_it_does_not_help_it_is_put_back() -> None:
    machine = Machine(tuner())
    trial, _ = machine.start(32), machine.start(32)
    settings = machine.train(trial)
    assert settings[2] == {"memory": "kept"}
    assert settings.count({"memory": "kept"}) <= 3, "one window can be wrong, three are not"
    assert settings[-4:] == [{}] * 4


def test_what_is_clearly_worse_is_put_back_at_once() -> None:
    machine = Machine(tuner(knobs=[Plain()]), speed=lambda config, setting, beside: 1.4 if setting else 1.0)
    settings = machine.train(machine.start(32))
    assert settings.count({"memory": "kept"}) == 1


def test_trials_with_a_profile_like_one_that_is_known_look_no_more() -> None:
    machine = Machine(tuner())
    first, second = machine.start(1024), machine.start(32)
    machine.train(first)
    third = machine.start(1024)
    settings = machine.train(third)
    assert settings == [{}] + [{"memory": "kept"}] * 11, "at once after its first step"
    assert machine.why(third).startswith("like other trials (distance ")
    assert machine.train(second, 1) == [{}]


def test_what_one_trial_found_bad_another_looks_at_before_the_study_drops_it() -> None:
    """It may have looked in a bad minute of the machine."""

    def speed(config: Mapping[str, Any], setting: Mapping[str, Any], beside: int) -> float:
        return threads if "threads" in setting else 1.0

    threads = 1.3
    machine = Machine(tuner(knobs=[Threads()]), speed=speed)
    first = machine.train(machine.start(32))
    assert first.count({"threads": 2}) == 1, "for itself, it drops it at once"
    threads = 0.6
    assert machine.train(machine.start(32))[-6:] == [{"threads": 2}] * 6


@pytest.mark.parametrize(("threads", "lookers"), [(1.3, [0, 1]), (1.0, [0, 1]), (3.0, [0])])
def test_what_two_trials_found_bad_is_dropped_and_so_is_what_is_far_worse(
    threads: float, lookers: list[int]
) -> None:
    machine = Machine(
        tuner(knobs=[Threads()]), speed=lambda config, setting, beside: threads if "threads" in setting else 1.0
    )
    looked = [trial for trial in range(4) if {"threads": 2} in machine.train(machine.start(32))]
    assert looked == lookers
    works = machine.tuner.works(machine.history)["one"]
    later = Machine(tuner(works, knobs=[Threads()]), speed=machine.speed)
    assert later.train(later.start(32)) == [{}] * MAX_STEPS


def test_trials_with_hyperparameters_like_others_begin_with_what_was_best_for_these() -> None:
    machine = Machine(tuner())
    for batch_size in (1024, 32, 1024, 32):
        trial, beside = machine.start(batch_size), machine.start(32)
        machine.train(trial)
        machine.end(beside)
    large, small = machine.start(1024), machine.start(32)
    assert machine.history.trials[large].knob_setting == {"memory": "kept"}
    assert machine.why(large) == (
        "as for trials with batch_size near 1024: 40% less a step than with nothing turned (error 5%)"
    )
    assert machine.history.trials[small].knob_setting == {}
    assert machine.train(large) == [{"memory": "kept"}] * 12


def test_cores_that_nobody_else_uses_are_used_and_given_back() -> None:
    machine = Machine(tuner())
    trial, other = machine.start(32), machine.start(32)
    for _ in range(8):
        machine.step(trial)
    machine.end(other)
    assert machine.history.trials[trial].knob_setting == {"threads": 2}, "looks at it as soon as they are free"
    assert [machine.step(trial) for _ in range(3)] == [{"threads": 2}] * 3, "far better than company can tell"
    machine.start(32)
    assert machine.history.trials[trial].knob_setting == {}, "they are another's again"


def test_a_trial_that_begins_leaves_cores_to_those_that_may_come_with_it() -> None:
    """One that leaves still has its slot: another of the same rung may be about to begin there, and a step with
    more threads than cores may take long."""
    machine = Machine(tuner())
    trial, leaving = machine.start(32), machine.start(32)
    for _ in range(8):
        machine.step(trial)
    machine.take(ev.Lost(machine.now, trial, 1, "its machine is gone"))
    machine.take(ev.Pause(machine.now, leaving, 1, "by halving"))
    machine.take(ev.Place(machine.now, trial, 2, "here", 8))
    assert machine.history.trials[trial].knob_setting == {}


@pytest.mark.parametrize(
    ("trials", "told", "setting"),
    [(2, ev.Stop, {"threads": 2}), (3, ev.Stop, {}), (2, ev.Pause, {})],
)
def test_the_cores_of_one_that_leaves_are_idle_where_nobody_comes_to_its_slot(
    trials: int, told: type[ev.Stop | ev.Pause], setting: Mapping[str, Any]
) -> None:
    """Else a step begins with threads that share a core with whoever comes, and takes ten times as long."""
    known = [Work(profile({"batch_size": 32}), {key({"threads": 2}): 0.6})]
    machine = Machine(tuner(known, knobs=[Threads()], trials=trials))
    trial, leaving = machine.start(32), machine.start(32)
    machine.step(trial)
    machine.take(told(machine.now, leaving, 1, "by a rule"))
    machine.step(trial)
    assert machine.history.trials[trial].knob_setting == setting


def test_a_trial_that_begins_where_nobody_else_comes_has_idle_cores_at_once() -> None:
    machine = Machine(tuner())
    trial = machine.start(32)
    for _ in range(6):
        machine.step(trial)
    assert machine.history.trials[trial].knob_setting == {"threads": 2}
    machine.take(ev.Lost(machine.now, trial, 1, "its machine is gone"))
    machine.take(ev.Place(machine.now, trial, 2, "here", 6))
    assert machine.history.trials[trial].knob_setting == {"threads": 2}


def test_what_past_studies_knew_is_taken_after_the_first_step() -> None:
    past = Machine(tuner())
    trial, other = past.start(1024), past.start(32)
    for _ in range(6):
        past.step(trial)
    past.end(other)
    past.train(trial, 6)
    works = past.tuner.works(past.history)["one"]
    assert past.tuner.works(past.history).keys() == {"one"}
    machine = Machine(tuner(works))
    trial = machine.start(1024)
    assert machine.train(trial) == [{}] + [{"memory": "kept", "threads": 2}] * 11
    assert not any("looks" in turn.why for _, turn in machine.history.trials[trial].knob_changes)


def found_out_apart(trials: int, of_the_second: float = 0.6) -> list[Work]:
    """What a study knows in which so many trials looked at memory, beside each other, and as many at threads,
    alone, in a process that kept memory before."""

    def speed(config: Mapping[str, Any], setting: Mapping[str, Any], beside: int) -> float:
        kept = of_the_second if config["lr"] == 1.0 else 0.6
        return (kept if "memory" in setting else 1.0) / float(setting.get("threads", 1))

    machine = Machine(tuner(knobs=[Memory(), Threads()]), speed=speed)
    beside = [machine.start(1024, lr) for lr in (0.5, 1.0)]
    for _ in range(5):
        for trial in beside[:trials]:
            machine.step(trial)
    for trial in beside:
        machine.end(trial)
    machine.always = {"memory": "kept"}
    for _ in range(trials):
        assert machine.train(machine.start(1024))[-1] == {"memory": "kept", "threads": 2}
    return machine.tuner.works(machine.history)["one"]


def test_what_trials_of_a_study_found_out_apart_the_next_study_knows_together() -> None:
    known = found_out_apart(2)
    assert {work.under for work in known} == {"{}", '{"memory":"kept"}'}
    machine = Machine(tuner(known, knobs=[Memory(), Threads()]))
    trial = machine.start(1024)
    assert machine.train(trial) == [{}] + [{"memory": "kept", "threads": 2}] * (MAX_STEPS - 1)
    assert not any(turn.by == ev.PROBE for _, turn in machine.history.trials[trial].knob_changes)


def test_what_is_known_of_work_that_began_with_what_a_trial_has_come_to_serves_it_too() -> None:
    """Most trials begin with memory kept, as their process has it from others; the first of each cannot."""
    like = profile({"batch_size": 1024})
    kept, both = key({"memory": "kept"}), key({"memory": "kept", "threads": 2})
    known = [Work(like, {kept: 0.6}), Work(like, {both: 0.5, "{}": 1.7}, kept)]
    machine = Machine(tuner(known, knobs=[Memory(), Threads()]))
    trial, other = machine.start(1024), machine.start(1024)
    for _ in range(3):
        machine.step(trial)
    machine.end(other)
    assert machine.history.trials[trial].knob_setting == {"memory": "kept", "threads": 2}
    assert not any(turn.by == ev.PROBE for _, turn in machine.history.trials[trial].knob_changes)


@pytest.mark.parametrize("known", [found_out_apart(1), found_out_apart(2, of_the_second=1.0)])
def test_what_a_single_trial_found_or_what_is_not_the_same_for_all_is_told_of_no_other(known: list[Work]) -> None:
    assert not any("{}" in work.effects for work in known if work.under == '{"memory":"kept"}')


def test_a_window_in_a_bad_moment_does_not_belie_what_is_known() -> None:
    """Another trial has not quite left its core."""
    moments = iter([1.1])
    works = [Work(profile({"batch_size": 32}), {key({"threads": 2}): 0.6})]
    machine = Machine(
        tuner(works, knobs=[Threads()]),
        speed=lambda config, setting, beside: next(moments, 0.6) if setting else 1.0,
    )
    trial, beside = machine.start(32), machine.start(32)
    for _ in range(4):
        machine.step(trial)
        machine.step(beside)
    machine.end(beside)
    assert machine.train(trial, MAX_STEPS - 4) == [{"threads": 2}] * (MAX_STEPS - 4)


def test_of_a_study_with_many_trials_the_last_are_told_to_others() -> None:
    """So as not to crowd out what other studies know."""
    machine = Machine(tuner(knobs=[Threads()]))
    for _ in range(103):
        machine.train(machine.start(32), 5)
    (told,) = machine.tuner.works(machine.history).values()
    assert 100 < len(told) <= 200, "at most two profiles each"


def test_a_users_own_similarity_that_answers_something_else_is_told_so() -> None:
    class Odd:
        def match(self, profile: Mapping[str, float], known: Sequence[Work]) -> Any:
            return "rubbish"

    machine = Machine(SystemTuner([Plain()], {}, Room(1.0), lambda _: (), Odd()))
    trial = machine.start(32)
    with pytest.raises(tt.ThriftuneError, match=r"system: Odd\.match returned 'rubbish'"):
        machine.step(trial)


def test_other_machines_know_nothing_of_this_one() -> None:
    past = Machine(tuner())
    past.train(past.start(1024))
    known = past.tuner.works(past.history)
    machine = Machine(
        SystemTuner([Plain()], {}, Room(1.0), lambda kind: known.get(kind, []), Nearest()), kind="another"
    )
    trial, _ = machine.start(1024), machine.start(32)
    assert machine.train(trial)[1] == {}


def test_a_knob_that_does_not_turn_here_is_not_turned_again() -> None:
    machine = Machine(tuner(), deaf=frozenset(["memory"]))
    trial, other = machine.start(1024), machine.start(1024)
    machine.train(trial)
    third = machine.start(1024)
    machine.train(other)
    for each in (trial, other):
        told = [turn.setting for _, turn in machine.history.trials[each].knob_changes]
        assert told == [{"memory": "kept"}, {}]
    machine.start(1024)
    machine.train(third)
    assert not machine.history.trials[third].knob_changes, "two have been refused it"


class Dial(Plain):
    """With many values."""

    name = "dial"

    def values(self, cores: int) -> Sequence[int]:  # type: ignore[override]
        return range(1, 9)


def test_a_knob_that_was_refused_three_values_is_not_tried_with_the_others() -> None:
    machine = Machine(tuner(knobs=[Dial(), Plain()]), deaf=frozenset(["dial"]))
    first, second = machine.start(1024), machine.start(1024)
    for trial in (first, second):
        settings = [machine.step(trial) for _ in range(MAX_STEPS)]
        told = [
            turn.setting["dial"]
            for _, turn in machine.history.trials[trial].knob_changes
            if "dial" in turn.setting
        ]
        assert told == sorted(set(told))
        assert len(told) == 3
        assert settings[-1] == {"memory": "kept"}, "there is time for the others"
    machine.end(first)
    third = machine.start(1024)
    machine.train(third)
    assert not any("dial" in turn.setting for _, turn in machine.history.trials[third].knob_changes), (
        "two have found out"
    )
    again = tuner(knobs=[Dial(), Plain()])
    for trial in (first, second, third):
        record = machine.history.trials[trial]
        assert again._refused(record, machine.history) == machine.tuner._refused(record, machine.history)


def test_options_of_the_training_code_are_tried_like_knobs() -> None:
    def loaders(config: Mapping[str, Any], setting: Mapping[str, Any], beside: int) -> float:
        return {0: 1.0, 1: 0.8, 2: 0.5}[setting.get("loaders", 0)]

    machine = Machine(tuner(knobs=[], options={"loaders": [0, 1, 2]}), speed=loaders)
    trial, _ = machine.start(32), machine.start(32)
    assert machine.train(trial)[-1] == {"loaders": 2}


def test_options_are_looked_at_before_knobs_that_nobody_asked_for() -> None:
    machine = Machine(tuner(knobs=[Plain()], options={"mode": ["a", "b"]}))
    trial, _ = machine.start(32), machine.start(32)
    looked = next(setting for setting in machine.train(trial) if setting)
    assert looked == {"mode": "b"}


@pytest.mark.parametrize(("aim", "threads"), [("time", {"threads": 2}), ("dollars", {})])
def test_by_dollars_a_core_that_helps_little_is_left_to_others(aim: str, threads: dict[str, int]) -> None:
    machine = Machine(tuner(knobs=[Threads()], aim=aim))
    assert machine.train(machine.start(32))[-1] == threads


def test_least_energy_is_an_aim_of_its_own() -> None:
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


def test_fewer_at_a_time_where_that_is_known_to_get_more_done() -> None:
    """Trials that stand in each other's way: alone, one does more than two together."""

    def crowded(config: Mapping[str, Any], setting: Mapping[str, Any], beside: int) -> float:
        return by_batch(config, setting, beside) * (3.0 if beside == 2 else 1.0)

    past = Machine(tuner(may_narrow=True, knobs=[Threads()]), speed=crowded)
    trial, other = past.start(32), past.start(32)
    for _ in range(6):
        past.step(trial)
    past.end(other)
    past.train(trial, 6)
    assert not past.history.trial_limits
    works = past.tuner.works(past.history)["one"]
    effects = works[0].effects
    assert effects[key({AT_A_TIME: 1, "threads": 2})] == pytest.approx(2 / 3 / 1.7)
    machine = Machine(tuner(works, may_narrow=True, knobs=[Threads()]), speed=crowded)
    trial = machine.start(32)
    machine.step(trial)
    assert {slots: each.at_a_time for slots, each in machine.history.trial_limits.items()} == {2: 1}
    kept_wide = Machine(tuner(works), speed=crowded)
    kept_wide.step(kept_wide.start(32))
    assert not kept_wide.history.trial_limits, "a user has said how many"
    no_threads = Machine(tuner(works, may_narrow=True, knobs=[]), speed=crowded)
    no_threads.step(no_threads.start(32))
    assert not no_threads.history.trial_limits, "what it was better with cannot be had"


@pytest.mark.parametrize(
    ("cores", "slots", "running", "usual", "share"),
    [(2, 2, 2, 1, 1), (2, 2, 1, 1, 2), (16, 4, 4, 4, 4), (16, 4, 3, 4, 5), (16, 16, 1, 1, 16), (2, 4, 4, 1, 1)],
)
def test_the_share_of_each(cores: int, slots: int, running: int, usual: int, share: int) -> None:
    room = Room(cores / slots)
    assert room.usual_threads == usual
    assert room.share(slots, running) == share


def test_all_that_is_kept_are_numbers_and_settings() -> None:
    machine = Machine(tuner())
    machine.train(machine.start(1024))
    for works in machine.tuner.works(machine.history).values():
        for work in works:
            assert all(math.isfinite(value) for value in work.profile.values())
            assert all(ratio > 0 for ratio in work.effects.values())


def test_what_began_with_something_turned_is_compared_with_that() -> None:
    """No window of it has nothing turned, and yet it finds out about the cores that others leave."""
    machine = Machine(tuner())
    for batch_size in (1024, 32, 1024, 32):
        trial, beside = machine.start(batch_size), machine.start(32)
        machine.train(trial)
        machine.end(beside)
    large, small = machine.start(1024), machine.start(32)
    assert machine.history.trials[large].knob_setting == {"memory": "kept"}
    for _ in range(3):
        machine.step(large)
    machine.end(small)
    assert machine.history.trials[large].knob_changes[-1][1].by == ev.PROBE
    assert [machine.step(large) for _ in range(2)] == [{"memory": "kept", "threads": 2}] * 2
    assert " less a step than with memory kept" in machine.why(large)


class Restarted(Plain):
    restarts = True


def test_a_knob_that_restarts_is_looked_at_when_a_trial_begins_again() -> None:
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


def test_a_trial_that_moves_to_another_kind_of_machine_is_measured_anew() -> None:
    machine = Machine(tuner())
    trial, _ = machine.start(1024), machine.start(32)
    for _ in range(5):
        machine.step(trial)
    assert machine.history.trials[trial].knob_setting == {"memory": "kept"}
    machine.kind = "another"
    machine.speed = lambda _, setting, beside: 2.0 if setting else 1.0
    settings = [machine.step(trial) for _ in range(4)]
    assert settings == [{"memory": "kept"}, {}, {}, {}], "nothing that was seen elsewhere counts"


def test_a_setting_that_a_trial_fails_with_is_not_what_its_retry_begins_with() -> None:
    machine = Machine(tuner(knobs=[], options={"mode": ["a", "b"]}))
    trial, _ = machine.start(32), machine.start(32)
    for _ in range(2):
        machine.step(trial)
    assert machine.history.trials[trial].knob_setting == {"mode": "b"}
    machine.take(ev.Failed(machine.now, trial, 1, "raised", "no such mode"))
    machine.take(ev.Place(machine.now, trial, 2, "here", 2))
    assert machine.history.trials[trial].knob_setting == {}
    assert machine.why(trial) == "it failed with mode b"


def test_what_two_trials_have_failed_with_no_other_looks_at() -> None:
    machine = Machine(tuner(knobs=[], options={"mode": ["a", "b"]}))
    for _ in range(2):
        trial = machine.start(32)
        while machine.history.trials[trial].knob_setting != {"mode": "b"}:
            machine.step(trial)
        machine.take(ev.Failed(machine.now, trial, 1, "raised", "no such mode"))
    third = machine.start(32)
    assert machine.train(third) == [{}] * MAX_STEPS


def test_knowledge_that_is_belied_is_not_believed() -> None:
    """Past work says that it helps, and it does the opposite."""
    past = Machine(tuner())
    trial, _ = past.start(1024), past.start(32)
    past.train(trial)
    works = past.tuner.works(past.history)["one"]
    machine = Machine(tuner(works), speed=lambda _, setting, beside: 2.0 if setting else 1.0)
    trial, _ = machine.start(1024), machine.start(32)
    settings = machine.train(trial)
    assert settings[1] == {"memory": "kept"}
    assert settings[3:] == [{}] * 9


def test_what_lasts_is_what_the_next_trial_of_the_process_begins_with() -> None:
    machine = Machine(tuner(knobs=[Memory(), Threads()]))
    trial, _ = machine.start(32), machine.start(32)
    machine.always = {"memory": "kept"}
    settings = machine.train(trial)
    assert settings == [{"memory": "kept"}] * MAX_STEPS
    assert {turn.by for _, turn in machine.history.trials[trial].knob_changes} == {PROCESS}, (
        "it has found out nothing"
    )
    assert not machine.tuner.works(machine.history), "nothing else was seen"
    assert machine.history.trials[trial].knob_setting == {"memory": "kept"}


def test_of_thousands_of_short_trials_none_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tuner())
    monkeypatch.setattr(machine.tuner, "_turn_all", lambda *_: pytest.fail("it looks"))
    for _ in range(10):
        machine.end(machine.start(32))


def test_what_cannot_be_taken_back_is_what_the_rest_is_compared_with() -> None:
    """Memory stays kept in the process, so that nothing turned cannot be looked at again."""
    machine = Machine(tuner(knobs=[Memory(), Threads()]))
    trial, other = machine.start(1024), machine.start(32)
    for _ in range(4):
        machine.step(trial)
    machine.end(other)
    machine.always = {"memory": "kept"}
    settings = [machine.step(trial) for _ in range(6)]
    assert settings == [{"memory": "kept", "threads": 2}] * 6
    told = [turn.setting for _, turn in machine.history.trials[trial].knob_changes]
    assert told == [{"memory": "kept"}, {"memory": "kept"}, *[{"memory": "kept", "threads": 2}] * 2]


def test_a_first_step_is_told_from_others_once_the_study_has_seen_several() -> None:
    """So that the next trial need not be measured twice before it looks."""
    machine = Machine(tuner())
    first, _ = machine.start(1024), machine.start(32)
    assert machine.train(first)[:3] == [{}, {}, {"memory": "kept"}]
    second = machine.start(32)
    assert machine.train(second)[:2] == [{}, {"memory": "kept"}]


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
def test_steps_of_unequal_length_do_not_pass_for_what_a_knob_does(seconds: Callable[[int], float]) -> None:
    machine = Machine(tuner(), speed=lambda *_: 1.0)
    for _ in range(3):
        trial = machine.start(32)
        machine.speed = lambda *_, of=machine.history.trials[trial]: seconds(len(of.windows) + 1)
        machine.train(trial, 18)
    works = machine.tuner.works(machine.history).get("one", [])
    told = [ratio for work in works for ratio in work.effects.values()]
    assert all(0.85 < ratio < 1.15 for ratio in told), "nothing that is wrong is told to others"
    assert machine.history.trials[2].knob_setting == {}


def test_cores_that_other_programs_wait_for_are_not_taken() -> None:
    machine = Machine(tuner(knobs=[Threads()]), waiting=0.6)
    trial = machine.start(32)
    assert [machine.step(trial) for _ in range(5)] == [{}] * 5
    machine.waiting = 0.02
    machine.step(trial)
    assert machine.step(trial) == {"threads": 2}, "they are free again"
    machine.waiting = 0.6
    assert [machine.step(trial) for _ in range(2)] == [{"threads": 2}] * 2, "what it has seen to be good is kept"


def test_where_steps_differ_much_it_looks_all_the_same() -> None:
    """After three windows more of them would tell little."""
    machine = Machine(tuner(knobs=[Plain()]), speed=lambda *_: 1.0)
    trial = machine.start(32)
    record = machine.history.trials[trial]
    machine.speed = lambda *_: 1.0 + 0.6 * (len(record.windows) % 2)
    assert {"memory": "kept"} in machine.train(trial, 8)
