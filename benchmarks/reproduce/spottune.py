"""The reproduction of SpotTune: Figures 7, 8 (a), 8 (b) and 9.

Prices are recorded or synthetic. Figures 8 (c) and 11, on learning curves, are in earlycurve.py.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import partial

from benchmarks.reproduce import Entry, Reproduction, Request, Section
from benchmarks.reproduce import spottune_plot as plot
from benchmarks.reproduce.spottune_studies import (
    CHEAPEST,
    EARLY,
    FASTEST,
    LEAST_DELTA,
    RANDOM_DELTA,
    THETA,
    WHOLE,
    Market,
    Runs,
    Selected,
    at_theta,
    by_seed,
    compared,
    market,
    paced,
    runs_of,
    types,
)
from thriftune.common.formatting import plural
from thriftune.replay.traces import Trace

WORKLOADS = {  # our workloads in the order of the paper's Table II, with the paper's names
    "logistic": "LoR", "svm": "SVM", "trees": "GBTR", "linear": "LiR", "convolutional": "AlexNet",
    "residual": "ResNet",
}  # fmt: skip
SAVED = {  # the paper's saving of the first approach against the second
    (WHOLE, CHEAPEST): 0.415, (WHOLE, FASTEST): 0.8604, (EARLY, CHEAPEST): 0.7564, (EARLY, FASTEST): 0.9418,
    (EARLY, WHOLE): 0.5716,
}  # fmt: skip
SPEED = {(EARLY, CHEAPEST): 2.14, (EARLY, FASTEST): 0.6459}  # the paper's ratio of speeds
WORTH = {  # the paper's ratio of performance for the cost
    (WHOLE, CHEAPEST): 2.65, (WHOLE, FASTEST): 3.36, (EARLY, CHEAPEST): 13.11, (EARLY, FASTEST): 16.61,
}  # fmt: skip
FREE_STEPS, FREE_STEPS_LOGISTIC = 0.775, 0.75
THETAS = (0.1, 0.3, 0.5, THETA, 0.9, 1.0)
QUICK_WORKLOADS, QUICK_THETAS = ("logistic", "trees"), (0.3, THETA, 1.0)
SEEDS = 3

RunsByApproach = Mapping[str, Mapping[str, Runs]]
"""Runs by approach and by workload."""
RunsByTheta = Mapping[float, Mapping[str, Runs]]
"""Runs by theta and by workload."""


def spottune(request: Request) -> Reproduction:
    replayed_market = market(request)
    by_approach, by_theta = _run(replayed_market, request)
    sections = [
        _averages(by_approach),
        *_by_workload(by_approach),
        _sensitivity(by_theta),
        _refunds(by_approach, replayed_market),
    ]
    return Reproduction("spottune", sections, _differs(replayed_market, request))


def _run(replayed_market: Market, request: Request) -> tuple[RunsByApproach, RunsByTheta]:
    """Simulate all approaches and all values of theta for each workload."""
    workloads = QUICK_WORKLOADS if request.quick else tuple(WORKLOADS)
    thetas, seeds = (QUICK_THETAS, 1) if request.quick else (THETAS, SEEDS)
    by_approach: dict[str, dict[str, Runs]] = {each: {} for each in (CHEAPEST, FASTEST, WHOLE, EARLY)}
    by_theta: dict[float, dict[str, Runs]] = {theta: {} for theta in thetas}
    trace: Trace | None = None
    for name in workloads:
        if trace is None:
            request.progress("fitting models of preemptions in these markets")
            trace = replayed_market.trace(name)
        trace = paced(trace, types(name, replayed_market.machines))
        request.progress(f"{name}: four approaches, {plural(seeds, 'time')} each")
        for approach, each in compared(name, trace, seeds).items():
            by_approach[approach][name] = runs_of(each, THETA if approach == EARLY else 1.0)
        request.progress(f"{name}: theta from {thetas[0]:g} to {thetas[-1]:g}")
        done = {THETA: by_approach[EARLY][name], 1.0: by_approach[WHOLE][name]}
        for theta in thetas:
            runs = done.get(theta)
            by_theta[theta][name] = runs_of(at_theta(name, trace, theta, seeds), theta) if runs is None else runs
    return by_approach, by_theta


# --- Figure 7 ---------------------------------------------------------------------------------------------


def _averages(by_approach: RunsByApproach) -> Section:
    def against(
        what: str, ours: str, other: str, ratio: Callable[[Selected, Selected], float], paper: float, unit: str
    ) -> Entry:
        ratios = [
            [ratio(a, b) for a, b in zip(by_approach[ours][name], by_approach[other][name], strict=True)]
            for name in by_approach[ours]
        ]
        mean, spread = by_seed(ratios)
        return Entry(what, mean, paper, spread, unit)

    entries = [
        against(f"{a}: saved, against {_label(b)}", a, b, _saved, paper, "%") for (a, b), paper in SAVED.items()
    ]
    entries += [
        against(f"{a}: speed, over that of {_label(b)}", a, b, _speed, paper, "times")
        for (a, b), paper in SPEED.items()
    ]
    entries += [
        against(f"{a}: performance for the cost, over {_label(b)}", a, b, _worth, paper, "times")
        for (a, b), paper in WORTH.items()
    ]
    comment = (
        "Theta saves the steps that are not done. Against the cheapest machine, the paper's savings are refunds "
        "(Figure 9). In these markets hardly anything is refunded: the cheapest machine itself has the lowest "
        "cost per step, and the policy mostly uses it. The cost of the fastest machine depends on what a "
        "workload gains from more cores."
    )
    draw = partial(plot.averages, entries)
    return Section("Figure 7, averages over the workloads", entries, comment, "averages", draw)


def _saved(ours: Selected, other: Selected) -> float:
    return 1.0 - ours.dollars / other.dollars


def _speed(ours: Selected, other: Selected) -> float:
    return other.seconds / ours.seconds


def _worth(ours: Selected, other: Selected) -> float:
    """Return the ratio of performance for the cost, the paper's PCR."""
    return other.seconds * other.dollars / (ours.seconds * ours.dollars)


