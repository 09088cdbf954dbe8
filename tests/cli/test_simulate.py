"""`thriftune simulate`, on a study and on the table that `export` makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import thriftune as tt
from tests.cli.programs import strict
from thriftune.cli import cli


def train(trial: tt.Trial) -> None:
    for step in trial.steps():
        trial.report(loss=trial["x"] + 1 / step)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("simulate") / "s.db"
    how: dict[str, Any] = {"searcher": "random", "seed": 1, "name": "a", "store": path, "progress": False}
    tt.tune(train, {"x": tt.Float(0.0, 1.0)}, minimize="loss", trials=12, max_steps=9, stopping="none", **how)
    return path


def run_cli(store: Path, *args: str, status: int = 0) -> Result:
    result = CliRunner().invoke(cli, [*args, "--store", str(store)])
    assert result.exit_code == status, result.output
    return result


def test_a_study_under_another_rule(store: Path) -> None:
    shown = run_cli(store, "simulate", "--from", "a", "--stopping", "asha", "--workers", "4").stdout
    assert "asha, 4 at a time" in shown
    assert "without stopping 108" in shown
    parsed = strict(run_cli(store, "simulate", "--from", "a", "--stopping", "asha", "--json").stdout)
    assert parsed["steps"] < parsed["without_stopping"]["steps"] == 12 * 9
    assert parsed["best"]["value"] == parsed["without_stopping"]["best"]["value"]


def test_a_table_as_export_writes_it(store: Path, tmp_path: Path) -> None:
    table = str(tmp_path / "a.csv")
    run_cli(store, "export", "a", "--reports", "-o", table)
    of_table = strict(run_cli(store, "simulate", "--table", table, "--minimize", "loss", "--json").stdout)
    of_study = strict(run_cli(store, "simulate", "--from", "a", "--json").stdout)
    assert (of_table["steps"], of_table["best"]["value"]) == (of_study["steps"], of_study["best"]["value"])


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "give one of FILE, --from STUDY and --table FILE"),
        (("--from", "b"), "there is no study 'b'"),
        (("--from", "a", "--stopping", "ahsa"), "stopping 'ahsa' is not known"),
        (("--table", "nowhere.csv", "--minimize", "loss"), "nowhere.csv"),
    ],
)
def test_mistakes_are_told(store: Path, args: tuple[str, ...], says: str) -> None:
    assert says in run_cli(store, "simulate", *args, status=1).stderr


def test_a_study_has_its_own_objectives(store: Path) -> None:
    sentence = run_cli(store, "simulate", "--from", "a", "--maximize", "loss", status=1).stderr
    assert sentence == "error: --minimize and --maximize are for a --table; a study has its own objectives\n"
