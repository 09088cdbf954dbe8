"""Fixtures of tests that run commands on a store of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result

import thriftune as tt
from tests.cli import studies
from tests.cli.programs import RunCli, invoke
from thriftune.store.opening import open_store


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """Return the path of this test's store, which does not exist yet."""
    return tmp_path / "studies.db"


@pytest.fixture
def run_cli(store_path: Path) -> RunCli:
    """Return a function that runs a command on this test's store and checks its exit status."""

    def call(*args: object, status: int = 0, answer: str = "") -> Result:
        return invoke(*args, "--store", store_path, status=status, answer=answer)

    return call


@pytest.fixture
def finished(store_path: Path, tmp_path: Path) -> None:
    """Write the finished study `digits`."""
    with open_store(store_path) as store:
        studies.write(store, studies.spec(storage=str(tmp_path), id="0f"), studies.log())


@pytest.fixture
def killed(store_path: Path) -> None:
    """Write the study `killed`, whose driver was killed."""
    with open_store(store_path) as store:
        studies.write(store, studies.spec("killed"), studies.log(finished=False), summary=False)


@pytest.fixture(scope="module")
def twelve_trials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with study `a`: 12 random trials of 9 steps, none stopped early."""

    def train(trial: tt.Trial) -> None:
        for step in trial.steps():
            trial.report(loss=trial["x"] + 1 / step)

    path = tmp_path_factory.mktemp("twelve_trials") / "s.db"
    tt.tune(
        train, {"x": tt.Float(0.0, 1.0)}, minimize="loss", trials=12, max_steps=9, searcher="random",
        stopping="none", seed=1, name="a", store=path, progress=False,
    )  # fmt: skip
    return path
