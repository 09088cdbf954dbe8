"""Tests the benchmark of stopping rules: its clock, tables and figures, without peers and recorded data."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import thriftune as tt
from benchmarks import peers
from benchmarks.run_files import Runs, append, cases_of, read, remove
from benchmarks.search.tables import TASKSET, data
from benchmarks.stopping import methods, peer_thriftune, results, tables
from benchmarks.stopping.replay import FULL_TRAININGS, Nearest, replay, seconds_limit
from benchmarks.stopping.replay_worker import run, share
from benchmarks.stopping.report import TIMES, compare, over_time, reached_at, share_of_time
from thriftune.search import SEARCHERS
from thriftune.search.protocol import Past

LINE = {"x": {"type": "float", "low": 0.0, "high": 1.0}}


def line_table(values: list[list[float]], seconds: list[list[float]]) -> tables.CurveTable:
    """Return a table of one parameter x, whose rows are evenly spaced from 0 to 1."""
    configs = [{"x": float(x)} for x in np.linspace(0, 1, len(values))]
    return tables.CurveTable("line-0", "line", LINE, configs, np.array(values), np.array(seconds))


# --- the clock


class Scripted:
    """A method with given suggestions that records its calls."""

    version = "1"

    def __init__(
        self, table: tables.CurveTable, suggestions: list[tuple[int, float] | None], stops: dict[int, int]
    ) -> None:
        """Create a method with these suggestions (trial, x), and the step at which each trial stops."""
        self.nearest = Nearest(table)
        self._suggestions, self._stops = suggestions, stops
        self._known: set[int] = set()
        self.calls: list[tuple[Any, ...]] = []

    def suggest(self) -> int | None:
        suggestion = self._suggestions.pop(0) if self._suggestions else None
        if suggestion is None:
            return None
        trial, x = suggestion
        if trial not in self._known:
            self._known.add(trial)
            self.nearest({"x": x})
        return trial

    def report(self, trial: int, step: int, value: float) -> bool:
        self.calls.append((trial, step, value))
        return self._stops.get(trial) != step

    def completed(self, trial: int, value: float) -> None:
        self.calls.append((trial, "completed", value))

    def failed(self, trial: int, step: int) -> None:
        self.calls.append((trial, "failed", step))


def test_two_workers_alternate() -> None:
    table = line_table(
        [[9.0, 8.0, 3.0], [7.0, 6.0, 2.0], [5.0, math.nan, math.nan]], [[1, 1, 1], [2, 2, 2], [4] * 3]
    )
    # Trial 0 is paused after its second step, and resumes once trial 1 has completed.
    method = Scripted(table, [(0, 0.0), (1, 0.5), (2, 1.0), (0, 0.0)], {0: 2})
    trace = replay(method, table, method.nearest, 2)
    assert method.calls == [
        (0, 1, 9.0),
        (1, 1, 7.0),
        (0, 2, 8.0),
        (1, 2, 6.0),
        (2, 1, 5.0),  # ends at the same time as the next step, but started first
        (1, 3, 2.0),
        (1, "completed", 2.0),
        (0, 3, 3.0),
        (0, "completed", 3.0),
        (2, "failed", 2),
    ]
    # The median of the last values is 3 and the lowest is 2. Regret falls only for values below 3.
    assert trace.at == [6.0 / seconds_limit(table, 2)]
    assert trace.regret == [0.0]
    assert (trace.steps, trace.trials, trace.finished) == (8, 3, True)


def test_a_step_that_ends_at_the_time_limit_does_not_count() -> None:
    table = line_table([[2.0, 1.0], [3.0, 2.5]], [[1, 1], [1, 1]])
    method = Scripted(table, [(i, 0.0) for i in range(1000)], {})
    trace = replay(method, table, method.nearest, 4)
    assert seconds_limit(table, 4) == FULL_TRAININGS * 2 / 4
    assert not trace.finished
    assert trace.steps == (FULL_TRAININGS * 2 / 4 - 1) * 4  # the steps that end at the limit do not count
    assert (trace.at, trace.regret) == ([4 / FULL_TRAININGS], [0.0])


def test_a_completed_trial_cannot_go_on() -> None:
    table = line_table([[2.0], [1.0]], [[1], [1]])
    method = Scripted(table, [(0, 0.0), (0, 0.0)], {0: 1})
    with pytest.raises(RuntimeError, match="trial 0 is to go on, but has done all of its 1 steps"):
        replay(method, table, method.nearest, 1)


class RandomMethod:
    """A method that stops, pauses and resumes at random, and checks the clock's calls."""

    version = "1"

    def __init__(self, table: tables.CurveTable, workers: int, seed: int) -> None:
        self._table, self._workers = table, workers
        self._random = np.random.default_rng(seed)
        self.nearest = Nearest(table)
        self._running: set[int] = set()
        self._paused: set[int] = set()
        self._row: list[int] = []
        self._step: list[int] = []
        self.seconds = 0.0

    def suggest(self) -> int | None:
        if self._random.random() < 0.1 and self._running:
            return None
        if self._paused and self._random.random() < 0.5:
            trial = self._paused.pop()
        else:
            trial = len(self._row)
            self.nearest({"x": float(self._random.random())})
            self._row.append(self.nearest.row)
            self._step.append(0)
        self._running.add(trial)
        assert len(self._running) <= self._workers
        return trial

    def _stepped(self, trial: int, step: int) -> int:
        assert trial in self._running
        assert step == self._step[trial] + 1
        row = self._row[trial]
        self.seconds += float(self._table.seconds[row, step - 1])
        return row

    def report(self, trial: int, step: int, value: float) -> bool:
        assert value == self._table.values[self._stepped(trial, step), step - 1]
        self._step[trial] = step
        if self._random.random() < 0.7:
            return True
        self._running.remove(trial)
        if step < self._table.steps and self._random.random() < 0.5:
            self._paused.add(trial)
        return False

    def completed(self, trial: int, value: float) -> None:
        assert self._step[trial] == self._table.steps
        self._running.remove(trial)

    def failed(self, trial: int, step: int) -> None:
        assert np.isnan(self._table.values[self._stepped(trial, step), step - 1])
        self._running.remove(trial)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), workers=st.integers(1, 9))
