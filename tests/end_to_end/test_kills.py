"""Drivers and workers are killed at random moments; every promise is checked on the store afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import thriftune as tt
from tests import ROOT
from tests.end_to_end.chaos_study import SPACE, STEPS, TRIALS
from thriftune.state import events as ev
from thriftune.state.trial_record import State
from thriftune.store.opening import open_store

DRIVER_KILLS, WORKER_KILLS = 20, 10


def descendants_with(marker: str) -> list[int]:
    """Processes that carry the marker in their environment, which every descendant of a marked one inherits."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if marker.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


class Chaos:
    """Runs the study in processes of its own, and knows whom to kill."""

    def __init__(self, folder: Path, searcher: str) -> None:
        self.folder = folder
        self.witness = folder / "witness"
        self.killed_at: dict[int, int] = {}  # the step a trial had reached
        self.marker = f"CHAOS_MARKER={os.urandom(8).hex()}"
        name, _, value = self.marker.partition("=")
        self.environment = {**os.environ, "CHAOS_WITNESS": str(self.witness), name: value}
        self.script = [sys.executable, "-m", "tests.end_to_end.chaos_study", str(folder), searcher]
        store = str(folder / "studies.db")
        self.resume = [str(Path(sys.executable).with_name("thriftune")), "resume", "chaos", "--store", store]

    def start(self, command: list[str]) -> subprocess.Popen[bytes]:
        root = ROOT
        return subprocess.Popen(command, env=self.environment, cwd=root, stderr=subprocess.PIPE)

    def lines(self) -> list[dict[str, Any]]:
        """The witness's lines; the last one may be torn by a kill."""
        lines = self.witness.read_text().split("\n") if self.witness.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def kill_a_worker(self) -> bool:
        """One whose trial has got further since it was last killed: without progress a trial is given up on."""
        alive = set(descendants_with(self.marker))
        for line in reversed(self.lines()[-20:]):
            trial, step = line["trial"], line.get("step", 0)
            if line["pid"] in alive and step > self.killed_at.get(trial, 0):
                self.killed_at[trial] = step
                with contextlib.suppress(ProcessLookupError):
                    os.kill(line["pid"], signal.SIGKILL)
                    return True
        return False

    def live(self, driver: subprocess.Popen[bytes], seconds: float, *, from_first_step: bool) -> Iterator[None]:
        """Looks at a driver again and again until it has lived so long, from its start or its first step on."""
        before, began = len(self.lines()), time.monotonic()
        while driver.poll() is None and time.monotonic() - began < seconds:
            if from_first_step and len(self.lines()) == before:
                began = time.monotonic()
            yield
            time.sleep(0.02)


def test_nothing_is_lost_whatever_is_killed(tmp_path: Path) -> None:
    dice = random.Random(20)
    chaos = Chaos(tmp_path, "random")
    driver_kills = worker_kills = lives = 0
    while True:
        lives += 1
        assert lives < 400, "the study does not get on"
        # The script again and `thriftune resume` are the same to a study; before there is one only one works.
        known = (tmp_path / "studies.db").exists() and bool(store_has_function(tmp_path))
        driver = chaos.start(chaos.resume if known and dice.random() < 0.5 else chaos.script)
        # Some are killed at any moment, before the first commit too, and most of them in the middle of trials.
        if driver_kills < DRIVER_KILLS:
            moments = chaos.live(driver, dice.uniform(0.0, 0.4), from_first_step=dice.random() < 0.75)
        else:
            moments = chaos.live(driver, 600.0, from_first_step=False)
        for _ in moments:
            if worker_kills < WORKER_KILLS and dice.random() < 0.2:
                worker_kills += chaos.kill_a_worker()
        if driver.poll() is None:
            driver.kill()
            driver_kills += 1
        _, errors = driver.communicate()
        if driver.returncode == 0:
            break
        assert driver.returncode == -signal.SIGKILL, errors.decode()
    assert driver_kills == DRIVER_KILLS
    assert worker_kills == WORKER_KILLS
    check_promises(tmp_path, chaos)


