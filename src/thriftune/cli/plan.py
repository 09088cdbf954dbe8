"""`thriftune plan`: how many machines of which kind to rent when, before any money is spent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from thriftune.cli.common import json_option, plot_option, print_json
from thriftune.errors import SettingError
from thriftune.show.plot_style import check_plot_path

if TYPE_CHECKING:
    from thriftune.planning import Plan

# Slow imports are inside the command, so that `thriftune plan --help` starts fast.

_PLANNERS = ("exact", "greedy", "static", "naive_elastic")
_FRONTIER_POINTS = 24


@click.command("plan")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--deadline", metavar="TIME", help="Find the cheapest plan that meets this deadline, such as 20m or 1h30m."
)
@click.option("--budget", type=float, metavar="DOLLARS", help="Find the fastest plan that costs no more.")
@click.option(
    "--planner",
    type=click.Choice(_PLANNERS),
    default="exact",
    show_default=True,
    help="The algorithm that makes the plan.",
)
@click.option(
    "--profile", type=click.Path(path_type=Path), metavar="FILE", help="A profile with the time of a step."
)
@click.option("--machine", metavar="NAME", help="Use only this kind of machine, from FILE or the catalog.")
@click.option(
    "--probability",
    type=float,
    default=0.95,
    show_default=True,
    metavar="P",
    help="The probability of meeting the deadline.",
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

    FILE says which machines can be rented ([cloud]) and how long a step takes (profile). `thriftune profile FILE`
    measures a profile. --deadline or --budget replaces both limits of FILE. This command rents nothing.
    """
    from thriftune import planning
    from thriftune.cli import plan_tables as tables
    from thriftune.cli.screen import busy
    from thriftune.planning.plan_finder import plan
    from thriftune.settings.plan_file import read_plan_file

    if plot is not None:
        check_plot_path(plot)
    own_limits = {key: value for key, value in (("deadline", deadline), ("budget", budget)) if value is not None}
    with busy("planning"):
        plan_file = read_plan_file(file, own_limits, profile=profile, machine=machine)
        limits: dict[str, Any] = {
            "deadline": plan_file.study.deadline_seconds,
            "budget": plan_file.study.budget_dollars,
        }
        limits = {key: value for key, value in limits.items() if key in own_limits} or limits

        def make_plan(by: str, **limits: Any) -> Plan:
            problem = plan_file.job, plan_file.profile, plan_file.clouds
            return plan(*problem, planner=by, probability=probability, **limits)  # type: ignore[arg-type]

        chosen = make_plan(planner, **limits)
        others = _plans_of_others(chosen, make_plan)
        curve = []
        if as_json or plot is not None:
            curve = planning.frontier(plan_file.job, plan_file.profile, plan_file.clouds, points=_FRONTIER_POINTS)
    for note in plan_file.notes:
        click.echo(note, err=True)
    if plot is not None:
        from thriftune.show.plan_plot import plot_plan

        plot_plan(plan_file.study.name, chosen, others, curve, plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        print_json(tables.plan_json(chosen, others, curve))
    else:
        tables.show_plan(plan_file, chosen, others)


def _plans_of_others(chosen: Plan, make_plan: Callable[..., Plan]) -> dict[str, Plan | None]:
    """Return the other planners' plans for the same limit, by planner.

    None stands for a planner that finds no plan.
    """
    limit = {"budget": chosen.budget} if chosen.deadline is None else {"deadline": chosen.deadline}
    others: dict[str, Plan | None] = {}
    for name in _PLANNERS:
        if name == chosen.planner or (name == "greedy" and chosen.deadline is None):  # greedy needs a deadline
            continue
        try:
            others[name] = make_plan(name, **limit)
        except SettingError:
            others[name] = None
    return others
