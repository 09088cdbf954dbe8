"""RubberBand's four simulated studies (6.1.1 to 6.1.4): the cost of stragglers, data, trials and waits.

The studies are those of `python -m benchmarks.reproduce rubberband`, with all costs and with bars to pass. Scaling
is the recorded one of ResNet-50 on ImageNet. Plots are written to out/planning.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace

from benchmarks.common import OUT, Row, main, say
from benchmarks.reproduce.rubberband import draw_study
from benchmarks.reproduce.rubberband_studies import SCALING_FILE, STUDIES, Costs, Study, amdahl_scaling, recorded
from benchmarks.search.tables import data


def measure(options: argparse.Namespace) -> list[Row]:
    scaling = amdahl_scaling if options.quick else recorded(data() / SCALING_FILE)
    folder = OUT / "planning" / ("quick" if options.quick else "")
    folder.mkdir(parents=True, exist_ok=True)
    judged = {"stragglers": _stragglers, "data price": _data, "trials": _trials, "waits": _waits}
    rows = []
    for made in STUDIES:
        study = made(scaling, options.quick)
        draw_study(study, folder / f"{study.name.replace(' ', '_')}.png")
        rows += [*_rows(study), *judged[study.name](study)]
        say(f"{study.name}: done")
    return [replace(row, met=None) for row in rows] if options.quick else rows


def _rows(study: Study) -> list[Row]:
    return [
        _row(f"{study.name}, {setting}, {study.each.format(value)}", costs)
        for setting, each in study.costs.items()
        for value, costs in zip(study.values, each, strict=True)
    ]


def _row(what: str, costs: Costs) -> Row:
    figure = ", ".join(f"{name} {'-' if math.isnan(each) else f'${each:.2f}'}" for name, each in costs.items())
    best = min(each for each in costs.values() if not math.isnan(each))
    return Row(what, figure, "exact never dearer", costs["exact"] <= best * (1.0 + 1e-9), dict(costs))


def _stragglers(study: Study) -> list[Row]:
    both = zip(study.costs["per_instance"], study.costs["per_function"], strict=True)
    ratios = [a["exact"] / b["exact"] for a, b in both]
    figure = f"{ratios[0]:.2f} times as expensive at std {study.values[0]:g} s, {ratios[-1]:.2f} at "
    figure += f"{study.values[-1]:g}; deadline {_minutes(study)} min, 1.5 times the quickest at the largest"
    about = "stragglers: per instance against per function, exact"
    return [Row(about, figure, "more expensive, and the more so the larger std is", ratios[-1] > 1.2 * ratios[0])]


def _data(study: Study) -> list[Row]:
    gains = {name: _gains(study, name) for name in study.costs}
    shown = "; ".join(f"{name} {each[0]:.2f} to {each[-1]:.2f}" for name, each in gains.items())
    large, small = gains.values()
    met = large[-1] < large[0] and abs(small[-1] / small[0] - 1.0) < 0.1 and min(large) >= 1.0
    about = "data price: how many times as expensive static is, from the lowest to the highest price"
    bar = "falls for the large dataset, stays for the small one, never below 1"
    return [Row(about, f"{shown}; deadline {_minutes(study)} min", bar, met)]


def _trials(study: Study) -> list[Row]:
    saved = [costs["static"] - costs["exact"] for costs in study.costs["per_instance"]]
    shown = ", ".join(f"${each:.2f}" for each in saved)
    figure = f"saved against static, per instance: {shown}; {_minutes(study)} min"
    met = saved[-1] > saved[0] and min(saved) >= -1e-9
    return [Row("trials: what elasticity saves", figure, "grows with the number of trials", met)]


def _waits(study: Study) -> list[Row]:
    gains = {name: _gains(study, name) for name in study.costs}
    tightest = ", ".join(f"{name} {each[0]:.2f}" for name, each in gains.items())
    figure = f"{tightest}; tightest {study.values[0]:.0f} min, the paper has 90 to 160 min on its scaling"
    least = min(each[0] for each in gains.values())
    first, *_, last = gains.values()
    middle = len(study.values) // 2
    fall = f"static over exact at {study.values[middle]:.0f} min: {first[middle]:.2f} to {last[middle]:.2f}"
    about = "waits: how many times as expensive static is at the tightest deadline"
    by_wait = "waits: the advantage, from the shortest to the longest wait"
    by_deadline = "waits: the advantage, by the deadline, from the tightest to the slackest"
    return [
        Row(about, figure, "at least 2", least >= 2.0),
        Row(by_wait, fall, "falls", last[middle] < first[middle]),
        Row(by_deadline, f"{first[0]:.2f} to {first[-1]:.2f}", "falls", first[-1] < first[0]),
    ]


def _gains(study: Study, setting: str) -> list[float]:
    return study.ratios(setting, "static", "exact")


def _minutes(study: Study) -> str:
    assert study.deadline_seconds is not None
    return f"{study.deadline_seconds / 60:.0f}"


if __name__ == "__main__":
    raise SystemExit(main(measure))
