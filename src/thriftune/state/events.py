"""What can happen? The vocabulary of events (it happened) and decisions (the conductor chose it).

Both are plain frozen dataclasses, and both go into the study's log, in order: the state of a study is the fold
of its log (history.py) and nothing else. Engines, clouds and drivers give events to the conductor; it gives
decisions back. `at` is unix seconds on everything, so that nobody downstream needs a clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from reprlib import repr as short
from typing import Any, ClassVar

from thriftune.state.event_checks import CHECKS, is_time

Config = Mapping[str, Any]
Metrics = Mapping[str, float]

THIS_MACHINE = "this machine"
"""The machine the driver runs on: always there, never rented, gone when the driver is."""

OUTSIDE = "outside"
"""Where a trial that the user asked for runs: in the user's own code, however they like."""

SEARCHER, ENQUEUED, KNOWN = "searcher", "enqueued", "known"
"""Where a configuration comes from: suggested, enqueued by the user, or part of a result that the user knew."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at a moment."""

    at: float


@dataclass(frozen=True, slots=True)
class Decision(Event):
    """Something the conductor decided; recorded before it is carried out."""


# --- before anything else ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WarmStarted(Event):
    """Copies what another study knows into this one's log, before the first trial; that study may change or go.

    - `space`: the other study's, as Space.to_json() writes it.
    - `trials`: a configuration and its value each; null if the trial failed.
    - `id`: the other study's; unlike its name, no other study has it.
    - `variances`, `step`: as in EarlierStudy; older logs have none.
    """

    study: str
    space: Mapping[str, Any]
    metric: str
    maximize: bool
    trials: Sequence[Any]
    id: str = ""
    variances: Sequence[float] = ()
    step: int | None = None


# --- the driver -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DriverStarted(Event):
    """A driver took the study over. Whatever ran with an earlier driver is not running any more."""

    pid: int
    host: str


@dataclass(frozen=True, slots=True)
class DriverStopped(Event):
    """The driver ended in good order (it may also just vanish)."""


@dataclass(frozen=True, slots=True)
class StopRequested(Event):
    """Somebody wants the study to stop cleanly: Ctrl-C, SIGTERM, `thriftune stop`."""

    by: str


@dataclass(frozen=True, slots=True)
class Tick(Event):
    """Time has passed. Never recorded: what was decided because of it is."""


# --- trials -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrialRequested(Event):
    """The user asked for a configuration to run in their own code."""


@dataclass(frozen=True, slots=True)
class Enqueued(Event):
    """The user wants this configuration tried before any of the searcher's. It may leave parameters open."""

    config: Config


@dataclass(frozen=True, slots=True)
class ResultAdded(Event):
    """The user knows a result from elsewhere: the metrics of a configuration, or the error that it fails with."""

    config: Config
    metrics: Metrics
    error: str = ""


@dataclass(frozen=True, slots=True)
class AttributeSet(Event):
    """The user attached a value to the study or to one of its trials; a value of the same name is replaced.

    `attempt`: of the trial, which set it while it ran; None if it was set from outside.
    """

    name: str
    value: Any
    trial: int | None = None
    attempt: int | None = None


@dataclass(frozen=True, slots=True, init=False)
class Reported(Event):
    """A trial finished a step. `saved`: the step's checkpoint is complete and can be resumed from.

    `number` counts the reports of an attempt from 1, so that one which arrives twice is known.
    """

    trial: int
    attempt: int
    number: int
    step: int
    metrics: Metrics
    saved: bool = False

    def __init__(
        self, at: float, trial: int, attempt: int, number: int, step: int, metrics: Metrics, saved: bool = False
    ) -> None:
        # Nearly all of a log is reports. By each slot's own setter one is made in half the time that it takes
        # a frozen dataclass, which goes through object.__setattr__.
        _set_at(self, at)
        _set_trial(self, trial)
        _set_attempt(self, attempt)
        _set_number(self, number)
        _set_step(self, step)
        _set_metrics(self, metrics)
        _set_saved(self, saved)


_set_at, _set_trial, _set_attempt, _set_number, _set_step, _set_metrics, _set_saved = (
    getattr(Reported, each.name).__set__ for each in fields(Reported)
)


