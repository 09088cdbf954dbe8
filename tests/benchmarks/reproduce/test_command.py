"""Tests of the command `python -m benchmarks.reproduce`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks import reproduce as papers
from benchmarks.reproduce import Entry, Reproduction, Request, Section
from benchmarks.reproduce.__main__ import reproduce_command
from tests.cli.programs import parse_json

Run = Callable[..., Result]


def fake_reproduction(request: Request) -> Reproduction:
    """Return a reproduction with numbers of all units."""
    request.progress(f"reading {request.data}")
    entries = [
        Entry("cost", 1234.5, 1000.0, 0.25, "$"),
        Entry("saved", 0.4149, 0.8604, 0.0123, "%"),
        Entry("time", 11.2345, None, 0.5, "h"),
        Entry("better", 0.98765, 16.61, 0.004, "times"),
        Entry("plain", 0.0, 3.0),
        Entry("never", float("nan")),
    ]
    section = Section("Table 1: numbers", entries, "All [numbers] are invented.", "invented", _draw)
    return Reproduction("fake", [section, Section("Table 2", [])], ["All data differs.", f"{request.quick}"])


def _draw(path: Path) -> None:
    path.write_bytes(b"a picture")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs the command and checks its exit status."""
    monkeypatch.delenv("THRIFTUNE_DATA", raising=False)
    monkeypatch.setattr(papers, "reproduce", lambda paper, request: fake_reproduction(request))

    def call(*args: object, status: int = 0) -> Result:
        result = CliRunner().invoke(reproduce_command, [*map(str, args)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == status, result.output
        return result

    return call


def row(output: str, what: str) -> list[str]:
    line = next(line for line in output.splitlines() if line.startswith(f"{what} "))
    return line.split()[1:]


def test_tables_show_the_paper_beside_ours(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = run("spottune", "--to", tmp_path / "pictures")
    output = result.stdout
    assert row(output, "what") == ["paper", "ours", "+-"]
    assert row(output, "cost") == ["$1000", "$1,234.50", "$0.25"]
    assert row(output, "saved") == ["86.04", "%", "41.5", "%", "1.2", "%"]
    assert row(output, "time") == ["11.2", "h", "0.5", "h"]
    assert row(output, "better") == ["16.61", "times", "0.988", "times", "0.004", "times"]
    assert row(output, "plain") == ["3", "0.00"]
    assert row(output, "never") == ["nan"]
    order = (
        "Table 1: numbers",
        "All [numbers] are invented.",
        "Table 2",
        "What differs",
        "- All data",
        "Pictures",
    )
    positions = [output.index(each) for each in order]
    assert positions == sorted(positions)
    assert str(tmp_path / "pictures" / "fake_invented.png") in output.replace("\n", "")
    assert (tmp_path / "pictures" / "fake_invented.png").read_bytes() == b"a picture"
    assert result.stderr == "reading None ...\n"


def test_json_has_all_figures(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    document = parse_json(run("spottune", "--quick", "--json", "--to", tmp_path).stdout)
    assert document["paper"] == "fake"
    assert document["differs"] == ["All data differs.", "True"]
    first, second = document["sections"]
    assert first["picture"] == str(tmp_path / "fake_invented.png")
    assert first["entries"][1] == {"what": "saved", "ours": 0.4149, "paper": 0.8604, "spread": 0.0123, "unit": "%"}
    assert first["entries"][-1]["ours"] is None
    assert (second["picture"], second["entries"]) == (None, [])


@pytest.mark.parametrize("as_json", [False, True])
def test_without_matplotlib_there_are_tables_only(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, as_json: bool
) -> None:
    """The tables are shown, with a hint how to get pictures."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("spottune", "--to", tmp_path / "pictures", *(["--json"] if as_json else []))
    line = "no pictures: a plot needs matplotlib; install it with: pip install 'thriftune[plot]'"
    assert line in (result.stderr if as_json else result.stdout)
    if as_json:
        assert parse_json(result.stdout)["sections"][0]["picture"] is None
    else:
        assert row(result.stdout, "cost")
    assert not (tmp_path / "pictures").exists()


def test_the_option_and_the_variable_name_the_records(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("THRIFTUNE_DATA", str(tmp_path / "one"))
    to = ("--to", tmp_path / "pictures")
    assert f"reading {tmp_path / 'one'}" in run("spottune", *to).stderr
    assert f"reading {tmp_path / 'other'}" in run("spottune", *to, "--data", tmp_path / "other").stderr
    result = run("spottune", "--data", tmp_path / "nowhere", status=1)
    assert "is not a folder; give the folder of the records, or omit --data" in result.stderr


def test_an_unknown_paper_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(reproduce_command, ["alexnet", "--to", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: paper: 'alexnet' is not known; use one of spottune, ")


def test_a_real_reproduction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("THRIFTUNE_DATA", raising=False)
    result = CliRunner().invoke(reproduce_command, ["earlycurve", "--quick", "--to", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "Figure 8 (c)" in result.stdout
    assert "the six workloads ..." in result.stderr
