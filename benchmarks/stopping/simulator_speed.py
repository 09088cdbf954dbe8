"""Measures how many steps per second the simulator replays with each rule, on one core in process time.

A step is one report of a trial, all the way: the virtual clock goes on to it, the conductor and the history take
it in, and the rule judges it. Counted is the whole of simulation.run(), which also makes and ends the trials; not
counted are the curves, made before, of which a configuration gets the nearest. There are no limits but on trials.

Trials have 1,000 steps, and rules are as they come, which for rungs means that the first is at step 40. With one
at step 1, trials have so few steps that mostly making and ending them is measured, which takes as long as ten to
twenty steps: that is a row of its own.
"""

from __future__ import annotations

import argparse
import gc
import time
from statistics import median
from typing import Any

from benchmarks.common import Row, main, say
from thriftune.replay.simulated_engine import Curve
from thriftune.replay.simulation_loop import Curves, run
from thriftune.search.random import Random
from thriftune.space.objectives import Objective
from thriftune.space.parameters import Float
from thriftune.space.space import Space
from thriftune.state.events import Config
from thriftune.state.spec import Spec
from thriftune.state.trial_record import State
from thriftune.stopping import STOPPERS

STEPS, CURVES, REPEATS = 1000, 128, 7
STEPS_BAR, SECONDS_BAR = 200_000, 30.0
RULES: dict[str, tuple[str, dict[str, Any], int]] = {  # rule, options, number of trials
    "no rule": ("none", {}, 200),
    "asha": ("asha", {}, 1000),
    "median": ("median", {}, 1000),
    "halving": ("halving", {"min_steps": 40}, 1000),
    "auto": ("auto", {}, 1000),
    "asha, first rung at step 1": ("asha", {"min_steps": 1}, 5000),
}
JUDGED = ("no rule", "asha", "median")


def made_curves() -> Curves:
    """Return the curve of a configuration, whose only parameter sets its loss and its duration."""
    steps = range(1, STEPS + 1)
    curves = [
        Curve(steps, [{"loss": x + 1.0 / step} for step in steps], [1.0 + x] * STEPS)
        for x in (i / CURVES for i in range(CURVES))
    ]

    gc.collect()
    gc.freeze()  # the garbage collector's scans of the curves are not counted either

    def nearest(config: Config) -> Curve:
        return curves[int(config["x"] * (CURVES - 1))]

    return nearest


def simulated(curves: Curves, rule: str, options: dict[str, Any], trials: int, workers: int) -> tuple[int, float]:
    """Return the number of steps and their process time in seconds."""
    objectives = (Objective("loss", maximize=False),)
    space = Space({"x": Float(0.0, 1.0)})
    spec = Spec("speed", space, objectives, 0, trials=trials, max_steps=STEPS, workers=workers)
    stopper = STOPPERS.make(rule, options)
    started = time.process_time()
    result = run(spec, curves, Random(), stopper)
    seconds = time.process_time() - started
    assert len(result.trials) == trials
    assert result.history.counts[State.COMPLETED]
    return sum(len(trial.reports) for trial in result.trials), seconds


def measure(options: argparse.Namespace) -> list[Row]:
    curves, judged = made_curves(), not options.quick
    rows = []
    for name, (rule, how, count) in RULES.items():
        say(name)
        trials = 30 if options.quick else count
        runs = [simulated(curves, rule, how, trials, 16) for _ in range(1 if options.quick else REPEATS)]
        steps, rates = runs[0][0], [steps / seconds for steps, seconds in runs]
        figure = f"{median(rates):,.0f} steps a second: {steps:,} steps of {trials:,} trials"
        bar, met = (f">= {STEPS_BAR:,}", median(rates) >= STEPS_BAR) if name in JUDGED else ("", None)
        rows.append(Row(f"{name}, 16 workers", figure, bar, met if judged else None, {"rates": rates}))
    trials, workers = (60, 20) if options.quick else (10_000, 1000)
    for name in ("asha", "asha, first rung at step 1"):
        say(f"{name}, {workers:,} workers")
        steps, seconds = simulated(curves, *RULES[name][:2], trials, workers)
        met = seconds < SECONDS_BAR if judged else None
        figure = f"{seconds:.1f} s: {steps:,} steps of {trials:,} trials"
        rows.append(Row(f"{name}, {workers:,} workers", figure, f"< {SECONDS_BAR:g} s", met, {"seconds": seconds}))
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure))
