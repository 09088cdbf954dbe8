"""Simulate policies on rented machines for `thriftune simulate`, and print how they compare."""

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
from thriftune.show.plot_style import check_plot_path


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
    """Simulate each policy on a cloud, and print a table or JSON.

    Write a picture of the first policy's first run to `plot`, if given.
    """
    if plot is not None:
        check_plot_path(plot)
    with busy("reading the cloud"):
        trace = read_trace(cloud) if isinstance(cloud, Path) else cloud
    with busy("simulating"):
        compared = simulate(source, cloud=trace, policies=policies, seeds=seeds, **settings)
    for note in trace.notes:
        click.echo(note, err=True)
    if plot is not None:
        from thriftune.show.timeline_plot import plot_timeline

        first = compared[0]
        plot_timeline(first.policy, first.outcomes[0].replayed.result.ledger, plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        print_json([each.to_json() for each in compared])
    else:
        _show(compared, trace, settings, seeds)


def _show(compared: Sequence[PolicySummary], trace: Trace, settings: Mapping[str, Any], seeds: int) -> None:
    console = open_console()
    facts = facts_table()
    spot = sum(not kind.is_on_demand for kind in trace.kinds)
    facts.add_row("machines", f"{plural(len(trace.kinds), 'kind')}, {spot} of them may be preempted")
    deadline = seconds("deadline", settings.get("deadline"))
    if deadline is not None:
        facts.add_row("deadline", format_seconds(deadline))
    facts.add_row("simulated", f"{plural(seeds, 'time')} each, with different start times and machine lifetimes")
    console.print(facts)
    section(console, "cost of each policy")
    columns = ["policy", "cost", "+-", "time", "steps lost"]
    columns += ["in time"] if deadline is not None else []
    any_unfinished = any(each.finished < 1.0 for each in compared)
    columns += ["finished"] if any_unfinished else []
    columns += ["over the bound"]
    rows = [_row(each, deadline, any_unfinished) for each in compared]
    table(console, columns, rows, left=1)
    note = (
        "over the bound: the cost divided by a lower bound, which is the cost with all prices and losses known in "
        "advance and the same finishing time; -: the bound is zero"
    )
    console.print(Text(note, style="dim"))
    if any_unfinished:
        note = (
            "finished: the share of runs that ended before the record of the cloud did, and within twenty times "
            "their work or deadline; the cost of the others is too low"
        )
        console.print(Text(note, style="dim"))


def _row(policy: PolicySummary, deadline: float | None, any_unfinished: bool) -> tuple[str, ...]:
    cost, spread = format_dollars(policy.cost), format_dollars(policy.cost_spread)
    cells = [policy.policy, cost, spread, format_seconds(policy.duration), f"{policy.steps_lost:.1f}"]
    cells += [f"{policy.deadline_met:.0%}"] if deadline is not None else []
    cells += [f"{policy.finished:.0%}"] if any_unfinished else []
    cells.append("-" if policy.oracle_ratio is None else f"{policy.oracle_ratio:.2f}")
    return tuple(cells)
