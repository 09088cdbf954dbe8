"""Specs and logs of made-up studies, and functions that write them to a store without running a trial."""

from __future__ import annotations

import math
from pathlib import Path

from thriftune.space.objectives import Objective
from thriftune.space.parameters import Choice, Float
from thriftune.space.space import Space
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.spec import Spec, Target
from thriftune.state.summary import summarize
from thriftune.store.protocol import Store

LOSS = (Objective("loss", False),)

TRACEBACK = (
    'Traceback (most recent call last):\n  File "train.py", line 8, in train\n    raise ValueError("bad [red]")\n'
    "ValueError: bad [red]\nand a second line"
)


def spec(name: str = "digits", **settings: object) -> Spec:
    """Return the spec of a study of two parameters and at most six trials of three steps."""
    space = Space({"lr": Float(0.001, 1.0, log=True), "act": Choice(["relu", "tanh"])})
    target = Target("command", command=("true",))
    merged: dict[str, object] = {"target": target, "trials": 6, "max_steps": 3, "storage": "", **settings}
    return Spec(name, **{"space": space, "objectives": LOSS, "seed": 0, **merged})  # type: ignore[arg-type]


def log(*, finished: bool = True) -> list[ev.Event]:
    """Return a log in which trials 0 and 1 complete, and trial 2 fails for good.

    An unfinished log also has trial 3, which runs, and trial 4, which waits for its retry.
    """
    entries: list[ev.Event] = [
        ev.DriverStarted(100.0, 77, "there"),
        ev.MachineReady(100.0, ev.THIS_MACHINE, "AWS c7i.large", 4, 0.36),
    ]
    for trial, first_loss in ((0, 4.0), (1, 2.0)):
        entries.append(ev.Create(101.0, trial, {"lr": 0.01 * (trial + 1), "act": "relu"}))
        entries.append(ev.Place(101.0, trial, 1, ev.THIS_MACHINE, 0))
        for step in (1, 2, 3):
            metrics = {"loss": first_loss / step, "gap": math.nan}
            entries.append(ev.Reported(101.0 + step, trial, 1, step, step, metrics, saved=step == 2))
        entries.append(ev.Warned(104.0, trial, 1, f"odd \x1b[31m{trial}"))
        entries.append(ev.Ended(105.0 + trial, trial, 1, 3.0))
    entries.append(ev.Create(107.0, 2, {"lr": 0.5, "act": "tanh"}))
    for attempt in (1, 2):
        entries.append(ev.Place(107.0, 2, attempt, ev.THIS_MACHINE, 0))
        entries.append(ev.Failed(108.0, 2, attempt, "raised", TRACEBACK, "10%\r20%\n\x1b[2Jlast words"))
    entries.append(ev.GiveUp(108.0, 2, "failed 2 times"))
    if finished:
        return [*entries, ev.Finish(109.0, "all 3 trials done"), ev.DriverStopped(110.0)]
    for trial in (3, 4):
        entries.append(ev.Create(109.0, trial, {"lr": 0.7, "act": ("relu", "tanh")[trial - 3]}))
        entries.append(ev.Place(109.0, trial, 1, ev.THIS_MACHINE, 0))
        entries.append(ev.Reported(109.5, trial, 1, 1, 1, {"loss": 9.0}, saved=True))
    return [*entries, ev.Failed(110.0, 4, 1, "raised", TRACEBACK)]


TWO_OBJECTIVES = (*LOSS, Objective("speed", True))


def log_of_two_objectives(*rows: tuple[float, float]) -> list[ev.Event]:
    """Return a log with a trial of two steps for each row of loss and speed."""
    entries: list[ev.Event] = [
        ev.DriverStarted(100.0, 77, "there"),
        ev.MachineReady(100.0, ev.THIS_MACHINE, "AWS c7i.large", 4, 0.36),
    ]
    for trial, (loss, speed) in enumerate(rows):
        entries.append(ev.Create(101.0, trial, {"lr": 0.01 * (trial + 1), "act": "relu"}))
        entries.append(ev.Place(101.0, trial, 1, ev.THIS_MACHINE, 0))
        entries.append(ev.Reported(102.0, trial, 1, 1, 1, {"loss": loss + 1, "speed": speed}))
        entries.append(ev.Reported(103.0, trial, 1, 2, 2, {"loss": loss, "speed": speed}))
        entries.append(ev.Ended(104.0 + trial, trial, 1, 3.0))
    return [*entries, ev.Finish(109.0, f"all {len(rows)} trials done"), ev.DriverStopped(110.0)]


def fold(entries: list[ev.Event], study_spec: Spec) -> History:
    """Return the state of a study after these entries."""
    return study_spec.new_history().apply_log(entries)


def write(store: Store, study_spec: Spec, entries: list[ev.Event], *, summary: bool = True) -> None:
    """Create a study with these entries; without `summary`, as a killed driver leaves it."""
    store.create(study_spec.name, study_spec.to_json(), 99.0)
    store.append(study_spec.name, 0, entries, summarize(fold(entries, study_spec), 110.0) if summary else None)


def relative_paths(folder: Path) -> list[str]:
    """Return the paths of all files and folders in a folder, relative to it and sorted."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
