"""`thriftune show --system`: how trials used their machines; and the energy of a study."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.cli import studies
from tests.cli.programs import RunCli, parse_json
from tests.system.stories import KIND, Story, like_others, tuned
from thriftune.state import events as ev
from thriftune.state.spec import Target
from thriftune.store.opening import open_store

AUTO = {"knobs": ["memory", "threads"], "aim": "time"}
FUNCTION = Target("function", where="train.py:train")


def write(store_path: Path, entries: list[ev.Event], name: str = "digits", **settings: object) -> None:
    with open_store(store_path) as store:
        studies.write(store, studies.spec(name, **{"target": FUNCTION, "system": AUTO, **settings}), entries)


@pytest.fixture
def measured(store_path: Path) -> None:
    """Write a study of three trials, two of which were measured."""
    story = like_others(tuned(Story()))
    story.begin().idle(0.2).end()
    story.entries.append(ev.LimitTrialsPerMachine(story.now, 2, 1, "like known work: one at a time is better"))
    write(store_path, story.finish())


def lines_of(shown: Result) -> list[str]:
    """Return the lines of the output with single spaces."""
    return [" ".join(line.split()) for line in shown.stdout.splitlines()]


# --- a study


def test_a_study_is_summarized_with_a_row_for_each_trial(run_cli: RunCli, measured: None) -> None:
    shown = run_cli("show", "digits", "--system")
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


def test_only_the_last_of_many_trials_are_shown(run_cli: RunCli, store_path: Path) -> None:
    story = Story()
    for _ in range(25):
        story.begin().window(1.0).window(1.0).end()
    write(store_path, story.finish(), trials=25)
    lines = lines_of(run_cli("show", "digits", "--system"))
    assert "trials, the last 20 of 25" in lines
    assert lines[-1].startswith("24 no knob 1 1 - - ")
    assert not any(line.startswith("4 no knob") for line in lines)
    assert not any("would have taken" in line for line in lines)


def test_a_study_as_json(run_cli: RunCli, measured: None) -> None:
    parsed = parse_json(run_cli("show", "digits", "--system", "--json").stdout)
    assert parsed["study"] == "digits"
    assert parsed["nothing"] is None
    assert (parsed["windows"], parsed["steps"]) == (16, 16)
    assert (parsed["untouched_windows"], parsed["look_windows"], parsed["kept_windows"]) == (3, 2, 11)
    assert parsed["system"] == AUTO
    assert parsed["narrowed"][0]["at_a_time"] == 1
    assert parsed["kinds"] == [KIND]
    assert parsed["meters"] == ["estimate"]
    assert parsed["joules_estimated"] is True
    first, second = parsed["trials"]
    assert parsed["saved_seconds"] == pytest.approx(first["saved_seconds"] + second["saved_seconds"])
    assert first["gain"] == pytest.approx(0.28, abs=0.03)
    assert min(first["gain_error"], second["gain_error"]) > 0.0
    assert (first["by_others"], second["by_others"]) == (False, False)
    assert parsed["saved_error"] > 0.0
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


def test_a_trial_is_shown_with_its_decisions_and_its_profile(run_cli: RunCli, measured: None) -> None:
    shown = run_cli("show", "digits", "--system", "--trial", "0")
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


def test_a_trial_that_ended_during_a_probe(run_cli: RunCli, store_path: Path) -> None:
    story = Story().begin().window(1.0, cold=True).window(1.0).decide({"memory": "kept"}).window(0.9)
    for step in (4, 5):
        story.idle(0.1).entries.append(ev.Reported(story.now, 0, 1, step, step, {"loss": 1.0}, saved=True))
    write(store_path, story.end().finish())
    lines = lines_of(run_cli("show", "digits", "--system", "--trial", "0"))
    assert "setting now memory kept, a probe" in lines
    assert "the last 2 steps were too short for a window" in lines


def test_a_long_profile_fits_the_screen(run_cli: RunCli, store_path: Path) -> None:
    story = Story().begin()
    for number in range(200):
        story.window(0.5, a_counter_with_a_name_that_does_not_end=1e9 + 1e7 * number)
    write(store_path, story.end().finish())
    shown = run_cli("show", "digits", "--system", "--trial", "0").stdout
    profile = shown[shown.index("profile by step") :].splitlines()
    assert max(map(len, profile)) == 80
    assert profile[2].startswith("a_counter_with_a_name_… ····")


def test_a_trial_as_json(run_cli: RunCli, measured: None) -> None:
    parsed = parse_json(run_cli("show", "digits", "--system", "--trial", "0", "--json").stdout)
    assert [window["step"] for window in parsed["profile"]] == list(range(1, 12))
    assert parsed["profile"][0]["cold"] is True
    assert parsed["profile"][2]["setting"] == {"memory": "kept"}
    assert parsed["profile"][0]["counters"]["minor_faults"] == 9e4
    assert parsed["ranges"]["minor_faults"] == {"low": 1e4, "high": 5e4, "unit": "/s"}
    assert parsed["unturned_seconds"] == pytest.approx(parsed["seconds"] + parsed["saved_seconds"])


def test_a_figure_needs_the_choice_of_one_trial(run_cli: RunCli, measured: None, tmp_path: Path) -> None:
    wrong = run_cli("show", "digits", "--system", "--plot", str(tmp_path / "a.png"), status=2)
    assert "--system --plot draws the profile of one trial; choose it with --trial N" in wrong.stderr
    pytest.importorskip("matplotlib")
    drawn = run_cli("show", "digits", "--system", "--trial", "0", "--plot", str(tmp_path / "a.png"))
    assert drawn.stdout == ""
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    wrong = run_cli("show", "digits", "--system", "--trial", "2", "--plot", str(tmp_path / "b.png"), status=1)
    assert "there is nothing to plot: nothing was measured" in wrong.stderr
    assert (
        "has no trial 3; its trials are 0 to 2"
        in run_cli("show", "digits", "--system", "--trial", "3", status=1).stderr
    )


# --- studies without measurements


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"target": Target("command", command=("true",)), "system": None}, "its trials run a command"),
        ({"target": Target("outside"), "system": None}, "it trains in its user's own code"),
        ({"system": None}, 'it has system = "off"'),
        ({}, "trials that take less than half a second are not measured"),
    ],
)
def test_the_reason_why_nothing_was_measured(
    run_cli: RunCli, store_path: Path, settings: dict[str, Any], reason: str
) -> None:
    write(store_path, Story().begin().idle(0.1).end().finish(), **settings)
    for args in ((), ("--trial", "0")):
        assert f"nothing was measured: {reason}" in " ".join(
            run_cli("show", "digits", "--system", *args).stdout.split()
        )
        assert reason in parse_json(run_cli("show", "digits", "--system", *args, "--json").stdout)["nothing"]


def test_a_study_that_has_not_begun(run_cli: RunCli, store_path: Path) -> None:
    write(store_path, [])
    assert run_cli("show", "digits", "--system").stdout == "digits: nothing was measured: nothing has run yet\n"


# --- energy


def test_show_and_bill_have_the_energy_of_a_study(run_cli: RunCli, measured: None) -> None:
    for command in ("show", "bill"):
        assert any(
            line.startswith("energy ") and line.endswith(" J (estimate)")
            for line in lines_of(run_cli(command, "digits"))
        )
    cost = parse_json(run_cli("show", "digits", "--json").stdout)["cost"]
    bill = parse_json(run_cli("bill", "digits", "--json").stdout)
    assert cost["joules"] == pytest.approx(bill["joules"])
    assert cost["joules"] > 11 * 3.5
    assert cost["joules_estimated"] is bill["joules_estimated"] is True


def test_metered_energy_is_not_called_an_estimate(run_cli: RunCli, store_path: Path) -> None:
    story = Story().begin().window(3600.0, joules=4e6, meter="RAPL")
    write(store_path, [*story.entries, ev.Ended(story.now, 0, 1, 1.0), ev.DriverStopped(story.now)])
    assert "energy 1.11 kWh" in lines_of(run_cli("show", "digits"))
    assert "energy 1.11 kWh" in lines_of(run_cli("bill", "digits"))
    assert parse_json(run_cli("bill", "digits", "--json").stdout)["joules_estimated"] is False
    assert "Energy: 1.11 kWh; the meter is RAPL." in lines_of(run_cli("show", "digits", "--system"))


def test_a_study_that_has_not_begun_shows_no_energy(run_cli: RunCli, store_path: Path) -> None:
    write(store_path, [])
    assert not any(line.startswith("energy") for line in lines_of(run_cli("show", "digits")))
    assert parse_json(run_cli("show", "digits", "--json").stdout)["cost"]["joules"] == 0.0
