"""Tests of tune(), Study and load(), with real workers and stores."""

from __future__ import annotations

import datetime
import functools
import math
import multiprocessing
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import thriftune as tt
from thriftune.common.clock import WallClock
from thriftune.errors import (
    NoBestTrial,
    NothingLeft,
    SettingError,
    SpaceError,
    StudyBusy,
    StudyMismatch,
    StudyNotFound,
)
from thriftune.search.protocol import Past
from thriftune.state.events import Config
from thriftune.study.tune import _check_function

SPACE = {"x": tt.Float(0.0, 1.0), "k": tt.Int(1, 5)}


def square(trial: tt.Trial) -> float:
    return float(trial["x"]) ** 2


TIMEOUT_SECONDS = 60.0
"""Enough for a worker to start on a busy machine."""


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def steps(trial: tt.Trial) -> None:
    for step in trial.steps():
        trial.report(loss=trial["x"] / step, double=2.0 * step)


def tune(train: Any, folder: Path, **settings: Any) -> tt.Result:
    defaults: dict[str, Any] = {"minimize": "loss", "trials": 6, "workers": 2, "seed": 0, "name": "s"}
    return tt.tune(train, SPACE, store=folder / "s.db", progress=False, **{**defaults, **settings})


# --- tune -------------------------------------------------------------------------------------------------


def test_tune_returns_the_best_trial_and_the_cost(tmp_path: Path) -> None:
    result = tune(square, tmp_path)
    values = [trial.config["x"] ** 2 for trial in result.trials]
    assert [trial.value for trial in result.trials] == values
    assert result.best.value == min(values)
    assert {trial.state for trial in result.trials} == {tt.State.COMPLETED}
    assert [trial.id for trial in result.trials] == list(range(6))
    assert {trial.attempts for trial in result.trials} == {1}
    assert result.finished == "all 6 trials done"
    assert result.cost.seconds > 0
    assert result.cost.dollars > 0
    assert "AWS" in str(result.cost)


def test_maximize_makes_the_largest_value_the_best(tmp_path: Path) -> None:
    result = tune(square, tmp_path, minimize=None, maximize="loss")
    assert result.best.value == max(trial.value or 0 for trial in result.trials)


def report_three(trial: tt.Trial) -> dict[str, float]:
    return {"loss": trial["x"], "size": 1 - trial["x"], "k": trial["k"]}


def test_several_objectives_give_a_front_of_trials_that_meet_the_constraints(tmp_path: Path) -> None:
    goals: dict[str, Any] = {"minimize": ["loss", "size"], "maximize": "k", "constraints": ["k <= 4"]}
    result = tune(
        report_three, tmp_path, trials=12, searcher="random", **goals
    )  # random search suggests no x twice
    expected = [trial for trial in result.trials if trial.config["k"] <= 4]  # loss and size oppose each other
    assert sorted(result.front, key=lambda trial: trial.id) == expected
    assert [trial.value for trial in result.front] == sorted(trial.config["x"] for trial in expected)
    assert result.front[0].values == tuple(result.front[0].metrics[name] for name in ("loss", "size", "k"))
    assert repr(result) == f"<Result of s: 12 completed; {len(expected)} on the front>"
    assert repr(result.front[0]).startswith(f"<TrialRecord {result.front[0].id} COMPLETED values=(0")
    with pytest.raises(NoBestTrial, match="there are 3 objectives, so no single best; see front"):
        _ = result.best
    assert len(tt.load("s", store=tmp_path / "s.db").front) == len(expected)
    with pytest.raises(StudyMismatch, match=r"constraints: were k <= 4, are now k <= 3"):
        tune(report_three, tmp_path, **{**goals, "constraints": ["k <= 3"]})
    with pytest.raises(StudyMismatch, match="objectives: were minimize loss, size, maximize k, are now minimize"):
        tune(report_three, tmp_path, minimize="loss", constraints=["k <= 4"])


def test_steps_are_reported_one_by_one(tmp_path: Path) -> None:
    result = tune(steps, tmp_path, max_steps=4)
    for trial in result.trials:
        assert [report.step for report in trial.reports] == [1, 2, 3, 4]
        assert [report.metrics["double"] for report in trial.reports] == [2, 4, 6, 8]
        assert trial.value == trial.config["x"] / 4


