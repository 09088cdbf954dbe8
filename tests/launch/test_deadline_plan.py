"""Tests of studies on a cluster that plan for their deadline, with Ray's autoscaler renting the machines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.clouds.ray.test_autoscaling import written
from tests.support.ray_clusters import Autoscaled, autoscaled, node_type
from thriftune.clouds.ray.cluster import INSTANCE_TYPE, MARKET
from thriftune.launch.deadline_plan import explanation, remarks
from thriftune.planning import CloudProfile, JobSpec, Profile
from thriftune.planning.plan_finder import plan
from thriftune.planning.timing import StepTimes, TimingRow, TrialTimes

pytestmark = pytest.mark.cluster

# --- messages ---------------------------------------------------------------------------------------------

MACHINE_TYPE = CloudProfile(2, 3.6, name="c7i.large_spot")
JOB = JobSpec.of([(8, 10), (1, 30)])


def test_the_explanation_gives_the_measurements_the_stages_and_the_saving() -> None:
    profile = Profile({1: 1.0, 2: 0.6}, startup=2.0, checkpoint=0.5, queue=30.0, init=4.0)
    lines = explanation(plan(JOB, profile, [MACHINE_TYPE], deadline=50.0), profile, [MACHINE_TYPE])
    assert lines[0] == (
        "measured: a step takes 1 s with 1 worker, 0.6 s with 2 workers; a trial starts in 2 s and saves in "
        "0.5 s; a node is ready after 30 s, and its workers 4 s later"
    )
    stage = "stage 1: 8 trials, all at once, to step 10, on 4 c7i.large_spot: about 12.5 s, $0.0500"
    assert lines[1] == stage
    assert lines[2] == "stage 2: 1 trial of 2 workers, to step 40, on 1 c7i.large_spot: about 20.5 s, $0.0205"
    assert lines[3] == (
        "plan: 33.0 s, $0.0705; both are estimates. A fixed number of machines would cost $0.0910, "
        "so the plan saves 23%"
    )


def test_the_explanation_of_a_plan_with_a_fixed_number_of_machines_claims_no_saving() -> None:
    profile = Profile({1: 1.0})
    (*_, last) = explanation(plan(JOB, profile, [MACHINE_TYPE], deadline=500.0), profile, [MACHINE_TYPE])
    assert last.endswith(". A fixed number of machines would cost as much")


def test_a_remark_warns_of_stages_without_checkpoints() -> None:
    def step_times(saves: Literal["none", "some"]) -> StepTimes:
        row = TimingRow(1, (TrialTimes(3, 1.0, 0.5, None, saves),))
        return StepTimes(Profile({1: 1.0}), (row,), {}, ("a remark",))

    first, second = remarks(step_times("none"), JOB)
    assert first == "a remark"
    assert second.startswith("no measured trial saved a checkpoint: a trial that continues in a later stage")
    assert remarks(step_times("none"), JobSpec.of([(8, 10)])) == remarks(step_times("some"), JOB) == ["a remark"]


# --- a real cluster ---------------------------------------------------------------------------------------

PRICE = 0.031  # differs from the catalog's price

STUDY = """
import json, os, signal, sys, threading, time
from pathlib import Path
import thriftune as tt
from thriftune.state import events as ev
from thriftune.errors import StudyInterrupted
from thriftune.store.opening import open_store

folder, mode = Path(sys.argv[1]), sys.argv[2]
sys.stderr = sys.stdout

def train(trial):
    done = 0
    def load(at):
        nonlocal done
        done = int((at / "done").read_text())
    trial.restore(load)
    for step in trial.steps():
        time.sleep(0.4 / trial.world_size)
        done += 1
        trial.report(loss=trial["x"] + 1 / done, save=lambda at: (at / "done").write_text(str(done)))
        if step > 16:
            (folder / "far").touch()

def interrupt():
    while not (folder / "shared" / "planned" / "measured.json").exists():
        time.sleep(0.05)
    (folder / "far").unlink(missing_ok=True)  # a measured trial may have made it
    while not (folder / "far").exists():
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)

