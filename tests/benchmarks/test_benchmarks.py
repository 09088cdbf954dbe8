"""Tests that each benchmark runs, at tiny sizes and without peers, and that its arithmetic is right."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import large_store, peers, throughput
from benchmarks.cluster import driver, placement
from benchmarks.run_files import Runs, append, cases_of, parse_numbers, read, remove
from benchmarks.search import ablation, functions, methods, multi, problems, results, tables
from benchmarks.search.report import Comparison, best_so_far, ranks
from benchmarks.system import stream, studies
from tests import ROOT
from tests.conftest import needs_torch
from tests.support.ray_clusters import namespaces
from thriftune import Space
from thriftune.results.loading import load_history, load_spec
from thriftune.state.trial_record import State
from thriftune.store.opening import open_store


def run(*arguments: str) -> str:
    """Run a module of the benchmarks, and return its standard output."""
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=840, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "name",
    [
        "throughput",
        "report_cost",
        "first_hour",
        "large_store",
        "memory",
        "footprint",
        "search",
        "search.speed",
        "search.ablation",
        "search.importance",
        pytest.param("cluster.faults", marks=pytest.mark.cluster),
        pytest.param("cluster.rubberband", marks=[pytest.mark.cluster, needs_torch]),
        "stopping",
        "stopping.early_curve",
        "stopping.real_trials",
        "stopping.small_studies",
        "stopping.simulator_speed",
        "system.overhead",
        "market.checkpoints",
        "market.lifetimes",
        "market.reuse",
        "market.revocation",
        "market.synthetic",
        "planning.executed",
        "planning.optimum",
        "planning.placement",
        "planning.studies",
        "planning.speed",
        "provisioning.bag",
        "provisioning.policies",
        "provisioning.speed",
        "provisioning.spottune",
        "search.convergence",
        "search.multi",
        pytest.param("object_store.checkpoints", marks=needs_torch),
        "object_store.kills",
        "cluster.driver",
        pytest.param("cluster.placement", marks=[pytest.mark.cluster, needs_torch]),
        pytest.param("cluster.throughput", marks=pytest.mark.cluster),
    ],
)
def test_a_quick_run_has_figures_and_no_verdict(name: str) -> None:
    if name == "cluster.rubberband":
        namespaces()  # skips the test if namespaces cannot be created, as the autoscaler needs them
    parsed = json.loads(run(f"benchmarks.{name}", "--json", "--quick", "--without-peers"))
    assert parsed["command"] == f"python -m benchmarks.{name} --json --quick --without-peers"
    assert parsed["machine"]["cores"] >= 1
    assert parsed["machine"]["fdatasync_microseconds"] > 0
    assert parsed["rows"]
    for row in parsed["rows"]:
        assert row["what"]
        assert row["figure"]
        assert row["met"] is None


@needs_torch
@pytest.mark.parametrize("name", ["system.compare", "system.ablation"])
def test_benchmarks_of_system_tuning_run(name: str) -> None:
    """Use the only workload that needs no recorded data."""
    parsed = json.loads(run(f"benchmarks.{name}", "--json", "--quick", "--workload", "text_rnn"))
    assert parsed["rows"]
    assert all(row["met"] is None and row["figure"] for row in parsed["rows"])


def test_a_response_time_is_the_wait_plus_the_service() -> None:
    assert stream.responses([1.0, 1.0, 10.0], [3.0, 2.0, 1.0]) == [3.0, 4.0, 1.0]


def test_a_benchmark_prints_a_table() -> None:
    shown = run("benchmarks.report_cost", "--quick")
    assert "python -m benchmarks.report_cost --quick" in shown
    assert "under 200 us" in shown


def test_the_driver_benchmark_counts_decisions_and_events() -> None:
    without_stopping = driver.drive("none", 30, 1, 1)
    assert (
        without_stopping.decisions == 1 + 2 * 20 + 1
    )  # the place that fills all slots, 20 creates and places, one finish
    with_asha = driver.drive("asha", 30, 1, 7)
    assert with_asha.decisions > without_stopping.decisions  # asha also stops trials
    assert with_asha.events < without_stopping.events


def test_workers_are_placed_together_or_scattered() -> None:
    nodes = {"a": 4, "b": 4}
    assert placement.together(2, nodes) == {"a": 2}
    assert placement.scattered(1, nodes) == {"a": 1}
    assert placement.scattered(3, nodes) == {"a": 2, "b": 1}


@pytest.mark.parametrize("killed", [False, True])
def test_the_large_store_has_a_valid_study(tmp_path: Path, killed: bool) -> None:
    path = tmp_path / "studies.db"
    entries = large_store.make(path, trials=3, reports=4, killed=killed)
    with open_store(path) as store:
        history = load_history(store, load_spec(store, large_store.NAME))
        (listed,) = store.studies()
    history.validate()
    assert history.entries == entries
    assert history.counts[State.COMPLETED] == 3
    assert [len(trial.reports) for trial in history.trials[:3]] == [4, 4, 4]
    assert bool(history.running) == killed
    # The summary is up to date only if the driver was not killed.
    assert (listed.summary["entries"] == entries) == (not killed)


def test_an_installed_peer_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment with the pinned version needs no network."""
    interpreter = tmp_path / "optuna" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    version = peers.PINS["optuna"].partition("==")[2]
    interpreter.write_text(f"#!/bin/sh\necho {version}\n")
    interpreter.chmod(0o755)
    monkeypatch.setenv("THRIFTUNE_PEERS", str(tmp_path))
    assert peers.python("optuna") == interpreter


