"""What a worker is told about one attempt, and how its trial talks to the driver and to the other workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from thriftune.state.events import Config, Event, UsageMeasured

COUNTED = 1
"""The number of a report until its link numbers it, if its step was counted here: the next one after the last.

Several processes of one command count each for itself; the worker that runs the command counts for all of them.
"""


class EndTrial(BaseException):
    """Unwinds a training function that does not loop over trial.steps() when it is to end.

    Not an Exception, so that a training function's own `except Exception` does not swallow it.
    """


class TrialFailed(Exception):
    """The attempt has failed for a reason of its own kind, such as a value that is no number."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class TrialLost(Exception):
    """The attempt cannot go on, through no fault of the trial's: what it ran was ended from outside."""


@dataclass(frozen=True, slots=True)
class Run:
    """Everything a worker needs to know to run one attempt."""

    trial: int
    attempt: int
    config: Config
    resume_step: int
    objectives: Sequence[str]  # their metrics
    max_steps: int | None
    seed: int
    folder: str  # of this trial: its checkpoints, and a command's working state
    keep: int
    judged: bool = False  # each report is answered: a rule may find the trial not worth another step
    workers: int = 1
    save_every: float | None = 0.0  # seconds: no need to save more often, unless it is to end; None: only then
    rank: int = 0  # of this worker among those of the trial; the first of them speaks and saves
    system: Mapping[str, Any] | None = None  # the setting of its knobs to begin with; None: they are left alone
    options: Mapping[str, Any] = field(default_factory=dict)  # what a user's own stand at, as they are unturned
    meet: str = ""  # of a trial with several workers: the HOST:PORT at which the first awaits the others
    key: str = ""  # which they show there
    saves: Mapping[str, Any] | None = None  # what is known of saved steps, from known_saves(); None: no best one
    names: Sequence[str] = ()  # of all parameters of the space, also inactive ones; empty where not known
    asked_of: Sequence[str] = ()  # parameters that conditions of others ask of: these have an effect unread


class Link(Protocol):
    """How a live trial talks to whoever drives it."""

    def send(self, event: Event) -> int:
        """Returns when the event will survive the death of this process and of the driver.

        A report is numbered here, from 1 in each attempt, in the order of sending; returns that number, and 0
        for other events. Threads and signal handlers may call it at any time.
        """

    def told_to_end(self) -> bool: ...

    def wait_for_answer(self, number: int, seconds: float) -> None:
        """Returns when the report of that number was judged, or after so many seconds."""


class Gang(Protocol):
    """How the workers of a live trial keep step, where it has several: the first leads, the others follow."""

    def share(self, what: str, value: Any) -> Any:
        """The first worker's value. Each of them calls it, of the same things in the same order.

        The others wait for it. Raises EndTrial where the first is gone, TrialLost where not all have come.
        """

    def hear_end(self, told: bool) -> bool:
        """Whether the first worker was told to end, as far as is known now: without waiting, and not in step."""

    def await_others(self, what: str) -> None:
        """The first waits until each of the others has come to this point, or is gone."""

    def meeting(self, port: Callable[[str], int]) -> Meeting:
        """Where the workers' own libraries meet: at the first one's machine, at the port `port(host)` finds."""

    @property
    def here(self) -> str:
        """The address of this worker's machine."""


class Meeting(NamedTuple):
    """Where the workers' own libraries meet; and which this worker is among those that see the same devices."""

    host: str
    port: int
    local_rank: int


class StepGauge(Protocol):
    """Measures how a live trial uses its machine, between its steps."""

    @property
    def setting(self) -> Mapping[str, Any]:
        """The knobs that are set now, and their values."""

    def next_step(self, step: int) -> list[str]:
        """Begin a step with the setting that the driver asked for; return what could not be set, in sentences."""

    def step_done(self, step: int) -> UsageMeasured | None:
        """Return what was measured, if a window of steps is complete."""