def test_limits_are_totals_and_a_finished_study_returns_at_once(tmp_path: Path) -> None:
    first = tune(square, tmp_path, trials=4)
    again = tune(pytest.fail, tmp_path, trials=4)  # runs no trial
    assert [t.config for t in again.trials] == [t.config for t in first.trials]
    more = tune(square, tmp_path, trials=7)
    assert len(more.trials) == 7
    assert [t.config for t in more.trials[:4]] == [t.config for t in first.trials]
    assert [t.attempts for t in more.trials] == [1] * 7
    assert len(tune(square, tmp_path, trials=3).trials) == 7


def test_a_resumed_study_makes_the_same_suggestions_as_an_uninterrupted_one(tmp_path: Path) -> None:
    for name in ("random", "sobol"):
        for trials in (2, 5):
            tune(square, tmp_path / "resumed", name=name, searcher=name, trials=trials)
        whole = tune(square, tmp_path / "whole", name=name, searcher=name, trials=5)
        resumed = tt.load(name, store=tmp_path / "resumed" / "s.db")
        assert [t.config for t in resumed.trials] == [t.config for t in whole.trials]


def test_a_study_of_the_same_name_with_another_metric_or_space_is_an_error(tmp_path: Path) -> None:
    tune(square, tmp_path)
    with pytest.raises(StudyMismatch, match="metric: was loss, is now error"):
        tune(square, tmp_path, minimize="error")
    with pytest.raises(StudyMismatch, match="direction: was minimize, is now maximize"):
        tune(square, tmp_path, minimize=None, maximize="loss")
    wider = {"x": tt.Float(0.0, 2.0), "k": tt.Int(1, 5), "new": tt.Choice([1, 2])}
    with pytest.raises(StudyMismatch, match=r"x: high was 1\.0, is now 2\.0; new: is new"):
        tt.tune(square, wider, minimize="loss", trials=9, name="s", store=tmp_path / "s.db")
    assert len(tt.load("s", store=tmp_path / "s.db").trials) == 6


def test_the_error_for_another_space_advises_a_warm_start(tmp_path: Path) -> None:
    tune(square, tmp_path)
    wider = {"x": tt.Float(0.0, 2.0), "k": tt.Int(1, 5)}
    advice = r'another name, with warm_start="s" if it should learn from the existing study, or start'
    with pytest.raises(StudyMismatch, match=advice):
        tt.tune(square, wider, minimize="loss", trials=9, name="s", store=tmp_path / "s.db")
    store = tmp_path / "s.db"
    again = tt.tune(square, wider, minimize="loss", trials=2, name="wider", warm_start="s", store=store)
    assert len(again.history.earlier[0].trials) == 6
    with pytest.raises(StudyMismatch, match="Give this one another name, or start over with fresh=True"):
        tune(square, tmp_path, minimize="error")


DEADLINE_SECONDS = 600.0


@pytest.fixture
def deadline_passes(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, int], None]:
    """Return a function that makes the driver's clock jump past the deadline when a folder has enough files.

    The trials make the files, so each has done enough before the deadline, on the slowest machine.
    """

    def pass_deadline_at(folder: Path, files: int) -> None:
        folder.mkdir()
        real_now = WallClock.now

        def now(clock: WallClock) -> float:
            is_late = len(list(folder.iterdir())) >= files
            return real_now(clock) + (2 * DEADLINE_SECONDS if is_late else 0.0)

        monkeypatch.setattr(WallClock, "now", now)

    return pass_deadline_at


def test_a_deadline_stops_trials_and_keeps_their_values(
    tmp_path: Path, deadline_passes: Callable[[Path, int], None]
) -> None:
    progress = tmp_path / "progress"
    deadline_passes(progress, 2)

    def slow(trial: tt.Trial) -> None:
        for step in trial.steps():
            time.sleep(0.01)
            trial.report(loss=1.0 / step)
            if step == 3:
                (progress / str(trial.id)).touch()

    result = tune(slow, tmp_path, trials=None, max_steps=1_000_000, deadline=DEADLINE_SECONDS)
    assert result.finished == "deadline reached"
    assert {trial.state for trial in result.trials} == {tt.State.STOPPED}
    assert all(trial.value is not None and trial.value < 1 for trial in result.trials)
    again = tune(slow, tmp_path, trials=None, max_steps=1_000_000, deadline=DEADLINE_SECONDS)
    assert len(again.trials) == len(result.trials)


