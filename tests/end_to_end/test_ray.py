"""Studies on real nodes of a Ray cluster that vanish, with notice and without; and whose drivers are killed."""

from __future__ import annotations

import contextlib
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import thriftune as tt
from tests.end_to_end.lossy import Account, Lossy, account
from tests.end_to_end.ray_study import NAME
from tests.engines.processes import wait_for_no_process
from tests.support.ray_clusters import Nodes, nodes
from thriftune.state import events as ev

pytestmark = pytest.mark.cluster

CPUS = 2
DRIVER_KILLS, DRIVER_KILLS_APART = 5, 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    with nodes() as there:
        yield there


@dataclass(frozen=True)
class Where:
    """Where the nodes of a test find the study.

    - `url`: the object store; None: they see the study's folder.
    - `hidden`: the study's folder, if the nodes do not see it.
    """

    cluster: Nodes
    folder: Path
    url: str | None = None
    hidden: Path | None = None

    def add(self) -> str:
        if self.hidden is None:
            return self.cluster.add(CPUS)
        return self.cluster.add_apart(CPUS, self.hidden)

    def study(self, **settings: Any) -> Lossy:
        witnesses = None
        if self.hidden is not None:
            witnesses = self.cluster.folder / f"witnesses-{secrets.token_hex(4)}"
            witnesses.mkdir()
        return Lossy(self.folder, self.cluster.address, storage=self.url, witnesses=witnesses, **settings)


@pytest.fixture(params=["shared", "apart"])
def where(request: pytest.FixtureRequest, cluster: Nodes, tmp_path: Path) -> Where:
    """Return nodes that see the study's folder, or see nothing but an object store."""
    if request.param == "shared":
        return Where(cluster, tmp_path)
    return Where(cluster, tmp_path, request.getfixturevalue("s3_url"), tmp_path)


@pytest.fixture
def pair(where: Where) -> Iterator[dict[str, str]]:
    """Two nodes for this test, by the names of the machines that they are."""
    yield from several(where, 2)


@pytest.fixture
def three(where: Where) -> Iterator[dict[str, str]]:
    yield from several(where, 3)


def several(where: Where, count: int) -> Iterator[dict[str, str]]:
    found = [where.add() for _ in range(count)]
    yield {f"node-{node[-8:]}": node for node in found}
    for node in found:
        if node in where.cluster.running:
            where.cluster.end(node)


def finished(study: Lossy, driver: subprocess.Popen[str], *, node_files_lost: bool = False) -> Account:
    """Wait for the end of the study and its workers, check that nothing was lost, and return the account.

    `node_files_lost`: reports that a killed node had not sent yet may be missing. Their steps were done again.
    """
    study.wait(driver)
    wait_for_no_process(study.mark)
    found = account(study)
    if node_files_lost:
        assert set(found.unrecorded) <= set(found.repeated), found
        found.unrecorded.clear()
    assert found.nothing_lost, found
    return found


def test_a_driver_is_killed_at_any_moment_and_resumed(where: Where, pair: dict[str, str]) -> None:
    study = where.study(trials=8, steps=6, step_seconds=0.15, save_every=2)
    dice = random.Random(3)
    kills = DRIVER_KILLS if where.hidden is None else DRIVER_KILLS_APART
    for number in range(kills):
        drivers = started(study)
        driver = study.start(study.resume if drivers and number % 2 else None)
        if number:  # the first at any moment; the others in the middle of trials
            study.until(lambda most=drivers: started(study) > most, driver, "it has begun")  # type: ignore[misc]
            before = study.steps_done()
            study.until(lambda most=before: study.steps_done() > most, driver, "another step is done")  # type: ignore[misc]
        time.sleep(dice.uniform(0.0, 0.6))
        driver.kill()
        assert driver.wait() == -signal.SIGKILL
    driver = study.start()
    found = finished(study, driver)
    if where.hidden is None:  # an upload ends with its driver
        assert not found.beyond
    assert started(study) >= kills
    assert not [entry for entry in study.log() if isinstance(entry, (ev.Failed, ev.GiveUp))]


def started(study: Lossy) -> int:
    """Drivers, so far."""
    return sum(isinstance(entry, ev.DriverStarted) for entry in study.log())


def test_a_node_is_killed_and_only_the_steps_since_the_last_checkpoint_are_repeated(
    where: Where, pair: dict[str, str]
) -> None:
    study = where.study(trials=5, steps=7, step_seconds=0.25, save_every=3)
    driver = study.start()
    study.until(lambda: study.steps_done() >= 16, driver, "16 steps are done")  # of four trials at a time
    machine, running = study.busiest()
    assert running == CPUS
    where.cluster.kill(pair[machine])
    found = finished(study, driver, node_files_lost=where.hidden is not None)
    # Two since the checkpoint, and the one that is being reported. The last checkpoint may not be uploaded yet.
    uploaded = where.hidden is None
    assert not (uploaded and found.beyond)
    assert len(found.repeated) <= (3 if uploaded else 6) * running
    # The machine's loss is what ended them: whether a trial may be to blame follows from how it was lost.
    log = study.log()
    (lost,) = [entry for entry in log if isinstance(entry, (ev.MachineLost, ev.Lost))]
    assert isinstance(lost, ev.MachineLost)
    assert lost.machine == machine
    there = set()  # the trials on it; one may have ended just before the kill
    for entry in log[: log.index(lost)]:
        if isinstance(entry, ev.Place) and entry.machine == machine:
            there.add(entry.trial)
        elif isinstance(entry, ev.Ended):
            there.discard(entry.trial)
    assert {trial.id for trial in tt.load(NAME, study.store).trials if trial.losses} == there


