"""`thriftune bill`: what each machine of a study cost, and how much work it did."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from thriftune.cli.common import existing_store, json_option, plot_option, print_json, store_option
from thriftune.cli.screen import facts_table, open_console, section, table
from thriftune.common.formatting import format_dollars, format_energy_total, format_seconds, plural, time_unit
from thriftune.results.cost_ledger import SPOT_PRICE_UNKNOWN, Ledger, LedgerRow
from thriftune.show.plot_style import check_plot_path
from thriftune.state.events import THIS_MACHINE
from thriftune.state.history import History
from thriftune.study.ask_tell import load

_MAX_ROWS = 20
_ESTIMATE_MARK = "~"
_UNKNOWN_PRICE_MARK = "?"


@click.command("bill")
@click.argument("name")
@store_option
@plot_option
@json_option
def bill_command(name: str, store: str | None, plot: Path | None, as_json: bool) -> None:
    """Show what each machine of a study cost.

    If the provider has sent no bill, the cost is an estimate from list prices and the provider's billing rules.
    The bill also estimates the cost on on-demand machines and the cost of work that was lost to preemptions.
    --plot draws which trial used which machine when.
    """
    if plot is not None:
        check_plot_path(plot)
    with existing_store(store) as opened:
        history = load(name, opened).history
        has_driver = opened.driver(name) is not None
    ledger = Ledger.of(history, time.time() if has_driver or _has_rented_machine(history) else history.last_at)
    if plot is not None:
        from thriftune.show.timeline_plot import plot_timeline

        plot_timeline(name, ledger, plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        print_json({"study": name, **ledger.to_json()})
    elif not ledger.rows:
        click.echo(f"{name}: has used no machine yet, so it has no costs")
    else:
        _show(name, ledger)


def _has_rented_machine(history: History) -> bool:
    """Return whether a rented machine is running.

    Its bill grows even while no driver runs.
    """
    return any(machine != THIS_MACHINE for machine in history.machines)


def _show(name: str, ledger: Ledger) -> None:
    console = open_console()
    facts = facts_table()
    facts.add_row("study", Text(name, style="bold"))
    for label, text in _facts_of_this_machine(ledger) if ledger.is_own_machine else _facts(ledger):
        facts.add_row(label, Text(text))
    console.print(facts)
    _show_machines(console, ledger)


def _facts_of_this_machine(ledger: Ledger) -> Iterator[tuple[str, str]]:
    """Yield labels and texts for a study that ran on this machine only.

    Nobody bills this machine.
    """
    offers = ", ".join(dict.fromkeys(row.offer for row in ledger.rows))
    yield "machine", f"this one, in {plural(len(ledger.rows), 'run')}; {format_seconds(ledger.seconds)}"
    yield "if rented", f"{format_dollars(ledger.dollars)} (estimate: {offers} on demand)"
    yield "steps", _steps_line(ledger)
    if ledger.lost_dollars:
        yield "lost", _lost_line(ledger.lost_dollars, ledger)
    yield from _energy_fact(ledger)


def _facts(ledger: Ledger) -> Iterator[tuple[str, str]]:
    rows = ledger.rows
    preempted, running = sum(row.taken_away for row in rows), sum(row.is_present for row in rows)
    notes = [f"{preempted} preempted", *([f"{running} still running"] if running else [])]
    yield "machines", f"{len(rows)}: {', '.join(notes)}; {format_seconds(ledger.seconds)} in total"
    paid = format_dollars(ledger.dollars)
    if all(row.estimated for row in rows):
        paid += " (estimate from list prices)"
    elif estimated := ledger.estimated_dollars:
        paid += f", {format_dollars(estimated)} of it an estimate from list prices"
    yield "cost", paid
    if ledger.data:
        yield "  for data", f"{format_dollars(ledger.data)} of it"
    if ledger.refunded:
        estimate = " (estimate)" if any(row.estimated and row.refunded for row in rows) else ""
        yield "refunded", f"{format_dollars(ledger.refunded)} for preempted machines{estimate}"
    yield "on demand", _on_demand_line(ledger)
    yield "steps", _steps_line(ledger)
    yield "lost to preemptions", _lost_line(ledger.revoked_dollars, ledger)
    if other := ledger.lost_dollars - ledger.revoked_dollars:
        yield "lost otherwise", _lost_line(other, ledger)
    yield from _energy_fact(ledger)


def _energy_fact(ledger: Ledger) -> Iterator[tuple[str, str]]:
    if ledger.joules:
        yield "energy", format_energy_total(ledger.joules, ledger.estimated_joules)


def _on_demand_line(ledger: Ledger) -> str:
    on_demand, paid = ledger.on_demand_dollars, ledger.dollars
    line = f"{format_dollars(on_demand)} for the same work (estimate)"
    if on_demand > paid:
        line += f"; {(on_demand - paid) / on_demand:.0%} saved"
    if unknown := sum(row.on_demand_per_hour is None for row in ledger.rows):
        machines = "all machines" if unknown == len(ledger.rows) else plural(unknown, "machine")
        line += f"; on-demand price of {machines} unknown, the paid price is used"
    return line


def _steps_line(ledger: Ledger) -> str:
    lost = f", {_steps(ledger.steps_lost)} of them lost" if ledger.steps_lost else ", none lost"
    return f"{_steps(ledger.steps_done)} done{lost}"


def _lost_line(dollars: float, ledger: Ledger) -> str:
    if not dollars:
        return "nothing"
    share = dollars / ledger.dollars if ledger.dollars else 0.0
    return f"{format_dollars(dollars)}, {share:.1%} of the cost (estimate, from the lost steps)"


def _show_machines(console: Console, ledger: Ledger) -> None:
    rows, own = list(ledger.rows), ledger.is_own_machine
    began = rows[0].since
    unit, seconds = time_unit(max(row.end for row in rows) - began)
    shown, others = rows, []
    if len(rows) > _MAX_ROWS:
        rows.sort(key=lambda row: -row.dollars)
        shown, others = rows[:_MAX_ROWS], rows[_MAX_ROWS:]
    digits = 2 if max(row.dollars for row in rows) >= 1.0 else 4
    cells = [
        (
            row.machine,
            row.offer,
            f"{(row.since - began) / seconds:.1f}",
            "-" if row.is_present else f"{(row.end - began) / seconds:.1f}",
            f"{'' if row.price_known else _UNKNOWN_PRICE_MARK}{row.price_per_hour:.4g}",
            *_sums([row], digits),
            _ending(row),
        )
        for row in shown
    ]
    if others:
        cells.append((f"{len(others)} others", "", "", "", "", *_sums(others, digits), ""))
    if len(rows) > 1:
        cells.append(("total", "", "", "", "", *_sums(rows, digits), ""))
    title = "runs" if own else "machines"
    order = f"the {_MAX_ROWS} most expensive of {len(rows)}" if others else "in order of start"
    section(console, f"{title}, {order}")
    dollars = "if rented" if own else "dollars"
    table(
        console,
        ("machine", "offer", f"from, {unit}", "to", "price/h", "refunded", dollars, "steps", "lost", "end"),
        cells,
        left=2,
    )
    if any(row.estimated for row in rows) and not own:
        console.print(Text(f"{_ESTIMATE_MARK} an estimate from list prices, not the provider's bill", style="dim"))
    if not all(row.price_known for row in rows):
        console.print(Text(f"{_UNKNOWN_PRICE_MARK} {SPOT_PRICE_UNKNOWN}", style="dim"))


def _sums(rows: Sequence[LedgerRow], digits: int) -> tuple[str, ...]:
    """Return the summed refunds, dollars, steps and lost steps as cells."""
    sums = Ledger(rows)
    mark = _ESTIMATE_MARK if any(row.estimated for row in rows) and not sums.is_own_machine else ""
    refunded = f"{sums.refunded:.{digits}f}" if sums.refunded else "-"
    return refunded, f"{mark}{sums.dollars:.{digits}f}", _steps(sums.steps_done), _steps(sums.steps_lost)


def _ending(row: LedgerRow) -> str:
    if row.is_present:
        return "still running"
    if row.machine == THIS_MACHINE:
        return "ended"
    return "preempted" if row.taken_away else "released"


def _steps(steps: float) -> str:
    """Return a number of steps as text.

    It has a fraction if a trial had workers on several machines.
    """
    return f"{steps:.1f}".removesuffix(".0")