def test_a_failed_script_ends_the_benchmark() -> None:
    broken = throughput.System("broken", "noop_thriftune.py", 4, arguments=("not a number",))
    with pytest.raises(SystemExit, match="broken failed"):
        broken.rate(4)


def test_every_peer_has_its_script_and_its_pin() -> None:
    for system in throughput.PEERS:
        assert system.peer in peers.PINS
        assert os.access(Path(throughput.__file__).with_name(system.script), os.R_OK)


# --- the comparison of searches: its problems and its arithmetic


FORMULAS = {name: value for name, value in vars(functions).items() if isinstance(value, functions.Function)}


@pytest.mark.parametrize("function", FORMULAS.values(), ids=FORMULAS)
def test_no_random_configuration_is_below_the_optimum(function: functions.Function) -> None:
    rng = np.random.default_rng(0)
    values = [function(problems.draw(function.parameters, rng)) for _ in range(500)]
    assert np.isfinite(values).all()
    assert min(values) >= function.optimum
    assert max(values) > function.optimum + 1e-3


@pytest.mark.parametrize("function", FORMULAS.values(), ids=FORMULAS)
def test_the_parameters_of_a_problem_are_a_thriftune_space(function: functions.Function) -> None:
    space = Space.from_json(function.parameters)
    rng = np.random.default_rng(1)
    for _ in range(50):
        config = problems.draw(function.parameters, rng)
        assert space.check(config) == config
        assert np.isfinite(function(space.sample(rng)))


@pytest.mark.parametrize(
    ("function", "config"),
    [
        (functions.NETWORK, {"rate": 10**-2.6, "layers": 4, "width": 96, "activation": "gelu", "dropout": 0.25}),
        (
            functions.OPTIMIZER,
            {
                "method": "sgd",
                "sgd_rate": 0.13 * 10**0.1,
                "momentum": 0.87,
                "nesterov": True,
                "decay": 10**-4.2,
                "schedule": "cosine",
            },
        ),
        (
            functions.KILN,
            {
                "heat": 1150.0,
                "air": 0.7,
                "hours": 14,
                "shelves": 5,
                "clay": "white",
                "glaze": "salt",
                "lid": False,
            },
        ),
        (
            functions.PIPELINE,
            {
                "model": "trees",
                "scaling": "standard",
                "depth": 9,
                "share": 0.35,
                "boost": True,
                "shrinkage": 10**-1.1,
            },
        ),
    ],
)
def test_the_made_up_problems_reach_their_optimum(function: functions.Function, config: dict[str, Any]) -> None:
    assert Space.from_json(function.parameters).check(config) == config
    assert function(config) == pytest.approx(function.optimum, abs=1e-9)


def test_the_test_and_dev_problems_differ() -> None:
    test, dev = problems.names("test"), problems.names("dev")
    assert not set(test) & set(dev)
    assert len(test) >= 12
    formulas = [problems.get(name).function for name in [*test, *dev] if name not in problems.TABLES]
    assert len(formulas) == len({id(formula) for formula in formulas}) == len(FORMULAS)


