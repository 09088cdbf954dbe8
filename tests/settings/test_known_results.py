"""Tests of known results: how users add them, and how the searcher and the conductor treat them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import thriftune as tt
from tests.support.tables import Table
from thriftune.cli import cli
from thriftune.errors import SettingError, SpaceError, StudyDamaged, StudyNotFound
from thriftune.search.bayes.observations import ObservationReader
from thriftune.show import describe
from thriftune.space.space import Space
from thriftune.state import events as ev
from thriftune.stopping.successive_halving import SuccessiveHalving
from thriftune.store.opening import open_store

CONFIG = {"lr": 0.01, "act": "relu"}
OTHER = {"lr": 0.02, "act": "tanh"}


def train(trial: tt.Trial) -> None:
    for step in trial.steps():
        trial.report(loss=trial["x"] + 1.0 / step)


def tune(folder: Path, **settings: Any) -> tt.Result:
    defaults: dict[str, Any] = {"trials": 4, "max_steps": 2, "workers": 1, "name": "s", "seed": 0, **settings}
    space = {"x": tt.Float(0, 1)}
    return tt.tune(train, space, minimize="loss", store=folder / "s.db", progress=False, **defaults)


# --- users add known results ------------------------------------------------------------------------------


def test_known_results_can_be_best_and_do_not_count_towards_the_limit_of_trials(tmp_path: Path) -> None:
    result = tune(
        tmp_path, known=[({"x": 0.25}, 0.25), ({"x": 0.5}, {"loss": 0.5, "acc": 0.9}), ({"x": 1.0}, None)]
    )
    assert [trial.origin for trial in result.trials] == ["known"] * 3 + ["searcher"] * 4
    assert result.finished == "all 4 trials done"
    best = result.best
    assert (best.id, best.value, best.finished, best.seconds, best.attempts) == (0, 0.25, True, 0.0, 0)
    assert result.trials[1].metrics == {"loss": 0.5, "acc": 0.9}
    assert result.trials[2].state is tt.State.FAILED
    assert result.trials[2].error == "failed, as the user knew"
    frame = result.to_pandas()
    assert list(frame["origin"]) == ["known"] * 3 + ["searcher"] * 4
    assert frame["attempts"].sum() == 4
    assert result.cost.seconds == result.seconds


def test_a_script_that_is_run_again_adds_no_known_result_twice(tmp_path: Path) -> None:
    known: list[Any] = [({"x": 0.25}, 0.25), ({"x": 0.25}, 0.25)]
    tune(tmp_path, trials=2, known=known)
    again = tune(tmp_path, trials=3, known=[*known, ({"x": 0.25}, 0.3)])  # another value is another result
    assert [trial.origin for trial in again.trials] == ["known", "searcher", "searcher", "known", "searcher"]
    assert again.finished == "all 3 trials done"


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ([({"x": 5.0}, 0.1)], r"known: result 1: .*x: .*5\.0"),
        ([({"x": 0.5}, 0.1), ({}, 0.1)], "known: result 2: .*x: has no value"),
        ([({"x": 0.5}, {"acc": 0.1})], "known: result 1: 'loss' is missing; there is acc"),
        ([({"x": 0.5}, float("nan"))], "loss is nan; give failed='why' instead"),
        ([({"x": 0.5}, "low")], "text"),
        ([({"x": 0.5},)], "is not a pair of a configuration and a value"),
        ({"x": 0.5}, "known: .* is not a list; give pairs"),
    ],
)
def test_an_invalid_known_result_is_an_error_and_no_study_is_stored(
    known: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises((SettingError, SpaceError), match=message):
        tune(tmp_path, known=known)
    with pytest.raises(StudyNotFound):
        tt.load("s", tmp_path / "s.db")


def test_results_can_be_added_between_ask_and_tell_and_after_a_restart(tmp_path: Path) -> None:
    def study() -> tt.Study:
        space = {"x": tt.Float(0, 1)}
        return tt.Study(space, minimize="loss", maximize=["acc"], seed=0, name="s", store=tmp_path / "s.db")

    first = study()
    trial = first.ask()
    assert first.add({"x": 0.5}, {"loss": 0.1, "acc": 0.9})
    assert first.add({"x": 0.75}, failed="out of memory")
    assert not first.add({"x": 0.75}, failed="out of memory")
    first.tell(trial, {"loss": 0.5, "acc": 0.2})
    again = study()
    assert not again.add({"x": 0.5}, {"loss": 0.1, "acc": 0.9})
    assert [trial.id for trial in again.front] == [1]
    assert again.trials[2].error == "out of memory"
    assert again.ask().id == 3
    with pytest.raises(SettingError, match=r"add: 0\.3 is one number, and the study needs several"):
        again.add({"x": 0.1}, 0.3)
    with pytest.raises(SettingError, match=r"give either a value .* or failed="):
        again.add({"x": 0.1})
    with pytest.raises(SettingError, match="trial 1 is COMPLETED"):
        again.tell(1, {"loss": 0.1, "acc": 0.9})


def test_a_searcher_does_not_suggest_a_known_configuration(tmp_path: Path) -> None:
    study = tt.Study({"x": tt.Choice([1, 2, 3])}, minimize="loss", searcher="grid")
    study.add({"x": 2}, 0.5)
    assert not study.enqueue({"x": 2})
    assert {study.ask()["x"], study.ask()["x"]} == {1, 3}


def test_bayesian_search_uses_known_results() -> None:
    study = tt.Study({"x": tt.Float(0, 1)}, minimize="loss", seed=1)
    for x in (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0):
        study.add({"x": x}, (x - 0.3) ** 2)
    assert study.ask()["x"] == pytest.approx(0.3, abs=0.08)
    costly = tt.Study({"x": tt.Float(0, 1)}, minimize="loss", seed=1, searcher=tt.search.Bayes(cost_aware=True))
    for x in (0.1, 0.9, 0.5, 0.3):
        costly.add({"x": x}, x)
    costly.tell(costly.ask(), 0.7)  # the only trial with a duration
    assert 0.0 <= costly.ask()["x"] <= 1.0


def test_a_warm_start_includes_the_known_results_of_the_source(tmp_path: Path) -> None:
    tune(tmp_path, trials=1, known=[({"x": 0.25}, 0.25), ({"x": 0.5}, 0.5), ({"x": 0.9}, None)])
    warm = tune(tmp_path, trials=1, name="warm", warm_start="s")
    (earlier,) = warm.history.earlier
    assert [value for _, value in earlier.trials][:3] == [0.25, 0.5, None]


def test_known_results_in_a_study_file_are_added_and_shown(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    text = """
        command = ["echo", "loss={lr}"]
        minimize = "loss"
        trials = 1
        workers = 1
        store = "s.db"

        [[known]]
        config = { lr = 0.25 }
        value = 0.001

        [[known]]
        config = { lr = 0.5 }
        failed = "diverged"

        [attrs]
        purpose = "baseline"

        [space]
        lr = { type = "float", low = 0.0, high = 1.0 }

        [metrics]
        loss = "loss=(.+)"
        """
    file.write_text(text)

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(cli, [*arguments], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    store = str(tmp_path / "s.db")
    for _ in range(2):
        run("run", str(file), "--quiet")
    assert "trial 0, known" in run("best", "study", "--store", store)
    shown = run("show", "study", "--store", store)
    assert "2 results from elsewhere" in shown
    assert "1 of 1 ended: 1 completed" in shown
    assert "baseline" in shown
    assert "known" in run("show", "study", "--trial", "0", "--store", store)
    assert "1 of 1" in run("list", "--store", store)
    assert tt.studies(store)[0].trials == 1
    assert "known" in run("export", "study", "--store", store)
    file.write_text(text.replace("value = 0.001", "valu = 0.001"))
    failed = CliRunner().invoke(cli, ["run", str(file), "--name", "other"])
    assert "known: result 1: valu: unknown; it has config, value and failed" in failed.output
    file.write_text(text.replace("config = { lr = 0.25 }", "lr = 0.25"))
    assert "has no config; write config = " in CliRunner().invoke(cli, ["run", str(file), "--name", "o"]).output


@pytest.mark.parametrize(
    "entry", [ev.ResultAdded(1.0, {"x": 7.0}, {"loss": 1.0}), ev.ResultAdded(1.0, {"x": 0.5}, {})]
)
def test_a_log_with_an_invalid_known_result_is_damaged(entry: ev.Event, tmp_path: Path) -> None:
    study = tt.Study({"x": tt.Float(0, 1)}, minimize="loss", name="s", store=tmp_path / "s.db")
    with open_store(tmp_path / "s.db") as store:
        store.append("s", study.history.entries, [entry])
    with pytest.raises(StudyDamaged, match="entry 1 cannot be where it is"):
        _ = study.trials


# --- the conductor ----------------------------------------------------------------------------------------


def test_a_result_added_while_no_driver_runs_adds_no_driven_time() -> None:
    table = Table(trials=2)
    table.report(0, 1, 0.5)
    table.kill_driver()
    table.now += 1000.0
    table(ev.ResultAdded(table.now, CONFIG, {"loss": 0.1}))
    table.kill_driver()
    assert "place 0/2" in table.start()
    assert table.history.driven_seconds(table.now) == 0.0
    assert table.history.best.id == 1
    assert describe.trial_label(table.history.best, table.history) == "trial 1, known"
    assert table.dropped(ev.ResultAdded(table.now, CONFIG, {"loss": 0.1}))
    table.report(0, 1, 0.5)
    assert table.end(0) == ["create 2", "place 2/1"]
    table.report(2, 1, 0.5)
    assert table.end(2) == ["finish: all 2 trials done"]


def test_known_results_take_no_place_in_a_bracket() -> None:
    table = Table(slots=0, trials=4, max_steps=4, stopping="halving", stopper=SuccessiveHalving(4, eta=2))
    for number in range(3):
        table(ev.ResultAdded(table.now, {**CONFIG, "lr": 0.01 + 0.001 * number}, {"loss": 0.0}))
    decisions = table.start(4)
    assert [each for each in decisions if each.startswith("create")] == [f"create {i}" for i in (3, 4, 5, 6)]
    for number in (3, 4, 5, 6):
        assert any("pause" in each for each in table.report(number, 1, float(number), saved=True))
    promoted = [each for number in (3, 4, 5, 6) for each in table.end(number, cut=True) if "promote" in each]
    assert promoted == ["promote 3", "promote 4"]


def test_searchers_compare_known_results_only_with_complete_trials() -> None:
    table = Table(slots=6, trials=6, max_steps=10, stopping="asha")
    for number in range(2):
        table(ev.ResultAdded(table.now, {**CONFIG, "lr": 0.01 + 0.001 * number}, {"loss": 0.0}))
    for number in range(6):
        table.report(number, 2, float(number))
        table(ev.Stop(table.now, number, 1, "by asha"))
        table.end(number, cut=True)
    observed = ObservationReader().read(table.history)
    assert {trial.id for trial in observed.target.trials} == set(range(6))
    for number in range(2, 4):
        table(ev.ResultAdded(table.now, {**CONFIG, "lr": 0.01 + 0.001 * number}, {"loss": 0.0}))
    assert {trial.id for trial in ObservationReader().read(table.history).target.trials} == {6, 7, 8, 9}


def test_known_results_are_not_among_the_trials_that_the_study_created() -> None:
    history = tt.Study(Space({"x": tt.Float(0, 1)}), minimize="loss").history
    for number, is_known in enumerate([False, True, False, True, False]):
        config = {"x": number / 10}
        history.apply(ev.ResultAdded(1.0, config, {"loss": 1.0}) if is_known else ev.Create(1.0, number, config))
    history.validate()
    assert history.created_ids == [0, 2, 4]
    assert [history.created_before(i) for i in history.created_ids] == [0, 1, 2]
    assert history.known_result_count == 2
