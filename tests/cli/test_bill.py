"""`thriftune bill`: the costs of a study's machines, as text, as JSON and as a figure."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from click.testing import Result

import thriftune as tt
from tests.cli import studies
from tests.cli.programs import RunCli, parse_json
from thriftune.state import events as ev
from thriftune.store.opening import open_store


def write(store_path: Path, entries: list[ev.Event], name: str = "rented") -> None:
    with open_store(store_path) as store:
        studies.write(store, studies.spec(name), entries)


def rented(*, finished: bool = True) -> list[ev.Event]:
    """Return a log of three spot machines, one after the other.

    The first is preempted after an hour, the second after half an hour with a refund, and the last is released.
    """
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
    """Return the lines of the output with single spaces."""
    return [" ".join(line.split()) for line in shown.stdout.splitlines()]


def check_facts(shown: Result, *facts: str) -> None:
    """Check that the output, with single spaces and no line breaks, has all these facts."""
    text = " ".join(shown.stdout.split())
    for fact in facts:
        assert fact in text


def test_a_bill_has_a_row_for_every_machine_and_their_sums(run_cli: RunCli, store_path: Path) -> None:
    write(store_path, rented())
    shown = run_cli("bill", "rented")
    check_facts(
        shown,
        "machines 3: 2 preempted; 2 h 00 min in total",
        "cost $2.00",
        "for data $0.3000 of it",
        "refunded $0.7500 for preempted machines",
        "for the same work (estimate)",
        "on-demand price of 1 machine unknown, the paid price is used",
        "steps 5 done, 2 of them lost",
        "lost to preemptions $0.4000, 20.0% of the cost (estimate",
    )
    assert "lost otherwise" not in shown.stdout
    assert "list prices" not in shown.stdout
    lines = lines_of(shown)
    header = "machine offer from, minutes to price/h refunded dollars steps lost end"
    at = lines.index(header)
    assert lines[at + 1] == "spot-0 spot 0.0 60.0 1.2 - 1.30 3 1 preempted"
    assert lines[at + 2] == "spot-1 spot 60.0 90.0 1.5 0.75 0.10 1 1 preempted"
    assert lines[at + 3] == "spot-2 spot 90.0 120.0 1 - 0.60 1 0 released"
    assert lines[at + 4] == "total 0.75 2.00 5 2"


def test_the_bill_as_json_has_the_same_costs(run_cli: RunCli, store_path: Path) -> None:
    write(store_path, rented())
    parsed = parse_json(run_cli("bill", "rented", "--json").stdout)
    assert parsed["study"] == "rented"
    assert parsed["dollars"] == pytest.approx(2.0)
    # Useful: two thirds of the first hour, nothing of the second machine, all of the third at its spot price.
    assert parsed["on_demand_dollars"] == pytest.approx(4.0 * 2 / 3 + 0.5 + 0.3)
    assert parsed["revoked_share"] == parsed["lost_share"] == pytest.approx(0.2)
    assert [row["machine"] for row in parsed["machines"]] == ["spot-0", "spot-1", "spot-2"]
    assert [row["until"] for row in parsed["machines"]] == [3700.0, 5500.0, 7300.0]


def test_the_estimate_of_a_machine_that_is_not_billed_yet_grows_without_a_driver(
    run_cli: RunCli, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store_path, rented(finished=False))
    monkeypatch.setattr(time, "time", lambda: 100.0 + 4.5 * 3600.0)
    shown = run_cli("bill", "rented")
    check_facts(
        shown,
        "machines 3: 2 preempted, 1 still running",
        "cost $4.40, $3.00 of it an estimate from list prices",
        "~ an estimate from list prices, not the provider's bill",
    )
    assert "spot-2 spot 90.0 - 1 - ~3.00 1 0 still running" in lines_of(shown)


def rented_by_ray(*, price_known: bool = True) -> list[ev.Event]:
    """Return a log of two spot nodes whose costs are estimated from list prices; the first is preempted."""
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


def test_a_bill_from_list_prices_is_called_an_estimate(run_cli: RunCli, store_path: Path) -> None:
    write(store_path, rented_by_ray())
    shown = run_cli("bill", "rented")
    check_facts(
        shown,
        "cost $0.5000 (estimate from list prices)",
        "refunded $0.5000 for preempted machines (estimate)",
        "~ an estimate from list prices, not the provider's bill",
    )
    assert "spot-0 c7i.large_spot 0.0 30.0 1 0.5000 ~0.0000 0 0 preempted" in lines_of(shown)
    assert "spot-1 c7i.large_spot 30.0 60.0 1 - ~0.5000 0 0 released" in lines_of(shown)
    parsed = parse_json(run_cli("bill", "rented", "--json").stdout)
    assert parsed["estimated_dollars"] == parsed["dollars"] == 0.5
    assert [row["estimated"] for row in parsed["machines"]] == [True, True]


def test_an_unknown_spot_price_is_marked(run_cli: RunCli, store_path: Path) -> None:
    write(store_path, rented_by_ray(price_known=False))
    shown = run_cli("bill", "rented")
    check_facts(shown, "? spot price unknown, on-demand price counted")
    assert "spot-1 c7i.large_spot 30.0 60.0 ?1 - ~0.5000 0 0 released" in lines_of(shown)
    parsed = parse_json(run_cli("bill", "rented", "--json").stdout)
    assert [row["price_known"] for row in parsed["machines"]] == [False, False]


@pytest.mark.parametrize("known", [True, False])
def test_result_and_show_call_the_cost_an_estimate(run_cli: RunCli, store_path: Path, known: bool) -> None:
    write(store_path, rented_by_ray(price_known=known))
    cost = tt.load("rented", store_path).result.cost
    unknown = "" if known else "; spot price unknown, on-demand price counted"
    assert (cost.estimate, cost.rented, cost.prices_known) == (True, True, known)
    assert str(cost) == f"1 h 00 min, $0.5000 (estimate from list prices: c7i.large_spot{unknown})"
    shown = run_cli("show", "rented")
    line = f"$0.5000 (estimate from list prices: c7i.large_spot{unknown})"
    assert line in " ".join(shown.stdout.split())


def test_a_long_bill_shows_the_most_expensive_machines_and_the_sum_of_the_others(
    run_cli: RunCli, store_path: Path
) -> None:
    entries: list[ev.Event] = [ev.DriverStarted(0.0, 7, "here")]
    for number in range(50):
        name = f"m{number}"
        entries += [ev.MachineRented(0.0, name, "cpu", 1.0), ev.MachineReleased(60.0, name)]
        entries.append(ev.MachineBilled(60.0, name, 0.01 * number))
    write(store_path, entries)
    shown = run_cli("bill", "rented")
    lines = lines_of(shown)
    assert "machines, the 20 most expensive of 50" in shown.stdout
    at = next(i for i, line in enumerate(lines) if line.startswith("machine offer"))
    assert [line.split()[0] for line in lines[at + 1 : at + 21]] == [f"m{number}" for number in range(49, 29, -1)]
    assert "30 others - 4.3500 0 0" in lines
    assert "total - 12.2500 0 0" in lines
    check_facts(shown, "on-demand price of all machines unknown, the paid price is used")
    check_facts(shown, "lost to preemptions nothing")


def test_the_bill_of_this_machine_has_the_price_of_a_similar_rented_one(run_cli: RunCli, store_path: Path) -> None:
    write(store_path, studies.log(), "digits")
    shown = run_cli("bill", "digits")
    check_facts(
        shown,
        "machine this one, in 1 run; 10.0 s",
        "if rented $0.0010 (estimate: AWS c7i.large on demand)",
        "steps 6 done, none lost",
    )
    for text in ("preemptions", "on demand $", "~"):
        assert text not in shown.stdout
    assert "this machine AWS c7i.large 0.0 10.0 0.36 - 0.0010 6 0 ended" in lines_of(shown)


def test_steps_on_this_machine_that_a_killed_driver_lost_are_in_the_bill(
    run_cli: RunCli, store_path: Path
) -> None:
    later_drives = [
        ev.DriverStarted(300.0, 78, "there"),  # the driver before it was killed
        ev.MachineReady(300.0, ev.THIS_MACHINE, "AWS c7i.large", 4, 0.36),
        ev.Place(300.0, 3, 2, ev.THIS_MACHINE, 1),
        ev.Reported(310.0, 3, 2, 1, 2, {"loss": 1.0}),
        ev.DriverStarted(400.0, 79, "there"),
        ev.MachineReady(400.0, ev.THIS_MACHINE, "AWS c7i.large", 4, 0.36),
        ev.DriverStopped(420.0),
    ]
    write(store_path, [*studies.log(finished=False), *later_drives], "digits")
    shown = run_cli("bill", "digits")
    check_facts(shown, "this one, in 3 runs; 40.0 s")
    check_facts(shown, "steps 9 done, 1 of them lost lost $0.0010, 25.0% of the cost (estimate")


def test_the_bill_of_a_study_without_machines(run_cli: RunCli, store_path: Path, tmp_path: Path) -> None:
    tt.Study({"x": tt.Float(0, 1)}, minimize="loss", name="open", store=store_path).ask()
    assert run_cli("bill", "open").stdout == "open: has used no machine yet, so it has no costs\n"
    assert parse_json(run_cli("bill", "open", "--json").stdout)["machines"] == []
    wrong = run_cli("bill", "open", "--plot", str(tmp_path / "x.gif"), status=1)
    assert "must end in .png, .svg or .pdf" in wrong.stderr
    assert "no study 'nobody'" in run_cli("bill", "nobody", status=1).stderr


def test_the_bill_as_a_figure(run_cli: RunCli, store_path: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write(store_path, rented())
    path = tmp_path / "bill.svg"
    shown = run_cli("bill", "rented", "--plot", str(path))
    assert shown.stderr == f"wrote {path}\n"
    assert "cost" in shown.stdout
    assert path.read_bytes().startswith(b"<?xml")