def test_the_median_is_stored_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "OUT", tmp_path)
    monkeypatch.setattr(problems, "DRAWS", 201)
    line = {"x": {"type": "float", "low": 0.0, "high": 2.0}}
    problem = problems.Problem("line", "dev", "function", line, lambda config: float(config["x"]), 0.0)
    assert problem.median == pytest.approx(1.0, abs=0.2)
    (file,) = (tmp_path / "medians").iterdir()
    file.write_text("4.0")
    again = problems.Problem("line", "dev", "function", line, problem.function, 0.0)
    assert again.median == 4.0
    assert again.regret(1.0) == 0.25


def test_a_grid_is_interpolated_between_its_levels() -> None:
    table = tables.Grid(
        {
            "kind": {"type": "choice", "choices": ["a", "b"]},
            "depth": {"type": "int", "low": 2, "high": 3, "when": {"kind": "b"}},
            "rate": {"type": "float", "low": 1.0, "high": 100.0, "log": True},
        },
        np.array([[[1.0, 2.0, 8.0]] * 2, [[3.0, 0.5, 7.0], [4.0, 5.0, 6.0]]]),
        {"rate": np.array([1.0, 10.0, 100.0])},
    )
    assert table.optimum == 0.5
    assert table({"kind": "a", "rate": 1.0}) == 1.0
    assert table({"kind": "a", "rate": 10**1.5}) == pytest.approx(5.0)
    assert table({"kind": "b", "depth": 3, "rate": 100.0}) == 6.0
    assert table({"kind": "b", "depth": 2, "rate": 10.0}) == 0.5


def test_scattered_points_give_the_nearest_value() -> None:
    space = {"rate": {"type": "float", "low": 1e-4, "high": 1.0, "log": True}}
    table = tables.Nearest(space, np.array([[0.0], [0.5], [1.0]]), np.array([3.0, 1.0, 2.0]))
    assert [table({"rate": rate}) for rate in (1e-4, 5e-3, 0.9)] == [3.0, 1.0, 2.0]
    assert table.optimum == 1.0


def test_inactive_parameters_are_left_out() -> None:
    flat = {"model": "trees", "scaling": "none", "penalty": 1.0, "ratio": 0.5, "k": 3, "weights": "uniform"}
    flat |= {"depth": 2, "share": 0.5, "boost": False, "shrinkage": 0.1}
    active = problems.active(functions.PIPELINE.parameters, flat)
    assert active == {"model": "trees", "scaling": "none", "depth": 2, "share": 0.5, "boost": False}


def test_tied_values_share_their_ranks() -> None:
    assert ranks([0.3, 0.1, 0.1, 0.5]).tolist() == [3.0, 1.5, 1.5, 4.0]
    assert ranks([0.0, 1e-12, 0.2]).tolist() == [1.5, 1.5, 3.0]


def test_best_so_far_is_chosen_by_the_observed_values() -> None:
    assert best_so_far([3.0, 5.0, 1.0, 2.0]).tolist() == [3.0, 3.0, 1.0, 1.0]
    # With noise, the configuration with the best observed value counts, here the second.
    assert best_so_far([3.0, 5.0, 1.0], observed=[3.1, 2.0, 2.5]).tolist() == [3.0, 5.0, 5.0]


def made_up_run(problem: str, seed: int, values: list[float], parallel: int = 1) -> dict[str, Any]:
    return {
        "method": "made up",
        "problem": problem,
        "seed": seed,
        "parallel": parallel,
        "version": "1",
        "values": values,
        "ask_seconds": [0.5] * len(values),
    }


def runs_by_key(*runs: dict[str, Any]) -> Runs:
    return {(run["problem"], run["seed"], run["parallel"]): run for run in runs}