if mode == "interrupted":
    threading.Thread(target=interrupt, daemon=True).start()
# Without a minimum bill, four machines at a time cost as much as one after the other. So the plan has four,
# however slow this machine is.
machine_type = {
    "machine": "c7i.large", "price_per_hour": float(sys.argv[3]), "max_machines": 4, "minimum": 0, "queue": 3
}
finished = None
try:
    finished = tt.tune(
        train, {"x": tt.Float(0, 1)}, minimize="loss", max_steps=30, trials=8, deadline="4m", seed=1,
        stopping=tt.stopping.SuccessiveHalving(n=8, min_steps=12, eta=8),
        engine=tt.Ray(address=os.environ["RAY_ADDRESS"], machines=[machine_type]),
        name="planned", store=folder / "studies.db", storage=folder / "shared", progress=True,
    ).finished
except StudyInterrupted:
    pass
with open_store(folder / "studies.db") as store:
    log = [entry for entry in store.read("planned")]
def entries(kind):
    return [entry for entry in log if type(entry) is kind]
history = tt.load("planned", store=folder / "studies.db").result.history
rented = {each.machine for each in entries(ev.MachineRented)}
print(json.dumps({
    "finished": finished,
    "steps": [trial.step for trial in history.trials],
    "rented": len(entries(ev.MachineRented)),
    "rents": [[each.at, each.offer] for each in entries(ev.Rent)],
    "ready": [each.at for each in entries(ev.MachineReady) if each.machine in rented],
    "workers": [[each.trial, each.attempt, sum((each.workers or {"": 1}).values())] for each in entries(ev.Place)],
    "measured": sorted({(each.trial, each.attempt) for each in entries(ev.UsageMeasured)}),
    "places": [[each.at, each.trial, sum((each.workers or {"": 1}).values())] for each in entries(ev.Place)],
    "releases": [each.at for each in entries(ev.Release) if each.machine in rented],
    "prices": sorted({each.price_per_hour for each in entries(ev.MachineRented)}),
    "bills": [each.dollars for each in entries(ev.MachineBilled)],
    "losses": sum(trial.losses + trial.failures for trial in history.trials),
}))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Autoscaled]:
    types = {
        f"c7i.large_{market}": node_type(2, labels={INSTANCE_TYPE: "c7i.large", MARKET: market}, most=4)
        for market in ("spot", "on-demand")
    }
    with autoscaled(types) as cluster:
        yield cluster


def decisions(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith(("measured: ", "stage ", "plan: "))]


def machines_of(lines: list[str]) -> list[int]:
    return [int(line.partition(", on ")[2].split()[0]) for line in lines if line.startswith("stage ")]