def test_a_trial_that_hangs_at_the_deadline_is_killed(
    tmp_path: Path, deadline_passes: Callable[[Path, int], None]
) -> None:
    progress = tmp_path / "progress"
    deadline_passes(progress, 1)

    def hang(trial: tt.Trial) -> None:
        trial.report(loss=0.5)
        (progress / "reported").touch()
        time.sleep(1000)

    result = tune(hang, tmp_path, trials=None, max_steps=3, deadline=DEADLINE_SECONDS, workers=1)
    (trial,) = result.trials
    assert (trial.state, trial.value) == (tt.State.STOPPED, 0.5)


def test_a_budget_ends_a_study(tmp_path: Path) -> None:
    def slow(trial: tt.Trial) -> float:
        time.sleep(0.05)
        return 1.0

    result = tune(slow, tmp_path, trials=None, budget=1e-5)
    assert result.finished == "budget reached"
    assert result.cost.dollars >= 1e-5


def test_a_study_ends_when_the_grid_is_exhausted(tmp_path: Path) -> None:
    result = tune(square, tmp_path, searcher=tt.search.Grid(points=2), trials=100)
    assert len(result.trials) == 4
    assert result.finished == "the searcher has nothing left to suggest"


def test_lambdas_callable_objects_and_partial_functions_run_in_workers(tmp_path: Path) -> None:
    offset = 10.0

    class Callable:
        def __call__(self, trial: tt.Trial) -> dict[str, float]:
            return {"loss": trial["x"] + offset, "other": 1.0}

    kinds = [lambda trial: trial["x"] + offset, Callable(), functools.partial(lambda by, t: t["x"] + by, 10.0)]
    for number, train in enumerate(kinds):
        result = tune(train, tmp_path, name=f"kind{number}", trials=2)
        assert [t.value for t in result.trials] == [t.config["x"] + 10.0 for t in result.trials]


def test_every_trial_has_its_own_seed_and_its_id_and_configuration(tmp_path: Path) -> None:
    def look(trial: tt.Trial) -> dict[str, float]:
        assert trial.config == {"x": trial["x"], "k": trial["k"]}
        assert trial.get("missing", 3) == 3
        assert "x" in trial
        assert "missing" not in trial
        assert trial.max_steps == 2
        return {"loss": 0.0, "seed": trial.seed, "id": trial.id, "attempt": trial.attempt}

    result = tune(look, tmp_path, max_steps=2)
    reported = [trial.reports[-1].metrics for trial in result.trials]
    assert [metrics["id"] for metrics in reported] == [trial.id for trial in result.trials]
    assert len({metrics["seed"] for metrics in reported}) == 6


class NearBest:
    """A user's searcher, which suggests a configuration near the best one."""

    def suggest(self, past: Past, rng: Any) -> Config:
        ended = [t for t in past.trials if t.value is not None]
        best = min(ended, key=lambda t: t.value or 0.0).config["x"] if ended else 0.5
        return {"x": float(min(1.0, max(0.0, best + rng.normal(0, 0.1)))), "k": 1}


def test_a_user_may_pass_a_searcher(tmp_path: Path) -> None:
    result = tune(square, tmp_path, searcher=NearBest(), trials=10)
    assert len(result.trials) == 10


class OutOfRange:
    def suggest(self, past: Past, rng: Any) -> Config:
        return {"x": np.float64(0.5), "k": np.int64(1)} if not past.trials else {"x": 2.0, "k": 1}