def test_the_clock_with_random_decisions(seed: int, workers: int) -> None:
    random = np.random.default_rng(seed)
    values = random.normal(size=(10, 6))
    values[random.integers(10), 3:] = np.nan
    table = line_table(values.tolist(), random.uniform(0.1, 2, size=(10, 6)).tolist())
    method = RandomMethod(table, workers, seed)
    trace = replay(method, table, method.nearest, workers)
    assert method.seconds <= workers * seconds_limit(table, workers)
    assert trace.at == sorted(set(trace.at))
    assert trace.regret == sorted(set(trace.regret), reverse=True)
    assert all(0 < at < 1 for at in trace.at)
    assert all(0 <= regret < 1 for regret in trace.regret)


class OurRandom:
    """A peer that is thriftune's random search without a stopping rule."""

    version = "1"

    def __init__(self, table: tables.CurveTable, seed: int) -> None:
        self.nearest = Nearest(table)
        self._study = tt.Study(tt.Space.from_json(table.parameters), minimize="loss", seed=seed, searcher="random")

    def suggest(self) -> int:
        trial = self._study.ask()
        self.nearest(trial.config)
        return trial.id

    def report(self, trial: int, step: int, value: float) -> bool:
        return True

    def completed(self, trial: int, value: float) -> None: ...

    def failed(self, trial: int, step: int) -> None: ...


@pytest.mark.parametrize("workers", [1, 4])
def test_our_simulation_agrees_with_the_clock_of_the_peers(workers: int) -> None:
    table = tables.get(tables.TOY)
    method = OurRandom(table, 3)
    theirs = replay(method, table, method.nearest, workers)
    ours = peer_thriftune.simulate(table, 3, workers, methods.find("random").options)
    assert np.isnan(table.values).any()
    assert ours.at == pytest.approx(theirs.at)
    assert ours.regret == theirs.regret
    assert ours.steps == theirs.steps
    assert not ours.finished


