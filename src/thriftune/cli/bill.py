"""`thriftune bill`: what a study's machines cost, and what came of it."""

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
from thriftune.results.ledger import SPOT_PRICE_UNKNOWN, Ledger, LedgerRow
from thriftune.state.events import THIS_MACHINE
from thriftune.state.history import History
from thriftune.study.ask_tell import load

_SHOWN = 20
_ESTIMATE = "~"
_NO_PRICE = "?"


@click.command("bill")
@click.argument("name")
@store_option
@plot_option
@json_option
def bill_command(name: str, store: str | None, plot: Path | None, as_json: bool) -> None:
    """Show what each machine of a study cost, and what came of it.

    Where the provider has sent no bill, the cost is an estimate from list prices and the provider's billing rules.
    Beside it stands an estimate of what on-demand machines would have cost, and what was lost to preemptions.
    --plot draws which trial was on which machine when.
    """
    if plot is not None:
        from thriftune.show.plot_style import check  # late: needs the extra

        check(plot)
    with existing_store(store) as opened:
        history = load(name, opened).history
        driven = opened.driver(name) is not None
    ledger = Ledger.of(history, time.time() if driven or _rented(history) else history.last_at)
    if plot is not None:
        from thriftune.show.timeline_plot import plot_timeline

        plot_timeline(name, ledger, plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        print_json({"study": name, **ledger.to_json()})
    elif not ledger.rows:
        click.echo(f"{name}: has had no machine yet, so there is nothing to pay for")
    else:
        _show(name, ledger)


def _rented(history: History) -> bool:
    """Whether a machine is there that is billed also when nobody drives the study."""
    return any(machine != THIS_MACHINE for machine in history.machines)


def _show(name: str, ledger: Ledger) -> None:
    console = open_console()
    facts = facts_table()
    facts.add_row("study", Text(name, style="bold"))
    for what, text in _own_facts(ledger) if ledger.is_own_machine else _facts(ledger):
        facts.add_row(what, Text(text))
    console.print(facts)
    _show_rows(console, ledger)


def _own_facts(ledger: Ledger) -> Iterator[tuple[str, str]]:
    """Of a study that ran on this machine only, which nobody bills."""
    offers = ", ".join(dict.fromkeys(row.offer for row in ledger.rows))
    yield "machine", f"this one, in {plural(len(ledger.rows), 'drive')}; {format_seconds(ledger.seconds)}"
    yield "if rented", f"{format_dollars(ledger.dollars)} (estimate: {offers} on demand)"
    yield "steps", _steps_line(ledger)
    if ledger.lost_dollars:
        yield "lost", _lost_line(ledger.lost_dollars, ledger)
    yield from _energy(ledger)


def _facts(ledger: Ledger) -> Iterator[tuple[str, str]]:
    rows = ledger.rows
    taken, there = sum(row.taken_away for row in rows), sum(row.is_present for row in rows)
    notes = [f"{taken} taken away", *([f"{there} still there"] if there else [])]
    yield "machines", f"{len(rows)}: {', '.join(notes)}; {format_seconds(ledger.seconds)} of all together"
    paid = format_dollars(ledger.dollars)
    if all(row.estimated for row in rows):
        paid += " (estimate from list prices)"
    elif estimated := ledger.estimated_dollars:
        paid += f", {format_dollars(estimated)} of it an estimate from list prices"
    yield "to be paid", paid
    if ledger.data:
        yield "  for data", f"{format_dollars(ledger.data)} of it"
    if ledger.refunded:
        expected = " (estimate)" if any(row.estimated and row.refunded for row in rows) else ""
        yield "refunded", f"{format_dollars(ledger.refunded)} for machines that were taken away{expected}"
    yield "on demand", _on_demand_line(ledger)
    yield "steps", _steps_line(ledger)
    yield "lost to revocations", _lost_line(ledger.revoked_dollars, ledger)
    if other := ledger.lost_dollars - ledger.revoked_dollars:
        yield "lost otherwise", _lost_line(other, ledger)
    yield from _energy(ledger)


def _energy(ledger: Ledger) -> Iterator[tuple[str, str]]:
    if ledger.joules:
        yield "energy", format_energy_total(ledger.joules, ledger.estimated_joules)


def _on_demand_line(ledger: Ledger) -> str:
    would, paid = ledger.on_demand_dollars, ledger.dollars
    line = f"{format_dollars(would)} for the same work (estimate)"
    if would > paid:
        line += f"; {(would - paid) / would:.0%} was saved"
    if unknown := sum(row.on_demand_per_hour is None for row in ledger.rows):
        which = "all machines" if unknown == len(ledger.rows) else plural(unknown, "machine")
        line += f"; for {which}, at the price that was paid"
    return line


def _steps_line(ledger: Ledger) -> str:
    lost = f", {_steps(ledger.steps_lost)} of them lost" if ledger.steps_lost else ", none lost"
    return f"{_steps(ledger.steps_done)} done{lost}"


def _lost_line(dollars: float, ledger: Ledger) -> str:
    if not dollars:
        return "nothing"
    share = dollars / ledger.dollars if ledger.dollars else 0.0
    return f"{format_dollars(dollars)}, {share:.1%} of all (estimate, by the steps that were lost)"


def _show_rows(console: Console, ledger: Ledger) -> None:
    rows, own = list(ledger.rows), ledger.is_own_machine
    began = rows[0].since
    unit, seconds = time_unit(max(row.end for row in rows) - began)
    shown, rest = rows, []
    if len(rows) > _SHOWN:
        rows.sort(key=lambda row: -row.dollars)
        shown, rest = rows[:_SHOWN], rows[_SHOWN:]
    digits = 2 if max(row.dollars for row in rows) >= 1.0 else 4
    cells = [
        (
            row.machine,
            row.offer,
            f"{(row.since - began) / seconds:.1f}",
            "-" if row.is_present else f"{(row.end - began) / seconds:.1f}",
            f"{'' if row.price_known else _NO_PRICE}{row.price_per_hour:.4g}",
            *_sums([row], digits),
            _ending(row),
        )
        for row in shown
    ]
    if rest:
        cells.append((f"{len(rest)} others", "", "", "", "", *_sums(rest, digits), ""))
    if len(rows) > 1:
        cells.append(("all", "", "", "", "", *_sums(rows, digits), ""))
    drives = "drives" if own else "machines"
    section(console, f"{drives}, the {_SHOWN} dearest of {len(rows)}" if rest else f"{drives}, by time")
    dollars = "if rented" if own else "dollars"
    table(
        console,
        ("machine", "offer", f"from, {unit}", "to", "price/h", "refunded", dollars, "steps", "lost", "then"),
        cells,
        left=2,
    )
    if any(row.estimated for row in rows) and not own:
        console.print(Text(f"{_ESTIMATE} an estimate from list prices, not the provider's bill", style="dim"))
    if not all(row.price_known for row in rows):
        console.print(Text(f"{_NO_PRICE} {SPOT_PRICE_UNKNOWN}", style="dim"))


def _sums(rows: Sequence[LedgerRow], digits: int) -> tuple[str, ...]:
    """Refunds, dollars, steps and steps lost of these together."""
    sums = Ledger(rows)
    mark = _ESTIMATE if any(row.estimated for row in rows) and not sums.is_own_machine else ""
    refunded = f"{sums.refunded:.{digits}f}" if sums.refunded else "-"
    return refunded, f"{mark}{sums.dollars:.{digits}f}", _steps(sums.steps_done), _steps(sums.steps_lost)


def _ending(row: LedgerRow) -> str:
    if row.is_present:
        return "still there"
    if row.machine == THIS_MACHINE:
        return "ended"
    return "taken away" if row.taken_away else "given back"


def _steps(steps: float) -> str:
    """Whole, unless a trial's workers were on several machines."""
    return f"{steps:.1f}".removesuffix(".0")