def _by_workload(by_approach: RunsByApproach) -> list[Section]:
    def entries(number: Callable[[Selected], float], unit: str) -> list[Entry]:
        workload_entries = []
        for name in by_approach[EARLY]:
            for approach, runs in by_approach.items():
                mean, spread = by_seed([[number(each) for each in runs[name]]])
                what = f"{name} ({WORKLOADS[name]}), {_label(approach)}"
                workload_entries.append(Entry(what, mean, None, spread, unit))
        return workload_entries

    worth = []
    for name in by_approach[EARLY]:
        for approach in (CHEAPEST, FASTEST, WHOLE):
            pairs = zip(by_approach[approach][name], by_approach[EARLY][name], strict=True)
            mean, spread = by_seed([[_worth(a, b) for a, b in pairs]])
            worth.append(Entry(f"{name} ({WORKLOADS[name]}), {_label(approach)}", mean, None, spread))
    dollars, hours = entries(_dollars, "$"), entries(_hours, "h")
    draw = partial(
        plot.figure_7, list(by_approach[EARLY]), [_label(each) for each in by_approach], dollars, hours, worth
    )
    return [
        Section(
            "Figure 7 (a): cost",
            dollars,
            "The paper has bars without numbers. If a workload gains nothing from more cores, the fastest machine "
            "costs more for nothing.",
            "figure_7",
            draw,
        ),
        Section("Figure 7 (b): time until the best are selected", hours),
        Section(f"Figure 7 (c): performance for the cost, where that of {EARLY} is 1", worth),
    ]


def _dollars(run: Selected) -> float:
    return run.dollars


def _hours(run: Selected) -> float:
    return run.seconds / 3600.0


def _label(approach: str) -> str:
    return {CHEAPEST: "the cheapest spot machine", FASTEST: "the fastest spot machine"}.get(approach, approach)


# --- Figures 8 and 9 --------------------------------------------------------------------------------------


