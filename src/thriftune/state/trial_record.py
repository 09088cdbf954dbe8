"""The record of a trial: its configuration, its state, its reports and its attempts, as the log tells them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from thriftune.common.text import last_line
from thriftune.errors import NoCheckpoint
from thriftune.state.config_access import ConfigAccess
from thriftune.state.events import Config, Metrics, SetKnobs, UsageMeasured

T = TypeVar("T")


class State(StrEnum):
    """WAITING -> RUNNING -> (PAUSED -> WAITING -> RUNNING)* -> COMPLETED | STOPPED | FAILED."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"

    @property
    def ended(self) -> bool:
        return self in _ENDED


_ENDED = (State.COMPLETED, State.STOPPED, State.FAILED)


class Report(NamedTuple):
    """What a trial reported after a step.

    - `saved`: a checkpoint of this step was complete when it was reported.
    - `value`: of the first objective, as it counts after this step: the one reported or, where a trial's best
      value counts, the best so far. None if this step reported none.
    """

    step: int
    metrics: Metrics
    at: float
    attempt: int
    saved: bool
    value: float | None = None


class PastAttempt(NamedTuple):
    """One attempt on its machines: when, from which step to which, and which step a later one can go on from.

    `timed_steps` of them took `timed_seconds`: those between its first report and its last.
    """

    attempt: int
    workers: Mapping[str, int]
    started_at: float
    ended_at: float
    first_step: int
    last_step: int
    resumable_step: int
    timed_steps: int = 0
    timed_seconds: float = 0.0

    @property
    def lost_steps(self) -> int:
        """Steps that have to be done again."""
        return max(0, self.last_step - max(self.first_step, self.resumable_step))


class UsageWindow(NamedTuple):
    """What was measured over some steps, and of how many trials on its machine this was one."""

    usage: UsageMeasured
    trials_on_machine: int


class FoundModel(NamedTuple):
    """A trial's model, if it has one, and a sentence for each checkpoint that could not be used.

    - `folder`: None if there is none.
    - `step`: None if there is none, or a command wrote it by itself.
    """

    folder: Path | None
    step: int | None
    passed_over: tuple[str, ...] = ()


class TrialFiles(Protocol):
    """Reads what trials left on disk. A history gives it to its records; whoever loads a study chooses it."""

    def find_model(self, trial: TrialRecord) -> FoundModel:
        """Return the checkpoint that the trial's value is of."""

    def load_model(self, trial: TrialRecord, function: Callable[[Path], T]) -> T:
        """Call `function(folder)` with that checkpoint's folder; raise NoCheckpoint if there is none."""

    def read_output(self, folder: str, attempt: int) -> str:
        """Return what an attempt has printed; `folder` is its trial's."""

    def attempts_with_output(self, folder: str) -> list[int]:
        """Return the numbers of the attempts that have printed anything."""


class _NoFiles:
    """Stands in where it is not known where a study's files are."""

    def find_model(self, trial: TrialRecord) -> FoundModel:  # noqa: ARG002
        return FoundModel(None, None)

    def load_model(self, trial: TrialRecord, function: Callable[[Path], T]) -> T:  # noqa: ARG002
        raise NoCheckpoint(
            f"trial {trial.id} has no checkpoint: it is not known where its files are; load its study from a store"
        )

    def read_output(self, folder: str, attempt: int) -> str:  # noqa: ARG002
        return ""

    def attempts_with_output(self, folder: str) -> list[int]:  # noqa: ARG002
        return []


NO_FILES: TrialFiles = _NoFiles()


