"""All stopping rules conform, and each stops the trials that its paper message."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import thriftune as tt
from tests.stopping.conformance import StopperConformance
from tests.support.tables import Table
from thriftune import stopping
from thriftune.errors import SettingError, ThriftuneError
from thriftune.replay.simulated_engine import Curve
from thriftune.replay.simulation_loop import run
from thriftune.search.grid import Grid
from thriftune.space.objectives import Objective, parse_constraints
from thriftune.space.space import Space
from thriftune.state.events import Config
from thriftune.state.spec import Spec
from thriftune.state.trial_record import State
from thriftune.stopping import STOPPERS
from thriftune.stopping.brackets import BracketStage
from thriftune.stopping.protocol import Stopper
from thriftune.stopping.successive_halving import halving_stages

RULES: dict[str, Callable[[], Stopper]] = {
    "auto": stopping.Auto,
    "none": stopping.Never,
    "asha": stopping.ASHA,
    "asha-eta-4": lambda: stopping.ASHA(min_steps=2, eta=4),
    "asha-pause": lambda: stopping.ASHA(how="pause"),
    "median": stopping.Median,
    "halving": lambda: stopping.SuccessiveHalving(9),
    "halving-one": lambda: stopping.SuccessiveHalving(1),
    "hyperband": stopping.Hyperband,
    "early-curve": stopping.EarlyCurve,
    "early-curve-half": lambda: stopping.EarlyCurve(theta=0.5, top=1),
    "early-curve-whole": lambda: stopping.EarlyCurve(theta=1.0),
}


@pytest.mark.parametrize("make", RULES.values(), ids=RULES)
class TestRules(StopperConformance):
    pass


# --- by name ----------------------------------------------------------------------------------------------


def test_rules_are_known_by_name() -> None:
    for name in ("auto", "none", "median", "asha", "halving", "hyperband", "early_curve"):
        assert STOPPERS.name_and_options(STOPPERS.make(name, {}))[0] == name
        STOPPERS.check(name)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("halfing", "'halfing' is not known; use one of auto, none, median, asha"),
        (stopping.ASHA, r"ASHA is a class; give an object, ASHA\(\)"),
        (3, "3 has no method judge"),
    ],
)
def test_an_invalid_rule_is_refused(given: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        STOPPERS.check(given)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("asha", {"etta": 3}, "asha does not take etta; its options: min_steps, eta, how"),
        ("asha", {"eta": 1}, "eta: 1 is too small; use 2 or more"),
        ("asha", {"how": "kill"}, "how 'kill' must be 'stop' or 'pause'"),
        ("median", {"share": 0}, "share: 0 must be above 0 and at most 1"),
        ("median", {"fewest": True}, "fewest: True must be a whole number"),
        ("halving", {"n": 0}, "n: 0 is too small; use 1 or more"),
        ("none", {"eta": 3}, "none does not take eta; its options: none"),
    ],
)
def test_bad_options_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        STOPPERS.make(name, options)


# --- ASHA -------------------------------------------------------------------------------------------------


def first_steps(table: Table, losses: Sequence[float], step: int = 1) -> list[list[str]]:
    return [table.report(trial, step, loss, saved=True) for trial, loss in enumerate(losses)]


def test_asha_stops_trials_that_are_not_in_the_best_third_at_a_rung() -> None:
    table = Table(slots=6, trials=6, max_steps=27, stopper=stopping.ASHA())
    decisions = first_steps(table, [0.5, 0.6, 0.4, 0.7, 0.45, 0.1])
    # Two trials are too few to judge. Of three, the best goes on; of six, the best two.
    assert decisions == [[], [], [], ["stop 3/1"], ["stop 4/1"], []]
    assert table.report(0, 2, 0.9) == []  # step 2 is no rung
    assert table.report(0, 3, 0.2) == []  # alone at the rung


def test_asha_pauses_and_promotes_from_the_highest_rung_down() -> None:
    table = Table(slots=1, trials=None, deadline_seconds=1e6, max_steps=27, stopper=stopping.ASHA(how="pause"))
    for trial, loss in enumerate([0.5, 0.6]):
        assert table.report(trial, 1, loss, saved=True) == [f"pause {trial}/1"]
        assert table.end(trial, cut=True) == [f"create {trial + 1}", f"place {trial + 1}/1"]
    assert table.report(2, 1, 0.55, saved=True) == ["pause 2/1"]  # the best of three may go on now
    assert table.end(2, cut=True) == ["promote 0", "place 0/2 from 1"]
    assert table.report(0, 3, 0.3, saved=True) == ["pause 0/2"]
    assert table.end(0, cut=True) == ["create 3", "place 3/1"]
    assert table.report(3, 1, 0.1, saved=True) == []  # the best of four goes on at once


def test_a_trial_that_reaches_several_rungs_at_once_is_judged_at_the_highest() -> None:
    table = Table(slots=4, trials=4, max_steps=27, stopper=stopping.ASHA())
    assert first_steps(table, [0.1, 0.2, 0.3], step=9) == [[], [], ["stop 2/1"]]
    assert table.report(3, 1, 0.9) == ["stop 3/1"]


@pytest.mark.parametrize("how", ["stop", "pause"])
def test_a_restarted_driver_remembers_all_rungs(how: Any) -> None:
    table = Table(slots=4, trials=8, max_steps=27, stopper=stopping.ASHA(how=how))
    first_steps(table, [0.1, 0.2])
    table._stopper = stopping.ASHA(how=how)  # all that is left is the log
    table.kill_driver()
    table.start(4)
    decisions = table.report(2, 1, 0.3, saved=True)
    assert decisions == [f"{how} 2/2"]


# --- auto -------------------------------------------------------------------------------------------------


def finished(table: Table, first: Sequence[float], last: Sequence[float]) -> None:
    """The first four trials, by their values at the first rung and at the end."""
    for trial, (early, late) in enumerate(zip(first, last, strict=True)):
        assert table.report(trial, 1, early) == []
        assert table.report(trial, 10, late) == []
        table.end(trial)


def test_auto_stops_no_trial_until_the_first_four_have_finished() -> None:
    table = Table(slots=9, trials=9, max_steps=10, stopper=stopping.Auto())
    decisions = [table.report(trial, 1, 0.1 * trial) for trial in range(8)]
    assert decisions == [[]] * 8
    for trial in range(4):
        table.report(trial, 10, 0.1 * trial)
        table.end(trial)
    assert table.report(8, 1, 0.9) == ["stop 8/1"]


def test_auto_pauses_trials_with_checkpoints_from_the_start() -> None:
    table = Table(slots=6, trials=6, max_steps=10, stopper=stopping.Auto())
    decisions = first_steps(table, [0.4, 0.3, 0.2, 0.1, 0.9, 0.05])
    assert decisions == [[], [], [], [], ["pause 4/1"], []]


def test_auto_stops_as_many_as_asha_if_early_values_predict_late_ones() -> None:
    table = Table(slots=12, trials=12, max_steps=10, stopper=stopping.Auto())
    finished(table, [0.1, 0.2, 0.3, 0.4], [0.01, 0.02, 0.03, 0.04])
    decisions = [table.report(trial, 1, value) for trial, value in enumerate([0.25, 0.15, 0.35, 0.05], start=4)]
    assert decisions == [["stop 4/1"], [], ["stop 6/1"], []]  # the best half goes on


def test_auto_stops_no_trial_if_curves_cross() -> None:
    table = Table(slots=12, trials=12, max_steps=10, stopper=stopping.Auto())
    finished(table, [0.1, 0.2, 0.3, 0.4], [0.04, 0.03, 0.02, 0.01])
    decisions = [table.report(trial, 1, value) for trial, value in enumerate([0.25, 0.15, 0.35, 0.38], start=4)]
    assert decisions == [[]] * 4


def test_the_first_rung_defaults_to_a_share_of_max_steps() -> None:
    for rule, rung in ((stopping.ASHA(), 4), (stopping.ASHA(min_steps=2), 2), (stopping.ASHA(min_steps=1), 1)):
        table = Table(slots=4, trials=4, max_steps=100, stopper=rule)
        for trial in range(3):
            for step in range(1, rung + 1):
                decisions = table.report(trial, step, float(trial))
                assert decisions == ([f"stop {trial}/1"] if trial == 2 and step == rung else [])


# --- the median -------------------------------------------------------------------------------------------


def test_the_median_rule_stops_trials_worse_than_the_median() -> None:
    table = Table(slots=8, trials=8, max_steps=10, stopper=stopping.Median())
    decisions = first_steps(table, [0.1, 0.2, 0.3, 0.4, 0.26, 0.24, 9.0], step=1)
    # Before the fifth trial, too few to judge
    assert decisions == [[], [], [], [], ["stop 4/1"], [], ["stop 6/1"]]


def test_the_median_rule_does_not_judge_the_first_steps() -> None:
    """The first judged step follows from the completed trials' lengths."""
    table = Table(slots=8, trials=8, max_steps=100, stopper=stopping.Median(share=0.5, fewest=1))
    table.report(0, 4, 0.1)
    assert table.report(1, 4, 0.9) == []  # step 50 is the first that is judged
    table.report(0, 6, 0.1)
    table.end(0)
    assert table.report(2, 4, 0.9) == ["stop 2/1"]


