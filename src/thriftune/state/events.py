"""The events and decisions that make up the log of a study.

Events are recorded in the log in order. A decision is an event that the conductor made. Each docstring says what
happened, which part of thriftune writes the event, and what it changes in the study's history. `at` is in unix
seconds.
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
"""The id of the driver's own machine. It is never rented, and it is present only while the driver runs."""

OUTSIDE = "outside"
"""The machine id of trials that the user runs in their own code, with Study.ask() and Study.tell()."""

SEARCHER, ENQUEUED, KNOWN = "searcher", "enqueued", "known"
"""The origin of a trial's configuration: the searcher, the queue, or a known result."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at a time."""

    at: float


@dataclass(frozen=True, slots=True)
class Decision(Event):
    """A decision of the conductor. It is recorded before it is carried out."""


# --- warm start -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WarmStarted(Event):
    """The study started with a copy of the results of another study.

    Written when the study is created. The copy stays valid when the other study changes or is deleted. The
    results are added to the history's `earlier`.

    - `space`: the space of the other study, as written by Space.to_json().
    - `trials`: pairs of a configuration and its value; the value is null for a failed trial.
    - `id`: the unique id of the other study.
    - `variances`, `step`: as in EarlierStudy. Logs of older versions do not have them.
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
    """A driver started to run the study.

    Written by the driver. All attempts that an earlier driver left running are lost, and a new drive begins.

    - `drive`: the id of the new drive, for the names of its checkpoints. Logs of older versions do not have it.
    """

    pid: int
    host: str
    drive: str = ""


@dataclass(frozen=True, slots=True)
class DriverStopped(Event):
    """The driver ended in good order. A killed driver does not write this event.

    Written by the driver. The drive ends.
    """


@dataclass(frozen=True, slots=True)
class StopRequested(Event):
    """The user requested that the study stop: by Ctrl-C, SIGTERM or `thriftune stop`.

    Written by the driver. The conductor then stops all running trials and places no others.

    - `by`: how the user requested it.
    """

    by: str


@dataclass(frozen=True, slots=True)
class Tick(Event):
    """Time has passed.

    The driver gives it to the conductor and never records it. Only the decisions that follow are recorded.
    """


# --- trials -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrialRequested(Event):
    """The user requested a configuration to run in their own code.

    Written by Study.ask(). The conductor answers with Create and Place decisions.
    """


@dataclass(frozen=True, slots=True)
class Enqueued(Event):
    """The user enqueued a configuration.

    It is tried before any configuration that the searcher suggests. Written by the process that creates the study,
    or by Study.enqueue(). The configuration need not have all parameters. It is added to the history's queue.
    """

    config: Config


@dataclass(frozen=True, slots=True)
class ResultAdded(Event):
    """The user added a known result.

    It consists of a configuration and its metrics, or the error with which it fails. Written by the process that
    creates the study, or by Study.add(). The history gets a trial that has already ended.
    """

    config: Config
    metrics: Metrics
    error: str = ""


@dataclass(frozen=True, slots=True)
class AttributeSet(Event):
    """The user attached an attribute to the study or to one of its trials.

    It replaces an attribute of the same name. Written by the user's process, or by the worker of a running trial.

    - `trial`: the trial's id; None for an attribute of the study.
    - `attempt`: the running attempt that set it; None if it was set from outside the trial.
    """

    name: str
    value: Any
    trial: int | None = None
    attempt: int | None = None


@dataclass(frozen=True, slots=True, init=False)
class Reported(Event):
    """A trial reported its metrics after a step.

    Written by the worker or Study.tell(). The report is added to the trial, whose value may change.

    - `number`: the number of the report in its attempt, from 1. It shows whether an event is a repetition.
    - `saved`: the step's checkpoint is complete, so that another attempt can resume from this step.
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
        # Nearly all entries of a log are reports. The setters of the slots create one in half the time of a frozen
        # dataclass, which uses object.__setattr__.
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
    """An attempt ended without an error.

    Written by the worker or Study.tell(). A trial with all needed metrics completes, else the attempt fails.
    If the attempt was cut, the decision that cut it sets the trial's state.

    - `seconds`: the time that the training function took.
    - `cut`: it ended early because of a Move, Pause or Stop decision.
    - `unread`: the parameters that the training function did not read, without those on which conditions depend.
      Empty if this is not known, as for commands.
    """

    trial: int
    attempt: int
    seconds: float
    cut: bool = False
    unread: Sequence[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Failed(Event):
    """An attempt failed through a fault of the trial itself.

    Written by the worker, the engine or Study.tell(). The trial waits for a decision to retry it or to fail it.

    - `kind`: the kind of failure: raised, exited, signal, memory, nan, no_value, or told (reported with
      Study.tell()). The history itself also uses the kinds timeout and lost.
    - `output`: the end of the attempt's output.
    """

    trial: int
    attempt: int
    kind: str
    error: str
    output: str = ""


@dataclass(frozen=True, slots=True)
class Killed(Event):
    """An attempt was killed because of a Kill decision.

    Written by the engine. The attempt fails with the kind "timeout", unless it already had an end request.
    """

    trial: int
    attempt: int
    output: str = ""


@dataclass(frozen=True, slots=True)
class Lost(Event):
    """The worker of an attempt vanished through no known fault of the trial.

    Written by the engine. The trial waits for another machine. The loss is no failure.
    """

    trial: int
    attempt: int
    why: str


@dataclass(frozen=True, slots=True)
class Warned(Event):
    """A worker has a warning for the user.

    An example is a corrupt checkpoint that was skipped. Written by the worker. The warning is added to the trial.

    - `once`: the warning is about the training function or a machine. It is then added to the study, and shown
      once.
    """

    trial: int
    attempt: int
    message: str
    once: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointSaved(Event):
    """A checkpoint of a trial is complete, after its report or in the middle of a step.

    Written by the worker when a checkpoint was uploaded, or by the driver that has found one of a lost worker. The
    next attempt of the trial can resume from it, and the report of its step counts as saved. It is ignored if the
    step has no report. A checkpoint in a folder that is complete when its step is
    reported has no such event; see Reported.saved.

    - `name`: the checkpoint's name, which no other checkpoint of the trial has.
    - `step`: the last step that is complete in it.
    - `partial`: it was saved in the middle of the step after `step`.
    - `upload_seconds`: how long its upload took; 0 in a folder.
    """

    trial: int
    attempt: int
    name: str
    step: int
    partial: bool = False
    size_bytes: int = 0
    upload_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DiskFull(Event):
    """A checkpoint could not be written because the disk is full.

    Written by the worker. The trial itself continues. The study's setting `disk_full` decides whether the study
    stops.
    """

    trial: int
    attempt: int
    error: str


@dataclass(frozen=True, slots=True)
class UsageMeasured(Event):
    """A worker measured a usage window: how its last `steps` steps used the machine.

    Written by the worker. The window is added to the trial.

    - `step`: the last step of the window. `seconds`: the duration of the window.
    - `setting`: the knob setting. It has only the knobs that are applied.
    - `cold`: the window contains the first step of its attempt, which is often slower than the others.
    - `counters`: counts per second and gauges, by name; see system/counters.py.
    - `kind`: the kind of machine. Windows of different kinds cannot be compared.
    - `joules`: the energy of the window. `meter`: how it was measured; "estimate" is no measurement.
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
    """A cloud has accepted the rental of a machine.

    Written by the cloud. The machine is billed from now on, but is not ready yet. It is added to the fleet.

    - `on_demand_per_hour`: the price of the same machine on demand, in dollars an hour; None if it is not known.
    - `price_known`: False for a spot machine without a known price; `price_per_hour` is then an on-demand price.
    """

    machine: str
    offer: str
    price_per_hour: float
    on_demand_per_hour: float | None = None
    price_known: bool = True


@dataclass(frozen=True, slots=True)
class MachineRefused(Event):
    """The cloud has refused a rental, because it has no machine of this offer now.

    Written by the cloud. The rental ends.
    """

    machine: str
    offer: str
    why: str


@dataclass(frozen=True, slots=True)
class MachineReady(Event):
    """A machine can run trials on its `slots`.

    Written by the cloud. The slots become free. `price_known` is as in MachineRented.
    """

    machine: str
    offer: str
    slots: int
    price_per_hour: float
    price_known: bool = True


@dataclass(frozen=True, slots=True)
class MachineNotice(Event):
    """The provider announced that it will preempt a machine.

    Written by the cloud. The machine gets no more trials.

    - `deadline`: the time of the preemption, in unix seconds.
    """

    machine: str
    deadline: float


@dataclass(frozen=True, slots=True)
class MachineLost(Event):
    """A machine was lost, with everything that ran on it.

    Written by the cloud. The attempts on it are lost, and the machine is not billed any more.

    - `revoked`: the provider preempted it, so no trial caused the loss.
    """

    machine: str
    why: str
    revoked: bool = False


@dataclass(frozen=True, slots=True)
class MachineReleased(Event):
    """A machine was released and is not billed any more.

    Written by the cloud. Attempts that still ran on it are lost.
    """

    machine: str


@dataclass(frozen=True, slots=True)
class MachineBilled(Event):
    """A machine that has ended was billed.

    Written by the cloud. The amount replaces the estimate from the machine's price.

    - `dollars`: the amount to pay. It includes `data` and does not include `refunded`.
    - `data`: the part of `dollars` for data transfer.
    - `refunded`: the dollars that the provider gives back.
    - `estimated`: computed from list prices, because the provider has sent no bill.
    """

    machine: str
    dollars: float
    data: float = 0.0
    refunded: float = 0.0
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class MachineShared(Event):
    """The number of slots that other studies use on a shared machine has changed.

    Written by the cloud. The number of free slots changes.

    - `slots`: the number of slots that others use now.
    """

    machine: str
    slots: int


@dataclass(frozen=True, slots=True)
class ShareChanged(Event):
    """This study's share of machines that several studies use has changed.

    Written by the cloud.

    - `workers`: the largest number of workers at the same time; None if it is not limited.
    - `why`: the reason, for users. It names the other studies.
    """

    workers: int | None
    why: str


# --- decisions --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Create(Decision):
    """Create a trial, which then waits for a machine.

    - `origin`: SEARCHER or ENQUEUED.
    - `expected_gain`: the improvement of the best value that the searcher expected; None if nothing uses it.
    """

    trial: int
    config: Config
    origin: str = SEARCHER
    expected_gain: float | None = None


@dataclass(frozen=True, slots=True)
class Place(Decision):
    """Start an attempt of a waiting trial on a machine.

    The trial runs and occupies slots.

    - `machine`: the machine of the worker with rank 0.
    - `resume_step`: the step of the checkpoint from which it resumes; 0 if it starts from the beginning.
    - `workers`: for a gang, the number of workers by machine; None for a single worker.
    - `save_every`: seconds between checkpoints; None if it saves only when a checkpoint is required.
    """

    trial: int
    attempt: int
    machine: str
    resume_step: int
    workers: Mapping[str, int] | None = None
    save_every: float | None = 0.0


@dataclass(frozen=True, slots=True)
class Move(Decision):
    """End the attempt after its next step, and let the trial wait for another machine.

    The attempt gets the end request "move".
    """

    trial: int
    attempt: int
    why: str

    @property
    def end_request(self) -> str:
        """Return the end request of the attempt."""
        return "move"


@dataclass(frozen=True, slots=True)
class Pause(Decision):
    """End the attempt after its next step, and pause the trial.

    The trial may be promoted later. The attempt gets the end request "pause".
    """

    trial: int
    attempt: int
    why: str

    @property
    def end_request(self) -> str:
        """Return the end request of the attempt."""
        return "pause"


@dataclass(frozen=True, slots=True)
class Stop(Decision):
    """End the attempt after its next step. The trial gets no other attempt.

    The attempt gets an end request. The trial then counts as stopped. If it has a value and one of the three flags
    is set, it counts as finished.

    - `why`: "deadline", "budget", or the stopping rule that decided it.
    - `converged`: more steps would change nothing.
    - `reached`: its value has reached the study's target. If the last value counts, later reports are dropped.
    - `expired`: it has used up its time. It fails if it has no value.
    """

    trial: int
    attempt: int
    why: str
    converged: bool = False
    reached: bool = False
    expired: bool = False

    @property
    def end_request(self) -> str:
        """Return the end request of the attempt: "reach", "expire", "converge" or "stop"."""
        if self.reached:
            return "reach"
        if self.expired:
            return "expire"
        return "converge" if self.converged else "stop"


@dataclass(frozen=True, slots=True)
class Promote(Decision):
    """Let a paused trial continue. It waits for a machine again."""

    trial: int


@dataclass(frozen=True, slots=True)
class Kill(Decision):
    """End the attempt at once.

    It has exceeded its time limit, or did not stop after an end request. The attempt keeps running until the
    engine has sent Killed.
    """

    trial: int
    attempt: int
    why: str


@dataclass(frozen=True, slots=True)
class GiveUp(Decision):
    """Fail a trial, which gets no other attempt.

    Its retries are used up, or its attempts were lost too often.

    - `why`: the reason, as a sentence.
    - `kind`: the kind of the error if `why` is the trial's own error, else empty.
    """

    trial: int
    why: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class StopAfterFailures(Decision):
    """Stop the study, because its first trials all failed with the same error.

    - `trials`: the ids of these trials.
    """

    trials: Sequence[int]


@dataclass(frozen=True, slots=True)
class Retry(Decision):
    """Run a failed trial again, because the user says that its cause is fixed.

    Recorded while no driver runs. The trial waits again. Its earlier failures and seconds do not count towards
    limits.
    """

    trial: int


@dataclass(frozen=True, slots=True)
class SetKnobs(Decision):
    """Let a trial use this knob setting from its next step, or from its next attempt.

    - `setting`: the value of each knob that is applied.
    - `why`: the reason, for users.
    - `by`: the evidence for the decision; PROBE if the setting is only probed.
    """

    trial: int
    setting: Mapping[str, Any]
    why: str
    by: str = ""


PROBE = "look"
"""The value of SetKnobs.by for a setting that is tried for a few steps to measure its effect."""


@dataclass(frozen=True, slots=True)
class LimitTrialsPerMachine(Decision):
    """Run at most `at_a_time` trials at the same time on machines with `slots` slots.

    Each trial then gets a larger share of the machine.
    """

    slots: int
    at_a_time: int
    why: str


@dataclass(frozen=True, slots=True)
class Rent(Decision):
    """Rent a machine of this offer.

    The fleet expects the machine until the cloud answers.

    - `machine`: the new machine's id.
    - `max_price`: dollars an hour. The provider may preempt it at a higher price. None if there is no limit.
    - `trial`: the id of the trial for which it is rented; None if it is not for a particular trial.
    """

    machine: str
    offer: str
    max_price: float | None = None
    trial: int | None = None


@dataclass(frozen=True, slots=True)
class Release(Decision):
    """Release a machine. It gets no more trials."""

    machine: str


@dataclass(frozen=True, slots=True)
class Finish(Decision):
    """Finish the study: nothing is left to do within its limits.

    `why` is the finish reason.
    """

    why: str


# --- the format in the log --------------------------------------------------------------------------------


# The names that logs use for classes that were renamed later.
_NAMES_IN_LOGS = {
    "TrialRequested": "Asked",
    "ResultAdded": "Known",
    "UsageMeasured": "Measured",
    "SetKnobs": "Turn",
    "StopAfterFailures": "StopFailing",
    "LimitTrialsPerMachine": "Narrow",
}


class Codec:
    """Converts events to JSON and back, and checks them.

    A field that this version does not know raises an error. It is not ignored.
    """

    kinds: ClassVar[dict[str, type[Event]]] = {}  # every event class, by its name in logs
    _names: ClassVar[dict[type[Event], str]] = {}  # the inverse of `kinds`
    _fields: ClassVar[dict[type[Event], tuple[str, ...]]] = {}
    _checks: ClassVar[
        dict[str, dict[str, Callable[[Any], bool]]]
    ] = {}  # a check for each field, by kind and field

    @classmethod
    def register(cls, base: type[Event]) -> None:
        """Add all subclasses of `base`. Called once, when this module is imported."""
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
        """Return the event's fields as a JSON object, without its kind."""
        return _dumps({name: getattr(event, name) for name in cls._fields[type(event)]})

    @classmethod
    def event(cls, kind: str, body: str) -> Event:
        """Return the event of this kind from the JSON of body().

        Raises ValueError if it is not valid.
        """
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


# Encodes as ASCII, because the output of a program may contain bytes that are not valid text.
_dumps = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
# raw_decode() is faster than json.loads() for the many short entries of a log.
_decode = json.JSONDecoder().raw_decode
Codec.register(Event)
