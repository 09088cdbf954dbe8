"""Short texts about studies and trials: goals, costs, failures, and reasons to wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.cli import studies
from tests.support.tables import Table
from thriftune.common import formatting
from thriftune.common.text import escaped, last_line, printable
from thriftune.loop.failures import failure_text
from thriftune.results.trial_states import count_state_words, counts_line
from thriftune.show import cost_and_limits, describe, waiting
from thriftune.space.objectives import parse_constraints
from thriftune.state import events as ev
from thriftune.state.trial_record import State, TrialRecord
from thriftune.stopping import ASHA


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("10%\r20%\r100%\ndone\r\n", "100%\ndone\n"),
        ("bell\x07 tab\t nul\x00", "bell tab\t nul"),
        ("half an escape \x1b", "half an escape "),
    ],
)
def test_printable_removes_terminal_escapes(text: str, plain: str) -> None:
    assert printable(text) == plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, ü 漢 [red]", "plain text, ü 漢 [red]"),
        ("\x1b[31mred\x9b0m\x07", r"\x1b[31mred\x9b0m\x07"),
        ("two\nlines\r\tand\u2028one", r"two\nlines\r\tand\u2028one"),
        ("reversed \u202e text \ud800", r"reversed \u202e text \ud800"),
        ("a\\b", "a\\b"),
    ],
)
def test_escaped_shows_control_characters(text: str, shown: str) -> None:
    assert escaped(text) == shown


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (None, ""),
        ("", ""),
        ("killed by signal 11", "killed by signal 11"),
        (studies.TRACEBACK, "ValueError: bad [red]"),
        ('Traceback (most recent call last):\n  File "a", line 1, in f\nKeyError: 3', "KeyError: 3"),
    ],
)
def test_last_line_of_an_error(error: str | None, line: str) -> None:
    assert last_line(error) == line


@pytest.mark.parametrize(
    ("kind", "error", "output", "text"),
    [
        ("exited", "exited with status 1", "", "exited with status 1"),
        (
            "exited",
            "exited with status 1",
            "".join(f"line {n}\n\n" for n in range(9)) + "\x1b[31mModuleNotFoundError: torch\x1b[0m",
            "exited with status 1\n    line 5\n    line 6\n    line 7\n    line 8\n    ModuleNotFoundError: torch",
        ),
        (
            "no_value",
            "it reported nothing",
            "  indented\n" + "x" * 400,
            "it reported nothing\n      indented\n    ",
        ),
        ("raised", studies.TRACEBACK, "last words", "ValueError: bad [red]"),
        ("nan", "loss is nan at step 2", "last words", "loss is nan at step 2"),
    ],
)
def test_failure_text_adds_output_where_it_helps(kind: str, error: str, output: str, text: str) -> None:
    trial = TrialRecord(0, {}, 0.0, error=error, error_kind=kind, output=output)
    if "x" * 400 in output:
        text += "x" * 300 + "..."
    assert failure_text(trial) == text


def test_configurations_and_numbers() -> None:
    assert (
        describe.config_line({"lr": 0.123456, "n": 3, "act": "relu", "on": True})
        == "lr=0.1235 n=3 act=relu on=True"
    )
    assert describe.config_line({"a\x07": "\x1b[2J\n", "b": ["\x9b1m"]}) == r"a\x07=\x1b[2J\n b=['\x9b1m']"
    assert formatting.format_number(None) == "-"
    assert formatting.format_number(float("nan")) == "nan"


@pytest.mark.parametrize(
    ("joules", "text"),
    [
        (0.0, "0 J"),
        (0.512, "0.512 J"),
        (999.0, "999 J"),
        (999.9, "1 kJ"),
        (3590.0, "3.59 kJ"),
        (3600.0, "1 Wh"),
        (3.599e6, "1 kWh"),
        (4.4e6, "1.22 kWh"),
        (3.6e9, "1,000 kWh"),
        (4.5e12, "1,250,000 kWh"),
    ],
)
def test_energy_has_a_fitting_unit(joules: float, text: str) -> None:
    assert formatting.format_energy(joules) == text


@pytest.mark.parametrize(
    ("joules", "estimated", "line"),
    [
        (4.4e6, 0.0, "1.22 kWh"),
        (4.4e6, 4.4e6, "1.22 kWh (estimate)"),
        (100.0, 8.0, "100 J, 8% of it not metered (estimate)"),
        (100.0, 0.01, "100 J, 1% of it not metered (estimate)"),
    ],
)
def test_energy_total_tells_the_estimated_share(joules: float, estimated: float, line: str) -> None:
    assert formatting.format_energy_total(joules, estimated) == line


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.00107, "0.00107"), (12.34, "12.3"), (999.6, "1k"), (20_620_000.0, "20.6M"), (3e12, "3T")],
)
def test_format_short(value: float, text: str) -> None:
    assert formatting.format_short(value) == text


ROWS = [(0.5, 3.0), (0.25, 1.0), (0.75, 2.0), (0.5, 3.0)]


@pytest.mark.parametrize(
    ("settings", "rows", "line"),
    [
        ({}, [], ""),
        ({}, ROWS, "best loss 0.25 (trial 1) lr=0.02 act=relu"),
        ({"constraints": ["speed >= 2"]}, ROWS, "best loss 0.5 (trial 0) lr=0.01 act=relu"),
        (
            {"constraints": ["speed >= 9"]},
            ROWS,
            "none of 4 trials meets speed >= 9; the nearest is trial 0 with 3",
        ),
        ({"objectives": studies.TWO_OBJECTIVES}, [], ""),
        ({"objectives": studies.TWO_OBJECTIVES}, ROWS, "front 3 trials, loss 0.25 to 0.5, speed 1 to 3"),
        ({"objectives": studies.TWO_OBJECTIVES}, ROWS[:1], "front 1 trial, loss 0.5, speed 3"),
        (
            {"objectives": studies.TWO_OBJECTIVES, "constraints": ["speed >= 9"]},
            ROWS[1:2],
            "none of 1 trial meets speed >= 9; the nearest is trial 0 with 1",
        ),
    ],
)
def test_best_trial_or_front(settings: dict[str, Any], rows: list[tuple[float, float]], line: str) -> None:
    constraints = parse_constraints(settings.pop("constraints", ()))
    spec = studies.spec(constraints=constraints, **settings)
    history = studies.fold(studies.log_of_two_objectives(*rows), spec)
    assert str(describe.best_or_front(history)) == line


def test_why_a_trial_waits() -> None:
    spec = studies.spec()
    history = studies.fold(studies.log(finished=False), spec)

    def why(trial: int, has_driver: bool = True) -> str | None:
        return waiting.wait_reason(history.trials[trial], history, spec, has_driver)

    assert why(0) is None
    assert why(3) is None
    retry = "; retry 1 of 1 after ValueError: bad [red]; goes on after step 1"
    assert why(4) == f"waits for a free worker{retry}"
    assert why(4, has_driver=False) == f"waits for the study to be resumed{retry}"
    history.apply(ev.Lost(111.0, 3, 1, "gone"))
    assert why(3) == "waits for a free worker; its worker was lost; goes on after step 1"
    history.apply(ev.Create(111.0, 5, {"lr": 0.2, "act": "relu"}))
    assert why(5) == "waits for a free worker"
    history.apply(ev.StopRequested(112.0, "Ctrl-C"))
    assert why(5) == "waits for the study to be resumed: it is stopping"
    history.apply(ev.DriverStopped(113.0))
    assert why(5, has_driver=False) == "waits for the study to be resumed"


@pytest.mark.parametrize(
    ("options", "slots", "reason"),
    [
        ({"gpus": 1}, [], "waits for 1 worker of 1 CPU, 1 GPU: no machine has room for one"),
        (
            {"gang": 4, "memory": "2GB"},
            [1, 2],
            "waits for 4 workers of 1 CPU, 2 GB memory each: the machines have room for 3",
        ),
        ({"gang": 3}, [1, 2], ""),
        ({}, [1], ""),
    ],
)
def test_a_study_without_room_on_its_cluster(options: dict[str, Any], slots: list[int], reason: str) -> None:
    spec = studies.spec(engine="ray", engine_options=options)
    ready = [ev.MachineReady(100.0, f"node-{n}", "2 CPUs", count, 0.1) for n, count in enumerate(slots)]
    history = studies.fold([ev.DriverStarted(100.0, 1, "here"), *ready], spec)
    assert waiting.no_room_reason(history, spec) == reason
    history.apply(ev.Rent(101.0, "m", "c7i.large_spot"))
    assert waiting.no_room_reason(history, spec) == (reason and "waits for a machine: 1 c7i.large_spot requested")


def test_a_machine_with_a_preemption_notice_has_no_room() -> None:
    spec = studies.spec(engine="ray")
    log = [ev.DriverStarted(100.0, 1, "here"), ev.MachineReady(100.0, "node-1", "2 CPUs", 2, 0.1)]
    history = studies.fold([*log, ev.MachineNotice(101.0, "node-1", 111.0)], spec)
    assert waiting.no_room_reason(history, spec).startswith("waits for 1 worker of 1 CPU: no machine")
    assert waiting.no_room_reason(history, studies.spec()) == ""  # this machine always has room


def test_a_waiting_trial_names_the_resources_it_needs() -> None:
    spec = studies.spec(engine="ray", engine_options={"cpus": 2, "resources": {"TPU": 4}})
    log = [ev.DriverStarted(100.0, 1, "here"), ev.Create(100.0, 0, {"lr": 0.2, "act": "relu"})]
    history = studies.fold(log, spec)
    assert waiting.wait_reason(history.trials[0], history, spec, True) == "waits for a machine with 2 CPU, 4 TPU"


def test_a_paused_trial_waits_for_its_promotion() -> None:
    spec = studies.spec(stopping="asha")
    history = studies.fold(studies.log(finished=False), spec)
    history.apply(ev.Pause(111.0, 3, 1, "by asha"))
    history.apply(ev.Ended(112.0, 3, 1, 1.0, cut=True))
    assert waiting.wait_reason(history.trials[3], history, spec, True) == "waits to be promoted by asha"


def test_time_line_has_the_time_left() -> None:
    history = studies.fold(studies.log(finished=False), studies.spec())
    assert cost_and_limits.time_line(history, studies.spec(), 130.0) == "30.0 s"
    assert (
        cost_and_limits.time_line(history, studies.spec(deadline_seconds=40.0), 130.0)
        == "30.0 s of 40.0 s, 10.0 s left"
    )
    assert cost_and_limits.time_line(history, studies.spec(deadline_seconds=20.0), 130.0).endswith("0.0 s left")


def test_a_paused_trial_of_a_finished_study_counts_as_stopped_early() -> None:
    table = Table(slots=1, trials=2, max_steps=9, stopper=ASHA(how="pause"))
    table.report(0, 1, 0.5, saved=True)
    table.end(0, cut=True)
    spec = replace(table.spec, stopping="asha")
    assert waiting.wait_reason(table.trial(0), table.history, spec, True) == "waits to be promoted by asha"
    assert describe.state_label(table.trial(0), table.history, True) == "paused"
    table.history.finish_reason = "all done"
    assert waiting.wait_reason(table.trial(0), table.history, spec, False) is None
    assert describe.state_label(table.trial(0), table.history, False) == "stopped early"
    assert counts_line(table.history, False).endswith("1 stopped early")


def test_state_counts_of_a_finished_study() -> None:
    counts = {State.PAUSED: 2, State.FAILED: 1, State.STOPPED: 3, State.COMPLETED: 4, State.WAITING: 0}
    assert list(count_state_words(counts, True).items()) == [
        ("completed", 4),
        ("stopped early", 5),
        ("failed", 1),
    ]
    assert count_state_words(counts, False) == {
        "completed": 4,
        "paused": 2,
        "stopped early": 3,
        "failed": 1,
    }


def test_time_unit_fits_the_longest_time() -> None:
    assert [formatting.time_unit(seconds)[0] for seconds in (12.0, 300.0, 17_999.0, 18_000.0)] == [
        "seconds", "minutes", "minutes", "hours",
    ]  # fmt: skip


# --- on a cluster


def test_why_a_trial_waits_on_a_cluster() -> None:
    spec = studies.spec()
    table = Table(slots=0, trials=3)
    table(ev.DriverStarted(table.now, 1, "host"))
    table.history.apply(ev.Create(table.now, 0, {"lr": 0.2, "act": "relu"}))

    def why() -> str | None:
        return waiting.wait_reason(table.history.trials[0], table.history, spec, True)

    def add_machine(machine: str, slots: int) -> None:
        table.history.apply(ev.MachineReady(table.now, machine, "node", slots, 1.0))

    assert why() == "waits for a machine"
    for number, offer in enumerate(["m5.xlarge_spot", "m5.xlarge_spot", "p3.2xlarge_on-demand"]):
        table.history.apply(ev.Rent(table.now, f"m{number}", offer))
    assert why() == "waits for a machine: 2 m5.xlarge_spot, 1 p3.2xlarge_on-demand requested"
    for number, offer in enumerate(["m5.xlarge_spot", "m5.xlarge_spot", "p3.2xlarge_on-demand"]):
        table.history.apply(ev.MachineRefused(table.now, f"m{number}", offer, "none left"))
    assert why() == "waits for a machine"
    add_machine("a", 1)
    assert why() == "waits for a free worker"
    table.history.apply(ev.ShareChanged(table.now, 2, "1 other study: digits"))
    assert why() == "waits for a free worker: 2 workers are its share, because of 1 other study: digits"
    table.history.apply(ev.ShareChanged(table.now, 1, "2 other studies: digits, trees"))
    assert why() == "waits for a free worker: 1 worker is its share, because of 2 other studies: digits, trees"
    table.history.apply(ev.ShareChanged(table.now, None, "there is room for all studies"))
    assert why() == "waits for a free worker"
    table.history.apply(ev.MachineNotice(table.now, "a", table.now + 120.0))
    assert why() == "waits for another machine: the present ones are being preempted or released"


@pytest.mark.parametrize(
    ("rented", "line"),
    [
        ((), "$0.0000"),
        ((False,), "$2.00 (estimate from list prices: big)"),
        ((True,), "$2.00 (estimate from list prices: big)"),
        ((True, False), "$4.00 (estimate from list prices: big)"),
    ],
)
def test_costs_from_list_prices_are_called_an_estimate(rented: tuple[bool, ...], line: str) -> None:
    table = Table(slots=0, trials=1)
    table(ev.DriverStarted(table.now, 1, "desk"))
    for number, is_rented in enumerate(rented):
        rental = [ev.MachineRented(table.now, f"m{number}", "big", 1.0)] if is_rented else []
        table(*rental, ev.MachineReady(table.now, f"m{number}", "big", 1, 1.0))
    assert cost_and_limits.cost_line(table.history, table.now + 7200.0) == line
