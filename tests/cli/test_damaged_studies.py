"""Damaged studies: each command works or reports the damage in one line; other studies are not affected."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import thriftune as tt
from tests.cli import studies
from tests.cli.programs import parse_json
from tests.system.stories import Story
from thriftune.cli import cli
from thriftune.errors import StudyDamaged
from thriftune.state import events as ev
from thriftune.store.opening import open_store
from thriftune.store.study_files import StudyFiles

CASES = 150  # random damages; the seeds make them the same in each run

READING_COMMANDS: list[tuple[str, ...]] = [
    ("list",),
    ("list", "--json"),
    ("show", "digits"),
    ("show", "digits", "--json"),
    ("show", "digits", "--trial", "0"),
    ("show", "digits", "--system"),
    ("best", "digits"),
    ("bill", "digits"),
    ("bill", "digits", "--json"),
    ("export", "digits"),
    ("export", "digits", "--reports"),
]


def full_log() -> list[ev.Event]:
    """Return a log with nearly all kinds of entries."""
    space = studies.spec().space.to_json()
    warm_start = ev.WarmStarted(5.0, "old", space, "loss", False, [[{"lr": 0.1, "act": "relu"}, 1.0]], "0f")
    story = Story().begin().window(1.0, cold=True, instructions=1e9).decide({"threads": 2}).window(1.0).lose()
    story.place(2).window(1.0, joules=3.0).end()
    start, ready, *first = story.entries
    at = story.now
    return [
        warm_start,
        start,
        ready,
        *first,
        ev.Rent(at, "m1", "AWS c7i.large", 0.2, 1),
        ev.MachineRented(at, "m1", "AWS c7i.large", 0.1, 0.36),
        ev.MachineReady(at + 1, "m1", "AWS c7i.large", 2, 0.1),
        ev.Create(at + 2, 1, {"lr": 0.5, "act": "tanh"}),
        ev.Place(at + 2, 1, 1, "m1", 0, {"m1": 2}, 10.0),
        ev.Reported(at + 3, 1, 1, 1, 1, {"loss": 0.9}, saved=True),
        ev.Warned(at + 3, 1, 1, "odd"),
        ev.Pause(at + 3, 1, 1, "asha"),
        ev.Ended(at + 4, 1, 1, 1.0, cut=True),
        ev.Promote(at + 5, 1),
        ev.MachineShared(at + 5, "m1", 1),
        ev.MachineShared(at + 5, "m1", 0),
        ev.ShareChanged(at + 5, 4, "others"),
        ev.Place(at + 6, 1, 2, "m1", 1),
        ev.MachineNotice(at + 6, "m1", at + 9),
        ev.Move(at + 6, 1, 2, "notice"),
        ev.MachineLost(at + 9, "m1", "gone", revoked=True),
        ev.MachineBilled(at + 9, "m1", 0.02, 0.001, 0.0),
        ev.Place(at + 10, 1, 3, ev.THIS_MACHINE, 1),
        ev.Reported(at + 11, 1, 3, 1, 2, {"loss": 0.8}, saved=True),
        ev.Kill(at + 12, 1, 3, "hangs"),
        ev.Killed(at + 12, 1, 3, "last words"),
        ev.GiveUp(at + 12, 1, "failed"),
        ev.Finish(at + 13, "all done"),
        ev.DriverStopped(at + 14),
    ]


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """Return the path of a store with the studies `digits` and `other`."""
    path = tmp_path / "studies.db"
    with open_store(path) as store:
        studies.write(store, studies.spec("other"), studies.log())
        studies.write(store, studies.spec(id="0f"), full_log())
    return path


def run_or_error(store_path: Path, *command: str) -> Result:
    """Run a command on this store; check that it succeeds or prints one line with the error."""
    result = CliRunner().invoke(cli, [*command, "--store", str(store_path)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if result.exit_code:
        (line,) = result.stderr.splitlines()
        assert line.startswith("error: ")
    return result


def execute(store_path: Path, *statements: tuple[str, tuple[object, ...]]) -> None:
    """Change the store directly in its database."""
    with closing(sqlite3.connect(store_path)) as db, db:
        for statement, values in statements:
            db.execute(statement, values)


# --- random damages

JUNK: list[Any] = [
    None, True, "x", "", -1, 0, 1, 10**30, -(10**400), 10**400, 0.5, -1e308, 1e308, float("nan"), float("inf"),
    [], [1], {}, {"a": 1}, [[]], {"loss": "x"}, {"loss": None}, "\x1b[31m", ["x", None],
]  # fmt: skip

TEXTS: list[object] = [
    "", "null", "[]", "1", "{", '{"at": 1', "[" * 100_000, b"\xff\xfe{}", b"", 7, 1.5, '{"at":1}', "{}", "NaN",
]  # fmt: skip

Row = list[Any]  # number, kind, trial, at, body


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values in a JSON value."""
    paths = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        paths += paths_in(inner, (*path, key))
    return paths