def test_a_suggestion_outside_the_space_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        SpaceError, match=r"OutOfRange suggested .*: x: 2\.0 is outside its range; use 0\.0 to 1\.0"
    ):
        tune(square, tmp_path, searcher=OutOfRange(), workers=1)
    (trial,) = tt.load("s", store=tmp_path / "s.db").trials
    assert trial.config == {"x": 0.5, "k": 1}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"minimize": None}, "give minimize or maximize or both"),
        ({"minimize": []}, "give minimize or maximize or both"),
        ({"maximize": "loss"}, "loss: is named twice; name each metric once, in minimize or in maximize"),
        ({"minimize": ["loss", ""]}, "the metric to optimise must be a name, not ''"),
        ({"minimize": 3}, "minimize: 3 must be the name of a metric, or a list of such"),
        (
            {"constraints": ["loss < 3"]},
            "constraints: 'loss < 3' is not a constraint; write NAME <= NUMBER",
        ),
        ({"constraints": ["gap >= 3", "gap <= 2"]}, "no value can meet both gap >= 3 and gap <= 2"),
        ({"trials": None}, "give at least one limit: trials, deadline or budget"),
        ({"trials": 0}, "trials: 0 is too small; use 1 or more"),
        ({"trials": 2.5}, "trials: 2.5 must be a whole number"),
        ({"max_steps": 0}, "max_steps: 0 is too small; use 1 or more"),
        ({"workers": 0}, "workers: 0 is too small; use 1 or more"),
        ({"retries": -1}, "retries: -1 is too small; use 0 or more"),
        ({"deadline": "soon"}, "deadline: 'soon' is not a duration"),
        ({"deadline": -1}, "deadline: -1.0 must be above zero"),
        ({"timeout": math.nan}, "timeout: nan must be above zero and finite"),
        ({"budget": 0}, "budget: 0 must be above zero"),
        ({"searcher": "rnadom"}, "'rnadom' is not known; use one of bayes, random, sobol, grid"),
        ({"name": "a/b"}, "name: 'a/b' must be letters"),
        ({"name": ""}, "name: '' must be letters"),
        ({"searcher": tt.search.Grid}, r"searcher: Grid is a class; give an object, Grid\(\)"),
        ({"searcher": object()}, r"searcher: <object .*> has no method suggest\(past, rng\)"),
        ({"searcher": None}, r"searcher: None has no method suggest.* or one of 'bayes', 'random', 'sobol'"),
        ({"name": ".."}, "name: '..' must be letters"),
        ({"seed": -1}, "seed: -1 is too small; use 0 or more"),
        ({"keep": 1}, "keep: 1 is too small; use 2 or more"),
        ({"disk_full": "wait"}, "disk_full: 'wait' must be 'stop' or 'go_on'"),
        ({"storage": "s4://bucket"}, "storage: s4:// is not supported"),
    ],
)
def test_an_invalid_setting_is_an_error_and_no_store_is_created(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match=message):
        tune(square, tmp_path, **settings)
    assert not (tmp_path / "s.db").exists()


def test_an_invalid_space_or_function_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match=r"lr: low 0\.1 is above high 0\.01"):
        tt.tune(square, {"lr": tt.Float(0.1, 0.01)}, minimize="loss", trials=1, store=tmp_path)
    with pytest.raises(SettingError, match="train: 3 is not a function"):
        tt.tune(3, SPACE, minimize="loss", trials=1, store=tmp_path)  # type: ignore[arg-type]
    lock = threading.Lock()
    with pytest.raises(SettingError, match="cannot be sent to a worker process"):
        tune(lambda trial: lock.acquire(), tmp_path)
    assert not (tmp_path / "s.db").exists(), "no store is created"


async def coroutine(trial: tt.Trial) -> float:
    return 0.0


def generator(trial: tt.Trial) -> Iterator[float]:
    yield 0.0


class AsyncCallable:
    async def __call__(self, trial: tt.Trial) -> float:
        return 0.0


def two(trial: tt.Trial, lr: float) -> float:
    return lr


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (lambda: 0.0, "train: <lambda>() takes no argument; it is called with one, the trial"),
        (two, "train: two() takes the arguments (trial, lr); it is called with one, the trial"),
        (functools.partial(lambda trial: 0.0, 1), "train: <lambda>() takes no argument; "),
        (lambda *, trial: 0.0, "train: <lambda>() takes the arguments (*, trial); "),
        (coroutine, "train: coroutine is an async function; "),
        (functools.partial(coroutine), "train: coroutine is an async function; "),
        (AsyncCallable(), "train: AsyncCallable is an async function; "),
        (generator, "train: generator has a yield, so it is a generator; "),
    ],
)
def test_a_function_that_cannot_be_called_with_a_trial_is_an_error(
    train: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match=re.escape(message)):
        tune(train, tmp_path)
    assert not (tmp_path / "s.db").exists()


def test_a_function_whose_signature_may_fit_is_accepted() -> None:
    @functools.wraps(two)
    def wrapper(*args: Any) -> float:
        return two(args[0], 1.0)

    for train in (wrapper, functools.partial(two, lr=1.0), print, max, dict, lambda *args, **more: 0.0):
        _check_function(train)