@dataclass(slots=True, repr=False)
class TrialRecord(ConfigAccess):
    """The story of one trial so far. Written only by the history that holds it."""

    id: int
    config: Config
    created_at: float
    state: State = State.WAITING
    value: float | None = None  # of the first objective: its last or its best, as the study counts it
    values: tuple[float, ...] | None = None  # of all objectives, in order; None until all are there
    metrics: dict[str, float] = field(default_factory=dict)  # each at the last step that reported it
    reports: list[Report] = field(default_factory=list)  # one a step, steps rising
    attempts: int = 0  # times it was started, for whatever reason
    failures: int = 0  # attempts that failed by the trial's own fault
    failures_before_retry: int = 0  # of these, those before its last Retry, which count for no limit
    failed_at: float | None = None  # when the last attempt failed; None if that is not how it ended, or runs
    losses: int = 0  # attempts that vanished through no fault of the trial's
    stalled_losses: int = 0  # losses in a row without a step of progress between them
    error: str | None = None  # of the last failed attempt
    error_kind: str | None = None
    output: str = ""  # the end of what the last failed attempt printed
    machine: str | None = None  # where it runs, or its first worker does; None unless RUNNING
    workers: Mapping[str, int] = field(default_factory=dict)  # machine -> how many of its workers run there
    save_every: float | None = 0.0  # as Place has it
    past_attempts: list[PastAttempt] = field(default_factory=list)  # of all attempts that are over
    started_at: float | None = None  # of the current or last attempt
    ended_at: float | None = None
    seconds: float = 0.0  # spent on machines, over all attempts
    seconds_before_retry: float = 0.0  # of these, those before its last Retry, which count in no limit
    resume_step: int = 0  # the last step with a recorded checkpoint
    resumed_from: int = 0  # where the current or last attempt began
    step_before_attempt: int = 0  # the furthest step of the attempts before this one
    last_report_number: int = 0  # of the current attempt's reports
    end_request: str | None = None  # what the running attempt was told: "move", "pause", "stop" or one of FINISHES
    end_requested_at: float | None = None
    end_reason: str | None = None  # why it was last told so; stays when the attempt is over, until it goes on
    converged: bool = False  # a rule ended it because more steps would change nothing; only if COMPLETED
    ended_early: bool = False  # told to end, it finished with the value that it had; only if COMPLETED
    kill_reason: str | None = None
    warnings: list[str] = field(default_factory=list)
    knob_setting: Mapping[str, Any] = field(default_factory=dict)  # of its knobs, as they were last turned
    knob_changes: list[tuple[int, SetKnobs]] = field(
        default_factory=list
    )  # each with the number of windows before
    windows: list[UsageWindow] = field(default_factory=list)
    failed_settings: list[Mapping[str, Any]] = field(default_factory=list)  # settings that it has failed with
    folder: str = ""  # of its checkpoints and its output; empty where not known
    files: TrialFiles = NO_FILES  # reads that folder
    origin: str = "searcher"  # of its configuration: "searcher", "enqueued" or "known"
    value_rule: ValueRule | None = None  # which of its steps its value is of; None where not known
    attrs: dict[str, Any] = field(default_factory=dict)  # what its user attached to it; any JSON
    expected_gain: float | None = None  # improvement of the best value that the searcher expected; mostly unknown

    def _active(self) -> Config:
        return self.config

    def __repr__(self) -> str:
        value = "" if self.value is None else f" value={self.value:.6g}"
        if self.values is not None and len(self.values) > 1:
            value = f" values=({', '.join(f'{each:.6g}' for each in self.values)})"
        error = f" error={last_line(self.error)!r}" if self.state is State.FAILED else ""
        return f"<TrialRecord {self.id} {self.state}{value} config={dict(self.config)}{error}>"

    @property
    def failures_since_retry(self) -> int:
        """How often it has failed since it was made, or its user last had it run again."""
        return self.failures - self.failures_before_retry

    @property
    def finished(self) -> bool:
        """Whether it trained to its own end, converged, reached the target or used up its time."""
        return self.state is State.COMPLETED

    @property
    def step(self) -> int:
        """The furthest step that was reported."""
        return self.reports[-1].step if self.reports else 0

    @property
    def checkpoint(self) -> Path | None:
        """The folder with the model that its value is of: what save() wrote there; None if nothing was saved.

        It is the best saved step's where a trial's best value counts, else the last saved step's. For a command
        that saves nothing with its reports, it is the folder THRIFTUNE_CHECKPOINT_DIR, if it wrote anything there.
        Every byte is checked; a corrupt checkpoint is passed over, with a warning.
        """
        found = self.files.find_model(self)
        for sentence in found.passed_over:
            warnings.warn(sentence, stacklevel=2)
        return found.folder

    @property
    def checkpoint_step(self) -> int | None:
        """The step that `checkpoint` was saved after; None if there is none, or a command wrote it by itself."""
        return self.files.find_model(self).step

    def load(self, function: Callable[[Path], T]) -> T:
        """Call `function(folder)` with the folder of `checkpoint`, and return what it returns, such as the model.

        Raises NoCheckpoint if nothing was saved.
        """
        return self.files.load_model(self, function)

    @property
    def log(self) -> str:
        """What its last attempt that printed anything has printed so far; empty if none has, or it is not kept.

        The first 1 MiB and at least the last 1 MiB are kept, with a line between that says what is left out.
        """
        attempts = self.attempts_with_log
        return self.log_of(attempts[-1]) if attempts else ""

    def log_of(self, attempt: int) -> str:
        """Return what one of its attempts, which count from 1, has printed so far."""
        return self.files.read_output(self.folder, attempt) if self.folder else ""

    @property
    def attempts_with_log(self) -> list[int]:
        """The numbers of the attempts that printed anything, as far as it is kept."""
        return self.files.attempts_with_output(self.folder) if self.folder else []


FINISHING_REQUESTS = frozenset({"converge", "reach", "expire"})
"""What an attempt is told that ends it early and lets its trial count as finished with the value it has."""


class ValueRule(NamedTuple):
    """Which value of the first objective counts after a step: the one reported, or the best so far."""

    metric: str
    maximize: bool
    best: bool

    def value(self, metrics: Metrics, before: float | None) -> float | None:
        """Return what counts after a step with these metrics; `before`: what counted before it, if anything."""
        value = metrics.get(self.metric)
        if value is None or before is None or not self.best or not isfinite(before):
            return value
        if not isfinite(value):  # the attempt fails by it, and what is known of its earlier steps stands
            return before
        return value if (value > before if self.maximize else value < before) else before