def test_a_study_follows_its_plan_and_follows_the_same_plan_after_a_resume(cluster: Autoscaled) -> None:
    arguments = (str(cluster.folder), "interrupted", str(PRICE))
    output = cluster.run(STUDY, *arguments)
    first = written(output)
    measured = (cluster.folder / "shared" / "planned" / "measured.json").read_text()
    plan_lines = decisions(output)
    stage_1_machines, stage_2_machines = machines_of(plan_lines)
    assert "a plan for the deadline of 4 min 00 s needs to know how long a step takes" in output
    assert "asking the autoscaler for 1 c7i.large_on-demand" in output
    assert (stage_1_machines, stage_2_machines) == (4, 1), plan_lines

    assert first["finished"] is None
    # On a busy machine the request to end a trial that is not promoted comes some steps late.
    assert all(12 <= step < 30 for step in sorted(first["steps"])[:7]), first["steps"]
    assert first["rented"] == stage_1_machines, "stage 2 needs fewer, so it rents none"
    assert first["prices"] == [PRICE]
    placed_at = [at for at, _, _ in first["places"]]
    assert max(first["ready"]) <= placed_at[0], "a stage begins when all its machines are ready"
    stage_2_at = placed_at[8]
    early_releases = [at for at in first["releases"] if at <= stage_2_at]
    assert len(early_releases) >= stage_1_machines - 1, "a machine is released as soon as nothing runs there"

    one_worker = [[trial, attempt] for trial, attempt, workers in first["workers"] if workers == 1]
    assert one_worker
    assert first["measured"] == one_worker, "all attempts with one worker are tuned, and no others"

    output = cluster.run(STUDY, *(arguments[0], "whole", arguments[2]))
    second = written(output)
    assert decisions(output) == plan_lines, "the same plan"
    assert "asking the autoscaler" not in output, "the stored measurements are used"
    assert (cluster.folder / "shared" / "planned" / "measured.json").read_text() == measured
    assert second["finished"] == "all 8 trials done"
    assert sorted(second["steps"])[:7] == sorted(first["steps"])[:7], "no ended trial is continued"
    assert max(second["steps"]) == 30
    assert second["losses"] == 0
    assert second["rented"] == stage_1_machines + 1
    assert len(second["bills"]) == stage_1_machines + 1, "each machine has a bill"
    assert all(0 < dollars < PRICE for dollars in second["bills"])
    (*_, last) = second["places"]
    assert last[2] == int(plan_lines[2].partition(" of ")[2].split()[0]), "as many workers as the plan gives it"


# --- profiles ---------------------------------------------------------------------------------------------

RUN_CLI = """
import os, sys
os.chdir(sys.argv.pop(1))
from thriftune.cli import main
main()
"""

RUN_CLI_FOR_ERROR = """
import os, sys
os.chdir(sys.argv.pop(1))
from click.testing import CliRunner
from thriftune.cli import cli
print(CliRunner().invoke(cli, sys.argv[1:]).stderr)
"""

FILE = """
function = "train.py:train"
minimize = "loss"
trials = 4
max_steps = 1000
deadline = "1h"
stopping = "none"
storage = "shared"
seed = 0
engine = "ray"
[cloud]
machine = "c7i.large"
spot = true
price_per_hour = 0.031
[space]
x = { type = "float", low = 0.0, high = 1.0 }
"""

TRAIN = """
import time

def train(trial):
    for step in trial.steps():
        time.sleep(0.1 / trial.world_size)
        trial.report(loss=trial["x"])
"""


def run_for_json(cluster: Autoscaled, folder: Path, *arguments: str) -> dict[str, Any]:
    output = cluster.run(RUN_CLI, str(folder), *arguments, "--json")
    return dict(json.loads(output[output.index("{") :]))


def test_a_profile_is_measured_on_the_cluster_and_used_by_a_plan(cluster: Autoscaled, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(FILE)
    (tmp_path / "train.py").write_text(TRAIN)
    limited = ("--limit", "60s", "--repeats", "1", "--seconds", "3")
    measured = run_for_json(cluster, tmp_path, "profile", "study.toml", "--workers", "1,2", *limited)
    by_workers = measured["profile"]["seconds_per_step"]
    assert by_workers["1"] > 0.1
    assert by_workers["2"] < by_workers["1"], "each worker on a cluster is a process"
    assert measured["profile"]["queue"] > 0.0, "a node was started"
    files = {path.name for path in tmp_path.iterdir()} - {"__pycache__"}
    assert files == {"study.profile.json", "study.toml", "train.py"}
    planned = run_for_json(cluster, tmp_path, "plan", "study.toml")
    assert planned["stages"][0]["offer"] == "c7i.large_spot"


def test_a_profile_fails_if_a_node_is_not_ready_within_the_limit(cluster: Autoscaled, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(FILE.replace('"c7i.large"', '"c7i.xlarge"'))
    (tmp_path / "train.py").write_text(TRAIN)
    output = cluster.run(RUN_CLI_FOR_ERROR, str(tmp_path), "profile", "study.toml", "--limit", "4s")
    assert "c7i.xlarge_spot: 1 requested, not ready after " in output