def test_only_the_first_failures_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(trial: tt.Trial) -> None:
        raise ValueError(f"boom {trial.id}")

    result = tune(fail, tmp_path, retries=1, on_failure="go_on")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    for line in lines:
        number = line.split()[1]
        command = f"thriftune show s --trial {number} --store {tmp_path}/s.db"
        assert line == f"trial {number} failed: ValueError: boom {number} ({command} tells more)"
    with pytest.raises(NoBestTrial, match="all 6 trials failed, the first with: ValueError"):
        _ = result.best
    assert repr(result.trials[0]).endswith("error='ValueError: boom 0'>")


def test_a_second_driver_of_a_study_is_an_error(tmp_path: Path) -> None:
    started, failed = tmp_path / "started", tmp_path / "failed"

    def slow(trial: tt.Trial) -> float:
        started.touch()
        wait_until(failed.exists)
        return 0.0

    thread = threading.Thread(target=tune, args=(slow, tmp_path), kwargs={"trials": 1})
    thread.start()
    wait_until(started.exists)
    with pytest.raises(StudyBusy, match=f"is being run by process {os.getpid()}"):
        tune(slow, tmp_path, trials=50)
    failed.touch()
    thread.join()
    study = tt.load("s", store=tmp_path / "s.db")
    assert study.spec.trials == 1, "the second driver changed nothing"
    assert len(study.trials) == 1


def test_a_study_can_be_stored_in_memory(tmp_path: Path) -> None:
    result = tt.tune(square, SPACE, minimize="loss", trials=3, store=":memory:", workers=1, progress=False)
    assert len(result.trials) == 3


# --- ask and tell -----------------------------------------------------------------------------------------


def test_told_results_complete_or_fail_trials() -> None:
    study = tt.Study(SPACE, minimize="loss", searcher="sobol", seed=0)
    with pytest.raises(NoBestTrial, match="no trial has reported 'loss' yet"):
        _ = study.best
    a, b, c, d = (study.ask() for _ in range(4))
    assert len({tuple(t.config.items()) for t in (a, b, c, d)}) == 4
    study.tell(a, 0.3)
    study.tell(b, {"loss": 0.2, "accuracy": 0.9})
    study.tell(c.id, failed="out of luck")
    study.tell(d, math.nan)
    assert [t.state for t in study.trials] == ["COMPLETED", "COMPLETED", "FAILED", "FAILED"]
    assert study.best.value == 0.2
    assert study.best.config == b.config
    assert study.best.reports[-1].metrics == {"loss": 0.2, "accuracy": 0.9}
    assert study.trials[2].error == "out of luck"
    assert study.trials[3].error_kind == "nan"


def test_tell_needs_every_objective_and_constrained_metric() -> None:
    study = tt.Study(SPACE, minimize="loss", maximize=["accuracy"], constraints=["latency <= 10"])
    trials = [study.ask() for _ in range(4)]
    for value, message in [
        (
            0.3,
            "tell: 0.3 is one number, and the study needs several; give {'loss': ..., 'accuracy': ..., ",
        ),
        ({"loss": 0.3, "latency": 1}, "tell: 'accuracy' is missing; there is loss, latency"),
        ({"loss": 0.3}, "tell: 'accuracy' and 'latency' are missing; there is loss"),
    ]:
        with pytest.raises(SettingError, match=re.escape(message)):
            study.tell(trials[0], value)  # type: ignore[arg-type]
    for trial, loss, accuracy, latency in zip(
        trials, (0.3, 0.2, 0.1, 0.4), (0.9, 0.8, 0.7, 0.9), (9, 10, 11, 1), strict=True
    ):
        study.tell(trial, {"loss": loss, "accuracy": accuracy, "latency": latency})
    assert [trial.id for trial in study.front] == [1, 0]
    assert [trial.id for trial in study.result.front] == [1, 0]
    assert [study.history.feasible(trial) for trial in study.trials] == [True, True, False, True]


def test_settings_of_ask_and_tell_are_checked(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="name: '' must be letters"):
        tt.Study(SPACE, minimize="loss", name="", store=tmp_path)
    searcher: Any = tt.search.Sobol
    with pytest.raises(SettingError, match="searcher: Sobol is a class"):
        tt.Study(SPACE, minimize="loss", searcher=searcher, store=tmp_path)