@pytest.mark.parametrize("taken", [True, False], ids=["taken", "false notice"])
def test_after_a_notice_no_step_is_repeated(where: Where, pair: dict[str, str], taken: bool) -> None:
    study = where.study(trials=5, steps=7, step_seconds=0.25, save_every=1)
    driver = study.start()
    study.until(lambda: study.steps_done() >= 8, driver, "8 steps are done")
    machine, running = study.busiest()
    deadline = where.cluster.drain(pair[machine], 10.0)
    study.until(lambda: len(cut(study)) == running, driver, "the trials there have left")
    assert time.time() < deadline
    if taken:
        where.cluster.kill(pair[machine])
    found = finished(study, driver)
    assert not found.repeated
    log = study.log()
    noticed = next(number for number, entry in enumerate(log) if isinstance(entry, ev.MachineNotice))
    assert machine not in [entry.machine for entry in log[noticed:] if isinstance(entry, ev.Place)]
    assert sum(trial.losses for trial in tt.load(NAME, study.store).trials) == 0


def cut(study: Lossy) -> list[ev.Ended]:
    """Attempts that ended because of an end request."""
    return [entry for entry in study.log() if isinstance(entry, ev.Ended) and entry.cut]


def test_a_gang_that_loses_one_of_its_nodes_is_lost_and_goes_on_with_others(
    where: Where, three: dict[str, str]
) -> None:
    """A worker takes a whole node, so the two of the trial are on two."""
    ray = {"gang": 2, "cpus": CPUS}
    study = where.study(trials=2, steps=10, step_seconds=0.4, save_every=2, ray=ray)
    driver = study.start()
    study.until(lambda: study.steps_done() >= 3, driver, "3 steps are done")
    history = tt.load(NAME, study.store).history
    _, second = history.trials[next(iter(history.running))].workers
    where.cluster.kill(three[second])
    found = finished(study, driver, node_files_lost=where.hidden is not None)
    if where.hidden is None:
        assert not found.beyond
    trial = tt.load(NAME, study.store).trials[0]
    assert (trial.losses, trial.failures, trial.attempts) == (1, 0, 2)
    workers = {line["workers"] for number in range(2) for line in study.lines(number) if line["what"] == "begins"}
    assert workers == {2}
    (placed,) = [e for e in study.log() if isinstance(e, ev.Place) and (e.trial, e.attempt) == (0, 2)]
    assert second not in (placed.workers or {})


# --- what cannot go well --------------------------------------------------------------------------------------


@contextlib.contextmanager
def without(cluster: Nodes, *folders: Path) -> Iterator[None]:
    """Run a node for which these folders are empty, as on a machine of its own."""
    node = cluster.add_apart(CPUS, *folders)
    try:
        yield
    finally:
        cluster.end(node)


def test_storage_that_is_not_on_a_node_is_named(cluster: Nodes, tmp_path: Path) -> None:
    study = Lossy(tmp_path, cluster.address, trials=2, steps=2, step_seconds=0.01, save_every=1)
    with without(cluster, tmp_path):
        driver = study.start()
        assert driver.wait(90.0) == 1
    assert "no worker can be started on node-" in study.errors()
    assert "all nodes must see the study's folder; set storage=" in study.errors()
    assert "Traceback" not in study.errors().partition("ThriftuneError")[2]
    wait_for_no_process(study.mark)


def test_a_node_without_thriftune_is_named(cluster: Nodes, tmp_path: Path) -> None:
    study = Lossy(tmp_path, cluster.address, trials=2, steps=2, step_seconds=0.01, save_every=1)
    packages = {Path(entry).absolute() / "thriftune" for entry in sys.path}
    with without(cluster, *sorted(path for path in packages if path.is_dir())):
        driver = study.start()
        assert driver.wait(90.0) == 1
    assert "no worker can be started on node-" in study.errors()
    assert "install the same thriftune there" in study.errors()


@pytest.mark.parametrize("where", ["shared"], indirect=True)
@pytest.mark.parametrize(
    ("ray", "message"),
    [
        ({"gpus": 1}, "waits for 1 worker of 1 CPU, 1 GPU: no machine has room for one"),
        ({"gang": 5}, "waits for 5 workers of 1 CPU each: the machines have room for 4"),
    ],
    ids=["no such node", "a gang too large"],
)
def test_a_worker_that_fits_nowhere_is_told_of_and_runs_once_it_does(
    cluster: Nodes, pair: dict[str, str], tmp_path: Path, ray: dict[str, int], message: str
) -> None:
    study = Lossy(
        tmp_path, cluster.address, trials=1, steps=1, step_seconds=0.0, save_every=1, ray=ray, progress=True
    )
    driver = study.start()
    study.until(lambda: message in study.errors(), driver, message)
    node = cluster.add(CPUS, gpus=1)
    study.wait(driver)
    cluster.end(node)
    assert account(study).nothing_lost
