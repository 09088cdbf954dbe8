"""Measures what is lost or repeated when nodes of a Ray cluster are killed, or preempted after a notice of 10 s.

The nodes are killed at random moments. Each study has six trials of eight steps. Half of the studies save with
every report, the others with every third. The benchmark compares the logs in the trials' folders with the store.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import thriftune as tt
from benchmarks.common import Row, main, say, scratch
from tests.end_to_end.lossy import Account, Lossy, account
from tests.end_to_end.ray_study import NAME
from tests.support.ray_clusters import Nodes, nodes

STUDIES, TRIALS, STEPS, STEP_SECONDS = 20, 6, 8, 0.3
NODES, CPUS = 4, 2  # room for two more trials, so that a trial that has lost its node can continue at once
NOTICE_SECONDS = 10.0
SAVE_EVERY = (1, 3)


@dataclass
class Outcome:
    """The result of one study."""

    account: Account
    save_every: int
    hit: int  # the number of trials on the node
    seconds: list[float]  # the time until each of these ran again


def measure(options: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    dice = random.Random(11)
    count = 1 if options.quick else STUDIES
    with scratch() as folder, nodes(*[CPUS] * NODES) as cluster:
        for notice in (False, True):
            outcomes = []
            for number in range(count):
                home = folder / f"{notice}-{number}"
                home.mkdir()
                outcomes.append(_study(cluster, home, SAVE_EVERY[number % len(SAVE_EVERY)], notice, dice))
                say(f"{'notice' if notice else 'kill'} {number + 1} of {count}: {outcomes[-1].account}")
            rows += _rows(outcomes, notice, judged=not options.quick)
    return rows


def _study(cluster: Nodes, folder: Path, save_every: int, notice: bool, dice: random.Random) -> Outcome:
    study = Lossy(
        folder, cluster.address, trials=TRIALS, steps=STEPS, step_seconds=STEP_SECONDS, save_every=save_every
    )
    driver = study.start()
    try:
        study.until(lambda: study.steps_done() >= TRIALS // 2, driver, "the first steps are done")
        time.sleep(dice.uniform(0.0, 0.8 * STEPS * STEP_SECONDS))
        running = _running(study)
        machine = dice.choice(sorted(running) or [f"node-{node[-8:]}" for node in cluster.running])
        node = next(node for node in cluster.running if node.endswith(machine.removeprefix("node-")))
        began = time.time()
        if notice:
            cluster.drain(node, NOTICE_SECONDS)
            study.until(lambda: machine not in _running(study) or driver.poll() is not None, driver, "all left")
        cluster.kill(node)
        study.wait(driver)
    finally:
        driver.kill()
        driver.wait()
    cluster.add(CPUS)
    again = [_runs_again(study, trial, began) for trial in running.get(machine, [])]
    return Outcome(account(study), save_every, len(again), [each - began for each in again if each is not None])


def _running(study: Lossy) -> dict[str, list[int]]:
    """Return the running trials by machine."""
    history = tt.load(NAME, study.store).history
    return {machine.id: list(machine.running) for machine in history.machines.values() if machine.running}


def _runs_again(study: Lossy, trial: int, after: float) -> float | None:
    """Return when the next attempt of a trial began; None if the trial had just ended."""
    begins = (line["at"] for line in study.lines(trial) if line["what"] == "begins" and line["attempt"] > 1)
    return next((begin for begin in begins if begin > after), None)


def _rows(outcomes: Sequence[Outcome], notice: bool, *, judged: bool) -> list[Row]:
    what = f"notice of {NOTICE_SECONDS:g} s" if notice else "no notice"
    accounts = [each.account for each in outcomes]
    steps, reports = sum(a.steps_done for a in accounts), sum(a.reports for a in accounts)
    lost = sum(len(a.unrecorded) + len(a.missing) for a in accounts)
    unwell = sum(len(a.unwell) + len(a.run_again) for a in accounts)
    beyond = sum(len(a.beyond) for a in accounts)
    hit = sum(each.hit for each in outcomes)
    about = f"{len(outcomes)} nodes with {hit} trials"
    sound = lost == unwell == 0
    figure = f"{lost} of {reports:,} reports, {unwell} of {len(outcomes) * TRIALS} trials; {about}"
    rows = [Row(f"{what}: lost, failed, or run again after its end", figure, "none", sound if judged else None)]
    met = not beyond if judged else None
    rows.append(Row(f"{what}: steps done again that a checkpoint had", f"{beyond} of {steps:,}", "none", met))
    for every in SAVE_EVERY:
        some = [each for each in outcomes if each.save_every == every]
        again, on = sum(len(each.account.repeated) for each in some), sum(each.hit for each in some)
        bar = notice and every == 1
        saved = "every report" if every == 1 else f"every {every}rd report"
        met = again == 0 if judged and bar else None
        rows.append(
            Row(
                f"{what}: steps done again, saved with {saved}",
                f"{again}, by {on} trials",
                "none" if bar else "",
                met,
            )
        )
    seconds = sorted(second for each in outcomes for second in each.seconds)
    middle = statistics.median(seconds) if seconds else 0.0
    spread = f"{middle:.1f} s ({seconds[0]:.1f} to {seconds[-1]:.1f})" if seconds else "none had to"
    data = {"seconds": seconds}
    return [*rows, Row(f"{what}: until a trial runs elsewhere, median", spread, data=data)]


if __name__ == "__main__":
    raise SystemExit(main(measure))