def test_ask_does_not_suggest_the_configuration_of_a_running_trial() -> None:
    study = tt.Study({"c": tt.Choice(list(range(12)))}, minimize="loss", seed=1)
    assert {study.ask().config["c"] for _ in range(12)} == set(range(12))


def test_ask_is_an_error_when_the_searcher_has_no_more_suggestions() -> None:
    study = tt.Study({"c": tt.Choice(["a", "b"])}, minimize="loss", searcher="grid")
    trials = [study.ask(), study.ask()]
    with pytest.raises(NothingLeft, match="grid has nothing left to suggest"):
        study.ask()
    study.tell(trials[0], 1.0)
    assert study.best.value == 1.0


def test_an_invalid_result_is_an_error() -> None:
    study = tt.Study(SPACE, minimize="loss")
    trial = study.ask()
    for arguments, message in [
        (((trial,), {}), "give either a value"),
        (((trial, 1.0), {"failed": "why"}), "give either a value"),
        (((trial, {"accuracy": 1.0}), {}), "'loss' is missing; there is accuracy"),
        (((trial, "good"), {}), "loss: 'good' is a text and not a number"),
        (((7, 1.0), {}), "has no trial 7; its only trial is 0"),
        ((("0", 1.0), {}), "'0' is not a trial; give one that ask"),
        (((tt.Study(SPACE, minimize="loss", searcher="random").ask(), 1.0), {}), "another configuration"),
    ]:
        with pytest.raises(SettingError, match=message):
            study.tell(*arguments[0], **arguments[1])  # type: ignore[arg-type]
    study.tell(trial, 1.0)
    with pytest.raises(SettingError, match="trial 0 is COMPLETED; only a running trial takes a result"):
        study.tell(trial, 2.0)
    assert study.best.value == 1.0


def test_a_named_study_is_opened_again_with_its_trials(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"minimize": "loss", "name": "s", "store": tmp_path, "seed": 3}
    first = tt.Study(SPACE, **settings)
    running = first.ask()
    first.tell(first.ask(), 0.5)
    second = tt.Study(SPACE, **settings)
    assert second.best.value == 0.5
    second.tell(running.id, 0.1)
    assert first.best.value == 0.1
    one_study = tt.Study(SPACE, minimize="loss", seed=3)
    configs = [one_study.ask().config for _ in range(3)]
    assert [t.config for t in second.trials] + [second.ask().config] == configs


def test_a_study_keeps_its_first_seed_and_warns_of_another(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"minimize": "loss", "name": "s", "store": tmp_path}
    tt.Study(SPACE, seed=3, **settings)
    tt.Study(SPACE, **settings)  # without a seed
    with pytest.warns(UserWarning, match="seed: study 's' began with 3 and goes on with it, not with 4"):
        assert tt.Study(SPACE, seed=4, **settings).spec.seed == 3


def _ask_and_tell(folder: Path, count: int) -> None:
    study = tt.Study({"c": tt.Choice(list(range(60)))}, minimize="loss", name="many", store=folder, seed=0)
    for _ in range(count):
        trial = study.ask()
        study.tell(trial, float(trial.config["c"]))


def test_many_processes_ask_and_tell_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_ask_and_tell, args=(tmp_path, 15)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    study = tt.load("many", store=tmp_path)
    assert sorted(t.config["c"] for t in study.trials) == list(range(60)), "each configuration once"
    assert {t.state for t in study.trials} == {tt.State.COMPLETED}