def _sensitivity(by_theta: RunsByTheta) -> Section:
    whole = by_theta[1.0]
    entries = []
    for what, number in (("cost", _dollars), ("time", _hours)):
        for theta, runs in by_theta.items():
            shares = [
                [number(a) / number(b) for a, b in zip(runs[name], whole[name], strict=True)] for name in runs
            ]
            mean, spread = by_seed(shares)
            entries.append(Entry(f"theta {theta:g}: {what}, of that at 1", mean, None, spread, "%"))
    curves = {
        what: {
            name: [
                statistics.fmean(map(number, runs[name])) / statistics.fmean(map(number, whole[name]))
                for runs in by_theta.values()
            ]
            for name in whole
        }
        for what, number in (("cost", _dollars), ("time", _hours))
    }
    comment = (
        "As in the paper, the cost is roughly proportional to theta, and the time is nearly linear. A trial on a "
        "plateau is stopped earlier, as some trials of svm and of trees are."
    )
    draw = partial(plot.figure_8, list(by_theta), curves)
    return Section("Figure 8 (a), (b): sensitivity to theta", entries, comment, "figure_8", draw)


def _refunds(by_approach: RunsByApproach, replayed_market: Market) -> Section:
    free = {name: [each.free_steps for each in runs] for name, runs in by_approach[EARLY].items()}
    mean, spread = by_seed(free.values())
    entries = [Entry(f"free steps, on average, {EARLY}", mean, FREE_STEPS, spread, "%")]
    for name, shares in free.items():
        mean, spread = by_seed([shares])
        paper = FREE_STEPS_LOGISTIC if name == "logistic" else None
        entries.append(Entry(f"free steps, {name} ({WORKLOADS[name]})", mean, paper, spread, "%"))
    mean, spread = by_seed([[each.refunded for each in runs] for runs in by_approach[EARLY].values()])
    entries.append(Entry("refunded share of all dollars, on average", mean, None, spread, "%"))
    drawn, least = replayed_market.lost_within_hour(RANDOM_DELTA), replayed_market.lost_within_hour(LEAST_DELTA)
    entries += [
        Entry("lost within the hour, at a random maximum price", statistics.fmean(drawn), None, None, "%"),
        Entry("the same, in the market with the most losses", max(drawn), None, None, "%"),
        Entry("lost within the hour, at $0.0001 above the price", statistics.fmean(least), None, None, "%"),
    ]
    comment = (
        "Three steps in four can be free only if most machines are lost within their first hour. The maximum "
        "price is up to $0.20 above the price (Algorithm 1), which these markets hardly ever exceed within an "
        "hour. With a maximum just above the price, about half of the machines would be lost. Section V-A of the "
        "paper mentions this: in steady markets the policy takes the machine with the lowest step cost, and gets "
        "no refund."
    )
    draw = partial(plot.figure_9, FREE_STEPS, {name: statistics.fmean(each) for name, each in free.items()})
    return Section("Figure 9: what refunds contribute", entries, comment, "figure_9", draw)


# --- what differs -----------------------------------------------------------------------------------------


def _differs(replayed_market: Market, request: Request) -> list[str]:
    zones = len(replayed_market.prices.markets)
    if replayed_market.recorded:
        prices = (
            f"Prices are those of EC2's us-east-1 from 2016-02-25 to 2016-04-09, {zones} markets of six types "
            "with 2 to 16 cores. The paper's are from 2017-04-26 to 2017-05-08, of other types (its Table III)."
        )
    else:
        prices = (
            f"Prices are synthetic and resemble EC2's in 2016: {zones} markets of the paper's six types. Use "
            "--data for recorded ones."
        )
    differs = [
        prices,
        "The six workloads are like the paper's and were trained on one core. They are small, so their steps "
        "are stretched to ten hours per trial on two cores. The speed of 4 to 16 cores was not measured: it "
        "follows by Amdahl's law from one and two cores.",
        "Boosted trees predict preemptions, in place of RevPred's network. The rule early_curve predicts learning "
        "curves, in place of Eq. 4 and 7 as printed.",
        "A machine takes two minutes to start, a trial 30 s to resume there, and a checkpoint 10 s.",
        "As in the paper, cost and time count until the best are selected. Training three of 16 to their end then "
        "costs more.",
        "Left out: Figure 10 (benchmarks.market.revocation has the accuracy and F1 of RevPred; what it saves is "
        "not computed), and Figure 12 (the time to save and restore, which needs real machines).",
    ]
    if request.quick:
        differs.append("Quick: two workloads with one start each, in one zone of each type.")
    return differs