def test_without_max_steps_the_median_rule_waits_for_a_completed_trial() -> None:
    table = Table(slots=8, trials=8, stopper=stopping.Median(fewest=1))
    table.report(0, 1, 0.1)
    assert table.report(1, 1, 0.9) == []
    table.end(0)
    assert table.report(2, 1, 0.9) == ["stop 2/1"]


# --- halving ----------------------------------------------------------------------------------------------


def test_halving_stages_match_rubberband() -> None:
    assert halving_stages(32, 1, 50, 3) == [
        BracketStage(32, 0, 1),
        BracketStage(10, 1, 4),
        BracketStage(3, 4, 13),
        BracketStage(1, 13, 50),
    ]
    seven = halving_stages(64, 4, 508, 2)
    assert [stage.trials for stage in seven] == [64, 32, 16, 8, 4, 2, 1]
    assert [stage.end - stage.start for stage in seven] == [4, 8, 16, 32, 64, 128, 256]


def test_halving_stages_end_at_max_steps() -> None:
    assert halving_stages(27, 1, 2, 3) == [BracketStage(27, 0, 1), BracketStage(9, 1, 2)]
    assert halving_stages(27, 5, 3, 3) == [BracketStage(27, 0, 3)]
    assert halving_stages(2, 1, 10, 3) == [BracketStage(2, 0, 10)]


