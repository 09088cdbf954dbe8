"""Studies for the tests of what people see: written straight into a store, without running anything."""

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
    space = Space({"lr": Float(0.001, 1.0, log=True), "act": Choice(["relu", "tanh"])})
    target = Target("command", command=("true",))
    known: dict[str, object] = {"target": target, "trials": 6, "max_steps": 3, "storage": "", **settings}
    return Spec(name, **{"space": space, "objectives": LOSS, "seed": 0, **known})  # type: ignore[arg-type]


def log(*, finished: bool = True) -> list[ev.Event]:
    """Trials 0 and 1 complete, 2 fails for good, 3 is running, 4 waits for its retry."""
    entries: list[ev.Event] = [
        ev.DriverStarted(100.0, 77, "there"),
        ev.MachineReady(100.0, ev.THIS_MACHINE, "AWS c7i.large", 4, 0.36),
    ]
    for trial, top in ((0, 4.0), (1, 2.0)):
        entries.append(ev.Create(101.0, trial, {"lr": 0.01 * (trial + 1), "act": "relu"}))
        entries.append(ev.Place(101.0, trial, 1, ev.THIS_MACHINE, 0))
        for step in (1, 2, 3):
            metrics = {"loss": top / step, "gap": math.nan}
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


TWO = (*LOSS, Objective("speed", True))


def log_of_two(*rows: tuple[float, float]) -> list[ev.Event]:
    """A trial for each row of loss and speed, each with two steps."""
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


def fold(entries: list[ev.Event], of: Spec) -> History:
    return of.new_history().apply_log(entries)


def write(store: Store, of: Spec, entries: list[ev.Event], *, summary: bool = True) -> None:
    store.create(of.name, of.to_json(), 99.0)
    store.append(of.name, 0, entries, summarize(fold(entries, of), 110.0) if summary else None)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
