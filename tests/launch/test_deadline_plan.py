"""A study on a cluster plans for its deadline by itself, and Ray's own autoscaler does what the plan says."""

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

# --- what is said -----------------------------------------------------------------------------------------

KIND = CloudProfile(2, 3.6, name="c7i.large_spot")
JOB = JobSpec.of([(8, 10), (1, 30)])


def test_what_was_decided_is_said_with_its_reason() -> None:
    profile = Profile({1: 1.0, 2: 0.6}, startup=2.0, checkpoint=0.5, queue=30.0, init=4.0)
    lines = explanation(plan(JOB, profile, [KIND], deadline=50.0), profile, [KIND])
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


def test_where_one_machine_is_best_all_along_nothing_is_said_to_be_saved() -> None:
    profile = Profile({1: 1.0})
    (*_, last) = explanation(plan(JOB, profile, [KIND], deadline=500.0), profile, [KIND])
    assert last.endswith(". A fixed number of machines would cost as much")


def test_what_the_plan_does_not_know_is_said() -> None:
    def found(saves: Literal["none", "some"]) -> StepTimes:
        row = TimingRow(1, (TrialTimes(3, 1.0, 0.5, None, saves),))
        return StepTimes(Profile({1: 1.0}), (row,), {}, ("a remark",))

    first, second = remarks(found("none"), JOB)
    assert first == "a remark"
    assert second.startswith("no measured trial saved a checkpoint: a trial that continues in a later stage")
    assert remarks(found("none"), JobSpec.of([(8, 10)])) == remarks(found("some"), JOB) == ["a remark"]


# --- a real one -------------------------------------------------------------------------------------------

PRICE = 0.031  # other than the catalog's

STUDY = """
import json, os, signal, sys, threading, time
from pathlib import Path
import thriftune as tt
from thriftune.state import events as ev
from thriftune.errors import StudyInterrupted
from thriftune.store.opening import open_store

folder, how = Path(sys.argv[1]), sys.argv[2]
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
    (folder / "far").unlink(missing_ok=True)  # by a trial that was only measured
    while not (folder / "far").exists():
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)

if how == "interrupted":
    threading.Thread(target=interrupt, daemon=True).start()
# Where nothing is billed before trials begin, machines side by side cost as much as one after the other:
# so the plan has four, however slow it is here.
kind = {"machine": "c7i.large", "price_per_hour": float(sys.argv[3]), "max_machines": 4, "minimum": 0, "queue": 3}
finished = None
try:
    finished = tt.tune(
        train, {"x": tt.Float(0, 1)}, minimize="loss", max_steps=30, trials=8, deadline="4m", seed=1,
        stopping=tt.stopping.SuccessiveHalving(n=8, min_steps=12, eta=8),
        engine=tt.Ray(address=os.environ["RAY_ADDRESS"], machines=[kind]),
        name="planned", store=folder / "studies.db", storage=folder / "shared", progress=True,
    ).finished
except StudyInterrupted:
    pass
with open_store(folder / "studies.db") as store:
    log = [entry for entry in store.read("planned")]
def of(kind):
    return [entry for entry in log if type(entry) is kind]
history = tt.load("planned", store=folder / "studies.db").result.history
rented = {each.machine for each in of(ev.MachineRented)}
print(json.dumps({
    "finished": finished,
    "steps": [trial.step for trial in history.trials],
    "rented": len(of(ev.MachineRented)),
    "rents": [[each.at, each.offer] for each in of(ev.Rent)],
    "ready": [each.at for each in of(ev.MachineReady) if each.machine in rented],
    "workers": [[each.trial, each.attempt, sum((each.workers or {"": 1}).values())] for each in of(ev.Place)],
    "measured": sorted({(each.trial, each.attempt) for each in of(ev.UsageMeasured)}),
    "places": [[each.at, each.trial, sum((each.workers or {"": 1}).values())] for each in of(ev.Place)],
    "releases": [each.at for each in of(ev.Release) if each.machine in rented],
    "prices": sorted({each.price_per_hour for each in of(ev.MachineRented)}),
    "bills": [each.dollars for each in of(ev.MachineBilled)],
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


def machines_of(decided: list[str]) -> list[int]:
    return [int(line.partition(", on ")[2].split()[0]) for line in decided if line.startswith("stage ")]


def test_a_study_plans_for_its_deadline_and_goes_by_the_plan_also_when_resumed(cluster: Autoscaled) -> None:
    arguments = (str(cluster.folder), "interrupted", str(PRICE))
    output = cluster.run(STUDY, *arguments)
    first = written(output)
    measured = (cluster.folder / "shared" / "planned" / "measured.json").read_text()
    decided = decisions(output)
    many, one = machines_of(decided)
    assert "a plan for the deadline of 4 min 00 s needs to know how long a step takes" in output
    assert "asking the autoscaler for 1 c7i.large_on-demand" in output
    assert (many, one) == (4, 1), decided

    assert first["finished"] is None
    # On a busy machine the word that a trial is not promoted comes some steps late.
    assert all(12 <= step < 30 for step in sorted(first["steps"])[:7]), first["steps"]
    assert first["rented"] == many, "and none more when fewer are needed"
    assert first["prices"] == [PRICE]
    begun = [at for at, _, _ in first["places"]]
    assert max(first["ready"]) <= begun[0], "a stage begins when all its machines are there"
    stage_2 = begun[8]
    gone = [at for at in first["releases"] if at <= stage_2]
    assert len(gone) >= many - 1, "they are let go as soon as nothing runs there"

    alone = [[trial, attempt] for trial, attempt, workers in first["workers"] if workers == 1]
    assert alone
    assert first["measured"] == alone, "all attempts with one worker are tuned, and no others"

    output = cluster.run(STUDY, *(arguments[0], "whole", arguments[2]))
    second = written(output)
    assert decisions(output) == decided, "the same plan"
    assert "asking the autoscaler" not in output, "what was measured is known"
    assert (cluster.folder / "shared" / "planned" / "measured.json").read_text() == measured
    assert second["finished"] == "all 8 trials done"
    assert sorted(second["steps"])[:7] == sorted(first["steps"])[:7], "none of them goes on"
    assert max(second["steps"]) == 30
    assert second["losses"] == 0
    assert second["rented"] == many + 1
    assert len(second["bills"]) == many + 1, "each has a bill"
    assert all(0 < dollars < PRICE for dollars in second["bills"])
    (*_, last) = second["places"]
    assert last[2] == int(decided[2].partition(" of ")[2].split()[0]), "as many workers as the plan gives it"


# --- what is measured -------------------------------------------------------------------------------------

PROFILED = """
import os, sys
os.chdir(sys.argv.pop(1))
from thriftune.cli import main
main()
"""

FAILING = """
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
[space.x]
type = "float"
low = 0.0
high = 1.0
"""

TRAIN = """
import time