def store_has_function(folder: Path) -> bool:
    return (folder / "studies.db.files" / "chaos" / "function.pickle").exists() and bool(
        open_store(folder / "studies.db").studies()
    )


def check_promises(folder: Path, chaos: Chaos) -> None:
    store = open_store(folder / "studies.db")
    log = store.read("chaos")
    study = tt.load("chaos", store)
    history = study.history
    history.validate()
    assert sum(isinstance(entry, ev.DriverStarted) for entry in log) > DRIVER_KILLS / 4

    # The limit is a total; nobody failed for being killed; what each trial tried is what it would have tried.
    assert len(study.trials) == TRIALS
    assert not [(trial.id, trial.error) for trial in study.trials if trial.error]
    assert {trial.state for trial in study.trials} == {State.COMPLETED}
    assert sum(trial.failures for trial in study.trials) == 0
    assert sum(trial.losses for trial in study.trials) > 0
    undisturbed = tt.Study(SPACE, minimize="loss", searcher="random", seed=7)
    assert [trial.config for trial in study.trials] == [undisturbed.ask().config for _ in range(TRIALS)]
    for trial in study.trials:
        assert [report.step for report in trial.reports] == list(range(1, STEPS + 1))
        assert trial.value == trial.config["x"] + 1 / STEPS

    # No report whose report() has returned is missing from the log, and none is there twice.
    reports = [entry for entry in log if isinstance(entry, ev.Reported)]
    recorded = {(r.trial, r.attempt, r.step) for r in reports}
    assert len(recorded) == len(reports)
    lines = chaos.lines()
    assert {(s["trial"], s["attempt"], s["step"]) for s in lines if s["what"] == "reported"} <= recorded

    # No finished trial is run again.
    ended: set[int] = set()
    for entry in log:
        if isinstance(entry, ev.Place):
            assert entry.trial not in ended
        if isinstance(entry, ev.Ended) and not entry.cut:
            ended.add(entry.trial)
    finished_by: dict[int, int] = {t.id: t.attempts for t in study.trials}
    assert all(line["attempt"] <= finished_by[line["trial"]] for line in lines)

    # Each attempt begins where the last checkpoint that was reported ends: no step before it is repeated.
    saved: dict[int, int] = defaultdict(int)
    for line in lines:
        if line["what"] == "begins":
            assert line["after"] >= saved[line["trial"]], line
        elif line["saved"]:
            saved[line["trial"]] = line["step"]

    # Nobody is left behind.
    patience = time.monotonic() + 60
    while (left := descendants_with(chaos.marker)) and time.monotonic() < patience:
        time.sleep(0.05)
    assert not left


SEARCH = """
import sys, time
import thriftune as tt

def train(trial):
    time.sleep(0.1)  # long enough to be killed in
    trial.report(loss=(trial["x"] - 0.3) ** 2 + (trial["act"] == "tanh"))

space = {"x": tt.Float(0, 1), "act": tt.Choice(["relu", "tanh"])}
tt.tune(train, space, minimize="loss", trials=14, workers=1, seed=3, name="search", store=sys.argv[1])
"""


def killed_and_resumed(script: str, store: Path, *arguments: str, kills: int = 6) -> tt.Study:
    """Runs the script's study to its end, through so many kills of its driver, each after some progress."""
    dice = random.Random(1)
    done = 0
    while True:
        driver = subprocess.Popen([sys.executable, "-c", script, str(store), *arguments], stderr=subprocess.PIPE)
        if done < kills:
            before = reports_in(store)
            while driver.poll() is None and reports_in(store) == before:
                time.sleep(0.02)
            time.sleep(dice.uniform(0.0, 0.1))
            if driver.poll() is None:
                driver.kill()
                done += 1
        _, errors = driver.communicate()
        if driver.returncode == 0:
            break
        assert driver.returncode == -signal.SIGKILL, errors.decode()
    assert done == kills
    return tt.load("search", store)


