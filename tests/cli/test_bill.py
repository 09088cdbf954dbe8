"""What a study's machines cost, as people and programs see it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import thriftune as tt
from tests.cli import studies
from tests.cli.programs import strict
from thriftune.cli import cli
from thriftune.state import events as ev
from thriftune.store.opening import open_store

RunCli = Callable[..., Result]


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    return tmp_path / "studies.db"


@pytest.fixture
def run_cli(store_path: Path) -> RunCli:
    """Return a function that runs `thriftune bill` on this test's store and checks its exit status."""

    def call(*args: str, status: int = 0) -> Result:
        result = CliRunner().invoke(cli, ["bill", *args, "--store", str(store_path)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == status, result.output
        return result

    return call


def write(store_path: Path, entries: list[ev.Event], name: str = "rented") -> None:
    with open_store(store_path) as store:
        studies.write(store, studies.spec(name), entries)


def rented(*, finished: bool = True) -> list[ev.Event]:
    """A spot machine is preempted after an hour, and another one for nothing; the last one is released."""
    start, hour = 100.0, 3600.0
    entries: list[ev.Event] = [ev.DriverStarted(start, 7, "here")]
    for number, (since, price) in enumerate([(0.0, 1.2), (hour, 1.5), (1.5 * hour, 1.0)]):
        at, name = start + since, f"spot-{number}"
        on_demand = None if number == 2 else 4.0
        entries.append(ev.MachineRented(at, name, "spot", price, on_demand))
        entries.append(ev.MachineReady(at, name, "spot", 1, price))
        if number == 0:
            entries.append(ev.Create(at, 0, {"lr": 0.1, "act": "relu"}))
        entries.append(ev.Place(at, 0, number + 1, name, 2 if number else 0))
        step = 3 if number else 2
        entries.append(ev.Reported(at + 900.0, 0, number + 1, 1, step, {"loss": 1.0}, saved=number == 0))
        if number == 0:
            entries.append(ev.Reported(at + 1800.0, 0, 1, 2, 3, {"loss": 0.9}))
        if number < 2:
            end = start + (hour, 1.5 * hour)[number]
            entries.append(ev.MachineLost(end, name, "preempted"))
            entries.append(ev.MachineBilled(end, name, (1.3, 0.1)[number], 0.1, (0.0, 0.75)[number]))
    if finished:
        end = start + 2.0 * hour
        entries += [ev.Ended(end, 0, 3, 1.0), ev.MachineReleased(end, "spot-2"), ev.Finish(end, "all done")]
        entries += [ev.MachineBilled(end, "spot-2", 0.6, 0.1), ev.DriverStopped(end)]
    return entries


def lines_of(shown: Result) -> list[str]:
    return [" ".join(line.split()) for line in shown.stdout.splitlines()]


def facts_of(shown: Result) -> str:
    return " ".join(shown.stdout.split())


def test_a_bill_has_a_row_for_every_machine_and_their_sums(run_cli: RunCli, store_path: Path) -> None:
    write(store_path, rented())
    shown = run_cli("rented")
    for text in (
        "machines 3: 2 preempted; 2 h 00 min in total",
        "cost $2.00",
        "for data $0.3000 of it",
        "refunded $0.7500 for preempted machines",
        "for the same work (estimate)",
        "on-demand price of 1 machine unknown, the paid price is used",
        "steps 5 done, 2 of them lost",
        "lost to preemptions $0.4000, 20.0% of the cost (estimate",
    ):
        assert text in facts_of(shown)
    assert "lost otherwise" not in shown.stdout
    assert "list prices" not in shown.stdout
    lines = lines_of(shown)
    header = "machine offer from, minutes to price/h refunded dollars steps lost end"
    at = lines.index(header)
    assert lines[at + 1] == "spot-0 spot 0.0 60.0 1.2 - 1.30 3 1 preempted"
    assert lines[at + 2] == "spot-1 spot 60.0 90.0 1.5 0.75 0.10 1 1 preempted"
    assert lines[at + 3] == "spot-2 spot 90.0 120.0 1 - 0.60 1 0 released"
    assert lines[at + 4] == "total 0.75 2.00 5 2"


def test_programs_get_the_same_in_json(run_cli: RunCli, store_path: Path) -> None:
    write(store_path, rented())
    parsed = strict(run_cli("rented", "--json").stdout)
    assert parsed["study"] == "rented"
    assert parsed["dollars"] == pytest.approx(2.0)
    # Of the first hour two thirds were kept, of the next half none; the last half has no price but its own.
    assert parsed["on_demand_dollars"] == pytest.approx(4.0 * 2 / 3 + 0.5 + 0.3)
    assert parsed["revoked_share"] == parsed["lost_share"] == pytest.approx(0.2)
    assert [row["machine"] for row in parsed["machines"]] == ["spot-0", "spot-1", "spot-2"]
    assert [row["until"] for row in parsed["machines"]] == [3700.0, 5500.0, 7300.0]


def test_what_is_not_billed_yet_is_an_estimate_that_grows_also_when_nobody_drives(
    run_cli: RunCli, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store_path, rented(finished=False))
    monkeypatch.setattr(time, "time", lambda: 100.0 + 4.5 * 3600.0)
    shown = run_cli("rented")
    for text in (
        "machines 3: 2 preempted, 1 still running",
        "cost $4.40, $3.00 of it an estimate from list prices",
        "~ an estimate from list prices, not the provider's bill",
    ):
        assert text in facts_of(shown)
    assert "spot-2 spot 90.0 - 1 - ~3.00 1 0 still running" in lines_of(shown)


def on_ray(*, price_known: bool = True) -> list[ev.Event]:
    """A spot node is preempted in its first hour; nobody but list prices says what it and the next one cost."""
    entries: list[ev.Event] = [ev.DriverStarted(100.0, 7, "here")]
    for number, (since, end) in enumerate([(100.0, 1900.0), (1900.0, 3700.0)]):
        name = f"spot-{number}"
        entries.append(ev.MachineRented(since, name, "c7i.large_spot", 1.0, 2.0, price_known))
        entries.append(ev.MachineReady(since, name, "c7i.large_spot", 1, 1.0, price_known))
        if number == 0:
            entries += [ev.MachineLost(end, name, "it is gone", revoked=True)]
            entries += [ev.MachineBilled(end, name, 0.0, 0.0, 0.5, estimated=True)]
        else:
            entries += [ev.MachineReleased(end, name), ev.MachineBilled(end, name, 0.5, estimated=True)]
    return [*entries, ev.Finish(3700.0, "all done"), ev.DriverStopped(3700.0)]


def test_a_bill_by_list_prices_is_said_to_be_an_estimate(run_cli: RunCli, store_path: Path) -> None:
    write(store_path, on_ray())
    shown = run_cli("rented")
    for text in (
        "cost $0.5000 (estimate from list prices)",
        "refunded $0.5000 for preempted machines (estimate)",
        "~ an estimate from list prices, not the provider's bill",
    ):
        assert text in facts_of(shown)
    assert "spot-0 c7i.large_spot 0.0 30.0 1 0.5000 ~0.0000 0 0 preempted" in lines_of(shown)
    assert "spot-1 c7i.large_spot 30.0 60.0 1 - ~0.5000 0 0 released" in lines_of(shown)
    parsed = strict(run_cli("rented", "--json").stdout)
    assert parsed["estimated_dollars"] == parsed["dollars"] == 0.5
    assert [row["estimated"] for row in parsed["machines"]] == [True, True]


def test_a_spot_price_that_is_not_known_is_said_to_be_so(run_cli: RunCli, store_path: Path) -> None:
    write(store_path, on_ray(price_known=False))
    shown = run_cli("rented")
    assert "? spot price unknown, on-demand price counted" in facts_of(shown)
    assert "spot-1 c7i.large_spot 30.0 60.0 ?1 - ~0.5000 0 0 released" in lines_of(shown)
    parsed = strict(run_cli("rented", "--json").stdout)
    assert [row["price_known"] for row in parsed["machines"]] == [False, False]


@pytest.mark.parametrize("known", [True, False])
def test_the_cost_of_a_result_and_of_show_is_said_to_be_an_estimate(store_path: Path, known: bool) -> None:
    write(store_path, on_ray(price_known=known))
    cost = tt.load("rented", store_path).result.cost
    unknown = "" if known else "; spot price unknown, on-demand price counted"
    assert (cost.estimate, cost.rented, cost.prices_known) == (True, True, known)
    assert str(cost) == f"1 h 00 min, $0.5000 (estimate from list prices: c7i.large_spot{unknown})"
    shown = CliRunner().invoke(cli, ["show", "rented", "--store", str(store_path)])
    line = f"$0.5000 (estimate from list prices: c7i.large_spot{unknown})"
    assert line in " ".join(shown.stdout.split())


def test_of_many_machines_the_dearest_are_shown_and_the_others_in_sum(run_cli: RunCli, store_path: Path) -> None:
    entries: list[ev.Event] = [ev.DriverStarted(0.0, 7, "here")]
    for number in range(50):
        name = f"m{number}"
        entries += [ev.MachineRented(0.0, name, "cpu", 1.0), ev.MachineReleased(60.0, name)]
        entries.append(ev.MachineBilled(60.0, name, 0.01 * number))
    write(store_path, entries)
    shown = run_cli("rented")
    lines = lines_of(shown)
    assert "machines, the 20 most expensive of 50" in shown.stdout
    at = next(i for i, line in enumerate(lines) if line.startswith("machine offer"))
    assert [line.split()[0] for line in lines[at + 1 : at + 21]] == [f"m{number}" for number in range(49, 29, -1)]
    assert "30 others - 4.3500 0 0" in lines
    assert "total - 12.2500 0 0" in lines
    assert "on-demand price of all machines unknown, the paid price is used" in facts_of(shown)
    assert "lost to preemptions nothing" in facts_of(shown)


def test_on_this_machine_it_is_what_a_like_one_rents_for(run_cli: RunCli, store_path: Path) -> None:
    write(store_path, studies.log(), "digits")
    shown = run_cli("digits")
    for text in (
        "machine this one, in 1 run; 10.0 s",
        "if rented $0.0010 (estimate: AWS c7i.large on demand)",
        "steps 6 done, none lost",
    ):
        assert text in facts_of(shown)
    for text in ("preemptions", "on demand $", "~"):
        assert text not in shown.stdout
    assert "this machine AWS c7i.large 0.0 10.0 0.36 - 0.0010 6 0 ended" in lines_of(shown)


def test_on_this_machine_what_was_cut_off_is_lost(run_cli: RunCli, store_path: Path) -> None:
    cut = [
        ev.DriverStarted(300.0, 78, "there"),  # the one before was killed
        ev.MachineReady(300.0, ev.THIS_MACHINE, "AWS c7i.large", 4, 0.36),
        ev.Place(300.0, 3, 2, ev.THIS_MACHINE, 1),
        ev.Reported(310.0, 3, 2, 1, 2, {"loss": 1.0}),
        ev.DriverStarted(400.0, 79, "there"),
        ev.MachineReady(400.0, ev.THIS_MACHINE, "AWS c7i.large", 4, 0.36),
        ev.DriverStopped(420.0),
    ]
    write(store_path, [*studies.log(finished=False), *cut], "digits")
    shown = run_cli("digits")
    assert "this one, in 3 runs; 40.0 s" in facts_of(shown)
    assert "steps 9 done, 1 of them lost lost $0.0010, 25.0% of the cost (estimate" in facts_of(shown)


def test_a_study_without_machines(run_cli: RunCli, store_path: Path, tmp_path: Path) -> None:
    tt.Study({"x": tt.Float(0, 1)}, minimize="loss", name="asked", store=store_path).ask()
    assert run_cli("asked").stdout == "asked: has used no machine yet, so it has no costs\n"
    assert strict(run_cli("asked", "--json").stdout)["machines"] == []
    wrong = run_cli("asked", "--plot", str(tmp_path / "x.gif"), status=1)
    assert "must end in .png, .svg or .pdf" in wrong.stderr
    assert "no study 'nobody'" in run_cli("nobody", status=1).stderr


def test_its_picture(run_cli: RunCli, store_path: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write(store_path, rented())
    path = tmp_path / "bill.svg"
    shown = run_cli("rented", "--plot", str(path))
    assert shown.stderr == f"wrote {path}\n"
    assert "cost" in shown.stdout
    assert path.read_bytes().startswith(b"<?xml")
