"""How is a plan told? As tables and sentences for people, as JSON for programs."""

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
_ALIKE = 0.005  # nobody cares for a difference of half a percent
_TIMES_FROM = 1.5  # from here on "1.5 times as dear" reads better than "50% dearer"
_BEGIN_BY, _TOO_LATE = "begin by", "too late"


def plan_json(found: Plan, others: Mapping[str, Plan | None], curve: Sequence[Plan]) -> dict[str, Any]:
    return {
        **found.to_json(),
        "comparison": {
            name: None if one is None else {**_totals(one), "machines": _most_machines(one)}
            for name, one in others.items()
        },
        "frontier": [_totals(one) for one in curve],
    }


def _totals(one: Plan) -> dict[str, float]:
    return {"duration": one.duration, "cost": one.cost}


def show_plan(asked: PlanFile, found: Plan, others: Mapping[str, Plan | None]) -> None:
    console = open_console()
    facts = facts_table()
    study, job = asked.study, asked.job
    trained = f"{plural(job.total_steps, 'step')} of all trials together"
    facts.add_row("study", Text(f"{study.name}: {plural(len(job.stages), 'stage')}, {trained}", style="bold"))
    for i, cloud in enumerate(asked.clouds):
        facts.add_row("machines" if i == 0 else "", Text(_kind(cloud)))
    if found.deadline is not None:
        facts.add_row("deadline", f"{format_seconds(found.deadline)}, made {_surely(found.on_time)}")
    if found.budget is not None:
        facts.add_row("budget", format_dollars(found.budget))
    facts.add_row("time", f"{format_seconds(found.duration)} expected")
    facts.add_row("cost", f"{format_dollars(found.cost)} expected")
    if found.lower_bound is not None:
        facts.add_row("lower bound", _bound(found))
    console.print(facts)
    section(console, f"the plan, by {found.planner}")
    _show_stages(console, found, kinds=len(asked.clouds) > 1)
    section(console, "by other planners")
    table(
        console, ("planner", "machines", "time", "cost", ""), [_row(name, found, others[name]) for name in others]
    )
    if sentences := fall_back(found, asked.clouds):
        section(console, "to fall back on")
        listed(console, sentences, len(sentences))


def _kind(cloud: CloudProfile) -> str:
    by = "" if cloud.billing == "per_instance" else ", billed while trials train"
    most = "" if cloud.max_machines is None else f", {cloud.max_machines} at most"
    taken = "" if cloud.survival is None else ", may be taken away"
    price = f"{format_dollars(cloud.price_per_hour)}/h"
    return f"{cloud.name}: {plural(cloud.slots, 'worker')}, {price}{by}{most}{taken}"


def _surely(on_time: float | None) -> str:
    assert on_time is not None, "there is a deadline"
    return f"with a probability of {'100%' if on_time == 1.0 else f'{on_time:.1%}'}"


def _bound(found: Plan) -> str:
    assert found.lower_bound is not None
    assert found.gap is not None
    of_time = found.deadline is None
    least = format_seconds(found.lower_bound) if of_time else format_dollars(found.lower_bound)
    if found.gap <= _NO_GAP:
        return f"{least}: optimal, proven"
    more = f"{least}: at most {found.gap:.1%} {'longer' if of_time else 'dearer'} than the optimum"
    unsure = found.on_time is not None and found.on_time < 1.0
    return f"{more}, with what it takes to be this sure" if unsure else more


def _show_stages(console: Any, found: Plan, kinds: bool) -> None:
    unit, seconds = time_unit(found.duration)
    digits = 2 if found.cost >= 1.0 else 4
    falls_back = any(at is not None for at in found.fall_back_at or ())
    rows = []
    for number, stage in enumerate(found.stages, 1):
        shape = (_steps(stage), *map(str, (stage.trials, stage.workers, stage.at_a_time, stage.machines)))
        kind = (stage.offer,) if kinds else ()
        expected = (f"{stage.seconds / seconds:.1f}", f"{stage.dollars:.{digits}f}")
        latest = (_begin_by(found, number - 1),) if falls_back else ()
        rows.append((str(number), *shape, *kind, *expected, *latest))
    columns = ["stage", "steps", "trials", "workers a trial", "at a time", "machines"]
    columns += ["kind"] if kinds else []
    columns += [unit, "dollars"]
    columns += [_BEGIN_BY] if falls_back else []
    table(console, columns, rows)


def _steps(stage: PlannedStage) -> str:
    return f"{stage.begins}-{stage.begins + stage.steps}"


def _row(name: str, found: Plan, other: Plan | None) -> tuple[str, ...]:
    if other is None:
        return (name, "-", "-", "-", "cannot make it" if found.deadline is not None else "cannot keep to it")
    sizes = {stage.machines for stage in other.stages}
    machines = f"{min(sizes)} to {max(sizes)}" if len(sizes) > 1 else str(*sizes)
    return (name, machines, format_seconds(other.duration), format_dollars(other.cost), compared(found, other))


def compared(found: Plan, other: Plan) -> str:
    """By what the plan was to have least of."""
    of_time = found.deadline is None
    mine, its = (found.duration, other.duration) if of_time else (found.cost, other.cost)
    ratio = its / mine if mine else 1.0
    if abs(ratio - 1.0) < _ALIKE:
        return "as long" if of_time else "as dear"
    if ratio >= _TIMES_FROM:
        return f"{ratio:.1f} times as {'long' if of_time else 'dear'}"
    more, less = ("longer", "shorter") if of_time else ("dearer", "cheaper")
    return f"{abs(ratio - 1.0):.0%} {more if ratio > 1.0 else less}"


def _begin_by(found: Plan, number: int) -> str:
    """When a stage must have begun, at the latest, for the rest to be done in time on machines that stay."""
    at = None if found.fall_back_at is None else found.fall_back_at[number]
    if at is None:
        return "-"
    return f"{at / time_unit(found.duration)[1]:.1f}" if at >= found.stages[number].starts else _TOO_LATE


def fall_back(found: Plan, clouds: Sequence[CloudProfile]) -> list[str]:
    """What to do when machines are lost, in sentences."""
    if found.fall_back_at is None:
        return []
    stay = " or ".join(cloud.name for cloud in clouds if cloud.survival is None)
    if not stay:
        return ["on nothing: add a [[cloud]] of machines that are not taken away"]
    unit = time_unit(found.duration)[0].removesuffix("s")
    told = [_begin_by(found, number) for number in range(len(found.stages))]
    sentences = []
    if set(told) - {"-", _TOO_LATE}:
        sentences.append(
            f"if a stage has not begun by its {unit} in the column {_BEGIN_BY!r}, go on on {stay}, which stays"
        )
    if _TOO_LATE in told:
        sentences.append(
            f"{_TOO_LATE}: when such a stage begins as planned, {stay} cannot be done in time any more"
        )
    return sentences


def _most_machines(one: Plan) -> int:
    return max(stage.machines for stage in one.stages)
