"""The data that a worker gets for one attempt, and the protocols by which its trial talks to others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from thriftune.state.events import Config, Event, UsageMeasured

COUNTED = 1
"""The number of a report without a given step, until its link numbers it.

Each process of a command counts its own steps; the worker that runs the command numbers the reports of all.
"""


class EndTrial(BaseException):
    """Ends a training function that does not loop over trial.steps().

    Not an Exception, so that an `except Exception` in the training function does not catch it.
    """


class TrialFailed(Exception):
    """The attempt has failed for a reason other than an exception, such as a NaN. `kind`: that of the failure."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class TrialLost(Exception):
    """The attempt cannot go on, for a reason outside of the trial: a worker or a process of it was ended."""


@dataclass(frozen=True, slots=True)
class Run:
    """Everything a worker needs to know to run one attempt."""

    trial: int
    attempt: int
    config: Config
    resume_step: int
    objectives: Sequence[str]  # the names of their metrics
    max_steps: int | None
    seed: int
    folder: str  # the trial's folder, for its checkpoints and a command's working state
    keep: int  # checkpoints to keep, besides the best one
    judged: bool = False  # whether a stopping rule answers each report
    workers: int = 1
    save_every: float | None = 0.0  # least seconds between checkpoints; None: save only before the end
    rank: int = 0  # of this worker; worker 0 reports and saves
    system: Mapping[str, Any] | None = None  # the first knob setting; None: leave the knobs alone
    options: Mapping[str, Any] = field(default_factory=dict)  # the user's own knobs and their default values
    leader_address: str = ""  # HOST:PORT at which worker 0 of a gang listens; empty without a gang
    gang_key: str = ""  # a secret that the workers of the gang send when they connect
    objects: str = ""  # the URL below which the study keeps its checkpoints; empty: in the trial's folder
    drive: str = ""  # the id of the drive that runs this attempt, for the names of its checkpoints
    checkpoints: Sequence[Sequence[Any]] = ()  # (name, step) of stored ones up to resume_step, the newest first
    resume_partial: bool = False  # the newest checkpoint is of the middle of the step after resume_step
    known_saves: Mapping[str, Any] | None = None  # from known_saves(); None: no saved step is the best one
    parameter_names: Sequence[str] = ()  # of all parameters, also inactive ones; empty if not known
    condition_parameters: Sequence[str] = ()  # parameters on which others depend; they need not be read
    data: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by name: a URL or path, and its version


class Link(Protocol):
    """The connection of a live trial to the engine that runs it."""

    def send(self, event: Event) -> int:
        """Send an event, and return once it survives the death of this process and of the driver.

        Numbers reports from 1 in each attempt, in the order of sending. Returns the number of a report, and 0 for
        other events. Threads and signal handlers may call it at any time.
        """

    def end_requested(self, after_report: int = 0, timeout_seconds: float = 0.0) -> bool:
        """Return whether the driver has asked the attempt to end.

        First waits until the report with the number `after_report` has been judged, or the time is over.
        """

    def seconds_left(self) -> float | None:
        """Return the time until the machine is preempted; None without a notice. Takes a microsecond."""


class Gang(Protocol):
    """The workers of a live trial that train together: worker 0 leads, and the others follow."""

    def share(self, key: str, value: Any) -> Any:
        """Return worker 0's value. All workers must call it with the same keys in the same order.

        Followers wait for the value. Raises EndTrial if worker 0 is gone, and TrialLost if a worker has not
        joined.
        """

    def poll_end(self, end_requested: bool) -> bool:
        """Return whether worker 0 was asked to end, as far as is known now; does not wait.

        Unlike share(), workers may call it at different times. `end_requested`: counts from worker 0 only.
        """

    def wait_for_others(self, point: str) -> None:
        """Make worker 0 wait until each follower has called this, or is gone."""

    def rendezvous(self, choose_port: Callable[[str], int]) -> Rendezvous:
        """Return where the workers' own libraries meet. Worker 0 chooses the port by `choose_port(host)`."""

    @property
    def own_address(self) -> str:
        """The address of this worker's machine."""


class Rendezvous(NamedTuple):
    """Where the workers' own libraries meet.

    `local_rank`: this worker's number among those that see the same devices.
    """

    host: str
    port: int
    local_rank: int


class StepGauge(Protocol):
    """Measures how a live trial uses its machine."""

    @property
    def setting(self) -> Mapping[str, Any]:
        """The current knob setting."""

    def next_step(self, step: int) -> list[str]:
        """Begin a step with the knob setting that the driver sent; return a sentence for each knob that failed."""

    def step_done(self, step: int) -> UsageMeasured | None:
        """Return the measured usage, if a usage window is complete."""
