"""show --system: how trials used their machines, as people and programs see it; and the energy of a study."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.cli import studies
from tests.cli.programs import strict
from tests.system.stories import KIND, Story, like_others, tuned
from thriftune.cli import cli
from thriftune.state import events as ev
from thriftune.state.spec import Target
from thriftune.store.opening import open_store

Type = Callable[..., Result]
AUTO = {"knobs": ["memory", "threads"], "aim": "time"}
FUNCTION = Target("function", where="train.py:train")


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / "studies.db"


@pytest.fixture
def typed(where: Path) -> Type:
    """Types a command, on this test's store; checks its status."""

    def call(command: str, *args: str, status: int = 0) -> Result:
        result = CliRunner().invoke(cli, [command, *args, "--store", str(where)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == status, result.output
        return result

    return call


def write(where: Path, entries: list[ev.Event], name: str = "digits", **settings: object) -> None:
    with open_store(where) as store:
        studies.write(store, studies.spec(name, **{"target": FUNCTION, "system": AUTO, **settings}), entries)


@pytest.fixture
def measured(where: Path) -> None:
    story = like_others(tuned(Story()))
    story.begin().idle(0.2).end()
    story.entries.append(ev.LimitTrialsPerMachine(story.now, 2, 1, "like known work: one at a time is better"))
    write(where, story.finish())


def lines_of(shown: Result) -> list[str]:
    return [" ".join(line.split()) for line in shown.stdout.splitlines()]


# --- a study


def test_a_study_has_sentences_and_a_row_for_each_trial(typed: Type, measured: None) -> None:
    shown = typed("show", "digits", "--system")
    text = " ".join(shown.stdout.split())
    for sentence in (
        "digits: 16 steps of 2 of 3 trials were measured, in 16 windows.",
        "2 windows (12%) probed settings; 11 had the setting that was chosen, and 3 came before any decision.",
        "Without knobs, these trials would have taken ",
        " less, probes included (estimate, error ",
        "At most 1 at a time on machines with 2 slots: like known work: one at a time is better.",
        f"Measured on: {KIND}.",
        "(estimate).",
    ):
        assert sentence in text
    lines = lines_of(shown)
    at = lines.index("trial setting now s/step without now gain basis energy")
    assert re.fullmatch(r"0 memory kept, threads 2 1 0.72 2\d% ±\d% its own steps 38.5 J", lines[at + 1])
    assert re.fullmatch(r"1 memory kept, threads 2 2\* 0.36 \d\d% ±\d+% other trials 12.1 J", lines[at + 2])
    assert lines[at + 3] == "* contains an attempt's first step, which often takes longer"
    assert "\x1b" not in shown.stdout


def test_only_the_last_of_many_trials_are_shown(typed: Type, where: Path) -> None:
    story = Story()
    for _ in range(25):
        story.begin().window(1.0).window(1.0).end()
    write(where, story.finish(), trials=25)
    lines = lines_of(typed("show", "digits", "--system"))
    assert "trials, the last 20 of 25" in lines
    assert lines[-1].startswith("24 no knob 1 1 - - ")
    assert not any(line.startswith("4 no knob") for line in lines)
    assert not any("would have taken" in line for line in lines)


def test_a_study_as_json(typed: Type, measured: None) -> None:
    told = strict(typed("show", "digits", "--system", "--json").stdout)
    assert told["study"] == "digits"
    assert told["nothing"] is None
    assert (told["windows"], told["steps"]) == (16, 16)
    assert (told["untouched_windows"], told["look_windows"], told["kept_windows"]) == (3, 2, 11)
    assert told["system"] == AUTO
    assert told["narrowed"][0]["at_a_time"] == 1
    assert told["kinds"] == [KIND]
    assert told["meters"] == ["estimate"]
    assert told["joules_estimated"] is True
    first, second = told["trials"]
    assert told["saved_seconds"] == pytest.approx(first["saved_seconds"] + second["saved_seconds"])
    assert first["gain"] == pytest.approx(0.28, abs=0.03)
    assert min(first["gain_error"], second["gain_error"]) > 0.0
    assert (first["by_others"], second["by_others"]) == (False, False)
    assert told["saved_error"] > 0.0
    assert [decided["why"] for decided in first["decisions"]] == [
        "a probe",
        "a probe",
        "28% less a step than with no knob (error 4%)",
    ]
    assert first["decisions"][0]["before"] == {"seconds_a_step": 1.0, "windows": 1, "spread": None, "cold": False}
    assert [each["setting"] for each in first["settings"]] == [
        {},
        {"memory": "kept"},
        {"memory": "kept", "threads": 2},
    ]


# --- a trial


def test_a_trial_has_its_decisions_and_its_profile(typed: Type, measured: None) -> None:
    shown = typed("show", "digits", "--system", "--trial", "0")
    lines = lines_of(shown)
    for line in (
        "trial 0 of study digits",
        "setting now memory kept, threads 2, by its own steps",
        "energy 38.5 J (estimate)",
        "windows 11 of 11 steps: 2 probed settings, 7 had the chosen one, 2 came before any decision",
        f"measured on {KIND}",
        "memory kept, threads 2 8 0.72 1.5% 0.72",
        "1. after step 2: memory kept",
        "a probe",
        "before: 1 s a step (1 window); after: 0.8 s a step (1 window)",
        "before: 0.8 s a step (1 window); after: 0.73 s a step (1 window)",
        "3. after step 4: memory kept, threads 2",
        "profile by step",
        "first steps of attempts do not count for lowest and highest",
        "0 in the whole study: idle",
    ):
        assert line in lines
    assert any(line.startswith("time 9.6 s; without knobs 1") and "(estimate, error " in line for line in lines)
    profile = shown.stdout[shown.stdout.index("profile by step") :]
    assert max(map(len, profile.splitlines())) <= 80
    assert "minor_faults   ████████····" in profile


def test_a_trial_that_ended_during_a_probe(typed: Type, where: Path) -> None:
    story = Story().begin().window(1.0, cold=True).window(1.0).decide({"memory": "kept"}).window(0.9)
    for step in (4, 5):
        story.idle(0.1).entries.append(ev.Reported(story.now, 0, 1, step, step, {"loss": 1.0}, saved=True))
    write(where, story.end().finish())
    lines = lines_of(typed("show", "digits", "--system", "--trial", "0"))
    assert "setting now memory kept, a probe" in lines
    assert "the last 2 steps were too short for a window" in lines


def test_a_long_profile_fits_the_screen(typed: Type, where: Path) -> None:
    story = Story().begin()
    for number in range(200):
        story.window(0.5, a_counter_with_a_name_that_does_not_end=1e9 + 1e7 * number)
    write(where, story.end().finish())
    shown = typed("show", "digits", "--system", "--trial", "0").stdout
    profile = shown[shown.index("profile by step") :].splitlines()
    assert max(map(len, profile)) == 80
    assert profile[2].startswith("a_counter_with_a_name_… ····")


def test_a_trial_as_json(typed: Type, measured: None) -> None:
    told = strict(typed("show", "digits", "--system", "--trial", "0", "--json").stdout)
    assert [window["step"] for window in told["profile"]] == list(range(1, 12))
    assert told["profile"][0]["cold"] is True
    assert told["profile"][2]["setting"] == {"memory": "kept"}
    assert told["profile"][0]["counters"]["minor_faults"] == 9e4
    assert told["ranges"]["minor_faults"] == {"low": 1e4, "high": 5e4, "unit": "/s"}
    assert told["unturned_seconds"] == pytest.approx(told["seconds"] + told["saved_seconds"])


def test_the_picture_is_of_one_trial(typed: Type, measured: None, tmp_path: Path) -> None:
    wrong = typed("show", "digits", "--system", "--plot", str(tmp_path / "a.png"), status=2)
    assert "--system --plot draws the profile of one trial; choose it with --trial N" in wrong.stderr
    pytest.importorskip("matplotlib")
    made = typed("show", "digits", "--system", "--trial", "0", "--plot", str(tmp_path / "a.png"))
    assert made.stdout == ""
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    wrong = typed("show", "digits", "--system", "--trial", "2", "--plot", str(tmp_path / "b.png"), status=1)
    assert "there is nothing to plot: nothing was measured" in wrong.stderr
    assert (
        "has no trial 3; it has trials 0 to 2"
        in typed("show", "digits", "--system", "--trial", "3", status=1).stderr
    )


# --- where nothing was measured


@pytest.mark.parametrize(
    ("means", "why"),
    [
        ({"target": Target("command", command=("true",)), "system": None}, "its trials run a command"),
        ({"target": Target("outside"), "system": None}, "it trains in its user's own code"),
        ({"system": None}, 'it has system = "off"'),
        ({}, "trials that take less than half a second are not measured"),
    ],
)
def test_why_nothing_was_measured(typed: Type, where: Path, means: dict[str, Any], why: str) -> None:
    write(where, Story().begin().idle(0.1).end().finish(), **means)
    for args in ((), ("--trial", "0")):
        assert f"nothing was measured: {why}" in " ".join(
            typed("show", "digits", "--system", *args).stdout.split()
        )
        assert why in strict(typed("show", "digits", "--system", *args, "--json").stdout)["nothing"]


def test_a_study_that_has_not_begun(typed: Type, where: Path) -> None:
    write(where, [])
    assert typed("show", "digits", "--system").stdout == "digits: nothing was measured: nothing has run yet\n"


# --- energy


def test_the_energy_of_a_study_is_shown_and_in_its_bill(typed: Type, measured: None) -> None:
    for command in ("show", "bill"):
        assert any(
            line.startswith("energy ") and line.endswith(" J (estimate)")
            for line in lines_of(typed(command, "digits"))
        )
    cost = strict(typed("show", "digits", "--json").stdout)["cost"]
    bill = strict(typed("bill", "digits", "--json").stdout)
    assert cost["joules"] == pytest.approx(bill["joules"])
    assert cost["joules"] > 11 * 3.5
    assert cost["joules_estimated"] is bill["joules_estimated"] is True


def test_energy_that_was_metered(typed: Type, where: Path) -> None:
    story = Story().begin().window(3600.0, joules=4e6, meter="RAPL")
    write(where, [*story.entries, ev.Ended(story.now, 0, 1, 1.0), ev.DriverStopped(story.now)])
    assert "energy 1.11 kWh" in lines_of(typed("show", "digits"))
    assert "energy 1.11 kWh" in lines_of(typed("bill", "digits"))
    assert strict(typed("bill", "digits", "--json").stdout)["joules_estimated"] is False
    assert "Energy: 1.11 kWh; the meter is RAPL." in lines_of(typed("show", "digits", "--system"))


def test_no_energy_of_nothing(typed: Type, where: Path) -> None:
    write(where, [])
    assert not any(line.startswith("energy") for line in lines_of(typed("show", "digits")))
    assert strict(typed("show", "digits", "--json").stdout)["cost"]["joules"] == 0.0