def test_a_search_whose_driver_is_killed_goes_on_as_it_would_have(tmp_path: Path) -> None:
    """Each driver begins with a searcher that knows nothing but the log."""
    study = killed_and_resumed(SEARCH, tmp_path / "studies.db")
    undisturbed = tt.Study(study.space, minimize="loss", seed=3)
    for trial in study.trials:
        repeated = undisturbed.ask()
        assert repeated.config == trial.config
        assert trial.value is not None
        undisturbed.tell(repeated, trial.value)
    assert len(study.trials) == 14


RULE = """
import sys, time
import thriftune as tt

def train(trial):
    trial.restore(lambda folder: None)
    for step in trial.steps():
        time.sleep(0.05)
        trial.report(loss=trial["x"] + 1 / step, save=lambda folder: (folder / "state").write_text(str(step)))

rules = {"halving": tt.stopping.SuccessiveHalving(9), "asha": tt.stopping.ASHA(how="pause")}
rule = rules.get(sys.argv[2], sys.argv[2])
tt.tune(train, {"x": tt.Float(0, 1)}, minimize="loss", trials=18, max_steps=9, workers=2, stopping=rule,
        searcher="random", seed=3, name="search", store=sys.argv[1])
"""


@pytest.mark.parametrize("rule", ["halving", "asha", "auto"])
def test_no_rung_is_lost_when_the_driver_is_killed(tmp_path: Path, rule: str) -> None:
    """Curves do not cross here, so that a rule which forgot anything would finish others, or none."""
    study = killed_and_resumed(RULE, tmp_path / "studies.db", rule)
    assert study.result.finished == "all 18 trials done"
    completed = {trial.id for trial in study.trials if trial.state is State.COMPLETED}
    assert {trial.state for trial in study.trials} == {State.COMPLETED, State.PAUSED}
    if rule == "halving":  # the best of each nine
        brackets = (study.trials[:9], study.trials[9:])
        assert completed == {min(bracket, key=lambda trial: trial["x"]).id for bracket in brackets}
    else:
        assert study.best.id == min(study.trials, key=lambda trial: trial["x"]).id
        assert study.best.id in completed
    if rule == "auto":
        assert completed >= {0, 1, 2, 3}
    for trial in study.trials:  # what was done once is not done again but for what was not saved yet
        assert [report.step for report in trial.reports] == list(range(1, trial.step + 1))
        assert trial.failures == 0


BEGINS_ANEW = """
import sys, time
import thriftune as tt

def train(trial):
    for step in trial.steps():
        for _ in range(3):
            time.sleep(0.01)
            trial.report(step=step, loss=trial["x"] + 1 / step)

tt.tune(train, {"x": tt.Float(0, 1)}, minimize="loss", trials=18, max_steps=9, workers=2, searcher="random",
        stopping=tt.stopping.SuccessiveHalving(9), seed=3, name="search", store=sys.argv[1])
"""


def test_trials_that_begin_anew_get_where_they_were_promoted_to_whatever_is_killed(tmp_path: Path) -> None:
    """Without checkpoints, and with several reports a step: none is set aside again where it was before."""
    study = killed_and_resumed(BEGINS_ANEW, tmp_path / "studies.db", "")
    assert study.result.finished == "all 18 trials done"
    completed = {trial.id for trial in study.trials if trial.state is State.COMPLETED}
    assert {
        min(half, key=lambda trial: trial["x"]).id for half in (study.trials[:9], study.trials[9:])
    } <= completed
    for trial in study.trials:
        assert trial.attempts <= 3 + trial.losses  # a start, and two promotions
        assert trial.failures == 0


def reports_in(store: Path) -> int:
    if not store.exists():
        return 0
    with contextlib.suppress(tt.ThriftuneError):
        return sum(len(trial.reports) for trial in tt.load("search", store).trials)
    return 0
