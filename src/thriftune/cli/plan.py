"""`thriftune plan`: how many machines, of which kind, when; before any money is spent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from thriftune.cli.common import json_option, plot_option, print_json
from thriftune.errors import SettingError

if TYPE_CHECKING:
    from thriftune.planning import Plan

# What is heavy is imported when the command runs: `thriftune --help` needs none of it.

_PLANNERS = ("exact", "greedy", "static", "naive_elastic")
_FRONTIER_POINTS = 24


@click.command("plan")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--deadline", metavar="TIME", help="The cheapest plan that is done by then, such as 20m or 1h30m.")
@click.option("--budget", type=float, metavar="DOLLARS", help="The quickest plan that costs no more.")
@click.option("--planner", type=click.Choice(_PLANNERS), default="exact", show_default=True, help="Whose plan.")
@click.option("--profile", type=click.Path(path_type=Path), metavar="FILE", help="How long a step takes.")
@click.option("--machine", metavar="NAME", help="Only this kind, of FILE or else of the catalog.")
@click.option(
    "--probability", type=float, default=0.95, show_default=True, metavar="P", help="Of making the deadline."
)
@json_option
@plot_option
def plan_command(
    file: Path,
    deadline: str | None,
    budget: float | None,
    planner: str,
    profile: Path | None,
    machine: str | None,
    probability: float,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Plan the machines for the study that FILE describes.

    FILE says what can be rented ([cloud]) and how long a step takes (profile), which `thriftune profile FILE`
    measures. A --deadline or a --budget given here stands in place of both of FILE's. Nothing is rented.
    """
    from thriftune import planning
    from thriftune.cli import plan_tables as tables
    from thriftune.cli.screen import busy
    from thriftune.planning.plan_finder import plan
    from thriftune.settings.plan_file import read_plan_file

    if plot is not None:
        from thriftune.show.plot_style import check

        check(plot)
    given = {key: value for key, value in (("deadline", deadline), ("budget", budget)) if value is not None}
    with busy("planning"):
        asked = read_plan_file(file, given, profile=profile, machine=machine)
        limits: dict[str, Any] = {
            "deadline": asked.study.deadline_seconds,
            "budget": asked.study.budget_dollars,
        }
        limits = {key: value for key, value in limits.items() if key in given} or limits

        def planned(by: str, **limits: Any) -> Plan:
            what = asked.job, asked.profile, asked.clouds
            return plan(*what, planner=by, probability=probability, **limits)  # type: ignore[arg-type]

        found = planned(planner, **limits)
        others = _others(found, planned)
        curve = []
        if as_json or plot is not None:
            curve = planning.frontier(asked.job, asked.profile, asked.clouds, points=_FRONTIER_POINTS)
    for note in asked.notes:
        click.echo(note, err=True)
    if plot is not None:
        from thriftune.show.plan_plot import plot_plan

        plot_plan(asked.study.name, found, others, curve, plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        print_json(tables.plan_json(found, others, curve))
    else:
        tables.show_plan(asked, found, others)


def _others(found: Plan, planned: Callable[..., Plan]) -> dict[str, Plan | None]:
    """What the other planners make of it, for the same deadline or else budget; None: they cannot."""
    limit = {"budget": found.budget} if found.deadline is None else {"deadline": found.deadline}
    others: dict[str, Plan | None] = {}
    for name in _PLANNERS:
        if name == found.planner or (name == "greedy" and found.deadline is None):  # greedy is for deadlines only
            continue
        try:
            others[name] = planned(name, **limit)
        except SettingError:
            others[name] = None
    return others
