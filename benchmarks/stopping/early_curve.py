"""Measures the prediction of learning curves' final values, and of the best of 16 (SpotTune Fig. 8 and 11).

Groups of 16 configurations are drawn at random from one task; at theta of the steps, the value at the last step is
predicted, and the three best go on. The truly best should be among them. The prediction is compared with the last
value seen, SLAQ's one stage, and a power law. A relative error counts as 1 at most: diverged curves end anywhere.

Staged curves, on which the learning rate drops: recorded (ImageNet), trained (Fashion-MNIST, some minutes, once),
and made up. Curves without stages: TaskSet, LCBench, boosted trees (trained, some minutes, once); and others that
were recorded, too few to judge by. Errors are judged at theta 0.7, as in the paper: no drop to come is foretold.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.common import OUT, Row, main, say
from benchmarks.reproduce.curve_predictions import (
    GROUP,
    MAX_CURVES,
    THETA,
    TOP,
    Array,
    PredictionScores,
    last_value,
    one_stage,
    power_law,
    score_predictions,
)
from benchmarks.reproduce.learning_curves import VALIDATION, synthetic, validation
from benchmarks.search.tables import data
from benchmarks.stopping import staged, tables
from thriftune.stopping.curve_fits import plateau, predict

TOP_BAR, MILLISECONDS_BAR = 0.95, 5.0
STD_BAR = (0.58, 0.78)  # the share of final values within one standard deviation; 0.68 is exact
BASELINES = {"last value": last_value, "one stage": one_stage, "power law": power_law}


@dataclass(frozen=True)
class Family:
    name: str
    staged: bool | None  # None for too few curves to judge
    curves: list[Array]  # for each task: (configurations, steps)
    sign: int = 1  # -1 if the metric is maximised


# --- the curves -------------------------------------------------------------------------------------------


def families(quick: bool) -> list[Family]:
    made = [Family("made up, with drops", True, [synthetic(20 if quick else 400)])]
    if not data().is_dir():
        say("no recorded curves: set THRIFTUNE_DATA to the folder that holds them")
        return made
    taskset = [tables.get(f"taskset-{task}").values for task in range(1 if quick else 6)]
    found = [Family("TaskSet", False, [each[:: 25 if quick else 1] for each in taskset])]
    if not quick:
        named = {
            "LCBench": [f"lcbench-{task}" for task in tables.lcbench_tasks()[:12]],
            "boosted trees": [f"trees-{dataset}" for dataset in ("cancer", "diabetes", "wine")],
        }
        for name, members in named.items():
            found.append(Family(name, False, [tables.get(each).values[:400] for each in members]))
        made.append(Family("Fashion-MNIST, with drops", True, [staged.trained()]))
    recorded = {
        name: validation(data() / VALIDATION, name)
        for name in ("imagenet", "cifar10", "deepspeech2", "yolov3", "ncf")
    }
    made.insert(0, Family("ImageNet, with drops", True, [recorded.pop("imagenet")], -1))
    others = [Family(name, None, [each], 1 if name == "deepspeech2" else -1) for name, each in recorded.items()]
    return found + made + others


# --- the figures ------------------------------------------------------------------------------------------


def measure(options: argparse.Namespace) -> list[Row]:
    thetas = [0.3, 0.7] if options.quick else [round(0.1 * i, 1) for i in range(1, 11)]
    chosen = families(options.quick)
    groups = 50 if options.quick else 2000
    jobs = [
        (curves, family.sign, theta, groups, BASELINES)
        for family in chosen
        for curves in family.curves
        for theta in thetas
    ]
    say(f"{len(jobs)} tasks and thetas")
    with ProcessPoolExecutor(max_workers=2) as pool:
        answers = iter(pool.map(score_predictions, *zip(*jobs, strict=True)))
    told = {family.name: [[next(answers) for _ in thetas] for _ in family.curves] for family in chosen}
    judged = not options.quick
    rows = []
    for family in chosen:
        mean = _Mean(told[family.name], thetas)
        if family.staged is False:
            rows += _ranking_rows(family.name, mean, judged)
        rows += _error_rows(family, mean, judged)
    if not options.quick:
        rows += _plateau_rows(chosen)
    if not options.quick and len(chosen) > 1:
        rows.append(_std_row(chosen, told, thetas))
        _plot({family.name: _Mean(told[family.name], thetas) for family in chosen if family.staged is False})
    return [*rows, _time_row(judged)]


class _Mean:
    """Return means over tasks by theta."""

    def __init__(self, told: list[list[PredictionScores]], thetas: list[float]) -> None:
        self._told, self.thetas = told, thetas

    def __call__(self, what: Callable[[PredictionScores], float]) -> Array:
        values: Array = np.array([[what(each) for each in task] for task in self._told])
        return np.asarray(values.mean(axis=0))


def _steps_share(theta: float) -> float:
    """Return the share of steps: all configurations train to theta, and the top ones to the end."""
    return theta + (1 - theta) * TOP / GROUP


def _ranking_rows(name: str, mean: _Mean, judged: bool) -> list[Row]:
    top_1, top_3 = mean(lambda told: told.top_1), mean(lambda told: told.top_3)
    last_1, last_3 = mean(lambda told: told.last_top_1), mean(lambda told: told.last_top_3)
    rows = []
    for i, theta in enumerate(mean.thetas):
        figure = (
            f"top 1 {top_1[i]:.1%}, top 3 {top_3[i]:.1%}; by the last value {last_1[i]:.1%}, {last_3[i]:.1%}; "
            f"{_steps_share(theta):.0%} of the steps"
        )
        values = {"top_1": top_1[i], "top_3": top_3[i], "last_top_1": last_1[i], "last_top_3": last_3[i]}
        rows.append(Row(f"{name}, theta {theta}", figure, data={"theta": theta, **values}))
    at_bar = float(top_3[mean.thetas.index(THETA)])
    what = f"{name}, theta {THETA}: the best of {GROUP} among the {TOP} predicted best"
    rows.append(Row(what, f"{at_bar:.1%}", f">= {TOP_BAR:.0%}", at_bar >= TOP_BAR if judged else None))
    below_one = [i for i, theta in enumerate(mean.thetas) if theta < 1]
    least = float(np.min((top_3 - last_3)[below_one]))
    what = f"{name}: that share less the last value's, the least of all thetas"
    rows.append(Row(what, f"{least:+.2%}", ">= 0", round(least, 3) >= 0 if judged else None))
    return rows


def _error_rows(family: Family, mean: _Mean, judged: bool) -> list[Row]:
    rows = []
    before_end = [i for i, theta in enumerate(mean.thetas) if theta < 1]
    errors = {"ours": mean(lambda told: told.error)}
    errors |= {name: mean(lambda told, name=name: told.baselines[name]) for name in BASELINES}  # type: ignore[misc]
    for when, chosen in ((f"at theta {THETA}", [mean.thetas.index(THETA)]), ("over thetas", before_end)):
        figures = {name: float(each[chosen].mean()) for name, each in errors.items()}
        ours, best = figures["ours"], min(figures[name] for name in BASELINES)
        figure = f"{ours:.2%}; " + ", ".join(f"{name} {figures[name]:.2%}" for name in BASELINES)
        has_bar = family.staged is not None and len(chosen) == 1
        bar = ("below all others" if family.staged else "none is lower") if has_bar else ""
        met = ours < best if family.staged else ours <= best
        what = f"{family.name}: relative error of the predicted last value {when}"
        rows.append(Row(what, figure, bar, met if judged and has_bar else None, figures))
    return rows


def _std_row(chosen: list[Family], told: dict[str, list[list[PredictionScores]]], thetas: list[float]) -> Row:
    real = [family.name for family in chosen if family.staged is not True]
    shares = {name: float(_Mean(told[name], thetas)(lambda told: told.within)[:-1].mean()) for name in real}
    mean = float(np.mean(list(shares.values())))
    figure = f"{mean:.0%}: " + ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    met = STD_BAR[0] <= mean <= STD_BAR[1]
    what = "last values within one predicted standard deviation, of real curves without drops"
    return Row(what, figure, f"{STD_BAR[0]:.0%} to {STD_BAR[1]:.0%}", met, shares)


def _plateau_rows(chosen: list[Family]) -> list[Row]:
    """Return rows with the steps that ending at a plateau saves, and the value that it loses."""
    rows = []
    for family in chosen:
        spared, lost, curves = 0.0, [], 0
        for table in family.curves:
            steps = np.arange(1.0, table.shape[1] + 1)
            for curve in table[np.isfinite(table).all(axis=1)][:MAX_CURVES]:
                curves += 1
                checks = range(10, len(steps))
                end = next((seen for seen in checks if plateau(steps[:seen], curve[:seen])), None)
                if end is not None:
                    spared += 1 - end / len(steps)
                    lost.append(abs(curve[end - 1] - curve[-1]) / max(np.ptp(curve), 1e-300))
        figure = f"{len(lost) / curves:.1%} of trials end early, {spared / curves:.1%} of all steps are spared"
        if lost:
            figure += f"; their last value is off by {np.median(lost):.1%} of the curve's range (median)"
            figure += f", that of {np.mean(np.array(lost) > 0.1):.0%} of them by more than a tenth"
        rows.append(Row(f"{family.name}: plateaus", figure))
    return rows


def _time_row(judged: bool) -> Row:
    steps = np.arange(1.0, 1001)
    values = 1 / steps + 0.01 * np.random.default_rng(0).normal(size=1000)
    times = []
    for _ in range(100):
        started = time.perf_counter()
        predict(steps, values, 2000)
        times.append(time.perf_counter() - started)
    milliseconds = float(np.median(times)) * 1e3
    met = milliseconds < MILLISECONDS_BAR if judged else None
    return Row("a fit of 1,000 points, median", f"{milliseconds:.2f} ms", f"< {MILLISECONDS_BAR:g} ms", met)


def _plot(means: dict[str, _Mean]) -> None:
    """Draw SpotTune Fig. 8 (c), and the share of the steps that are done."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        say("no picture: it needs matplotlib; install it with: pip install 'thriftune[plot]'")
        return
    figure = Figure(figsize=(6.2 * len(means), 4.2), dpi=150, layout="constrained")
    axes = figure.subplots(1, len(means), squeeze=False)[0]
    for panel, (name, mean) in zip(axes, means.items(), strict=True):
        for what, label, style in (
            (lambda told: told.top_3, "top 3, predicted", {"color": "#d1495b", "linewidth": 2}),
            (lambda told: told.top_1, "top 1, predicted", {"color": "#d1495b", "linestyle": "--"}),
            (lambda told: told.last_top_3, "top 3, last value", {"color": "#8d99ae", "linewidth": 2}),
            (lambda told: told.last_top_1, "top 1, last value", {"color": "#8d99ae", "linestyle": "--"}),
        ):
            panel.plot(mean.thetas, mean(what), label=label, marker="o", markersize=3, **style)
        panel.plot(
            mean.thetas, [_steps_share(theta) for theta in mean.thetas], ":", color="#2b2d42", label="steps"
        )
        panel.set(xlabel="theta", ylabel="share", title=f"{name}: the best of {GROUP} is found", ylim=(0, 1.02))
        panel.grid(color="#e5e7eb")
        panel.legend(frameon=False, fontsize=9)
    path: Path = OUT / "benchmarks" / "early_curve.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    say(f"the picture is {path}")


if __name__ == "__main__":
    raise SystemExit(main(measure))
