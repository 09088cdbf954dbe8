"""The reproduction of SpotTune's EarlyCurve: Figures 8 (c) and 11."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.reproduce import Entry, Reproduction, Request, Section
from benchmarks.reproduce import earlycurve_plot as plot
from benchmarks.reproduce.curve_predictions import (
    GROUP,
    THETA,
    TOP,
    Array,
    Method,
    PredictionScores,
    as_printed,
    last_value,
    one_stage,
    ours,
    relative_errors,
    score_predictions,
)
from benchmarks.reproduce.learning_curves import TASKSET, VALIDATION, shipped, synthetic, taskset, validation
from thriftune.replay import recorded

METHODS: Mapping[str, Method] = {
    "ours": ours,
    "SLAQ's one stage": one_stage,
    "Eq. 4 and 7 as printed": as_printed,
    "the last observed value": last_value,
}
RESNET, SIX = "residual", "six workloads"
THETAS = tuple(round(0.1 * i, 1) for i in range(1, 11))
QUICK_THETAS = (0.3, THETA, 1.0)
TASKS, CONFIGURATIONS, GROUPS = 6, 300, 1000
SYNTHETIC_CURVES = 100

Shares = Sequence[tuple[float, float]]
"""By theta: how often the best of a group is predicted to be the best, and to be one of the best three."""


def earlycurve(request: Request) -> Reproduction:
    thetas = QUICK_THETAS if request.quick else THETAS
    request.progress("the six workloads")
    by_source = {SIX: _shares([_by_theta(shipped(name), thetas, groups=1) for name in recorded.names()])}
    path = request.record(TASKSET)
    if path is not None:
        tasks, every = (1, 10) if request.quick else (TASKS, 1)
        scores = []
        for task in range(tasks):
            request.progress(f"TaskSet, task {task + 1} of {tasks}")
            scores.append(_by_theta(taskset(path, task)[:CONFIGURATIONS:every], thetas, GROUPS))
        by_source["TaskSet"] = _shares(scores)
    request.progress("errors of predicted values")
    sections = [_ranking(name, thetas, shares) for name, shares in by_source.items()]
    draw = partial(plot.figure_8c, thetas, by_source)
    sections[0] = replace(sections[0], name="figure_8c", draw=draw)
    return Reproduction("earlycurve", [*sections, _resnet(), _errors(request)], _differs(request))


# --- Figure 8 (c) -----------------------------------------------------------------------------------------


def _by_theta(curves: Array, thetas: Sequence[float], groups: int) -> list[PredictionScores]:
    return [score_predictions(curves, 1, theta, groups, {}) for theta in thetas]


def _shares(scores: Sequence[Sequence[PredictionScores]]) -> Shares:
    """Return the means over tasks; `scores` is by task and theta."""
    return [
        (float(np.mean([each.top_1 for each in tasks])), float(np.mean([each.top_3 for each in tasks])))
        for tasks in zip(*scores, strict=True)
    ]


def _ranking(name: str, thetas: Sequence[float], shares: Shares) -> Section:
    entries = []
    for theta, (_, top_3) in zip(thetas, shares, strict=True):
        note = " (paper: 70 to 80 %)" if 0.2 <= theta <= 0.4 else ""
        paper = 1.0 if theta >= THETA else None
        entries.append(
            Entry(f"theta {theta:g}: the best is among the predicted {TOP}{note}", top_3, paper, None, "%")
        )
    for theta, (top_1, _) in zip(thetas, shares, strict=True):
        note, paper = (" (paper: nearly)", 0.7) if theta == THETA else ("", None)
        entries.append(
            Entry(f"theta {theta:g}: the best is predicted to be the best{note}", top_1, paper, None, "%")
        )
    comment = (
        "Each of the six workloads has one group of 16, so one group makes a difference of 17 %."
        if name == SIX
        else f"{GROUPS:,} groups of {GROUP} are drawn from the configurations of each task. They show rare "
        "misses that six groups may not have."
    )
    return Section(f"Figure 8 (c): the best of {GROUP} is found, {name}", entries, comment)


# --- Figure 11 --------------------------------------------------------------------------------------------


def _resnet() -> Section:
    curves = shipped(RESNET)
    errors = {name: relative_errors(METHODS[name], curves, THETA) for name in ("ours", "SLAQ's one stage")}
    ours_errors, slaq_errors = errors.values()
    entries = [
        *(Entry(f"mean error, {name}", float(each.mean()), None, None, "%") for name, each in errors.items()),
        *(Entry(f"largest error, {name}", float(each.max()), None, None, "%") for name, each in errors.items()),
        Entry("configurations on which ours is lower", float(np.mean(ours_errors < slaq_errors)), None, None, "%"),
    ]
    comment = (
        "The paper has bars without numbers; SLAQ's are significantly higher. Ours show the same. The learning "
        "rate drops, but one curve for the whole training continues as before the drop."
    )
    example = int(np.argsort(slaq_errors - ours_errors)[len(curves) // 2])  # a median case
    draw = partial(plot.figure_11, curves[example], THETA, errors, {name: METHODS[name] for name in errors})
    title = f"Figure 11: error of the predicted last value at theta {THETA:g}, {RESNET} (ResNet)"
    return Section(title, entries, comment, "figure_11", draw)


def _errors(request: Request) -> Section:
    entries = []
    families = {name: [shipped(name)] for name in recorded.names()}
    path = request.record(VALIDATION)
    if path is not None:
        families["ImageNet, learning rate drops"] = [validation(path, "imagenet")]
    families["synthetic, with drops"] = [synthetic(20 if request.quick else SYNTHETIC_CURVES)]
    path = request.record(TASKSET)
    if path is not None and not request.quick:
        families["TaskSet"] = [taskset(path, task)[:CONFIGURATIONS] for task in range(TASKS)]
    for name, tables in families.items():
        whole = [table[np.isfinite(table).all(axis=1)] for table in tables]
        for method, predicts in METHODS.items():
            error = float(np.mean([relative_errors(predicts, table, THETA).mean() for table in whole]))
            entries.append(Entry(f"{name}: {method}", error, None, None, "%"))
    comment = (
        "In the paper, EarlyCurve and SLAQ are equal if the learning rate does not drop. As printed, they are "
        "nearly always equal, with and without drops: by Eq. 7, a stage starts when a loss changes by half after "
        "five changes of less than 1 %, which hardly happens on these curves. Ours finds stages by the noise of "
        "the curve itself, and fits the recent part of the last stage."
    )
    return Section(f"Error of the predicted last value at theta {THETA:g}, all curves", entries, comment)


def _differs(request: Request) -> list[str]:
    names = [name for name, file in (("TaskSet", TASKSET), ("ImageNet", VALIDATION)) if request.record(file)]
    differs = [
        "The curves are from six small workloads like the paper's, which were trained and ship with thriftune"
        + (f", and recorded curves of {' and '.join(names)}" if names else "; use --data for recorded ones, too")
        + ". The paper's curves are from Epsilon, YearPredictionMSD, CIFAR-10 and its own data.",
        "Ours averages several forms, among them Eq. 4, over the last stage, which is found by the curve's own "
        "noise. SpotTune fits Eq. 4 to the stages of Eq. 7.",
        "The paper gives two numbers of accuracy and a range. The rest of its Figure 8 (c) and all of Figure 11 "
        "are plots.",
        "A relative error counts as at most 100 %.",
    ]
    if request.quick:
        differs.append(f"Quick: only theta {', '.join(map(str, QUICK_THETAS))}, and fewer curves.")
    return differs
