"""How is it told what policies over machines would have cost? As a table, as JSON, as a picture of the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from thriftune.cli.common import print_json
from thriftune.cli.screen import busy, facts_table, open_console, section, table
from thriftune.common.durations import seconds
from thriftune.common.formatting import format_dollars, format_seconds, plural
from thriftune.replay.simulation import simulate
from thriftune.replay.traces import Trace, read_trace
from thriftune.replay.what_if import PolicySummary


def show_policies(
    source: Any,
    cloud: Trace | Path,
    policies: Sequence[str],
    seeds: int,
    settings: Mapping[str, Any],
    plot: Path | None,
    *,
    as_json: bool,
) -> None:
    if plot is not None:
        from thriftune.show.plot_style import check

        check(plot)
    with busy("reading the cloud"):
        trace = read_trace(cloud) if isinstance(cloud, Path) else cloud
    others: Any = dict(settings)
    with busy("simulating"):
        found = simulate(source, cloud=trace, policies=policies, seeds=seeds, **others)
    for note in trace.notes:
        click.echo(note, err=True)
    if plot is not None:
        from thriftune.show.timeline_plot import plot_timeline

        first = found[0]
        plot_timeline(first.policy, first.outcomes[0].replayed.result.ledger, plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        print_json([each.to_json() for each in found])
    else:
        _show(found, trace, settings, seeds)


def _show(found: Sequence[PolicySummary], trace: Trace, settings: Mapping[str, Any], seeds: int) -> None:
    console = open_console()
    facts = facts_table()
    spot = sum(not kind.is_on_demand for kind in trace.kinds)
    facts.add_row("machines", f"{plural(len(trace.kinds), 'kind')}, {spot} of them may be taken away")
    deadline = seconds("deadline", settings.get("deadline"))
    if deadline is not None:
        facts.add_row("deadline", format_seconds(deadline))
    facts.add_row("simulated", f"{plural(seeds, 'time')} each, at other starts and with other lives")
    console.print(facts)
    section(console, "what each policy would have paid")
    columns = ["policy", "cost", "+-", "time", "steps lost"]
    columns += ["in time"] if deadline is not None else []
    unfinished = any(each.finished < 1.0 for each in found)
    columns += ["finished"] if unfinished else []
    columns += ["over the least"]
    rows = [_row(each, deadline, unfinished) for each in found]
    table(console, columns, rows, left=1)
    text = "over the least: times a lower bound of what one would have paid who knew every price and loss before, "
    text += "and was as late; -: that would have been nothing"
    console.print(Text(text, style="dim"))
    if unfinished:
        text = "finished: before the record of the cloud ended, or twenty times its work or deadline had passed; "
        text += "what was not costs less than it would have"
        console.print(Text(text, style="dim"))


def _row(each: PolicySummary, deadline: float | None, unfinished: bool) -> tuple[str, ...]:
    cost, spread = format_dollars(each.cost), format_dollars(each.cost_spread)
    told = [each.policy, cost, spread, format_seconds(each.duration), f"{each.steps_lost:.1f}"]
    told += [f"{each.deadline_met:.0%}"] if deadline is not None else []
    told += [f"{each.finished:.0%}"] if unfinished else []
    told.append("-" if each.oracle_ratio is None else f"{each.oracle_ratio:.2f}")
    return tuple(told)