def test_a_comparison_of_made_up_results() -> None:
    ours = runs_by_key(
        made_up_run("p", 0, [6.0, 3.0]),
        made_up_run("p", 1, [4.0, 2.0]),
        made_up_run("q", 0, [0.4, 0.2]),
        made_up_run("q", 1, [0.4, 0.2]),  # does not count, as the other method lacks it
        made_up_run("p", 0, [99.0, 99.0], parallel=4),
    )
    theirs = runs_by_key(
        made_up_run("p", 0, [4.0, 3.0]), made_up_run("p", 1, [6.0, 6.0]), made_up_run("q", 0, [0.4, 0.4])
    )
    scales = {"p": (2.0, 6.0), "q": (0.0, 0.4)}
    compared = Comparison({"ours": ours, "theirs": theirs}, scales, [0, 1], 1, (1, 2))
    assert compared.cases == 3
    assert compared.mean_regret(1).tolist() == pytest.approx([(0.75 + 1.0) / 2, (0.75 + 1.0) / 2])
    assert compared.mean_regret(2).tolist() == pytest.approx([(0.125 + 0.5) / 2, (0.625 + 1.0) / 2])
    assert compared.average_rank(1).tolist() == pytest.approx([(2 + 1 + 1.5) / 3, (1 + 2 + 1.5) / 3])
    assert compared.average_rank(2).tolist() == pytest.approx([(1.5 + 1 + 1) / 3, (1.5 + 2 + 2) / 3])
    assert compared.by_problem(2)[1].tolist() == pytest.approx([0.625, 1.0])
    assert (compared.standard_error(2) > 0).all()
    assert compared.seconds == {"ours": 0.5, "theirs": 0.5}


def test_finished_runs_are_read_and_removed(tmp_path: Path) -> None:
    file = results.file_of(tmp_path, "made up")
    for seed in (0, 1):
        append(file, made_up_run("p", seed, [1.0]))
    append(file, made_up_run("p", 1, [2.0]))
    with file.open("a") as lines:
        lines.write('{"problem": "p", "se')  # a killed process leaves half a line
    assert {key: run["values"] for key, run in read(file, results.KEYS).items()} == {
        ("p", 0, 1): [1.0],
        ("p", 1, 1): [2.0],
    }
    remove(file, results.KEYS, cases_of(["p"], [1], [1, 4]))
    assert list(read(file, results.KEYS)) == [("p", 0, 1)]
    assert parse_numbers("0-2") == [0, 1, 2]
    assert parse_numbers("1,4") == [1, 4]


def test_every_method_has_its_adapter_and_its_environment() -> None:
    for entry in methods.ENTRIES.values():
        assert importlib.util.find_spec(f"benchmarks.search.peer_{entry.adapter}")
        assert entry.peer is None or entry.peer in peers.PINS
    variant = methods.find("thriftune:warping=False,draws=10,model=map")
    assert variant.options == {"bayes": {"warping": False, "draws": 10, "model": "map"}}
    with pytest.raises(SystemExit, match="not known"):
        methods.find("nobody")


# --- ablation, several objectives


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> problems.Problem:
    """Return a problem whose regret is x; a trial takes x seconds, typically 1."""
    space = {"x": {"type": "float", "low": 0.0, "high": 2.0}}
    problem = problems.Problem("line", "dev", "function", space, lambda config: float(config["x"]), 0.0)
    vars(problem)["median"] = 1.0
    monkeypatch.setitem(problems._DEV, "line", lambda: problem)
    monkeypatch.setattr(ablation, "SECONDS_OF", {"line": lambda config: float(config["x"])})
    monkeypatch.setattr(ablation, "typical_seconds", {"line": 1.0}.__getitem__)
    return problem


def test_regret_after_evaluations_and_after_seconds(line: problems.Problem) -> None:
    done = {"problem": line.name, "values": [0.8, 0.9, 0.2, 0.1]}
    assert [ablation.regret(done, n) for n in (1, 2, 4)] == [0.8, 0.8, 0.1]
    # A value counts from the end of its trial: the first ends after 1.5 seconds, the third after 3.
    done["seconds"] = [1.5, 0.5, 1.0, 9.0]
    assert [ablation.regret(done, n) for n in (1, 2, 3, 5)] == [1.0, 0.8, 0.2, 0.2]


def test_a_run_by_seconds_ends_when_its_seconds_are_used(line: problems.Problem) -> None:
    done = ablation.run(ablation.Job({"cost_aware": True}, ablation.SECONDS, line.name, 0, 4))
    assert done["seconds"] == done["values"]
    assert (
        sum(done["seconds"]) >= 4 > sum(done["seconds"][:-1])
        or len(done["values"]) == 4 * ablation.MAX_TRIALS_FACTOR
    )


