"""The record of a trial: its configuration, state, reports and attempts."""

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
    """The state of a trial.

    WAITING -> RUNNING -> (PAUSED -> WAITING -> RUNNING)* -> COMPLETED | STOPPED | FAILED
    """

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"

    @property
    def ended(self) -> bool:
        """Return whether a trial in this state gets no other attempt."""
        return self in _ENDED


_ENDED = (State.COMPLETED, State.STOPPED, State.FAILED)


class Report(NamedTuple):
    """The report of one step.

    - `saved`: the step's checkpoint was complete when the step was reported.
    - `value`: the trial's value after this step, by its value rule; None if the step reported no value.
    """

    step: int
    metrics: Metrics
    at: float
    attempt: int
    saved: bool
    value: float | None = None


class StoredCheckpoint(NamedTuple):
    """A checkpoint with a CheckpointSaved event. Its objects may have been deleted since.

    `attempt`: the attempt that saved it. The other fields are those of the event.
    """

    name: str
    attempt: int
    step: int
    partial: bool
    size_bytes: int
    upload_seconds: float

    @property
    def number(self) -> int:
        """The number of the checkpoint in its attempt, with which its name ends."""
        return int(self.name.rpartition("/")[2])


class PastAttempt(NamedTuple):
    """An attempt that has ended.

    - `workers`: number of its workers, by machine id.
    - `first_step`, `last_step`: the step from which it resumed, and the last step that it reported.
    - `resumable_step`: the step from which the next attempt can resume.
    - `timed_steps`, `timed_seconds`: the steps between its first and last report, and the time they took.
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
        """Return the number of steps that the next attempt must repeat."""
        return max(0, self.last_step - max(self.first_step, self.resumable_step))


class UsageWindow(NamedTuple):
    """A usage window of a trial.

    - `trials_on_machine`: the number of trials that ran on the machine then, including this one.
    """

    usage: UsageMeasured
    trials_on_machine: int


class FoundModel(NamedTuple):
    """The result of a search for a trial's model.

    - `folder`: the folder of the model; None if the trial has none.
    - `step`: the step of its checkpoint; None if the trial has no model, or a command wrote it without a report.
    - `passed_over`: a sentence for each checkpoint that could not be used.
    - `where`: the folder as a text. For a model in an object store that was not fetched, its place there.
    """

    folder: Path | None
    step: int | None
    passed_over: tuple[str, ...] = ()
    where: str = ""


class TrialFiles(Protocol):
    """Reads the files of trials.

    The code that loads a study passes such an object to the history.
    """

    def find_model(self, trial: TrialRecord) -> FoundModel:
        """Find the checkpoint that belongs to the trial's value."""

    def load_model(self, trial: TrialRecord, function: Callable[[Path], T]) -> T:
        """Call `function` with the folder of that checkpoint, and return its result.

        Raises NoCheckpoint if the trial has none.
        """

    def read_output(self, folder: str, attempt: int) -> str:
        """Return the output of an attempt. `folder`: the trial's folder."""

    def attempts_with_output(self, folder: str) -> list[int]:
        """Return the numbers of the attempts with stored output."""


class _NoFiles:
    """Replaces TrialFiles for a study whose folder is not known."""

    def find_model(self, trial: TrialRecord) -> FoundModel:  # noqa: ARG002
        return FoundModel(None, None)

    def load_model(self, trial: TrialRecord, function: Callable[[Path], T]) -> T:  # noqa: ARG002
        raise NoCheckpoint(
            f"trial {trial.id} has no checkpoint: its folder is not known; load its study from a store"
        )

    def read_output(self, folder: str, attempt: int) -> str:  # noqa: ARG002
        return ""

    def attempts_with_output(self, folder: str) -> list[int]:  # noqa: ARG002
        return []


NO_FILES: TrialFiles = _NoFiles()


