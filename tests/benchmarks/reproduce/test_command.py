"""python -m benchmarks.reproduce: tables, what differs, pictures, JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks import reproduce as papers
from benchmarks.reproduce import Entry, Reproduction, Request, Section
from benchmarks.reproduce.__main__ import reproduce_command
from tests.cli.programs import strict

Type = Callable[..., Result]


def made(request: Request) -> Reproduction:
    """A paper with numbers of all units."""
    request.told(f"looking at {request.data}")
    entries = [
        Entry("cost", 1234.5, 1000.0, 0.25, "$"),
        Entry("saved", 0.4149, 0.8604, 0.0123, "%"),
        Entry("time", 11.2345, None, 0.5, "h"),
        Entry("better", 0.98765, 16.61, 0.004, "times"),
        Entry("plain", 0.0, 3.0),
        Entry("never", float("nan")),
    ]
    section = Section("Table 1: numbers", entries, "All of [them] are made up.", "made_up", _draw)
    return Reproduction("made", [section, Section("Table 2", [])], ["Nothing is as it was.", f"{request.quick}"])


def _draw(path: Path) -> None:
    path.write_bytes(b"a picture")


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Type:
    """Types the command; checks its status."""
    monkeypatch.delenv("THRIFTUNE_DATA", raising=False)
    monkeypatch.setattr(papers, "reproduce", lambda paper, request: made(request))

    def call(*args: object, status: int = 0) -> Result:
        result = CliRunner().invoke(reproduce_command, [*map(str, args)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == status, result.output
        return result

    return call


def row(shown: str, what: str) -> list[str]:
    line = next(line for line in shown.splitlines() if line.startswith(f"{what} "))
    return line.split()[1:]


def test_the_paper_beside_ours(typed: Type, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = typed("spottune", "--to", tmp_path / "here")
    shown = result.stdout
    assert row(shown, "what") == ["paper", "ours", "+-"]
    assert row(shown, "cost") == ["$1000", "$1,234.50", "$0.25"]
    assert row(shown, "saved") == ["86.04", "%", "41.5", "%", "1.2", "%"]
    assert row(shown, "time") == ["11.2", "h", "0.5", "h"]
    assert row(shown, "better") == ["16.61", "times", "0.988", "times", "0.004", "times"]
    assert row(shown, "plain") == ["3", "0.00"]
    assert row(shown, "never") == ["nan"]
    order = ("Table 1: numbers", "All of [them] are made up.", "Table 2", "What differs", "- Nothing", "Pictures")
    places = [shown.index(each) for each in order]
    assert places == sorted(places)
    assert str(tmp_path / "here" / "made_made_up.png") in shown.replace("\n", "")
    assert (tmp_path / "here" / "made_made_up.png").read_bytes() == b"a picture"
    assert result.stderr == "looking at None ...\n"


def test_json(typed: Type, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    told = strict(typed("spottune", "--quick", "--json", "--to", tmp_path).stdout)
    assert told["paper"] == "made"
    assert told["differs"] == ["Nothing is as it was.", "True"]
    first, second = told["sections"]
    assert first["picture"] == str(tmp_path / "made_made_up.png")
    assert first["entries"][1] == {"what": "saved", "ours": 0.4149, "paper": 0.8604, "spread": 0.0123, "unit": "%"}
    assert first["entries"][-1]["ours"] is None
    assert (second["picture"], second["entries"]) == (None, [])


@pytest.mark.parametrize("as_json", [False, True])
def test_without_matplotlib(typed: Type, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, as_json: bool) -> None:
    """Tables all the same, and how to get pictures."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = typed("spottune", "--to", tmp_path / "here", *(["--json"] if as_json else []))
    line = "no pictures: a plot needs matplotlib; install it with: pip install 'thriftune[plot]'"
    assert line in (result.stderr if as_json else result.stdout)
    if as_json:
        assert strict(result.stdout)["sections"][0]["picture"] is None
    else:
        assert row(result.stdout, "cost")
    assert not (tmp_path / "here").exists()


def test_records_are_where_the_option_or_the_variable_says(
    typed: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("THRIFTUNE_DATA", str(tmp_path / "one"))
    to = ("--to", tmp_path / "here")
    assert f"looking at {tmp_path / 'one'}" in typed("spottune", *to).stderr
    assert f"looking at {tmp_path / 'other'}" in typed("spottune", *to, "--data", tmp_path / "other").stderr
    result = typed("spottune", "--data", tmp_path / "nowhere", status=1)
    assert "is no folder; give that of the records, or leave it out" in result.stderr


def test_a_paper_that_is_not_known(tmp_path: Path) -> None:
    result = CliRunner().invoke(reproduce_command, ["alexnet", "--to", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: paper: 'alexnet' is not known; use one of spottune, ")


def test_a_real_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("THRIFTUNE_DATA", raising=False)
    result = CliRunner().invoke(reproduce_command, ["earlycurve", "--quick", "--to", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "Figure 8 (c)" in result.stdout
    assert "the six workloads ..." in result.stderr