def change_value(body: str, draw: random.Random) -> str:
    """Replace, remove or add one value of a body."""
    data = json.loads(body)
    *path, key = draw.choice(paths_in(data))
    parent = data
    for step in path:
        parent = parent[step]
    kind = draw.randrange(8)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, dict):
        parent["unknown"] = draw.choice(JUNK)
    else:
        parent[key] = draw.choice(JUNK)
    return json.dumps(data)


def damage_log(rows: list[Row], draw: random.Random) -> list[Row]:
    """Return the rows of a log with one random damage."""
    i, j = draw.randrange(len(rows)), draw.randrange(len(rows))
    kind = draw.choice(
        ["drop", "truncate log", "swap", "repeat", "truncate body", "text", "kind", "number", *["value"] * 8]
    )
    if kind == "drop":
        return rows[:i] + rows[i + 1 :]
    if kind == "truncate log":
        return rows[:i]
    if kind == "swap":
        rows[i][1:], rows[j][1:] = rows[j][1:], rows[i][1:]
    elif kind == "repeat":
        rows[i][1:] = rows[j][1:]
    elif kind == "truncate body":
        rows[i][4] = rows[i][4][: draw.randrange(len(rows[i][4]))]
    elif kind == "text":
        rows[i][4] = draw.choice(TEXTS)
    elif kind == "kind":
        rows[i][1] = draw.choice([*ev.Codec.kinds, "", "Event", "Decision", b"\xff", 3])
    elif kind == "number":
        rows[i][0] = draw.choice([0, -1, 10**6, 2**62])
    else:
        rows[i][4] = change_value(rows[i][4], draw)
    return rows


def damage_study(store_path: Path, draw: random.Random) -> None:
    """Damage the row of the study or its summary at random."""
    with closing(sqlite3.connect(store_path)) as db:
        ((study, spec, summary),) = db.execute(
            "SELECT id, spec, summary FROM studies JOIN heads ON study = id WHERE name = 'digits'"
        )
    text = draw.choice(TEXTS)
    junk: object = draw.choice([7, -1, 1e300, "x", b"\xff", 10**12])
    execute(
        store_path,
        draw.choice(
            [
                ("UPDATE studies SET spec = ? WHERE id = ?", (text, study)),
                ("UPDATE studies SET spec = ? WHERE id = ?", (change_value(spec, draw), study)),
                ("UPDATE heads SET summary = ? WHERE study = ?", (text, study)),
                ("UPDATE heads SET summary = ? WHERE study = ?", (change_value(summary, draw), study)),
                ("UPDATE heads SET entries = ? WHERE study = ?", (junk, study)),
                ("UPDATE studies SET created_at = ? WHERE id = ?", (junk, study)),
                ("DELETE FROM heads WHERE study = ?", (study,)),
            ]
        ),
    )


def damage(store_path: Path, draw: random.Random) -> None:
    """Damage the study `digits` at random."""
    if draw.random() < 0.25:
        damage_study(store_path, draw)
        return
    with closing(sqlite3.connect(store_path)) as db:
        ((study,),) = db.execute("SELECT id FROM studies WHERE name = 'digits'")
        rows = [
            list(row)
            for row in db.execute(
                "SELECT number, kind, trial, at, body FROM log WHERE study = ? ORDER BY number", (study,)
            )
        ]
    rows = damage_log(rows, draw)
    new = "INSERT INTO log (study, number, kind, trial, at, body) VALUES (?, ?, ?, ?, ?, ?)"
    summary = [("UPDATE heads SET summary = '{}' WHERE study = ?", (study,))] * (draw.random() < 0.5)
    execute(
        store_path,
        ("DELETE FROM log WHERE study = ?", (study,)),
        *((new, (study, *row)) for row in rows),
        *summary,
    )


@pytest.mark.parametrize("seed", range(CASES))
def test_each_command_on_a_damaged_study_prints_its_output_or_one_line(store_path: Path, seed: int) -> None:
    damage(store_path, random.Random(seed))
    for command in READING_COMMANDS:
        result = run_or_error(store_path, *command)
        if command[0] == "list":
            assert result.exit_code == 0
            assert "other" in result.stdout
            assert "digits" in result.stdout
    with open_store(store_path, create=False) as store:
        with suppress(StudyDamaged):
            assert tt.load("digits", store).history.trials is not None
        store.delete("digits")
        assert [study.name for study in store.studies()] == ["other"]