@pytest.mark.parametrize("name", ["random+asha:eta=2", "random+asha:how=pause", "random+hyperband", "random+auto"])
def test_a_run_of_our_method_is_stored_as_a_line_of_json(name: str, tmp_path: Path) -> None:
    done = run(methods.find(name), tables.get(tables.TOY), 0, 4)
    file = results.file_of(tmp_path, name)
    append(file, done)
    with file.open("a") as lines:
        lines.write('{"table": "toy-0", "se')  # a killed process leaves half a line
    assert read(file, results.KEYS) == {(tables.TOY, 0, 4): done}
    assert done == {**run(methods.find(name), tables.get(tables.TOY), 0, 4), "cpu_seconds": done["cpu_seconds"]}
    remove(file, results.KEYS, {(tables.TOY, 0, 4)})
    assert read(file, results.KEYS) == {}


class RecordingSearcher:
    """A searcher that repeats one suggestion and records the configurations of all trials."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def suggest(self, past: Past, rng: np.random.Generator) -> dict[str, Any]:
        self.seen = [dict(trial.config) for trial in past.trials]
        return {"x": 0.0}


def test_our_searcher_sees_the_configurations_of_the_replayed_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    table = line_table([[2.0], [1.0], [3.0]], [[1], [1], [1]])
    searcher = RecordingSearcher()
    monkeypatch.setattr(SEARCHERS, "make", lambda *_: searcher)
    peer_thriftune.simulate(table, 0, 1, methods.find("random").options)
    assert searcher.seen[:4] == [{"x": 0.0}, {"x": 0.5}, {"x": 1.0}, {"x": 0.0}]


# --- the tables


def test_every_row_is_nearest_to_itself() -> None:
    table = tables.get(tables.TOY)
    nearest = Nearest(table)
    for row, config in enumerate(table.configs):
        assert nearest(config) == config
        assert nearest.row == row


def test_the_nearest_row_is_found_on_each_parameters_own_scale() -> None:
    space: tables.Parameters = {
        "rate": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
        "depth": {"type": "int", "low": 0, "high": 10},
        "kind": {"type": "choice", "choices": ["a", "b", "c"]},
    }
    configs = [
        {"rate": 1e-4, "depth": 0, "kind": "a"},
        {"rate": 1.0, "depth": 0, "kind": "a"},
        {"rate": 1.0, "depth": 10, "kind": "b"},
    ]
    table = tables.CurveTable("three", "three", space, configs, np.zeros((3, 1)), np.ones((3, 1)))
    assert Nearest(table)({"rate": 5e-3, "depth": 0, "kind": "a"}) == configs[0]
    assert Nearest(table)({"rate": 2e-2, "depth": 0, "kind": "a"}) == configs[1]
    # A difference of the whole range of depth weighs as much as another choice.
    assert Nearest(table)({"rate": 1.0, "depth": 6, "kind": "a"}) == configs[1]
    assert Nearest(table)({"rate": 1.0, "depth": 6, "kind": "b"}) == configs[2]
    nearest = Nearest(table)  # gives each row once before it repeats one
    assert [nearest(configs[0]) for _ in range(5)] == [configs[row] for row in (0, 1, 2, 0, 1)]


def test_existing_tables_are_read_without_the_recorded_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THRIFTUNE_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setattr(tables, "FOLDER", tmp_path)
    assert not data().is_dir()
    config = {name: p["low"] for name, p in TASKSET.items()}
    written = json.dumps([config])
    np.savez_compressed(
        tmp_path / "taskset-3.npz", configs=written, values=np.ones((1, 2)), seconds=np.ones((1, 2))
    )
    assert tables.named("taskset,toy-0") == ["taskset-3", "toy-0"]
    assert tables.named("lcbench") == []
    read = tables.get.__wrapped__("taskset-3")
    assert read.configs == [config]
    assert tt.Space.from_json(read.parameters).check(config) == config


def test_the_error_for_an_unknown_table_names_it() -> None:
    with pytest.raises(SystemExit, match="table 'none-1' is not known"):
        tables.get("none-1")


# --- the methods


def test_every_method_has_its_adapter_and_its_environment() -> None:
    for entry in map(methods.find, [*methods.OURS, *methods.PEERS]):
        assert importlib.util.find_spec(f"benchmarks.stopping.peer_{entry.adapter}")
        assert entry.peer is None or entry.peer in peers.PINS


def test_the_name_of_our_method_gives_searcher_rule_and_options() -> None:
    assert methods.find("random").options == {"searcher": ("random", {}), "rule": ("none", {})}
    assert methods.find("bayes:warp=False+asha:eta=2,how=pause").options == {
        "searcher": ("bayes", {"warp": False}),
        "rule": ("asha", {"eta": 2, "how": "pause"}),
    }
    assert methods.split_names("random,bayes+auto") == ["random", "bayes+auto"]
    assert methods.split_names("random bayes+asha:eta=2,how=pause") == ["random", "bayes+asha:eta=2,how=pause"]
    with pytest.raises(SystemExit, match="'nobody\\+asha' is not known"):
        methods.find("nobody+asha")


@given(tables_count=st.integers(1, 16), seeds=st.integers(1, 4), of=st.integers(1, 20))
def test_the_shares_of_workers_cover_all_cases_and_each_has_all_tables(
    tables_count: int, seeds: int, of: int
) -> None:
    cases = cases_of([f"t-{i}" for i in range(tables_count)], range(seeds), [1, 4, 16])
    shares = [share(cases, number, of) for number in range(of)]
    assert sorted(case for each in shares for case in each) == sorted(cases)
    if of == tables_count > 1:
        assert all(len({table for table, _, _ in each}) > 1 for each in shares)


# --- the arithmetic


def made_up(table: str, seed: int, at: list[float], regret: list[float], workers: int = 1) -> Runs:
    return {(table, seed, workers): {"at": at, "regret": regret}}


def test_regret_over_time_is_a_step_function() -> None:
    curve = over_time([0.0015, 0.5], [0.4, 0.1])
    assert curve[[0, 1, 498, 499, 999]].tolist() == [1.0, 0.4, 0.4, 0.1, 0.1]
    assert over_time([], []).tolist() == [1.0] * len(TIMES)
    assert reached_at(curve, 0.4) == 0.002
    assert reached_at(curve, 0.1 - 1e-10) == 0.5
    assert reached_at(curve, 0.05) == math.inf


def test_the_share_of_another_methods_time() -> None:
    theirs = over_time([0.1, 0.8], [0.5, 0.2])
    assert share_of_time(over_time([0.2], [0.1]), theirs) == pytest.approx(0.25)
    assert share_of_time(over_time([0.2], [0.3]), theirs) == math.inf
    assert share_of_time(theirs, theirs) == 1.0


def test_a_comparison_of_made_up_runs() -> None:
    ours = {
        **made_up("p-0", 0, [0.1], [0.4]),
        **made_up("p-0", 1, [0.1, 0.2], [0.4, 0.2]),
        **made_up("q-0", 0, [0.5], [0.1]),
        **made_up("q-0", 1, [0.1], [0.0]),  # does not count, as the other method lacks it
        **made_up("p-0", 0, [0.1], [0.9], workers=4),
    }
    theirs = {
        **made_up("p-0", 0, [0.3], [0.6]),
        **made_up("p-0", 1, [0.3], [0.2]),
        **made_up("q-0", 0, [0.9], [0.3]),
    }
    compared = compare({"ours": ours, "theirs": theirs}, ["p-0", "q-0", "r-0"], [0, 1], 1)
    assert compared.cases == 3
    part = compared.only(["p", "q", "r"])
    assert part.tables == ["p-0", "q-0"]
    assert part.mean("ours")[-1] == pytest.approx((0.3 + 0.1) / 2)
    assert part.mean("theirs")[-1] == pytest.approx((0.4 + 0.3) / 2)
    assert part.mean("ours")[99] == pytest.approx((0.4 + 1.0) / 2)
    # Ours reaches 0.35 at time 0.5, when q-0 improves; theirs reaches it at 0.9.
    assert share_of_time(part.mean("ours"), part.mean("theirs")) == pytest.approx(5 / 9)
    assert compared.final("ours", "p-0") == pytest.approx((0.3, 0.1))
    assert compared.difference("ours", "theirs", "p-0") == pytest.approx((-0.1, 0.1))
    assert compared.only(["p"]).standard_error("ours", 1.0) == pytest.approx(0.1)
    assert math.isnan(part.standard_error("ours", 1.0))  # q-0 has a single seed, so its error is unknown