@dataclass(slots=True, repr=False)
class TrialRecord(ConfigAccess):
    """Everything that is known about one trial.

    Only the history to which the record belongs changes it.
    """

    id: int
    config: Config
    created_at: float
    state: State = State.WAITING
    value: float | None = None  # the value of the first objective, by `value_rule`
    values: tuple[float, ...] | None = None  # the values of all objectives, in order; None while one is missing
    metrics: dict[str, float] = field(default_factory=dict)  # the last reported number of each metric
    reports: list[Report] = field(default_factory=list)  # one report a step, in ascending order of steps
    attempts: int = 0  # number of attempts started
    failures: int = 0  # number of attempts that failed through a fault of the trial itself
    failures_before_retry: int = 0  # failures before the last Retry decision; limits ignore them
    failed_at: float | None = None  # when the last attempt failed; None if it ended in another way or is running
    losses: int = 0  # number of attempts that were lost through no known fault of the trial
    stalled_losses: int = 0  # losses since its last new step, if the trial may have caused them
    error: str | None = None  # the error of the last failed attempt
    error_kind: str | None = None  # Failed.kind of the last failed attempt, or the history's own kind
    output: str = ""  # the end of the last failed attempt's output
    machine: str | None = None  # the machine of the worker with rank 0; None unless RUNNING
    workers: Mapping[str, int] = field(default_factory=dict)  # number of its workers, by machine id
    save_every: float | None = 0.0  # Place.save_every of the current or last attempt
    past_attempts: list[PastAttempt] = field(
        default_factory=list
    )  # all attempts that have ended, except those without a machine
    started_at: float | None = None  # when the current or last attempt started
    ended_at: float | None = None  # when the trial ended; None if it has not ended
    seconds: float = 0.0  # total time of all past attempts
    seconds_before_retry: float = 0.0  # the part of `seconds` before the last Retry; limits ignore it
    resume_step: int = 0  # the last step with a recorded checkpoint
    resume_partial: bool = False  # the newest checkpoint is of the middle of the step after resume_step
    resumed_from: int = 0  # the step from which the current or last attempt resumed
    step_before_attempt: int = 0  # the highest step that earlier attempts reported
    last_report_number: int = 0  # Reported.number of the current attempt's last report
    end_request: str | None = None  # "move", "pause", "stop" or one of FINISHING_REQUESTS; None unless RUNNING
    end_requested_at: float | None = None  # when end_request was made
    end_reason: str | None = None  # the reason for the last end request; reset when the next attempt starts
    converged: bool = False  # it completed because more steps would change nothing
    ended_early: bool = False  # it completed because of an end request, with the value that it had
    kill_reason: str | None = None  # the reason of the Kill decision for the running attempt; None without one
    warnings: list[str] = field(default_factory=list)
    knob_setting: Mapping[str, Any] = field(default_factory=dict)  # the current value of each knob that was set
    knob_changes: list[tuple[int, SetKnobs]] = field(
        default_factory=list
    )  # each with the number of windows before it
    windows: list[UsageWindow] = field(default_factory=list)  # usage windows, in order
    failed_settings: list[Mapping[str, Any]] = field(default_factory=list)  # knob settings of its failed attempts
    checkpoints: list[StoredCheckpoint] = field(default_factory=list)  # in the order in which they were saved
    folder: str = ""  # the folder of its checkpoints and output; empty if it is not known
    files: TrialFiles = NO_FILES  # reads that folder
    origin: str = "searcher"  # the origin of its configuration: "searcher", "enqueued" or "known"
    value_rule: ValueRule | None = None  # the rule for its value; None if it is not known
    attrs: dict[str, Any] = field(default_factory=dict)  # its attributes, by name
    expected_gain: float | None = None  # Create.expected_gain

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
        """Return the number of failures since the last Retry decision, or since the start."""
        return self.failures - self.failures_before_retry

    @property
    def finished(self) -> bool:
        """Return whether the trial is complete.

        It has then trained to its end, converged, reached the target or used up its time.
        """
        return self.state is State.COMPLETED

    @property
    def step(self) -> int:
        """Return the highest step that was reported; 0 if none was."""
        return self.reports[-1].step if self.reports else 0

    @property
    def checkpoint(self) -> Path | None:
        """Return the folder with this trial's model, as save() wrote it.

        Returns None if nothing was saved. If a trial's best value counts, this is the checkpoint of the best saved
        step, else of the last saved step. For a command that saves no checkpoints with its reports, it is the
        folder THRIFTUNE_CHECKPOINT_DIR, if the command wrote anything to it. Every byte is checked. A corrupt
        checkpoint is skipped with a warning. If the study keeps its checkpoints in an object store, this one is
        fetched into a folder of this machine, where it stays.
        """
        found = self.files.find_model(self)
        for sentence in found.passed_over:
            warnings.warn(sentence, stacklevel=2)
        return found.folder

    @property
    def checkpoint_step(self) -> int | None:
        """Return the step of `checkpoint`, which is verified as well.

        Returns None if the trial has no checkpoint, or a command wrote it without a report.
        """
        return self.files.find_model(self).step

    def load(self, function: Callable[[Path], T]) -> T:
        """Load the model: call `function` with the folder of `checkpoint`.

        Returns the function's result. Raises NoCheckpoint if nothing was saved.
        """
        return self.files.load_model(self, function)

    @property
    def log(self) -> str:
        """Return the output of the last attempt that has any.

        Returns an empty string if no attempt has output, or the files were removed. The first 1 MiB and at least
        the last 1 MiB are stored. A line between them says how much is left out.
        """
        attempts = self.attempts_with_log
        return self.log_of(attempts[-1]) if attempts else ""

    def log_of(self, attempt: int) -> str:
        """Return the output of one attempt. Attempts are numbered from 1."""
        return self.files.read_output(self.folder, attempt) if self.folder else ""

    @property
    def attempts_with_log(self) -> list[int]:
        """Return the numbers of the attempts with stored output."""
        return self.files.attempts_with_output(self.folder) if self.folder else []


FINISHING_REQUESTS = frozenset({"converge", "reach", "expire"})
"""End requests after which a trial counts as finished, if it has a value."""


class ValueRule(NamedTuple):
    """The rule for a trial's value: the last reported one, or the best of all steps.

    - `best`: the best of all steps counts.
    """

    metric: str
    maximize: bool
    best: bool

    def value(self, metrics: Metrics, before: float | None) -> float | None:
        """Return the trial's value after a step with these metrics.

        `before`: its value before the step.
        """
        value = metrics.get(self.metric)
        if value is None or before is None or not self.best or not isfinite(before):
            return value
        if not isfinite(
            value
        ):  # the attempt fails because of this value, and the value of the earlier steps counts
            return before
        return value if (value > before if self.maximize else value < before) else before