def test_halving_waits_for_all_trials_then_promotes_the_best() -> None:
    table = Table(slots=2, trials=3, max_steps=9, stopper=stopping.SuccessiveHalving(3))
    assert table.report(0, 1, 0.3, saved=True) == ["pause 0/1"]
    assert table.end(0, cut=True) == ["create 2", "place 2/1"]
    assert table.report(1, 1, 0.1, saved=True) == ["pause 1/1"]
    assert table.end(1, cut=True) == []  # trial 2 has not reached the rung yet
    assert table.report(2, 1, 0.2, saved=True) == ["pause 2/1", "promote 1", "place 1/2 from 1"]
    assert table.end(2, cut=True) == []
    assert table.report(1, 4, 0.05, saved=True) == []
    assert table.end(1) == ["finish: all 3 trials done"]


def test_an_unfilled_bracket_goes_on_with_its_trials() -> None:
    table = Table(slots=2, trials=2, max_steps=9, stopper=stopping.SuccessiveHalving(27))
    table.report(0, 1, 0.3, saved=True)
    table.end(0, cut=True)
    table.report(1, 1, 0.1, saved=True)
    assert table.end(1, cut=True) == ["promote 1", "place 1/2 from 1"]


def test_the_next_bracket_begins_while_one_waits() -> None:
    table = Table(slots=2, trials=6, max_steps=9, stopper=stopping.SuccessiveHalving(3))
    table.report(0, 1, 0.3, saved=True)
    table.end(0, cut=True)
    table.report(2, 1, 0.2, saved=True)
    assert table.end(2, cut=True) == ["create 3", "place 3/1"]  # trial 1 is slow


