"""Tests of deadlines, as durations and as times: reading, keeping, planning with and showing them."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import thriftune as tt
from tests.support.study_files import HALVING_STUDY, ON_DEMAND
from tests.support.tables import START, Table
from thriftune.cli import cli
from thriftune.common.formatting import format_time
from thriftune.errors import SettingError
from thriftune.settings.deadlines import as_duration, check_ahead, parse_deadline
from thriftune.settings.study_file import read_study_file
from thriftune.show import cost_and_limits
from thriftune.show.progress import goal_line
from thriftune.state.trial_record import State

NINE_UTC = datetime.datetime(2026, 11, 20, 9, 0, tzinfo=datetime.UTC).timestamp()
HOUR = 3600.0


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set this process's time zone to Berlin's, an hour ahead of UTC in winter."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("given", "at"),
    [
        ("2026-11-20 09:00", NINE_UTC - HOUR),
        ("2026-11-20 9:00", NINE_UTC - HOUR),
        (" 2026-11-20T09:00:00 ", NINE_UTC - HOUR),
        ("2026-11-20 09:00 Europe/Berlin", NINE_UTC - HOUR),
        ("2026-11-20 09:00 UTC", NINE_UTC),
        ("2026-11-20 09:00Z", NINE_UTC),
        ("2026-11-20 09:00:30.5z", NINE_UTC + 30.5),
        ("2026-11-20 09:00 +01:00", NINE_UTC - HOUR),
        ("2026-11-20T09:00-0500", NINE_UTC + 5 * HOUR),
        ("2026-11-20 09:00 America/New_York", NINE_UTC + 5 * HOUR),
        (datetime.datetime(2026, 11, 20, 9, 0), NINE_UTC - HOUR),
        (datetime.datetime(2026, 11, 20, 9, 0, tzinfo=datetime.UTC), NINE_UTC),
    ],
)
def test_a_date_and_time_is_read_in_its_time_zone_or_in_local_time(given: Any, at: float) -> None:
    assert parse_deadline(given) == (None, at)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("20m", 1200.0), (90, 90.0), (datetime.timedelta(hours=1), HOUR), (None, None)],
)
def test_a_duration_is_read_in_seconds(given: Any, seconds: float | None) -> None:
    assert parse_deadline(given) == (seconds, None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("2026-11-20", "deadline: '2026-11-20' has no time of day; write it like '2026-11-20 09:00', "),
        (
            "2026-11-31 09:00",
            "deadline: '2026-11-31 09:00' is not a date and time (day is out of range",
        ),
        ("2026-11-20 24:30", "deadline: '2026-11-20 24:30' is not a date and time ("),
        ("2026-11-20 09:00 Mars/Base", "deadline: 'Mars/Base' in '2026-11-20 09:00 Mars/Base' is not a time zone"),
        ("2026-11-20 09:00 /etc/passwd", "deadline: '/etc/passwd' in"),
        (
            "soon",
            "deadline: 'soon' is not a duration; write seconds, or '90s', '20m', '1h30m', '2d'; or a time like",
        ),
    ],
)
def test_an_invalid_deadline_is_an_error_with_an_example(given: str, message: str) -> None:
    with pytest.raises(SettingError) as error:
        parse_deadline(given)
    assert str(error.value).startswith(message)


def test_at_the_deadline_running_trials_stop_and_keep_their_values() -> None:
    table = Table(trials=9, deadline_at=START + 60.0)
    assert table.conductor.wake_at(table.now) == START + 60.0
    table.report(0, 1, 0.5)
    assert table.later(59.0) == []
    assert table.later(1.0) == ["stop 0/1"]
    assert table.end(0, cut=True) == ["finish: deadline reached"]
    assert (table.trial(0).state, table.trial(0).value) == (State.STOPPED, 0.5)
    assert table.nothing_left()


def test_a_deadline_by_the_clock_passes_while_no_driver_runs() -> None:
    table = Table(trials=9, deadline_at=START + 60.0)
    table.report(0, 1, 0.5)
    assert table.end(0) == ["create 1", "place 1/1"]
    table.kill_driver()
    table.now += 100.0
    assert table.start() == ["finish: deadline reached"]
    table.kill_driver(deadline_at=table.now + 1.0)
    assert table.start() == ["place 1/2"]


def test_a_deadline_in_the_past_is_an_error_that_says_how_long_ago() -> None:
    spec = Table(slots=0, deadline_at=START).spec
    check_ahead(spec, START - 1.0)
    with pytest.raises(SettingError, match=r"^deadline: 2023-11-1\d .* was 2 min 30 s ago; give a later one$"):
        check_ahead(spec, START + 150.0)
    with pytest.raises(SettingError, match=" was 12 days ago; give a later one"):
        check_ahead(spec, START + 12.1 * 86_400.0)


def test_a_plan_gets_the_time_that_is_left_until_the_deadline() -> None:
    spec = Table(slots=0, deadline_at=START + 100.0).spec
    planned = as_duration(spec, START + 40.0, 25.0)
    assert (planned.deadline_seconds, planned.deadline_at) == (85.0, None)
    with_duration = replace(spec, deadline_at=None, deadline_seconds=9.0)
    assert as_duration(with_duration, START) == with_duration
    assert as_duration(spec, START + 100.0) == spec  # the deadline has passed, so no plan is made


@pytest.mark.usefixtures("berlin")
def test_progress_and_show_give_the_time_of_the_deadline() -> None:
    table = Table(trials=9, deadline_at=NINE_UTC)
    table.now = NINE_UTC - 60.0
    assert goal_line(table.spec) == "minimize loss within 9 trials, until 2026-11-20 10:00 CET"
    assert cost_and_limits.time_line(table.history, table.spec, table.now).endswith(
        ", until 2026-11-20 10:00 CET, 60.0 s left"
    )
    assert format_time(NINE_UTC + 5.0) == "2026-11-20 10:00:05 CET"


FILE = """
function = "os:getpid"
minimize = "loss"
deadline = {deadline}
[space.x]
type = "float"
low = 0.0
high = 1.0
"""


@pytest.mark.parametrize(
    "deadline", ["2026-11-20T09:00:00Z", "2026-11-20 10:00:00+01:00", '"2026-11-20 09:00 UTC"']
)
def test_a_deadline_in_a_study_file_is_a_time_or_a_string(deadline: str, tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(FILE.format(deadline=deadline))
    assert read_study_file(file).spec.deadline_at == NINE_UTC
    assert read_study_file(file, {"deadline": "20m"}).spec.deadline_at is None
    assert read_study_file(file, {"deadline": "2026-11-20 09:30 UTC"}).spec.deadline_at == NINE_UTC + HOUR / 2


@pytest.mark.parametrize("deadline", ["2026-11-20", "09:00:00", "true"])
def test_a_study_file_with_only_a_date_or_a_time_of_day_is_an_error(deadline: str, tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(FILE.format(deadline=deadline))
    with pytest.raises(SettingError, match=r"deadline: .* must be seconds, or a string such as '20m'; or a time"):
        read_study_file(file)


def train(trial: tt.Trial) -> None:
    trial.report(loss=trial["x"])


def study(tmp_path: Path, deadline: datetime.datetime, **settings: Any) -> tt.Result:
    defaults: dict[str, Any] = {
        "minimize": "loss",
        "searcher": "random",
        "name": "s",
        "workers": 1,
        "progress": False,
    }
    return tt.tune(train, {"x": tt.Float(0, 1)}, deadline=deadline, store=tmp_path / "s.db", **defaults | settings)


def test_a_study_finishes_before_its_deadline_and_stores_it_as_a_time(tmp_path: Path) -> None:
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    result = study(tmp_path, later, trials=2)
    assert result.finished == "all 2 trials done"
    assert result.spec.deadline_at == later.timestamp()
    assert result.spec.deadline_seconds is None


def test_a_new_study_with_a_deadline_in_the_past_is_an_error_and_is_not_stored(tmp_path: Path) -> None:
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    with pytest.raises(SettingError, match=r"deadline: .* was 24 h 00 min ago; give a later one"):
        study(tmp_path, yesterday, trials=2)
    assert tt.studies(store=tmp_path / "s.db") == []


def test_a_script_that_is_run_again_after_its_deadline_returns_the_result(tmp_path: Path) -> None:
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=3)
    result = study(tmp_path, soon)
    assert result.finished == "deadline reached"
    again = study(tmp_path, soon)
    assert len(again.trials) == len(result.trials)
    with pytest.raises(SettingError, match="give a later one"):
        study(tmp_path, soon - datetime.timedelta(minutes=1))


def test_a_plan_has_the_time_from_now_until_the_deadline(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(HALVING_STUDY + ON_DEMAND)

    def run_plan(*options: str) -> Result:
        return CliRunner().invoke(cli, ["plan", str(file), *options, "--json"])

    in_two_hours = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=2)).isoformat()
    seconds = json.loads(run_plan("--deadline", in_two_hours).stdout)["deadline"]
    assert seconds == pytest.approx(2 * HOUR, abs=600.0)
    file.write_text((HALVING_STUDY + ON_DEMAND).replace('"20m"', in_two_hours))
    assert json.loads(run_plan().stdout)["deadline"] == pytest.approx(2 * HOUR, abs=600.0)
    past = run_plan("--deadline", "2001-01-01 09:00 UTC")
    assert past.exit_code == 1
    assert "ago; give a later one" in past.stderr


@pytest.mark.parametrize(
    "given", ["23:00", " 9:30 ", "23:00:15", "11:00 PM", "09:00 Europe/Berlin", "09:00+01:00"]
)
def test_a_time_without_a_date_is_an_error(given: str) -> None:
    with pytest.raises(SettingError, match="is a time without a date; write it like '2026-11-20 09:00'"):
        parse_deadline(given)