@dataclass(frozen=True, slots=True)
class Ended(Event):
    """An attempt ended in good order. `cut`: because it was told to, before its own end.

    `seconds` is what the training function itself took. `unread`: the parameters that it did not read, but for
    those that conditions of others ask of; empty also where that is not known, as of commands.
    """

    trial: int
    attempt: int
    seconds: float
    cut: bool = False
    unread: Sequence[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Failed(Event):
    """An attempt failed by the trial's own fault. `kind` is a word a program can tell apart:

    raised, exited, signal, memory, nan, told (by Study.tell); the history adds timeout, no_value and lost.
    """

    trial: int
    attempt: int
    kind: str
    error: str
    output: str = ""


@dataclass(frozen=True, slots=True)
class Killed(Event):
    """An attempt was ended as a Kill decision said."""

    trial: int
    attempt: int
    output: str = ""


@dataclass(frozen=True, slots=True)
class Lost(Event):
    """An attempt's worker vanished through no fault of the trial's."""

    trial: int
    attempt: int
    why: str


@dataclass(frozen=True, slots=True)
class Warned(Event):
    """Something a user should know about a trial, such as a checkpoint that was corrupt and passed over.

    `once`: it is about the training function, so the same for every trial, and is told once in a study.
    """

    trial: int
    attempt: int
    message: str
    once: bool = False


@dataclass(frozen=True, slots=True)
class DiskFull(Event):
    """A checkpoint could not be written for want of room; the trial itself is unharmed."""

    trial: int
    attempt: int
    error: str


@dataclass(frozen=True, slots=True)
class UsageMeasured(Event):
    """How an attempt's last `steps` steps used its machine, of which `step` was the last.

    - `setting`: what its knobs stood at, as far as they were turned.
    - `cold`: its attempt's first step is among them, which often takes longer than the others.
    - `counters`: averages a second, by name; `kind`: of machine and counters: others cannot be compared.
    - `joules`: by the meter named; one named "estimate" is none.
    """

    trial: int
    attempt: int
    step: int
    steps: int
    seconds: float
    setting: Mapping[str, Any]
    cold: bool = False
    counters: Mapping[str, float] = field(default_factory=dict)
    kind: str = ""
    joules: float = 0.0
    meter: str = ""


# --- machines ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MachineRented(Event):
    """A cloud has promised a machine; it is being billed or will be, but is not there yet.

    - `on_demand_per_hour`: the price of the same machine on demand; None: not known.
    - `price_known`: False for a spot machine without a known price; `price_per_hour` is then an on-demand price.
    """

    machine: str
    offer: str
    price_per_hour: float
    on_demand_per_hour: float | None = None
    price_known: bool = True


@dataclass(frozen=True, slots=True)
class MachineRefused(Event):
    """The cloud has no such machine to give now."""

    machine: str
    offer: str
    why: str


@dataclass(frozen=True, slots=True)
class MachineReady(Event):
    """A machine can take trials: `slots` at a time. `price_known`: as in MachineRented."""

    machine: str
    offer: str
    slots: int
    price_per_hour: float
    price_known: bool = True


@dataclass(frozen=True, slots=True)
class MachineNotice(Event):
    """The machine will be taken away at `deadline`."""

    machine: str
    deadline: float


@dataclass(frozen=True, slots=True)
class MachineLost(Event):
    """The machine is gone, and with it whatever ran there. `revoked`: its provider took it away, so that it cannot
    be a trial's fault."""

    machine: str
    why: str
    revoked: bool = False


@dataclass(frozen=True, slots=True)
class MachineReleased(Event):
    """The machine has been given back and is billed no more."""

    machine: str


@dataclass(frozen=True, slots=True)
class MachineBilled(Event):
    """The cost of a machine that is gone, by its provider's rules.

    - `dollars`: to be paid, `data` included and `refunded` not.
    - `estimated`: computed from list prices; the provider has sent no bill.
    """

    machine: str
    dollars: float
    data: float = 0.0
    refunded: float = 0.0
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class MachineShared(Event):
    """Of a machine that is not this study's alone: so many of its slots are in use by others now."""

    machine: str
    slots: int


@dataclass(frozen=True, slots=True)
class ShareChanged(Event):
    """Others want the machines, too: so many workers at a time are this study's; None: as many as find room.

    `why`: who the others are, in words.
    """

    workers: int | None
    why: str


# --- decisions --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Create(Decision):
    """A new trial. `origin`: where its configuration comes from, one of those above.

    `expected_gain`: by how much the searcher expected it to improve the best value, where the study asks for that.
    """

    trial: int
    config: Config
    origin: str = SEARCHER
    expected_gain: float | None = None


@dataclass(frozen=True, slots=True)
class Place(Decision):
    """Run the trial on the machine, from its last recorded checkpoint (`resume_step` 0: from the start).

    `workers`: of a trial that has several, how many on which machine, the given one among them; else there is one.
    `save_every`: it need not save more often than every so many seconds; None: only when it has to.
    """

    trial: int
    attempt: int
    machine: str
    resume_step: int
    workers: Mapping[str, int] | None = None
    save_every: float | None = 0.0


@dataclass(frozen=True, slots=True)
class Move(Decision):
    """End the attempt after its next step and let the trial wait for another machine."""

    trial: int
    attempt: int
    why: str


@dataclass(frozen=True, slots=True)
class Pause(Decision):
    """End the attempt after its next step and set the trial aside; it may be promoted later."""

    trial: int
    attempt: int
    why: str


@dataclass(frozen=True, slots=True)
class Stop(Decision):
    """End the attempt after its next step; the trial gets no other.

    `why`: "deadline", "budget", or the rule that decided it. A trial that is stopped for one of these reasons
    counts as finished with the value it has, if it has one:

    - `converged`: more steps would change nothing.
    - `reached`: its value has reached the study's target. Where the last value counts, it reports no other.
    - `expired`: its time is used up. Without a value it fails.
    """

    trial: int
    attempt: int
    why: str
    converged: bool = False
    reached: bool = False
    expired: bool = False


@dataclass(frozen=True, slots=True)
class Promote(Decision):
    """A paused trial deserves more steps: it waits for a machine again."""

    trial: int


@dataclass(frozen=True, slots=True)
class Kill(Decision):
    """End the attempt now, whatever it is doing: it hangs past its limit, or did not stop when told to."""

    trial: int
    attempt: int
    why: str


@dataclass(frozen=True, slots=True)
class GiveUp(Decision):
    """The trial has failed for good: its retries are used up, or it vanishes again and again.

    `kind`: of the error, where `why` is the trial's error and not how often it came.
    """

    trial: int
    why: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class StopAfterFailures(Decision):
    """Stop the study, as its first trials have all failed in the same way. Those are `trials`."""

    trials: Sequence[int]


@dataclass(frozen=True, slots=True)
class Retry(Decision):
    """Have a trial that has failed run again: its user says that the cause is mended, so its failures are over."""

    trial: int


@dataclass(frozen=True, slots=True)
class SetKnobs(Decision):
    """Have the trial go on with its knobs at this setting, from its next step or its next attempt on.

    `by`: what it rests on; PROBE: nothing yet, it is to be looked at.
    """

    trial: int
    setting: Mapping[str, Any]
    why: str
    by: str = ""


PROBE = "look"


@dataclass(frozen=True, slots=True)
class LimitTrialsPerMachine(Decision):
    """Run so many trials at a time on each machine of so many slots, and no more, so that each has more of it."""

    slots: int
    at_a_time: int
    why: str


@dataclass(frozen=True, slots=True)
class Rent(Decision):
    """Rent a machine of this offer.

    - `max_price`: it may be taken away when an hour of it costs more.
    - `trial`: whom it is for, if for somebody.
    """

    machine: str
    offer: str
    max_price: float | None = None
    trial: int | None = None


@dataclass(frozen=True, slots=True)
class Release(Decision):
    """Give the machine back."""

    machine: str


@dataclass(frozen=True, slots=True)
class Finish(Decision):
    """Nothing is left to do within the limits."""

    why: str


# --- the written form -------------------------------------------------------------------------------------


# Classes that were renamed keep the name under which logs hold them.
_NAMES_IN_LOGS = {
    "TrialRequested": "Asked",
    "ResultAdded": "Known",
    "UsageMeasured": "Measured",
    "SetKnobs": "Turn",
    "StopAfterFailures": "StopFailing",
    "LimitTrialsPerMachine": "Narrow",
}


class Codec:
    """Writes events as one line of JSON each, and reads and checks them.

    Unknown fields of a later version are an error, never dropped.
    """

    kinds: ClassVar[dict[str, type[Event]]] = {}  # every event class, by the name that a log holds
    _names: ClassVar[dict[type[Event], str]] = {}  # the same, the other way round
    _fields: ClassVar[dict[type[Event], tuple[str, ...]]] = {}
    _checks: ClassVar[dict[str, dict[str, Callable[[Any], bool]]]] = {}  # by kind and field

    @classmethod
    def register(cls, base: type[Event]) -> None:
        for kind in base.__subclasses__():
            name = _NAMES_IN_LOGS.get(kind.__name__, kind.__name__)
            cls.kinds[name] = kind
            cls._names[kind] = name
            cls._fields[kind] = tuple(f.name for f in fields(kind))
            checks = {f.name: CHECKS[str(f.type)] for f in fields(kind)}
            cls._checks[name] = checks | {"at": is_time}
            cls.register(kind)

    @classmethod
    def kind(cls, event: Event) -> str:
        """Return the name of the event's class in a log."""
        return cls._names[type(event)]

    @classmethod
    def body(cls, event: Event) -> str:
        """The event's fields as a JSON object, without its kind."""
        return _dumps({name: getattr(event, name) for name in cls._fields[type(event)]})

    @classmethod
    def event(cls, kind: str, body: str) -> Event:
        """Return the event that body() wrote. Raises ValueError for anything else."""
        try:
            values, _ = _decode(body)
            event = cls.kinds[kind](**values)
            checks = cls._checks[kind]
            for name, value in values.items():
                if not checks[name](value):
                    raise ValueError(f"its {name} is {short(value)}")
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"an entry of kind {kind!r} cannot be read ({error})") from error
        return event


# Pure ASCII: the output of a program may hold bytes that are no text, and those must be storable too.
_dumps = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
# A long log is decoded one entry at a time; raw_decode spares each what json.loads does around it.
_decode = json.JSONDecoder().raw_decode
Codec.register(Event)
