"""`thriftune simulate`: replays a study, or the table that `thriftune export` writes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.programs import RunCli, parse_json


@pytest.fixture
def store_path(twelve_trials: Path) -> Path:
    return twelve_trials


def test_a_study_is_replayed_under_another_stopping_rule(run_cli: RunCli) -> None:
    shown = run_cli("simulate", "--from", "a", "--stopping", "asha", "--workers", "4").stdout
    assert "asha, 4 at a time" in shown
    assert "without stopping 108" in shown
    parsed = parse_json(run_cli("simulate", "--from", "a", "--stopping", "asha", "--json").stdout)
    assert parsed["steps"] < parsed["without_stopping"]["steps"] == 12 * 9
    assert parsed["best"]["value"] == parsed["without_stopping"]["best"]["value"]


def test_an_exported_table_is_replayed_like_its_study(run_cli: RunCli, tmp_path: Path) -> None:
    table = str(tmp_path / "a.csv")
    run_cli("export", "a", "--reports", "-o", table)
    from_table = parse_json(run_cli("simulate", "--table", table, "--minimize", "loss", "--json").stdout)
    from_study = parse_json(run_cli("simulate", "--from", "a", "--json").stdout)
    assert (from_table["steps"], from_table["best"]["value"]) == (from_study["steps"], from_study["best"]["value"])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "give one of FILE, --from STUDY and --table FILE"),
        (("--from", "b"), "there is no study 'b'"),
        (("--from", "a", "--stopping", "ahsa"), "stopping 'ahsa' is not known"),
        (("--table", "nowhere.csv", "--minimize", "loss"), "nowhere.csv"),
    ],
)
def test_mistakes_are_reported(run_cli: RunCli, args: tuple[str, ...], message: str) -> None:
    assert message in run_cli("simulate", *args, status=1).stderr


def test_objectives_are_refused_for_a_study(run_cli: RunCli) -> None:
    error = run_cli("simulate", "--from", "a", "--maximize", "loss", status=1).stderr
    assert error == "error: --minimize and --maximize are for a --table; a study has its own objectives\n"
