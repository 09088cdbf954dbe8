"""Runs tables of events through a conductor, and returns its decisions, for tests with one line for each event.

After each line, the history is validated. A history that is replayed from the written form of the log must be in
the same state. The clock is a number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, cast

from thriftune.loop.conductor import Conductor
from thriftune.loop.failures import retry_seconds
from thriftune.loop.limits import nothing_left
from thriftune.provisioning.present_machines import PresentMachines
from thriftune.provisioning.protocol import Provisioner
from thriftune.search.protocol import Searcher
from thriftune.search.random import Random
from thriftune.space.objectives import Objective
from thriftune.space.parameters import Choice, Float
from thriftune.space.space import Space
from thriftune.state import events as ev
from thriftune.state.events import Codec
from thriftune.state.fleet import Fleet
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.trial_record import TrialRecord
from thriftune.stopping.protocol import Stopper
from thriftune.training.checkpoint_objects import checkpoint_name

SPACE = Space({"lr": Float(1e-4, 1e-1, log=True), "act": Choice(["relu", "tanh"])})
START = 1_700_000_000.0
PRICE = 3.6  # dollars per hour: a dollar pays for 1,000 seconds


class Table:
    """A study whose driver, engine, cloud and user are the test.

    Each call returns the decisions as short texts.
    """

    def __init__(
        self,
        *,
        slots: int = 1,
        space: Space = SPACE,
        maximize: bool = False,
        objectives: Sequence[Objective] = (),
        searcher: Searcher | None = None,
        stopper: Stopper | None = None,
        provisioner: Provisioner | None = None,
        **settings: Any,
    ) -> None:
        wanted = tuple(objectives) or (Objective("loss", maximize),)
        self.spec = Spec("table", space, wanted, 7, **settings)
        self._searcher = searcher or Random()
        self._stopper = stopper
        self._provisioner = provisioner or PresentMachines()
        self.now = START
        self.log: list[ev.Event] = []
        self._numbers: Counter[tuple[int, int]] = Counter()
        self.conductor = self._conductor()
        if slots:
            self.start(slots)

    @property
    def history(self) -> History:
        return self.conductor.history

    def _conductor(self) -> Conductor:
        history = replayed(self.spec, self.log)
        return Conductor(self.spec, history, self._searcher, self._provisioner, self._stopper)

    def __call__(self, *events: ev.Event) -> list[str]:
        """Run one cycle of the driver: hand events to the conductor, and return its decisions."""
        recorded = self.conductor.handle(events, self.now)
        self.log += recorded
        self.history.validate()
        assert self.history.entries == len(self.log)
        assert state(self.history) == state(replayed(self.spec, self.log))
        wake_at = self.conductor.wake_at(self.now)
        assert wake_at is None or wake_at > self.now, "the driver would spin"
        return [short(entry) for entry in recorded if isinstance(entry, ev.Decision)]

    def dropped(self, *events: ev.Event) -> bool:
        """Return whether these events are not recorded, and change nothing."""
        before, length = state(self.history), len(self.log)
        return self(*events) == [] and len(self.log) == length and state(self.history) == before

    def nothing_left(self) -> bool:
        """Return whether a driver that begins now would have nothing to do."""
        return nothing_left(self.spec, self.history, self._stopper, self.now)

    def later(self, seconds: float) -> list[str]:
        self.now += seconds
        return self()

    def retry(self, failures: int = 1) -> list[str]:
        """Wait until a trial that has failed this often is retried."""
        return self.later(retry_seconds(failures))

    # --- the driver

    def start(self, slots: int = 1) -> list[str]:
        ready = ev.MachineReady(self.now, ev.THIS_MACHINE, "desk", slots, PRICE)
        return self(ev.DriverStarted(self.now, 1, "host"), ready)

    def stop(self) -> list[str]:
        return self(ev.MachineReleased(self.now, ev.THIS_MACHINE), ev.DriverStopped(self.now))

    def kill_driver(self, **settings: Any) -> None:
        """Make another conductor from the log, and perhaps other settings."""
        if settings:
            self.spec = Spec(**{**{f.name: getattr(self.spec, f.name) for f in fields(Spec)}, **settings})
        self.conductor = self._conductor()

    # --- events of a trial, for its current attempt by default

    def trial(self, trial: int) -> TrialRecord:
        return self.history.trials[trial]

    def _attempt(self, trial: int, attempt: int | None) -> int:
        return self.trial(trial).attempts if attempt is None else attempt

    def a_report(
        self,
        trial: int,
        step: int,
        loss: float | None = None,
        *,
        saved: bool = False,
        attempt: int | None = None,
        number: int | None = None,
        **more: float,
    ) -> ev.Reported:
        attempt = self._attempt(trial, attempt)
        if number is None:
            self._numbers[trial, attempt] += 1
            number = self._numbers[trial, attempt]
        metrics = more if loss is None else {"loss": loss, **more}
        return ev.Reported(self.now, trial, attempt, number, step, metrics, saved)

    def report(self, trial: int, step: int, loss: float | None = None, **how: Any) -> list[str]:
        return self(self.a_report(trial, step, loss, **how))

    def a_checkpoint(
        self, trial: int, step: int, number: int, *, partial: bool = False, attempt: int | None = None
    ) -> ev.CheckpointSaved:
        """Return the event of an attempt's checkpoint. `number`: counts the checkpoints of the attempt."""
        attempt = self._attempt(trial, attempt)
        name = checkpoint_name(attempt, "3fa9c1d2", number)
        return ev.CheckpointSaved(self.now, trial, attempt, name, step, partial, 1000, 0.5)

    def an_end(self, trial: int, *, cut: bool = False, attempt: int | None = None) -> ev.Ended:
        return ev.Ended(self.now, trial, self._attempt(trial, attempt), 0.1, cut)

    def end(self, trial: int, *, cut: bool = False, attempt: int | None = None) -> list[str]:
        return self(self.an_end(trial, cut=cut, attempt=attempt))

    def fail(self, trial: int, kind: str = "raised", error: str = "boom", output: str = "") -> list[str]:
        return self(ev.Failed(self.now, trial, self._attempt(trial, None), kind, error, output))

    def lose(self, trial: int) -> list[str]:
        return self(ev.Lost(self.now, trial, self._attempt(trial, None), "SIGKILL"))

    def killed(self, trial: int, output: str = "") -> list[str]:
        return self(ev.Killed(self.now, trial, self._attempt(trial, None), output))


