"""What does a study look like? Its best-so-far curve or its front, and its learning curves, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from thriftune.common import formatting
from thriftune.errors import ThriftuneError
from thriftune.results.curves import BestSoFar, best_so_far, learning_curve, wants_log
from thriftune.show import describe as words
from thriftune.show.plot_style import ACCENT, MUTED, WARNING, drawing, legend
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.trial_record import State, TrialRecord

_MISSES = "misses a constraint"
_CUT = "fewer steps than these"
_MOST_CURVES = 500
"""More lines than this are a grey surface and a huge file; of longer studies, evenly chosen ones are drawn."""


def draw_history(spec: Spec, history: History) -> Any:
    """Return the figure; raise ThriftuneError if there is nothing to draw yet."""
    best = best_so_far(history)
    curves = _learning_curves(spec, history)
    if not best and not curves:
        why = history.why_infeasible() or f"no trial of {spec.name!r} has a value yet"
        raise ThriftuneError(f"there is nothing to plot: {why}")
    panels = bool(best) + bool(curves)
    with drawing(_title(spec, history), 6.2 * panels, 4.2) as figure:
        axes = iter(figure.subplots(1, panels, squeeze=False)[0])
        if best:
            if len(spec.objectives) > 1:
                _draw_front(next(axes), history)
            else:
                _draw_best(next(axes), spec, history, best)
        if curves:
            _draw_curves(next(axes), spec, history, curves)
    return figure


def _title(spec: Spec, history: History) -> str:
    found = words.found(history)
    if found.name == "front":
        note = words.unfinished(history.front[0], history)
        front = f"front of {formatting.plural(len(history.front), 'trial')}"
        return f"{spec.name}: {front}" + (f" ({note})" if note else "")
    if found.name == "best":
        return f"{spec.name}: best {found.text}"
    return f"{spec.name}: no trial meets the constraints" if found.text else spec.name


def _learning_curves(spec: Spec, history: History) -> dict[int, list[tuple[float, float]]]:
    """By trial; none where no trial has more than one step."""
    metric = spec.metric
    curves = {trial.id: learning_curve(trial, metric) for trial in history.trials}
    curves = {number: curve for number, curve in curves.items() if curve}
    return curves if any(len(curve) > 1 for curve in curves.values()) else {}


def _draw_best(axes: Any, spec: Spec, history: History, best: list[BestSoFar]) -> None:
    ended = sorted(
        (trial for trial in history.trials if trial.ended_at is not None),
        key=lambda trial: (trial.ended_at or 0.0, trial.id),
    )
    numbered = [(number, trial) for number, trial in enumerate(ended, 1) if words.finite(trial.value)]
    eligible = [(number, trial) for number, trial in numbered if history.eligible(trial)]
    each = [(number, trial.value or 0.0) for number, trial in eligible if history.may_lead(trial)]
    cut = [(number, trial.value or 0.0) for number, trial in eligible if not history.may_lead(trial)]
    _scatter(axes, each, color=MUTED, alpha=0.7, linewidths=0, label="each trial")
    _scatter(axes, cut, color=MUTED, alpha=0.7, marker="|", label=_CUT)
    others = [(number, trial.value or 0.0) for number, trial in numbered if _misses(trial, history)]
    _scatter(axes, others, facecolors="none", edgecolors=MUTED, label=_MISSES)
    failed = [number for number, trial in enumerate(ended, 1) if trial.state is State.FAILED]
    if failed:
        # On the axis itself: a failed trial has no value to stand at.
        across = axes.get_xaxis_transform()
        axes.plot(failed, [0.0] * len(failed), "x", color=WARNING, transform=across, clip_on=False, label="failed")
    numbers, values = [point.trials for point in best], [point.value for point in best]
    axes.step(numbers, values, where="post", color=ACCENT, linewidth=2, label="best so far")
    first = next(point for point in best if point.trial == best[-1].trial)
    axes.plot(first.trials, first.value, "o", color=ACCENT, markersize=7)
    _scale(axes, [value for _, value in each + cut + others])
    axes.set(xlabel="trials ended", ylabel=spec.metric, title="Best so far")
    axes.xaxis.get_major_locator().set_params(integer=True)
    legend(axes)


def _draw_front(axes: Any, history: History) -> None:
    """By the first two objectives; with more than two, the front is no line there."""
    front = tuple(history.front)
    leading = {trial.id for trial in front}
    eligible = [trial for trial in history.trials if history.eligible(trial)]
    others = [_at(trial) for trial in eligible if trial.id not in leading and history.may_lead(trial)]
    cut = [_at(trial) for trial in eligible if not history.may_lead(trial)]
    told = [trial for trial in history.trials if trial.values is not None and all(map(isfinite, trial.values))]
    missing = [_at(trial) for trial in told if _misses(trial, history)]
    _scatter(axes, others, color=MUTED, alpha=0.7, linewidths=0, label="other trials")
    _scatter(axes, cut, color=MUTED, alpha=0.7, marker="|", label=_CUT)
    _scatter(axes, missing, facecolors="none", edgecolors=MUTED, label=_MISSES)
    _scatter(axes, [_at(trial) for trial in front], color=ACCENT, zorder=3, label="front")
    if len(history.objectives) == 2:
        # Between two trials, the value that is reached with at least as good a value of the first objective.
        where = "pre" if history.objectives[0].maximize else "post"
        axes.step(*zip(*sorted(map(_at, front)), strict=True), where=where, color=ACCENT, linewidth=1.5)
    shown = [_at(trial) for trial in eligible] + missing
    if wants_log([x for x, _ in shown]):
        axes.set_xscale("log")
    _scale(axes, [y for _, y in shown])
    first, second = history.objectives[:2]
    axes.set(xlabel=first.metric, ylabel=second.metric, title="Front")
    legend(axes)


def _at(trial: TrialRecord) -> tuple[float, float]:
    """Where it stands by the first two objectives."""
    assert trial.values is not None
    return trial.values[0], trial.values[1]


def _misses(trial: TrialRecord, history: History) -> bool:
    return trial.state is not State.FAILED and history.feasible(trial) is False


def _scatter(axes: Any, points: Sequence[tuple[float, float]], **style: Any) -> None:
    if points:  # or the legend would name what is not there
        axes.scatter(*zip(*points, strict=True), s=16, **style)


def _draw_curves(axes: Any, spec: Spec, history: History, curves: dict[int, list[tuple[float, float]]]) -> None:
    several = len(spec.objectives) > 1
    front = tuple(history.front) if several else tuple(history.front)[:1]
    leading = [trial.id for trial in front if trial.id in curves]  # a known result has none
    others = [number for number in curves if number not in leading]
    chosen = others[:: max(1, -(-len(others) // _MOST_CURVES))]
    alpha = max(0.15, min(0.7, 12 / max(len(chosen), 1)))
    for i, number in enumerate(chosen):
        label = "other trials" if i == 0 else None
        axes.plot(*_line(curves[number]), color=MUTED, alpha=alpha, linewidth=1, markersize=3, label=label)
    for number in leading:
        label = "the front" if several else f"{words.which(history.trials[number], history)}: the best"
        label = label if number == leading[0] else None
        axes.plot(*_line(curves[number]), color=ACCENT, linewidth=1.5 if several else 2.2, label=label)
    _scale(axes, [value for curve in curves.values() for _, value in curve])
    axes.set(xlabel="step", ylabel=spec.metric, title="Learning curves")
    axes.xaxis.get_major_locator().set_params(integer=True)
    legend(axes)


def _line(curve: Sequence[tuple[float, float]]) -> tuple[Sequence[float], Sequence[float], str]:
    """Return the coordinates of a curve and how to draw it: with a dot if it has a single step, else as a line."""
    steps, values = zip(*curve, strict=True)
    return steps, values, "-" if len(curve) > 1 else "o"


def _scale(axes: Any, values: list[float]) -> None:
    if wants_log(values):
        axes.set_yscale("log")