def train(trial):
    for step in trial.steps():
        time.sleep(0.1 / trial.world_size)
        trial.report(loss=trial["x"])
"""


def profiled(cluster: Autoscaled, folder: Path, *arguments: str) -> dict[str, Any]:
    output = cluster.run(PROFILED, str(folder), *arguments, "--json")
    return dict(json.loads(output[output.index("{") :]))


def test_a_profile_is_measured_on_the_cluster_and_a_plan_is_made_of_it(
    cluster: Autoscaled, tmp_path: Path
) -> None:
    (tmp_path / "study.toml").write_text(FILE)
    (tmp_path / "train.py").write_text(TRAIN)
    limited = ("--limit", "60s", "--repeats", "1", "--seconds", "3")
    found = profiled(cluster, tmp_path, "profile", "study.toml", "--workers", "1,2", *limited)
    by_workers = found["profile"]["seconds_per_step"]
    assert by_workers["1"] > 0.1
    assert by_workers["2"] < by_workers["1"], "a worker there is a process of its own"
    assert found["profile"]["queue"] > 0.0, "a node had to come"
    left = {path.name for path in tmp_path.iterdir()} - {"__pycache__"}
    assert left == {"study.profile.json", "study.toml", "train.py"}
    planned = profiled(cluster, tmp_path, "plan", "study.toml")
    assert planned["stages"][0]["offer"] == "c7i.large_spot"


def test_a_node_that_does_not_come_within_the_limit_is_not_waited_for(cluster: Autoscaled, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(FILE.replace('"c7i.large"', '"c7i.xlarge"'))
    (tmp_path / "train.py").write_text(TRAIN)
    output = cluster.run(FAILING, str(tmp_path), "profile", "study.toml", "--limit", "4s")
    assert "c7i.xlarge_spot: 1 requested, not ready after " in output
