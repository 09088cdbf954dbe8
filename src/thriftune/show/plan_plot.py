"""Draw a plan: its cost and duration beside those of other plans, and its machines over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from thriftune.common.formatting import format_dollars, format_seconds, time_unit
from thriftune.planning import Plan
from thriftune.results.curves import wants_log
from thriftune.show.plot_style import ACCENT, INK, MUTED, SERIES, dollar_axis, legend, picture

_MARKERS = {
    "exact": ("D", SERIES[1]),
    "greedy": ("s", SERIES[2]),
    "static": ("^", SERIES[3]),
    "naive_elastic": ("v", SERIES[4]),
}
_TIMES = "\u00d7"
_THIS = "this plan"
_AXIS_LIMIT = 2.0
"""The axes end at this multiple of the longest and of the most expensive marked plan, or of the limit."""

_CHARACTER_WIDTH = 0.017
"""Width of a character, as a share of the plan's duration. A text that is wider than its stage is not drawn."""


def plot_plan(name: str, plan: Plan, others: Mapping[str, Plan | None], curve: Sequence[Plan], path: Path) -> None:
    """Draw the frontier of time and cost, and the plan's machines over time.

    The frontier shows this plan and the others. `others` are plans by planner name; None stands for a
    planner without a plan. `curve` has optimal plans, from the shortest to the cheapest.
    """
    title = f"{name}: {format_dollars(plan.cost)} in {format_seconds(plan.duration)}"
    with picture(path, title, 2) as (left, right):
        _draw_frontier(left, plan, others, curve)
        _draw_machines(right, plan)


def _draw_frontier(axes: Any, plan: Plan, others: Mapping[str, Plan | None], curve: Sequence[Plan]) -> None:
    marked = {**{name: one for name, one in others.items() if one is not None}, _THIS: plan}
    # The curve has plans for a few deadlines only, so every other optimal plan adds a point to it.
    optimal = [*curve, *(one for one in marked.values() if one.planner == "exact" and not one.gap)]
    optimal.sort(key=lambda one: one.duration)
    longest = _AXIS_LIMIT * max(plan.deadline or 0.0, *(one.duration for one in marked.values()))
    highest = _AXIS_LIMIT * max(plan.budget or 0.0, *(one.cost for one in marked.values()))
    shown = [one for one in optimal if one.duration <= longest]
    unit, seconds = time_unit(max(one.duration for one in (*shown, *marked.values())))
    times, costs = [one.duration / seconds for one in shown], [one.cost for one in shown]
    axes.plot(times, costs, ".-", color=MUTED, linewidth=1.5, markersize=5, label="optimal, for some deadlines")
    for name, one in marked.items():
        marker, color, size = ("o", ACCENT, 9) if name == _THIS else (*_MARKERS[name], 7)
        label = name.replace("_", " ")
        axes.plot(one.duration / seconds, one.cost, marker, color=color, markersize=size, label=label, zorder=3)
    limit: Any = {"color": INK, "linestyle": "--", "linewidth": 1.2}
    if plan.deadline is not None:
        axes.axvline(plan.deadline / seconds, label="deadline", **limit)
    if plan.budget is not None:
        axes.axhline(plan.budget, label="budget", **limit)
    axes.set(xlabel=f"time, {unit}", ylabel="expected cost", title="Cost")
    log = wants_log([one.cost for one in marked.values()])
    dollar_axis(axes, log=log)
    # The shortest plans may cost so much that all others would be drawn on the axis.
    axes.set_ylim(None if log else 0.0, min(highest, 1.08 * max(axes.dataLim.y1, plan.budget or 0.0)))
    legend(axes, columns=4)


def _draw_machines(axes: Any, plan: Plan) -> None:
    unit, seconds = time_unit(plan.duration)
    kinds: list[str] = []
    for kind, group in groupby(plan.stages, key=lambda stage: stage.offer):
        label = None if kind in kinds else kind  # each kind has one entry in the legend
        kinds += [kind] if label else []
        stages = list(group)
        edges = [stage.starts / seconds for stage in stages]
        edges.append((stages[-1].starts + stages[-1].seconds) / seconds)
        machines = [stage.machines for stage in stages]
        color = SERIES[kinds.index(kind) % len(SERIES)]
        axes.stairs(machines, edges, fill=True, color=color, alpha=0.18)
        axes.stairs(machines, edges, color=color, linewidth=2, label=label)
        axes.vlines(edges[1:-1], 0, [min(pair) for pair in pairwise(machines)], color=color, linewidth=0.8)
    most = max(stage.machines for stage in plan.stages)
    for number, stage in enumerate(plan.stages, 1):
        shape = f"{stage.trials}{_TIMES}{stage.workers}"
        lines = [
            text for text in (str(number), shape) if len(text) * _CHARACTER_WIDTH * plan.duration <= stage.seconds
        ]
        position = ((stage.starts + stage.seconds / 2) / seconds, stage.machines)
        style: Any = {"ha": "center", "va": "bottom", "color": INK, "fontsize": 8, "linespacing": 1.1}
        axes.annotate("\n".join(lines), position, (0, 3), textcoords="offset points", **style)
    axes.set(ylabel="machines rented", ylim=(0, 1.2 * most), title="Machines")
    axes.set_xlabel(f"time, {unit} (on top: the stage, its trials{_TIMES}workers)")
    axes.yaxis.get_major_locator().set_params(integer=True)
    legend(axes)
