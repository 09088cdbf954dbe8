"""Print a plan as tables and sentences, or as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from thriftune.cli.screen import facts_table, listed, open_console, section, table
from thriftune.common.formatting import format_dollars, format_seconds, plural, time_unit
from thriftune.planning import CloudProfile, Plan
from thriftune.planning.plan import PlannedStage
from thriftune.settings.plan_file import PlanFile

_NO_GAP = 1e-9
"""A plan whose relative gap to the lower bound is at most this is optimal; the rest is rounding."""

_SAME = 0.005
"""Plans whose costs (or times) differ by less than this share are shown as equal."""

_RATIO_FROM = 1.5
"""From this ratio on, a difference is shown as "1.5 times the cost" instead of "50% more expensive"."""

_BEGIN_BY, _TOO_LATE = "begin by", "too late"


def plan_json(plan: Plan, others: Mapping[str, Plan | None], curve: Sequence[Plan]) -> dict[str, Any]:
    """Return a plan as JSON fields.

    These include the plans of other planners and the frontier of time and cost.
    """
    return {
        **plan.to_json(),
        "comparison": {
            name: None if other is None else {**_totals(other), "machines": _most_machines(other)}
            for name, other in others.items()
        },
        "frontier": [_totals(point) for point in curve],
    }


def _totals(plan: Plan) -> dict[str, float]:
    return {"duration": plan.duration, "cost": plan.cost}


def show_plan(plan_file: PlanFile, plan: Plan, others: Mapping[str, Plan | None]) -> None:
    """Print a plan: its totals, its stages and the plans of other planners.

    Also print when to continue on on-demand machines, if the plan uses spot machines.
    """
    console = open_console()
    facts = facts_table()
    study, job = plan_file.study, plan_file.job
    work = f"{plural(len(job.stages), 'stage')}, {plural(job.total_steps, 'step')} in total"
    facts.add_row("study", Text(f"{study.name}: {work}", style="bold"))
    for i, cloud in enumerate(plan_file.clouds):
        facts.add_row("machines" if i == 0 else "", Text(_cloud_line(cloud)))
    if plan.deadline is not None:
        facts.add_row("deadline", f"{format_seconds(plan.deadline)}, met {_probability(plan.on_time)}")
    if plan.budget is not None:
        facts.add_row("budget", format_dollars(plan.budget))
    facts.add_row("time", f"{format_seconds(plan.duration)} expected")
    facts.add_row("cost", f"{format_dollars(plan.cost)} expected")
    if plan.lower_bound is not None:
        facts.add_row("lower bound", _bound_line(plan))
    console.print(facts)
    section(console, f"the plan, by {plan.planner}")
    _show_stages(console, plan, show_kinds=len(plan_file.clouds) > 1)
    section(console, "by other planners")
    rows = [_comparison_cells(name, plan, others[name]) for name in others]
    table(console, ("planner", "machines", "time", "cost", ""), rows)
    if sentences := fallback_sentences(plan, plan_file.clouds):
        section(console, "fallback")
        listed(console, sentences, len(sentences))


def _cloud_line(cloud: CloudProfile) -> str:
    billing = "" if cloud.billing == "per_instance" else ", billed while trials train"
    limit = "" if cloud.max_machines is None else f", at most {cloud.max_machines}"
    spot = "" if cloud.survival is None else ", may be preempted"
    price = f"{format_dollars(cloud.price_per_hour)}/h"
    return f"{cloud.name}: {plural(cloud.slots, 'worker')}, {price}{billing}{limit}{spot}"


def _probability(on_time: float | None) -> str:
    assert on_time is not None, "a plan with a deadline has a probability"
    return f"with a probability of {'100%' if on_time == 1.0 else f'{on_time:.1%}'}"


def _bound_line(plan: Plan) -> str:
    """Return the lower bound, and how far the plan may be from the optimum."""
    assert plan.lower_bound is not None
    assert plan.gap is not None
    is_time = plan.deadline is None
    bound = format_seconds(plan.lower_bound) if is_time else format_dollars(plan.lower_bound)
    if plan.gap <= _NO_GAP:
        return f"{bound}: optimal, proven"
    line = f"{bound}: at most {plan.gap:.1%} {'longer' if is_time else 'more expensive'} than the optimum"
    is_random = plan.on_time is not None and plan.on_time < 1.0
    return f"{line}, including the cost of this probability" if is_random else line


def _show_stages(console: Any, plan: Plan, show_kinds: bool) -> None:
    unit, seconds = time_unit(plan.duration)
    digits = 2 if plan.cost >= 1.0 else 4
    has_fallback = any(latest is not None for latest in plan.fall_back_at or ())
    rows = []
    for number, stage in enumerate(plan.stages, 1):
        shape = (_steps(stage), *map(str, (stage.trials, stage.workers, stage.at_a_time, stage.machines)))
        kind = (stage.offer,) if show_kinds else ()
        expected = (f"{stage.seconds / seconds:.1f}", f"{stage.dollars:.{digits}f}")
        latest_start = (_latest_start(plan, number - 1),) if has_fallback else ()
        rows.append((str(number), *shape, *kind, *expected, *latest_start))
    columns = ["stage", "steps", "trials", "workers a trial", "at a time", "machines"]
    columns += ["kind"] if show_kinds else []
    columns += [unit, "dollars"]
    columns += [_BEGIN_BY] if has_fallback else []
    table(console, columns, rows)


def _steps(stage: PlannedStage) -> str:
    return f"{stage.begins}-{stage.begins + stage.steps}"


def _comparison_cells(name: str, plan: Plan, other: Plan | None) -> tuple[str, ...]:
    if other is None:
        return (name, "-", "-", "-", f"no plan within the {'deadline' if plan.deadline is not None else 'budget'}")
    sizes = {stage.machines for stage in other.stages}
    machines = f"{min(sizes)} to {max(sizes)}" if len(sizes) > 1 else str(*sizes)
    return (name, machines, format_seconds(other.duration), format_dollars(other.cost), compare_plans(plan, other))


def compare_plans(plan: Plan, other: Plan) -> str:
    """Return how much more the other plan costs.

    Without a deadline, return how much longer it takes.
    """
    is_time = plan.deadline is None
    own, others = (plan.duration, other.duration) if is_time else (plan.cost, other.cost)
    ratio = others / own if own else 1.0
    if abs(ratio - 1.0) < _SAME:
        return "same time" if is_time else "same cost"
    if ratio >= _RATIO_FROM:
        return f"{ratio:.1f} times {'as long' if is_time else 'the cost'}"
    more, less = ("longer", "shorter") if is_time else ("more expensive", "cheaper")
    return f"{abs(ratio - 1.0):.0%} {more if ratio > 1.0 else less}"


def _latest_start(plan: Plan, index: int) -> str:
    """Return the latest start of a stage, in the unit of the plan's duration.

    If the stage starts later, on-demand machines cannot finish the rest in time.
    """
    latest = None if plan.fall_back_at is None else plan.fall_back_at[index]
    if latest is None:
        return "-"
    return f"{latest / time_unit(plan.duration)[1]:.1f}" if latest >= plan.stages[index].starts else _TOO_LATE


def fallback_sentences(plan: Plan, clouds: Sequence[CloudProfile]) -> list[str]:
    """Return sentences that say when to continue on on-demand machines.

    The list is empty for a plan without spot machines.
    """
    if plan.fall_back_at is None:
        return []
    on_demand = " or ".join(cloud.name for cloud in clouds if cloud.survival is None)
    if not on_demand:
        return ["none: add a [[cloud]] of machines that are not preempted"]
    unit = time_unit(plan.duration)[0].removesuffix("s")
    starts = [_latest_start(plan, index) for index in range(len(plan.stages))]
    sentences = []
    if set(starts) - {"-", _TOO_LATE}:
        sentences.append(
            f"if a stage has not begun by its {unit} in the column {_BEGIN_BY!r}, continue on {on_demand}, which "
            "is not preempted"
        )
    if _TOO_LATE in starts:
        sentences.append(
            f"{_TOO_LATE}: even if such a stage begins as planned, {on_demand} cannot finish the rest in time"
        )
    return sentences


def _most_machines(plan: Plan) -> int:
    return max(stage.machines for stage in plan.stages)