def test_many_threads_ask_and_tell_at_once() -> None:
    study = tt.Study({"c": tt.Choice(list(range(40)))}, minimize="loss")

    def work() -> None:
        for _ in range(10):
            study.tell(study.ask(), 1.0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(t.config["c"] for t in study.trials) == list(range(40))


# --- load -------------------------------------------------------------------------------------------------


def test_a_running_study_can_be_loaded(tmp_path: Path) -> None:
    loaded = tmp_path / "loaded"

    def slow(trial: tt.Trial) -> None:
        for step in trial.steps():
            trial.report(loss=1 / step)
            if step == 2:
                wait_until(loaded.exists)

    def two_run() -> bool:
        try:
            trials = tt.load("s", store=tmp_path / "s.db").trials
        except StudyNotFound:
            return False
        return [(t.state, t.step) for t in trials] == [(tt.State.RUNNING, 2)] * 2

    thread = threading.Thread(target=tune, args=(slow, tmp_path), kwargs={"trials": 2, "max_steps": 3})
    thread.start()
    wait_until(two_run)
    loaded.touch()
    thread.join()
    assert {t.state for t in tt.load("s", store=tmp_path / "s.db").trials} == {tt.State.COMPLETED}


def test_loading_a_missing_study_is_an_error_with_a_similar_name(tmp_path: Path) -> None:
    with pytest.raises(StudyNotFound, match="there is no store at"):
        tt.load("s", store=tmp_path / "none.db")
    tune(square, tmp_path, trials=1, name="digits")
    with pytest.raises(StudyNotFound, match="did you mean 'digits'"):
        tt.load("digit", store=tmp_path / "s.db")


def test_ask_on_a_study_of_tune_is_an_error(tmp_path: Path) -> None:
    tune(square, tmp_path, trials=1)
    with pytest.raises(SettingError, match="it has no ask and tell"):
        tt.load("s", store=tmp_path / "s.db").ask()


def test_a_loaded_study_keeps_its_searcher_and_its_options(tmp_path: Path) -> None:
    first = tt.Study(
        {"x": tt.Int(0, 9)}, minimize="loss", searcher=tt.search.Grid(points=2), name="a", store=tmp_path
    )
    assert (first.spec.searcher, first.spec.searcher_options) == ("grid", {"points": 2})
    study = tt.load("a", store=tmp_path)
    assert [study.ask()["x"], study.ask()["x"]] == [0, 9]
    named = tt.Study({"x": tt.Int(0, 9)}, minimize="loss", searcher="grid", name="a", store=tmp_path)
    assert named.spec.searcher_options == {"points": 2}, "a searcher that is given by name keeps its options"
    other = tt.Study({"x": tt.Int(0, 9)}, minimize="loss", searcher="sobol", name="a", store=tmp_path)
    assert other.spec.searcher_options == {}
    tt.Study(
        {"x": tt.Float(0, 1)}, minimize="loss", searcher=tt.search.Bayes(warp=False), name="b", store=tmp_path
    )
    assert 0 <= tt.load("b", store=tmp_path).ask()["x"] <= 1


def test_ask_on_a_loaded_study_with_a_user_s_searcher_is_an_error(tmp_path: Path) -> None:
    class Mine:
        def suggest(self, past: Any, rng: Any) -> dict[str, Any]:
            return {"x": 0.5}

    tt.Study({"x": tt.Float(0, 1)}, minimize="loss", searcher=Mine(), name="a", store=tmp_path)
    with pytest.raises(SettingError, match=r"a searcher of its user's own, Mine, .* searcher=Mine\(\)\)"):
        tt.load("a", store=tmp_path).ask()


@pytest.mark.parametrize("trial", [True, 1.0, "1", None])
def test_an_invalid_trial_argument_is_an_error_and_nothing_is_recorded(trial: Any, tmp_path: Path) -> None:
    study = tt.Study({"x": tt.Float(0, 1)}, minimize="loss", name="n", store=tmp_path / "s.db")
    study.ask()
    study.ask()
    with pytest.raises(SettingError, match="is not a trial"):
        study.tell(trial, 1.0)
    if trial is not None:
        with pytest.raises(SettingError, match="is not a trial"):
            study.set_attr("k", 1, trial=trial)
    study.set_attr("k", 1, trial=np.int64(1))  # type: ignore[arg-type]
    study.tell(np.int64(0), 0.5)  # type: ignore[arg-type]
    again = tt.load("n", tmp_path / "s.db")
    assert [trial.attrs for trial in again.trials] == [{}, {"k": 1}]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("on_change", "zzz"),
        ("on_change", []),
        ("fresh", "yes"),
        ("retry_failed", [5]),
        ("timeout", 10**400),
        ("target", 10**400),
        ("target", math.nan),
        ("budget", 10**400),
        ("deadline", 10**400),
        ("deadline", "2026-11-20 09:00 +25:00"),
        ("deadline", "0001-01-01 00:00"),
        ("deadline", datetime.datetime.min),
    ],
    ids=range(12),
)
def test_a_setting_that_cannot_be_stored_is_an_error(name: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=name):
        tune(square, tmp_path, **{name: value})
    assert tt.studies(tmp_path / "s.db") == []