def test_hyperband_brackets_trade_trials_for_steps() -> None:
    kinds = stopping.Hyperband().bracket_kinds(81)
    assert [(kind[0].trials, kind[0].end) for kind in kinds] == [(81, 1), (34, 3), (15, 9), (8, 27), (5, 81)]


def _train(trial: tt.Trial) -> None:
    trial.report(loss=0.0)


@pytest.mark.parametrize("rule", ["halving", "hyperband", "early_curve", stopping.EarlyCurve()])
def test_some_rules_need_max_steps(rule: str | Stopper, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"needs to know how many steps a trial has: give max_steps="):
        tt.tune(_train, {"x": tt.Float(0, 1)}, minimize="loss", trials=3, stopping=rule, store=tmp_path)
    assert not list(tmp_path.iterdir())  # it changed nothing


def test_early_curve_needs_the_number_of_trials(tmp_path: Path) -> None:
    """Otherwise every trial would be paused and none would ever go on."""
    space, rule = {"x": tt.Float(0, 1)}, "early_curve"
    with pytest.raises(SettingError, match=r"EarlyCurve needs to know the number of trials: give trials="):
        tt.tune(_train, space, minimize="loss", max_steps=9, deadline="1m", stopping=rule, store=tmp_path)
    with pytest.raises(SettingError, match=r"give trials="):
        tt.simulate(_linear_curve, space=space, minimize="loss", max_steps=9, deadline=60, stopping=rule)


@pytest.mark.parametrize("rule", [stopping.ASHA(min_steps=50), stopping.Hyperband(min_steps=50)])
def test_a_first_rung_above_max_steps_is_refused(rule: Stopper, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="min_steps 50 is above max_steps 5, so nothing would be judged"):
        tt.tune(
            _train, {"x": tt.Float(0, 1)}, minimize="loss", trials=3, max_steps=5, stopping=rule, store=tmp_path
        )


def test_errors_name_the_rule() -> None:
    with pytest.raises(SettingError, match="hyperband: eta: 1"):
        stopping.Hyperband(eta=1)


def test_dir_lists_the_public_names() -> None:
    assert {"ASHA", "SuccessiveHalving", "Verdict"} < set(dir(stopping))


def test_predict_needs_one_value_a_step() -> None:
    with pytest.raises(SettingError, match="got 2 steps but 1 values"):
        stopping.EarlyCurve().predict([1, 2], [1.0], at=5)


def _linear_curve(config: Config) -> Curve:
    return Curve([1], [{"loss": config["x"]}], [1.0])


# --- EarlyCurve -------------------------------------------------------------------------------------------


def test_early_curve_finishes_the_trials_predicted_to_be_best() -> None:
    """Trial 1 is behind at theta, but falls while trial 0 does not."""
    table = Table(slots=1, trials=2, max_steps=20, stopper=stopping.EarlyCurve(theta=0.5, top=1))
    for step in range(1, 11):
        decisions = table.report(0, step, 0.5 + 0.01 / step + 0.002 * (step % 2), saved=True)
    assert decisions == ["pause 0/1"]
    assert table.end(0, cut=True) == ["create 1", "place 1/1"]
    for step in range(1, 11):
        decisions = table.report(1, step, 1.0 - 0.045 * step, saved=True)
    assert decisions == ["pause 1/1"]
    assert table.end(1, cut=True) == ["promote 1", "place 1/2 from 10"]
    assert table.report(1, 11, 0.4) == []
    assert table.end(1) == ["finish: all 2 trials done"]


def test_early_curve_ends_a_trial_at_its_plateau() -> None:
    rule = stopping.EarlyCurve()
    table = Table(slots=1, trials=1, max_steps=200, stopper=rule, stopping="early_curve")
    decisions = [table.report(0, step, 0.5 + 2.0**-step) for step in range(1, 100)]
    assert ["stop 0/1"] in decisions
    table.end(0, cut=True)
    trial = table.history.trials[0]
    assert trial.finished
    assert trial.converged
    assert trial.end_reason == "converged, by early_curve"


