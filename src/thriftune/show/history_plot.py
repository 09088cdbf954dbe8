"""Draw the history of a study: its best values or its front, and its learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from thriftune.common import formatting
from thriftune.errors import ThriftuneError
from thriftune.results.curves import BestSoFar, best_so_far, learning_curve, wants_log
from thriftune.show import describe
from thriftune.show.plot_style import ACCENT, MUTED, WARNING, drawing, legend
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.trial_record import State, TrialRecord

_INFEASIBLE_LABEL = "misses a constraint"
_UNFINISHED_LABEL = "fewer steps than these"
_MAX_CURVES = 500
"""More lines than this merge into a grey surface and make a huge file. Of more curves, an even selection is
drawn."""


def draw_history(spec: Spec, history: History) -> Any:
    """Return the figure; raise ThriftuneError if there is nothing to draw yet."""
    best = best_so_far(history)
    curves = _learning_curves(spec, history)
    if not best and not curves:
        reason = history.why_infeasible() or f"no trial of {spec.name!r} has a value yet"
        raise ThriftuneError(f"there is nothing to plot: {reason}")
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
    summary = describe.best_or_front(history)
    if summary.label == "front":
        note = describe.unfinished_note(history.front[0], history)
        front = f"front of {formatting.plural(len(history.front), 'trial')}"
        return f"{spec.name}: {front}" + (f" ({note})" if note else "")
    if summary.label == "best":
        return f"{spec.name}: best {summary.text}"
    return f"{spec.name}: no trial meets the constraints" if summary.text else spec.name


def _learning_curves(spec: Spec, history: History) -> dict[int, list[tuple[float, float]]]:
    """Return the learning curves by trial id.

    The dict is empty if no trial has more than one step.
    """
    metric = spec.metric
    curves = {trial.id: learning_curve(trial, metric) for trial in history.trials}
    curves = {number: curve for number, curve in curves.items() if curve}
    return curves if any(len(curve) > 1 for curve in curves.values()) else {}


def _draw_best(axes: Any, spec: Spec, history: History, best: list[BestSoFar]) -> None:
    ended = sorted(
        (trial for trial in history.trials if trial.ended_at is not None),
        key=lambda trial: (trial.ended_at or 0.0, trial.id),
    )
    numbered = [(number, trial) for number, trial in enumerate(ended, 1) if describe.is_finite(trial.value)]
    eligible = [(number, trial) for number, trial in numbered if history.eligible(trial)]
    compared = [(number, trial.value or 0.0) for number, trial in eligible if history.may_lead(trial)]
    unfinished = [(number, trial.value or 0.0) for number, trial in eligible if not history.may_lead(trial)]
    _scatter(axes, compared, color=MUTED, alpha=0.7, linewidths=0, label="each trial")
    _scatter(axes, unfinished, color=MUTED, alpha=0.7, marker="|", label=_UNFINISHED_LABEL)
    infeasible = [(number, trial.value or 0.0) for number, trial in numbered if _is_infeasible(trial, history)]
    _scatter(axes, infeasible, facecolors="none", edgecolors=MUTED, label=_INFEASIBLE_LABEL)
    failed = [number for number, trial in enumerate(ended, 1) if trial.state is State.FAILED]
    if failed:
        # A failed trial has no value, so its cross is on the axis itself.
        on_axis = axes.get_xaxis_transform()
        axes.plot(
            failed, [0.0] * len(failed), "x", color=WARNING, transform=on_axis, clip_on=False, label="failed"
        )
    numbers, values = [point.trials for point in best], [point.value for point in best]
    axes.step(numbers, values, where="post", color=ACCENT, linewidth=2, label="best so far")
    first = next(point for point in best if point.trial == best[-1].trial)
    axes.plot(first.trials, first.value, "o", color=ACCENT, markersize=7)
    _set_y_scale(axes, [value for _, value in compared + unfinished + infeasible])
    axes.set(xlabel="trials ended", ylabel=spec.metric, title="Best so far")
    axes.xaxis.get_major_locator().set_params(integer=True)
    legend(axes)


def _draw_front(axes: Any, history: History) -> None:
    """Draw the front over the first two objectives.

    The front is a line only if the study has no other objectives.
    """
    front = tuple(history.front)
    leading = {trial.id for trial in front}
    eligible = [trial for trial in history.trials if history.eligible(trial)]
    others = [_position(trial) for trial in eligible if trial.id not in leading and history.may_lead(trial)]
    unfinished = [_position(trial) for trial in eligible if not history.may_lead(trial)]
    finite = [trial for trial in history.trials if trial.values is not None and all(map(isfinite, trial.values))]
    infeasible = [_position(trial) for trial in finite if _is_infeasible(trial, history)]
    _scatter(axes, others, color=MUTED, alpha=0.7, linewidths=0, label="other trials")
    _scatter(axes, unfinished, color=MUTED, alpha=0.7, marker="|", label=_UNFINISHED_LABEL)
    _scatter(axes, infeasible, facecolors="none", edgecolors=MUTED, label=_INFEASIBLE_LABEL)
    _scatter(axes, [_position(trial) for trial in front], color=ACCENT, zorder=3, label="front")
    if len(history.objectives) == 2:
        # Between two trials, the line is at the best second value of all trials that are at least as good in the
        # first objective.
        where = "pre" if history.objectives[0].maximize else "post"
        axes.step(*zip(*sorted(map(_position, front)), strict=True), where=where, color=ACCENT, linewidth=1.5)
    shown = [_position(trial) for trial in eligible] + infeasible
    if wants_log([x for x, _ in shown]):
        axes.set_xscale("log")
    _set_y_scale(axes, [y for _, y in shown])
    first, second = history.objectives[:2]
    axes.set(xlabel=first.metric, ylabel=second.metric, title="Front")
    legend(axes)


def _position(trial: TrialRecord) -> tuple[float, float]:
    """Return the trial's values of the first two objectives."""
    assert trial.values is not None
    return trial.values[0], trial.values[1]


