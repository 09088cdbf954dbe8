"""Is it foretold where learning curves end, as SpotTune's EarlyCurve says? Its Figures 8 (c) and 11."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.reproduce import Entry, Reproduction, Request, Section
from benchmarks.reproduce import earlycurve_plot as plot
from benchmarks.reproduce.foretelling import (
    GROUP,
    THETA,
    TOP,
    Array,
    Foretold,
    Method,
    as_printed,
    foretold,
    last_value,
    one_stage,
    ours,
    relative_errors,
)
from benchmarks.reproduce.learning_curves import TASKSET, VALIDATION, made_up, shipped, taskset, validation
from thriftune.replay import recorded

METHODS: Mapping[str, Method] = {
    "ours": ours,
    "SLAQ's one stage": one_stage,
    "Eq. 4 and 7 as printed": as_printed,
    "the last value seen": last_value,
}
RESNET, SIX = "residual", "six workloads"
THETAS = tuple(round(0.1 * i, 1) for i in range(1, 11))
QUICK_THETAS = (0.3, THETA, 1.0)
TASKS, CONFIGURATIONS, GROUPS = 6, 300, 1000
MADE_UP = 100

Shares = Sequence[tuple[float, float]]
"""By theta: how often the best of a group is predicted to be the best, and to be among the best three."""


def earlycurve(request: Request) -> Reproduction:
    thetas = QUICK_THETAS if request.quick else THETAS
    request.told("the six workloads")
    found = {SIX: _shares([_by_theta(shipped(name), thetas, groups=1) for name in recorded.names()])}
    path = request.record(TASKSET)
    if path is not None:
        tasks, every = (1, 10) if request.quick else (TASKS, 1)
        told = []
        for task in range(tasks):
            request.told(f"TaskSet, task {task + 1} of {tasks}")
            told.append(_by_theta(taskset(path, task)[:CONFIGURATIONS:every], thetas, GROUPS))
        found["TaskSet"] = _shares(told)
    request.told("errors of predicted values")
    sections = [_ranking(name, thetas, shares) for name, shares in found.items()]
    draw = partial(plot.figure_8c, thetas, found)
    sections[0] = replace(sections[0], name="figure_8c", draw=draw)
    return Reproduction("earlycurve", [*sections, _resnet(), _errors(request)], _differs(request))


# --- Figure 8 (c) -----------------------------------------------------------------------------------------


def _by_theta(curves: Array, thetas: Sequence[float], groups: int) -> list[Foretold]:
    return [foretold(curves, 1, theta, groups, {}) for theta in thetas]


def _shares(told: Sequence[Sequence[Foretold]]) -> Shares:
    """Means over tasks; `told` is by task and theta."""
    return [
        (float(np.mean([each.top_1 for each in tasks])), float(np.mean([each.top_3 for each in tasks])))
        for tasks in zip(*told, strict=True)
    ]


def _ranking(name: str, thetas: Sequence[float], shares: Shares) -> Section:
    entries = []
    for theta, (_, top_3) in zip(thetas, shares, strict=True):
        said = " (paper: 70 to 80 %)" if 0.2 <= theta <= 0.4 else ""
        paper = 1.0 if theta >= THETA else None
        entries.append(
            Entry(f"theta {theta:g}: the best is among the predicted {TOP}{said}", top_3, paper, None, "%")
        )
    for theta, (top_1, _) in zip(thetas, shares, strict=True):
        said, paper = (" (paper: nearly)", 0.7) if theta == THETA else ("", None)
        entries.append(Entry(f"theta {theta:g}: the best is predicted to be it{said}", top_1, paper, None, "%"))
    told = (
        "One group of 16 for each of six workloads: one group more or less makes 17 %."
        if name == SIX
        else f"{GROUPS:,} groups of {GROUP} are drawn from the configurations of each task, so that rare misses "
        "show, which six groups need not have."
    )
    return Section(f"Figure 8 (c): the best of {GROUP} is found, {name}", entries, told)


# --- Figure 11 --------------------------------------------------------------------------------------------


def _resnet() -> Section:
    curves = shipped(RESNET)
    errors = {name: relative_errors(METHODS[name], curves, THETA) for name in ("ours", "SLAQ's one stage")}
    mine, slaq = errors.values()
    entries = [
        *(Entry(f"mean error, {name}", float(each.mean()), None, None, "%") for name, each in errors.items()),
        *(Entry(f"largest error, {name}", float(each.max()), None, None, "%") for name, each in errors.items()),
        Entry("configurations on which ours is lower", float(np.mean(mine < slaq)), None, None, "%"),
    ]
    told = (
        "The paper has bars without numbers, of which SLAQ's are significantly higher. Here as well: the learning "
        "rate drops, and one curve for all of the training goes on as it went before that."
    )
    example = int(np.argsort(slaq - mine)[len(curves) // 2])  # neither the best for us nor the worst
    draw = partial(plot.figure_11, curves[example], THETA, errors, {name: METHODS[name] for name in errors})
    title = f"Figure 11: error of the predicted last value at theta {THETA:g}, {RESNET} (ResNet)"
    return Section(title, entries, told, "figure_11", draw)


def _errors(request: Request) -> Section:
    entries = []
    families = {name: [shipped(name)] for name in recorded.names()}
    path = request.record(VALIDATION)
    if path is not None:
        families["ImageNet, learning rate drops"] = [validation(path, "imagenet")]
    families["made up, with drops"] = [made_up(20 if request.quick else MADE_UP)]
    path = request.record(TASKSET)
    if path is not None and not request.quick:
        families["TaskSet"] = [taskset(path, task)[:CONFIGURATIONS] for task in range(TASKS)]
    for name, tables in families.items():
        whole = [table[np.isfinite(table).all(axis=1)] for table in tables]
        for method, predicts in METHODS.items():
            error = float(np.mean([relative_errors(predicts, table, THETA).mean() for table in whole]))
            entries.append(Entry(f"{name}: {method}", error, None, None, "%"))
    told = (
        "The paper: where the learning rate does not drop, EarlyCurve and SLAQ are alike. As printed they nearly "
        "always are, with drops or without: by Eq. 7 a stage begins where a loss changes by half after five "
        "changes of under 1 %, which hardly any of these curves does. Ours finds stages by the noise of the curve "
        "itself, and fits the recent part of the last one."
    )
    return Section(f"Error of the predicted last value at theta {THETA:g}, all curves", entries, told)


def _differs(request: Request) -> list[str]:
    there = [name for name, file in (("TaskSet", TASKSET), ("ImageNet", VALIDATION)) if request.record(file)]
    differs = [
        "Curves are those of six small workloads like the paper's, really trained, which come with thriftune"
        + (f"; and recorded ones of {' and '.join(there)}" if there else "; recorded ones are taken with --data")
        + ". The paper's are of Epsilon, YearPredictionMSD, CIFAR-10 and its own data.",
        "Ours averages several forms, of which Eq. 4 is one, over the last stage, found by the curve's own noise; "
        "SpotTune fits Eq. 4 to stages by Eq. 7.",
        "The paper gives two numbers of accuracy and a range; the rest of its Figure 8 (c), and all of Figure 11, "
        "are plots.",
        "A relative error counts as 100 % at most.",
    ]
    if request.quick:
        differs.append(f"Quick: theta at {', '.join(map(str, QUICK_THETAS))} only, and fewer curves.")
    return differs