def test_a_converged_trial_can_be_the_best() -> None:
    def curve(config: Config) -> Curve:
        kind = config["kind"]
        steps = range(1, 101)
        if kind == "fast":
            losses = [0.05 + math.exp(-step / 2) for step in steps]
        else:
            losses = [0.5 + 0.01 * int(kind) + 2 / step**0.7 for step in steps]
        return Curve(steps, [{"loss": loss} for loss in losses], [1.0] * 100)

    space = Space({"kind": tt.Choice(["fast", *"1234567"])})
    rule = stopping.EarlyCurve()
    spec = Spec(
        "s", space, (Objective("loss", False),), 1, trials=8, max_steps=100, workers=2, stopping="early_curve"
    )
    result = run(spec, curve, Grid(), rule)
    assert result.best.config == {"kind": "fast"}
    assert result.best.converged
    assert result.best.step < 70
    # It takes one of the three places, so only two other trials train to the end.
    assert sum(trial.step == 100 for trial in result.trials) == 2


def test_a_trial_without_a_constrained_metric_cannot_converge() -> None:
    constraints = parse_constraints("size <= 2")
    table = Table(slots=1, trials=1, max_steps=200, stopper=stopping.EarlyCurve(), constraints=constraints)
    for step in range(1, 100):
        table.report(0, step, 0.5 + 2.0**-step)
    table.end(0, cut=True)
    assert table.history.trials[0].state is State.STOPPED


def test_early_curve_predicts_a_later_value() -> None:
    steps = list(range(1, 71))
    prediction = stopping.EarlyCurve().predict(steps, [0.2 + 1.0 / k for k in steps], at=100)
    assert prediction.mean == pytest.approx(0.21, abs=0.005)
    assert 0.0 <= prediction.std < 0.05


# --- a user's own -----------------------------------------------------------------------------------------


class InvalidRule:
    def __init__(self, verdict: Any, promoted: int | None) -> None:
        self._verdict, self._promoted = verdict, promoted

    def judge(self, trial: Any, history: Any) -> Any:
        return self._verdict

    def promote(self, history: Any, more: bool) -> int | None:
        return self._promoted


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (InvalidRule("stop", None), r"InvalidRule.judge returned 'stop', which is not a tt.stopping.Verdict"),
        (InvalidRule(stopping.Verdict.GO_ON, 7), "InvalidRule promoted trial 7, which does not exist"),
    ],
)
def test_invalid_answers_of_a_rule_are_refused(rule: InvalidRule, message: str) -> None:
    with pytest.raises(ThriftuneError, match=message):
        Table(slots=1, trials=2, max_steps=9, stopper=rule).report(0, 1, 0.5)


def test_without_a_rule_paused_trials_go_on() -> None:
    table = Table(slots=1, trials=1, max_steps=27, stopper=stopping.Hyperband())
    assert table.report(0, 1, 0.5, saved=True) == ["pause 0/1"]
    table._stopper = stopping.Never()
    table.kill_driver()
    assert table.start(1)[-1] == "place 0/2 from 1"


# --- steps reported in parts --------------------------------------------------------------------------------


def test_a_step_reported_in_parts_counts_once_for_the_median() -> None:
    """A trial must not be compared with its own earlier report of the step."""
    table = Table(trials=3, max_steps=3, stopper=stopping.Median(share=0.1, fewest=2))
    for trial, loss in enumerate((0.1, 0.2)):
        for step in (1, 2, 3):
            assert table.report(trial, step, loss) == []
            assert table.report(trial, step, accuracy=0.5) == []
        table.end(trial)
    assert table.report(2, 1, 0.3) == ["stop 2/1"]


def test_halving_pauses_a_trial_once_it_has_a_value_at_the_stage_end() -> None:
    rule = stopping.SuccessiveHalving(2, min_steps=2, eta=2)
    table = Table(trials=2, max_steps=8, stopper=rule)
    for trial, loss in enumerate((0.1, 0.2)):
        table.report(trial, 1, loss)
        assert table.report(trial, 2, accuracy=0.5, saved=True) == []
        assert table.report(trial, 3, loss + 0.1, saved=True) == [f"pause {trial}/1"]
        table.end(trial, cut=True)
    assert table.trial(0).state is State.RUNNING
    assert table.report(0, 4, 0.9) == []
    fresh = stopping.SuccessiveHalving(2, min_steps=2, eta=2)
    assert fresh.promote(table.history, False) is rule.promote(table.history, False) is None