def replayed(spec: Spec, log: Iterable[ev.Event]) -> History:
    """Return the history that a reader of the store has."""
    written = [(Codec.kind(entry), Codec.body(entry)) for entry in log]
    history = spec.new_history()
    return history.apply_log(Codec.event(kind, body) for kind, body in written)


_CACHES = ("space", "leaders")


def state(history: History) -> dict[str, Any]:
    """Return the state of a history that its log determines, in a form that can be compared."""
    return {name: _plain(value) for name, value in vars(history).items() if name not in _CACHES}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Fleet):
        return _plain(vars(value))
    if isinstance(value, Counter):
        return dict(+value)
    if isinstance(value, dict):
        return [(key, _plain(each)) for key, each in value.items()]  # the order matters
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def short(decision: ev.Decision) -> str:
    """Return the short text of a decision."""
    match decision:
        case ev.Place(machine=ev.THIS_MACHINE):
            where = ""
        case ev.Place(machine=machine):
            where = f" on {machine}"
        case ev.Create() | ev.Promote() | ev.GiveUp() | ev.Retry():
            return f"{_name(decision)} {decision.trial}"
        case ev.Move() | ev.Pause() | ev.Stop() | ev.Kill():
            return f"{_name(decision)} {decision.trial}/{decision.attempt}"
        case ev.Rent() | ev.Release():
            return f"{_name(decision)} {decision.machine}"
        case ev.StopAfterFailures(trials=trials):
            return f"stop, as {', '.join(map(str, trials))} failed alike"
        case _:
            return f"finish: {cast(ev.Finish, decision).why}"
    resumed = f" from {decision.resume_step}" if decision.resume_step else ""
    return f"place {decision.trial}/{decision.attempt}{where}{resumed}"


def _name(decision: ev.Decision) -> str:
    return {"GiveUp": "give up"}.get(type(decision).__name__, type(decision).__name__.lower())