def test_the_default_is_judged_by_the_difference_on_the_same_problem_and_seed() -> None:
    rng = np.random.default_rng(0)
    cases = [(problem, seed) for problem in ("p", "q") for seed in range(10)]
    default = {case: float(rng.uniform(0, 100)) for case in cases}
    better = {case: value + float(rng.uniform(0.5, 1.5)) for case, value in default.items()}
    mean, error, low, high = ablation.advantage(default, better)
    assert 0.5 < low < mean < high < 1.5
    assert 0 < error < 0.2
    assert ablation.verdict(low, high) == "helps"
    assert ablation.advantage(better, default)[0] == pytest.approx(-mean)
    assert ablation.verdict(-high, -low) == "hurts"
    assert ablation.verdict(-0.1, 0.1) == "no difference"
    # Each problem has the same weight. Only cases that both variants have done count.
    few = {("p", 0): 1.0, ("p", 1): 1.0, ("q", 0): 1.0, ("q", 1): 7.0}
    assert ablation.advantage(few, {("p", 0): 2.0, ("p", 1): 2.0, ("q", 0): 4.0})[0] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("verdicts", "costs", "met"),
    [
        (["helps", "no difference"], True, True),
        (["no difference", "no difference"], True, None),
        (["no difference", "no difference"], False, True),
        (["helps", "hurts"], False, False),
    ],
)
def test_an_option_that_costs_time_must_help(verdicts: list[str], costs: bool, met: bool | None) -> None:
    assert ablation.met(verdicts, costs) is met


def test_an_ablation_resumes_after_its_finished_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ablation.jsonl"
    job = ablation.Job({"warp": False}, ablation.ONE, "hartmann3", 0, 2)
    first = ablation.complete([job], file, 1)
    assert list(first) == [job.key]
    with file.open("a") as lines:
        lines.write('{"key": ["')  # a killed process leaves half a line
    monkeypatch.setattr(ablation, "run", None)
    assert ablation.complete([job], file, 1) == first
    monkeypatch.setattr(ablation, "version", lambda: "another state of the code")
    assert ablation._read(file) == {}


def test_hypervolume_of_a_staircase() -> None:
    points = np.array([[1.0, 3.0], [2.0, 1.0], [2.0, 2.0], [2.5, 2.5], [5.0, 0.0], [1.0, 3.0]])
    reference = np.array([4.0, 4.0])
    assert multi.hypervolume(points, reference) == 3 * 1 + 2 * 2
    assert multi.hypervolume(points[4:5], reference) == 0.0
    assert multi.front(points).tolist() == [[1.0, 3.0], [2.0, 1.0], [5.0, 0.0]]


@pytest.mark.parametrize("name", [name for name in multi.WITHOUT_TABLES if name in multi.FRONTS])
def test_no_front_is_better_than_the_best_one(name: str) -> None:
    problem = multi.FRONTS[name]
    share = multi.share_of(problem)
    assert share(problem.best()) == pytest.approx(1.0)
    random_values = problem.random_values()[:200]
    assert 0 < share(random_values) < 1
    assert share(np.concatenate([random_values, problem.best()])) == pytest.approx(1.0)


def test_infeasible_points_do_not_count() -> None:
    regret = multi.regret_of(multi.CONSTRAINED["gardner"])
    assert regret(np.array([[0.0, 0.0]])) == 1.0
    assert regret(np.array([[0.0, 0.0], [1.0, -0.96]])) == pytest.approx(0.28, abs=0.03)
    assert regret(np.array([[0.254, -0.96]])) == pytest.approx(0.0, abs=1e-6)


def test_a_job_waits_until_all_its_cores_are_free(tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    order = []

    def wait_for_all() -> None:
        with studies.taken(cores, tmp_path / "cores"):
            order.append("all")

    waiting = threading.Thread(target=wait_for_all)
    with studies.taken(1, tmp_path / "cores"):
        waiting.start()
        waiting.join(0.1)
        order.append("one")
    waiting.join(10)
    assert order == ["one", "all"]


def test_seconds_until_an_accuracy_was_reached() -> None:
    curve = ((0.0, 0.5), (2.0, 0.7), (4.0, 0.9))
    outcome = studies.Outcome("V1", 9.0, 4.0, curve, 0.9, {}, 0.0, 3, 0, 0, (), Counter())
    seconds = [outcome.seconds_to(accuracy) for accuracy in (0.4, 0.6, 0.9, 0.95)]
    assert seconds == [2.0, 4.0, 6.0, None], "the first step counts as long as the others"
