"""How is it told what policies over machines would have cost? As a table, as JSON, as a picture of the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from thriftune.cli.common import print_json
from thriftune.cli.screen import busy, facts_table, open_console, section, table
from thriftune.clouds.fates import Drawn
from thriftune.clouds.traces import Trace, read_trace
from thriftune.engines.simulated import Curve
from thriftune.errors import SettingError
from thriftune.events import Config
from thriftune.plan_file import read_plan_file
from thriftune.planning.kinds import Kind
from thriftune.result import format_dollars, format_seconds
from thriftune.simulation import simulate
from thriftune.spec import seconds
from thriftune.stopping import STOPPERS
from thriftune.what_if import Compared


def of_file(file: Path) -> tuple[Any, Trace, dict[str, Any]]:
    """A study that was not run: curves that are made up, in its profile's seconds; its machines; its settings."""
    asked = read_plan_file(file)
    study, per_step = asked.study, asked.profile.seconds(1)
    if study.max_steps is None or study.trials is None:
        raise SettingError(f"{file}: max_steps and trials: both must be there, to know how much there is to do")
    steps, metric = study.max_steps, study.metric

    def curve(config: Config) -> Curve:
        """Which trials are good is made up: only who is given up on goes by it."""
        level = float(sum(study.space.encode(config))) / max(1, len(study.space.names))
        told = [{metric: level + 1.0 / step} for step in range(1, steps + 1)]
        return Curve(range(1, steps + 1), told, [per_step] * steps)

    kinds = [Kind.of(cloud) for cloud in asked.clouds]
    lives = {kind.name: kind.survival for kind in kinds if kind.survival is not None}

    def fates(seed: int) -> dict[str, Drawn]:
        return {name: Drawn(each, 1000 * seed + number) for number, (name, each) in enumerate(lives.items())}

    note = f"{file.name}: what trials report is made up; steps take {per_step:g} s, as its profile says"
    trace = Trace(kinds, fates, 0.0, float("inf"), [note])
    goal = "maximize" if study.maximize else "minimize"
    settings = {
        "space": study.space,
        goal: metric,
        "trials": study.trials,
        "max_steps": steps,
        "deadline": study.deadline_seconds,
        "workers": study.workers,
        "stopping": STOPPERS.make(study.stopping, study.stopping_options),
    }
    return curve, trace, settings


def show_policies(
    source: Any,
    cloud: Trace | Path,
    policies: Sequence[str],
    seeds: int,
    settings: Mapping[str, Any],
    restart: str,
    save: str,
    plot: Path | None,
    *,
    as_json: bool,
) -> None:
    if plot is not None:
        from thriftune.pictures import check

        check(plot)
    with busy("reading the cloud"):
        trace = read_trace(cloud) if isinstance(cloud, Path) else cloud
    overheads: Any = {"restart_seconds": seconds("restart", restart), "save_seconds": seconds("save", save)}
    others: Any = dict(settings)
    with busy("simulating"):
        found = simulate(source, cloud=trace, policies=policies, seeds=seeds, **overheads, **others)
    for note in trace.notes:
        click.echo(note, err=True)
    if plot is not None:
        from thriftune.timeline_plot import plot_timeline

        first = found[0]
        plot_timeline(first.policy, first.outcomes[0].replayed.result.ledger, plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        print_json([each.to_json() for each in found])
    else:
        _show(found, trace, settings, seeds)


def _show(found: Sequence[Compared], trace: Trace, settings: Mapping[str, Any], seeds: int) -> None:
    console = open_console()
    facts = facts_table()
    spot = sum(not kind.lasts for kind in trace.kinds)
    facts.add_row("machines", f"{len(trace.kinds)} kinds, {spot} of them may be taken away")
    deadline = seconds("deadline", settings.get("deadline"))
    if deadline is not None:
        facts.add_row("deadline", format_seconds(deadline))
    facts.add_row("simulated", f"{seeds} times each, at other starts and with other lives")
    console.print(facts)
    section(console, "what each policy would have paid")
    columns = ["policy", "cost", "+-", "time", "steps lost"]
    columns += ["in time"] if deadline is not None else []
    columns += ["over the least"]
    rows = [_row(each, deadline) for each in found]
    table(console, columns, rows, left=1)
    text = "over the least: times what one would have paid who knew every price and loss before"
    console.print(Text(text, style="dim"))


def _row(each: Compared, deadline: float | None) -> tuple[str, ...]:
    cost, spread = format_dollars(each.cost), format_dollars(each.cost_spread)
    told = [each.policy, cost, spread, format_seconds(each.duration), f"{each.steps_lost:.1f}"]
    told += [f"{each.deadline_met:.0%}"] if deadline is not None else []
    told.append("-" if each.oracle_ratio is None else f"{each.oracle_ratio:.2f}")
    return tuple(told)
