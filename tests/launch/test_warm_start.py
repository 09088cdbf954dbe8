"""Tests of warm starts: which results a study copies from others, when, and the messages about it."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import thriftune as tt
from tests.support.tables import Table, replayed
from thriftune.errors import SettingError, StudyMismatch, StudyNotFound
from thriftune.launch.open_study import open_study
from thriftune.launch.warm_start import KnownStudy, knowledge, remarks
from thriftune.replay.simulated_engine import Curve
from thriftune.search.protocol import Past
from thriftune.settings.make_spec import make_spec
from thriftune.settings.table import Settings
from thriftune.state import events as ev
from thriftune.state.earlier_results import EarlierStudy, translate
from thriftune.state.events import Config
from thriftune.state.spec import Target
from thriftune.state.trial_record import State
from thriftune.store.opening import open_store
from thriftune.store.protocol import Store

SPACE = {"x": tt.Float(0.0, 1.0), "k": tt.Int(1, 5)}


class BestThenRandom:
    """A searcher that suggests the best configuration of sources first, and then random ones.

    The value of k in the random ones tells the number of sources.
    """

    def suggest(self, past: Past, rng: Any) -> Config:
        known: list[tuple[float, Config]] = []
        for each in past.earlier:
            usable = translate(each, past.space)
            known += [
                (value, config)
                for config, value in zip(usable.configs, usable.values, strict=True)
                if value is not None
            ]
        if known and not past.trials:
            return min(known, key=lambda pair: pair[0])[1]
        return {**past.space.sample(rng), "k": 1 + len(past.earlier)}


def square(trial: tt.Trial) -> float:
    return float(trial["x"]) ** 2


def tune(folder: Path, name: str, **settings: Any) -> tt.Result:
    defaults: dict[str, Any] = {
        "minimize": "loss",
        "trials": 3,
        "workers": 1,
        "seed": 0,
        "searcher": BestThenRandom(),
    }
    return tt.tune(square, SPACE, name=name, store=folder / "s.db", **{"progress": False, **defaults, **settings})


def study_with(*values: float | None, space: Any = SPACE, **settings: Any) -> tt.Study:
    """Return a study with a trial for each value; None for a failed trial. By default it is in memory."""
    study = tt.Study(space, **{"minimize": "loss", "searcher": BestThenRandom(), "seed": 1, **settings})
    for value in values:
        trial = study.ask()
        study.tell(trial, value) if value is not None else study.tell(trial, failed="why")
    return study


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "s.db") as store:
        yield store


def earlier_values(study: tt.Study | tt.Result) -> list[tuple[str, list[float | None]]]:
    return [(each.study, [value for _, value in each.trials]) for each in study.history.earlier]


# --- the event WarmStarted --------------------------------------------------------------------------------


def warm_started(study: str = "old", **more: Any) -> ev.WarmStarted:
    space = tt.Space({"x": tt.Float(0, 1)})
    return ev.WarmStarted(
        1.0, study, space.to_json(), "acc", True, [[{"x": 0.5}, 0.9], [{"x": 0.1}, None]], **more
    )


def test_the_event_adds_an_earlier_study_to_the_history() -> None:
    table = Table(slots=0)
    assert table(warm_started()) == []
    space = tt.Space({"x": tt.Float(0, 1)})
    expected = EarlierStudy("old", space, "acc", True, (({"x": 0.5}, 0.9), ({"x": 0.1}, None)))
    assert table.history.earlier == [expected]
    assert replayed(table.spec, table.log).earlier == [expected]
    assert table.history.started_at is None
    assert not table.history.trials


def test_a_source_is_added_once_and_only_before_the_first_trial() -> None:
    table = Table(slots=0)
    table(warm_started(), warm_started("other"), warm_started(id="7"))
    assert table.dropped(warm_started())
    assert table.dropped(warm_started(id="7"))
    assert table.start() == ["create 0", "place 0/1"]
    assert table.dropped(warm_started("late"))
    assert [each.study for each in table.history.earlier] == ["old", "other", "old"]


# --- results that are copied ------------------------------------------------------------------------------


def test_completed_and_failed_trials_are_copied_and_running_ones_are_not() -> None:
    study = study_with(0.5, None, math.nan, 0.25)
    study.ask()
    (entry,) = knowledge([KnownStudy(study.spec, study.history)], study.spec, 9.0)
    assert (entry.at, entry.study, entry.id) == (9.0, study.name, study.spec.id)
    assert (entry.metric, entry.maximize) == ("loss", False)
    assert [value for _, value in entry.trials] == [0.5, None, None, 0.25]
    assert [config for config, _ in entry.trials] == [trial.config for trial in study.trials[:4]]
    assert tt.Space.from_json(entry.space) == study.space


def rising(config: Config) -> Curve:
    """Return a curve whose loss rises at each step."""
    steps = range(1, 11)
    return Curve(steps, [{"loss": 0.1 * step + config["x"]} for step in steps], [1.0] * len(steps))


@pytest.mark.parametrize("rule", ["asha", "auto"])
def test_early_values_of_stopped_trials_do_not_mislead_the_new_study(rule: str) -> None:
    space = {"x": tt.Float(0.0, 1.0)}
    source = tt.simulate(
        rising, space=space, minimize="loss", trials=20, max_steps=10, stopping=rule, searcher="random", seed=0
    )
    finished = [trial.metrics["loss"] for trial in source.trials if trial.state is State.COMPLETED]
    stopped = [trial.metrics["loss"] for trial in source.trials if trial.state is not State.COMPLETED]
    assert len(finished) > 3
    assert min(stopped) < min(finished), "the source's stopped trials look better than its best"
    study = tt.Study(space, minimize="loss", seed=0, warm_start=source)
    assert study.ask()["x"] < 0.1, f"the source's best is at {source.best.config}"


def test_if_too_few_trials_finished_the_values_of_all_at_one_step_are_copied() -> None:
    space = {"x": tt.Float(0.0, 1.0)}
    settings: Any = {"trials": 12, "max_steps": 10, "stopping": "early_curve", "searcher": "random", "seed": 0}
    source: tt.Result = tt.simulate(rising, space=space, minimize="loss", **settings)
    assert sum(trial.finished for trial in source.trials) == 3
    study = tt.Study(space, minimize="loss", seed=0, warm_start=source)
    (earlier,) = study.history.earlier
    assert earlier.step == 7
    assert [value for _, value in earlier.trials] == pytest.approx([0.7 + t.config["x"] for t in source.trials])
    ((remark, is_unusual),) = remarks(study.spec, study.history)
    assert "12 of 12 trials taken, with their values at step 7, as too few finished" in remark
    assert not is_unusual


def test_stopped_and_paused_trials_with_a_finite_value_are_copied() -> None:
    table = Table(slots=4, trials=4)
    for trial, loss in ((0, 0.5), (1, 0.7), (2, math.inf)):
        table.report(trial, 1, loss)
    table(*(ev.Stop(table.now, trial, 1, "rule") for trial in (0, 2, 3)), ev.Pause(table.now, 1, 1, "rule"))
    for trial in range(4):
        table.end(trial, cut=True)
    assert [str(trial.state) for trial in table.history.trials] == ["STOPPED", "PAUSED", "STOPPED", "STOPPED"]
    (entry,) = knowledge([KnownStudy(table.spec, table.history)], table.spec, 9.0)
    assert [value for _, value in entry.trials] == [0.5, 0.7]


def test_trials_that_violate_the_new_studys_constraints_are_copied_without_a_value() -> None:
    """Otherwise the new study would begin with a configuration that violates its constraints."""
    space = {"x": tt.Float(0.0, 1.0)}
    old = tt.Study(space, minimize="loss", constraints=["size <= 1"], searcher="random", seed=1)
    for loss, size in ((0.1, 5.0), (0.5, 1.0)):
        old.tell(old.ask(), {"loss": loss, "size": size})
    values = [
        [
            value
            for _, value in tt.Study(space, minimize="loss", searcher=BestThenRandom(), **how)
            .history.earlier[0]
            .trials
        ]
        for how in (
            {"warm_start": old, "constraints": ["size <= 1"]},
            {"warm_start": old, "constraints": ["size <= 9"]},  # the new study's constraints count
            {"warm_start": old, "constraints": ["weight <= 1"]},  # the old study has no such metric
            {"warm_start": old},
        )
    ]
    assert values == [[None, 0.5], [0.1, 0.5], [None, 0.5], [0.1, 0.5]]


def test_the_values_of_the_new_studys_metric_are_copied() -> None:
    space = {"x": tt.Float(0.0, 1.0)}
    old = tt.Study(space, minimize=["a", "b"], searcher="random", seed=1)
    old.tell(old.ask(), {"a": 1.0, "b": 2.0, "c": 3.0})
    for metric, value in (("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 1.0)):
        (earlier,) = tt.Study(space, maximize=metric, searcher=BestThenRandom(), warm_start=old).history.earlier
        assert earlier.trials[0][1] == value
        assert (earlier.metric, earlier.maximize) == ((metric, True) if metric != "d" else ("a", False))


def test_a_source_with_too_few_values_gives_a_warning() -> None:
    with pytest.warns(
        UserWarning, match="fewer than 3 have a measured value that may be used, too few to learn from"
    ):
        tt.Study(SPACE, minimize="loss", warm_start=study_with(0.5, 0.4, None))


def test_a_source_passes_on_its_own_earlier_results() -> None:
    first = study_with(0.9)
    second = study_with(0.8, warm_start=first)
    first.tell(first.ask(), 0.7)
    assert earlier_values(second) == [(first.name, [0.9])]
    third = study_with(0.6, warm_start=second)
    assert earlier_values(third) == [(second.name, [0.8]), (first.name, [0.9])]
    both = study_with(warm_start=[third, first])
    assert earlier_values(both) == [(third.name, [0.6]), (first.name, [0.9, 0.7]), (second.name, [0.8])]
    twice = study_with(warm_start=[second, third, second])
    assert earlier_values(twice) == [(second.name, [0.8]), (third.name, [0.6]), (first.name, [0.9])]


def test_two_sources_of_one_name_are_both_copied(tmp_path: Path) -> None:
    for folder, value in (("a", 0.1), ("b", 0.2)):
        study_with(value, name="digits", store=tmp_path / folder / "s.db")
    first = study_with(0.3, name="digits", store=tmp_path / "c.db", warm_start=f"{tmp_path}/a/s.db:digits")
    second = study_with(name="new", store=tmp_path / "c.db", warm_start=["digits", f"{tmp_path}/b/s.db:digits"])
    assert earlier_values(second) == [("digits", [0.3]), ("digits", [0.2]), ("digits", [0.1])]
    assert earlier_values(first) == [("digits", [0.1])]


# --- tune and Study ---------------------------------------------------------------------------------------


def test_tune_begins_with_the_results_of_its_sources(tmp_path: Path) -> None:
    old = tune(tmp_path, "old")
    by_name = tune(tmp_path, "by-name", warm_start="old")
    assert by_name.trials[0].config == old.best.config
    assert earlier_values(by_name) == [("old", [trial.value for trial in old.trials])]
    other = tune(tmp_path / "other", "new", warm_start=[old, tt.load("by-name", tmp_path / "s.db")])
    assert [each.study for each in other.history.earlier] == ["old", "by-name"]
    assert other.trials[1].config["k"] == 3
    assert other.spec.warm_start == ("old", "by-name")


def test_a_resumed_study_makes_the_same_suggestions_after_its_source_was_deleted(tmp_path: Path) -> None:
    for folder in ("whole", "resumed"):
        tune(tmp_path / folder, "old")
    whole = tune(tmp_path / "whole", "new", warm_start=["old"], trials=4)
    for trials in (1, 2, 4):
        resumed = tune(tmp_path / "resumed", "new", warm_start=["old"], trials=trials)
        with open_store(tmp_path / "resumed" / "s.db") as store:
            if trials == 1:
                store.delete("old")
    assert [trial.config for trial in resumed.trials] == [trial.config for trial in whole.trials]
    more = tune(tmp_path / "resumed", "new", trials=5)
    assert earlier_values(more) == earlier_values(whole)
    with open_store(tmp_path / "resumed" / "s.db") as store:
        assert sum(isinstance(entry, ev.WarmStarted) for entry in store.read("new")) == 1


def test_a_driver_killed_before_its_first_trial_keeps_the_warm_start(tmp_path: Path, store: Store) -> None:
    old = tune(tmp_path, "old")
    settings = Settings(minimize="loss", searcher=BestThenRandom(), stopping="none", seed=0, trials=3)
    spec = make_spec(SPACE, settings, target=Target("pickled"), name="new")
    open_study(store, spec, ["old"])  # the driver ends here
    store.delete("old")
    new = tune(tmp_path, "new", warm_start="old")
    assert earlier_values(new) == [("old", [trial.value for trial in old.trials])]
    assert new.trials[0].config == old.best.config


def test_a_study_that_several_threads_create_at_once_is_created_once(tmp_path: Path, store: Store) -> None:
    study_with(0.5, None, name="old", store=store)
    barrier, values = threading.Barrier(4), []

    def make() -> None:
        barrier.wait()
        values.append(earlier_values(study_with(name="new", store=tmp_path / "s.db", warm_start="old")))

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == [[("old", [0.5, None])]] * 4
    assert store.length("new") == 1


def test_a_resume_with_other_sources_is_an_error(tmp_path: Path, store: Store) -> None:
    for name in ("a", "b"):
        study_with(0.5, name=name, store=store)
    tune(tmp_path, "cold")
    tune(tmp_path, "warm", warm_start=["a", "b"])
    for name, source, message in (
        ("cold", "a", "warm_start: was none, is now a. Give this one another name"),
        ("warm", "a", "warm_start: was a, b, is now a"),
        ("warm", ["a", "c"], "warm_start: was a, b, is now a, c"),
    ):
        with pytest.raises(StudyMismatch, match=message):
            tune(tmp_path, name, warm_start=source)
    assert len(tune(tmp_path, "warm", warm_start=["b", "a"], trials=4).trials) == 4
    assert len(tune(tmp_path, "warm", trials=5).trials) == 5


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "odl",
            r"^warm_start: there is no study 'odl' in .*s\.db; did you mean 'old'\? \(PATH:NAME names a study in",
        ),
        (["old", "none.db:old"], r"^warm_start: there is no store at .*none\.db"),
        ("new", "warm_start: study 'new' cannot learn from itself; give the new study another name"),
        (3, "warm_start: 3 is not a study; give a Study, a Result or a name"),
        (["old", None], "warm_start: None is not a study"),
        ({"old"}, "warm_start: {'old'} is not a study"),
    ],
)
def test_an_invalid_source_is_an_error_and_no_study_is_created(
    source: Any, message: str, tmp_path: Path, store: Store
) -> None:
    study_with(0.5, name="old", store=store)
    with pytest.raises((SettingError, StudyNotFound), match=message):
        tune(tmp_path, "new", warm_start=source)
    with pytest.raises((SettingError, StudyNotFound), match=message):
        study_with(name="new", store=store, warm_start=source)
    assert [study.name for study in store.studies()] == ["old"]


def test_a_missing_store_of_a_source_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(StudyNotFound, match="there is no store at"):
        tune(tmp_path, "new", warm_start="old")
    with pytest.raises(
        StudyNotFound, match=r"there is no study 'old' in memory \(PATH:NAME names a study in another store"
    ):
        study_with(warm_start="old")
    assert list(tmp_path.iterdir()) == []


def test_a_study_cannot_be_its_own_source(tmp_path: Path) -> None:
    first = tune(tmp_path, "s")
    for itself in ("s", first, tt.load("s", tmp_path / "s.db")):
        with pytest.raises(SettingError, match="study 's' cannot learn from itself"):
            tune(tmp_path, "s", warm_start=[itself], trials=9)


# --- messages ---------------------------------------------------------------------------------------------


def test_messages_about_sources_are_printed_at_the_first_start_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def lines_of(name: str, **settings: Any) -> list[str]:
        tune(tmp_path, name, **settings)
        return [line for line in capsys.readouterr().err.splitlines() if line.startswith("warm start")]

    study_with(0.5, None, name="same", store=tmp_path / "s.db")
    study_with(name="empty", store=tmp_path / "s.db")
    accuracy = study_with(0.9, 0.8, 0.7, space={"x": tt.Int(0, 4)}, minimize=None, maximize="acc", searcher="grid")
    assert lines_of("plain") == []
    assert lines_of("quiet", warm_start="same") == []
    usual = "warm start from 'same': 2 of 2 trials taken"
    assert lines_of("lines", warm_start="same", progress=None) == [usual]
    assert lines_of("lines", warm_start="same", progress=None, trials=4) == []
    assert lines_of("all", warm_start=["same", accuracy, "empty"]) == [
        f"warm start from {accuracy.name!r}: 2 of 3 trials taken; k is new here; "
        "1 trial dropped: x 2 is outside 0 to 1; its aim was to maximize acc",
        "warm start from 'empty': nothing taken, as no trial of it had ended with a value",
    ]
    assert lines_of("random", warm_start="same", searcher="random") == [
        "warm start: random search takes no account of it; use another searcher"
    ]
    assert lines_of("grid", warm_start="same", searcher=tt.search.Grid(), progress=None)[1:] == [
        "warm start: grid search takes no account of it; use another searcher"
    ]


def test_an_ask_and_tell_study_warns_of_unusual_sources_only(store: Store) -> None:
    old = study_with(0.5, 0.4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        study = study_with(name="new", store=store, warm_start=old)
        assert repr(study) == "<Study new: 0 trials>"
    with pytest.warns(UserWarning, match=r"^warm start from .*: 2 of 2 trials taken; k is gone here") as warned:
        tt.Study({"x": SPACE["x"]}, minimize="loss", searcher=BestThenRandom(), warm_start=old)
    user_warnings = [
        each for each in warned if each.category is UserWarning
    ]  # a study that is garbage-collected may warn of its folder
    assert [Path(each.filename).name for each in user_warnings] == ["test_warm_start.py"]