def _is_infeasible(trial: TrialRecord, history: History) -> bool:
    return trial.state is not State.FAILED and history.feasible(trial) is False


def _scatter(axes: Any, points: Sequence[tuple[float, float]], **style: Any) -> None:
    if points:  # without points, the legend must not have this label
        axes.scatter(*zip(*points, strict=True), s=16, **style)


def _draw_curves(axes: Any, spec: Spec, history: History, curves: dict[int, list[tuple[float, float]]]) -> None:
    has_front = len(spec.objectives) > 1
    front = tuple(history.front) if has_front else tuple(history.front)[:1]
    leading = [trial.id for trial in front if trial.id in curves]  # a known result has no curve
    others = [number for number in curves if number not in leading]
    drawn = others[:: max(1, -(-len(others) // _MAX_CURVES))]
    alpha = max(0.15, min(0.7, 12 / max(len(drawn), 1)))
    for i, number in enumerate(drawn):
        label = "other trials" if i == 0 else None
        axes.plot(*_line(curves[number]), color=MUTED, alpha=alpha, linewidth=1, markersize=3, label=label)
    for number in leading:
        label = "the front" if has_front else f"{describe.trial_label(history.trials[number], history)}: the best"
        label = label if number == leading[0] else None
        axes.plot(*_line(curves[number]), color=ACCENT, linewidth=1.5 if has_front else 2.2, label=label)
    _set_y_scale(axes, [value for curve in curves.values() for _, value in curve])
    axes.set(xlabel="step", ylabel=spec.metric, title="Learning curves")
    axes.xaxis.get_major_locator().set_params(integer=True)
    legend(axes)


def _line(curve: Sequence[tuple[float, float]]) -> tuple[Sequence[float], Sequence[float], str]:
    """Return the steps and values of a curve, and its line style.

    A single step is drawn as a dot.
    """
    steps, values = zip(*curve, strict=True)
    return steps, values, "-" if len(curve) > 1 else "o"


def _set_y_scale(axes: Any, values: list[float]) -> None:
    if wants_log(values):
        axes.set_yscale("log")