# --- chosen damages


def set_body(store_path: Path, number: int, body: str) -> None:
    """Replace the body of an entry of `digits`."""
    where = "study = (SELECT id FROM studies WHERE name = 'digits')"
    execute(store_path, (f"UPDATE log SET body = ? WHERE number = ? AND {where}", (body, number)))
    execute(store_path, (f"UPDATE heads SET summary = '{{}}' WHERE {where}", ()))


def set_spec(store_path: Path, spec: object) -> None:
    execute(store_path, ("UPDATE studies SET spec = ? WHERE name = 'digits'", (spec,)))


def test_list_marks_the_damaged_study_and_shows_the_others(store_path: Path) -> None:
    set_body(store_path, 4, "{")
    result = run_or_error(store_path, "list")
    lines = {line.split()[0]: line.split()[1] for line in result.stdout.splitlines()[1:]}
    assert lines == {"digits": "damaged", "other": "finished"}
    (error,) = result.stderr.splitlines()
    assert error.startswith(
        f"damaged: study 'digits' in {store_path} is damaged, or was written by a newer thriftune: entry 4"
    )
    assert error.endswith(f"or remove the study: thriftune delete digits --store {store_path}")
    rows = {row["name"]: row for row in parse_json(run_or_error(store_path, "list", "--json").stdout)}
    assert rows["digits"]["state"] == "damaged"
    assert rows["digits"]["damage"].startswith("entry 4: an entry of kind 'Create' cannot be read")
    assert rows["digits"].keys() == rows["other"].keys()
    assert rows["other"]["damage"] is None


COMMANDS = ["show", "best", "bill", "export", "resume", "record"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_damaged_log_is_reported_in_one_line(store_path: Path, command: str, tmp_path: Path) -> None:
    set_body(store_path, 6, '{"at":101.0,"trial":7,"attempt":1,"number":1,"step":1,"metrics":{"loss":1.0}}')
    more = ["-o", str(tmp_path / "curves.json")] if command == "record" else []
    result = run_or_error(store_path, command, "digits", *more)
    assert result.exit_code == 1
    assert "is damaged, or was written by a newer thriftune: entry 6" in result.stderr


@pytest.mark.parametrize("command", [*COMMANDS, "stop"])
def test_damaged_settings_are_reported_in_one_line(store_path: Path, command: str, tmp_path: Path) -> None:
    set_spec(store_path, '{"name": "digits"}')
    more = ["-o", str(tmp_path / "curves.json")] if command == "record" else []
    result = run_or_error(store_path, command, "digits", *more)
    assert result.exit_code == 1
    assert "its settings cannot be read (KeyError: 'target')" in result.stderr


@pytest.mark.parametrize("spec", ["{", '{"name": "digits"}', b"\xff"])
def test_a_study_with_damaged_settings_can_be_deleted(store_path: Path, spec: object) -> None:
    set_spec(store_path, spec)
    assert (
        "its settings were damaged, so its files stay"
        in run_or_error(store_path, "delete", "digits", "--yes").stdout
    )
    assert [row["name"] for row in parse_json(run_or_error(store_path, "list", "--json").stdout)] == ["other"]


def test_a_study_with_a_damaged_log_is_deleted_with_its_files(store_path: Path) -> None:
    set_body(store_path, 4, "{")
    with open_store(store_path) as store:
        files = StudyFiles.of(studies.spec(id="0f"), store)
        files.claim()
    assert run_or_error(store_path, "delete", "digits", "--yes").stdout == "study 'digits' is deleted\n"
    assert not files.folder.exists()


def test_a_damaged_summary_is_computed_again_from_the_log(store_path: Path) -> None:
    before = parse_json(run_or_error(store_path, "list", "--json").stdout)
    execute(store_path, ("UPDATE heads SET summary = ?", ('{"entries": 1, "counts": 7}',)))
    assert [row["state"] for row in parse_json(run_or_error(store_path, "list", "--json").stdout)] == [
        "finished",
        "finished",
    ]
    assert [row["best"] for row in parse_json(run_or_error(store_path, "list", "--json").stdout)] == [
        row["best"] for row in before
    ]


def test_a_warm_start_from_a_damaged_study_names_the_study(store_path: Path) -> None:
    set_body(store_path, 4, "{")
    with pytest.raises(StudyDamaged, match=r"study 'digits' in .* is damaged, .*: entry 4"):
        tt.Study({"lr": tt.Float(0, 1)}, minimize="loss", warm_start="digits", name="new", store=store_path)
