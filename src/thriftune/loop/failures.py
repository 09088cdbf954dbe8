"""Tell from failed attempts whether and when to retry, and whether all trials fail for the same reason."""

from __future__ import annotations

import re
from collections.abc import Iterable

from thriftune.common.text import last_line, last_lines, printable
from thriftune.state.events import KNOWN
from thriftune.state.history import History
from thriftune.state.trial_record import State, TrialRecord

ALIKE = 3
"""The study stops when this many trials with different configurations have failed with the same error. One or two
may fail because of their configurations; more would keep the user waiting."""

BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 1.0, 60.0
"""The first retry waits this long after the failure. Each further one waits twice as long, up to the maximum."""

STALLED_LOSSES_LIMIT = 5
"""A trial fails when its worker was lost this many times in a row without a step of progress."""

_SHOWN_OUTPUT_LINES = 5
"""Show this many lines of output if the error itself says too little."""

_CLEAR_KINDS = ("nan", "lost")
"""Kinds of errors whose message needs no output beside it."""

_PERMANENT = frozenset(
    {
        "ImportError",
        "IndentationError",
        "ModuleNotFoundError",
        "NameError",
        "SyntaxError",
        "TabError",
        "UnboundLocalError",
    }
)
"""Exceptions that another attempt with the same code raises again."""

_MEMORY = re.compile(r"MemoryError|OutOfMemoryError|out of memory", re.IGNORECASE)
"""Errors that depend on the size of the configuration."""

_TRACEBACK = "Traceback (most recent call last):"
_NAMED = re.compile(r"(?:\w+\.)*(\w+)(?::|$)")
_FRAME = re.compile(r'  File "(.*)", line (\d+)')
_DIGITS = re.compile(r"\d+")

_OUTPUT_LINES = 20
"""Show this many lines of a command's output when the study stops; `thriftune show --trial` shows more."""

CANNOT_START = "cannot be started"
"""Part of the error of an attempt whose command does not exist or is not executable."""


def retry_seconds(failures: int) -> float:
    """Return how long a trial that failed this often waits before its next attempt."""
    # The exponent is limited, as 2.0 to a large power overflows.
    return min(MAX_BACKOFF_SECONDS, BACKOFF_SECONDS * 2.0 ** min(failures - 1, 32))


def why_given_up(trial: TrialRecord, retries: int) -> str | None:
    """Return why a trial that waits gets no other attempt; None if it gets one.

    `retries`: how many failed attempts are repeated.
    """
    failures = trial.failures_since_retry
    if failures > retries:
        return f"failed {failures} times"
    if trial.failed_at is not None and is_permanent(trial):
        return "another attempt would fail in the same way"
    if trial.stalled_losses >= STALLED_LOSSES_LIMIT:
        return f"its worker vanished {trial.stalled_losses} times in a row without a step of progress"
    return None


def exception_line(trial: TrialRecord) -> str:
    """Return the line that says what went wrong in the last failed attempt.

    For a command this is the last line of a Python traceback in its output, or else of its output.
    """
    if not _is_of_command(trial):
        return last_line(trial.error)
    output = printable(trial.output)
    _, mark, traceback = output.rpartition(_TRACEBACK)
    if mark:
        return last_line(mark + traceback)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else last_line(trial.error)


def is_permanent(trial: TrialRecord) -> bool:
    """Return whether another attempt of this trial is certain to fail in the same way."""
    if trial.error_kind == "raised" and CANNOT_START in (trial.error or ""):
        return True
    named = _NAMED.match(exception_line(trial))
    raised = trial.error_kind == "raised" or _TRACEBACK in trial.output
    return raised and named is not None and named[1] in _PERMANENT


def failed_alike(history: History) -> tuple[int, ...]:
    """Return the trials whose failures stop the study; none if it continues.

    They are the first trials that failed. They have different configurations and the same error, and no trial of
    the study has reported a usable value. Errors from too little memory do not count, as they depend on the
    configuration.
    """
    failed: dict[tuple[object, ...], int] = {}
    error: tuple[str, ...] | None = None
    for trial in history.trials:
        if trial.reports and trial.error_kind != "no_value":
            return ()
        if not trial.failures_since_retry:
            continue
        if error is None:
            error = _signature(trial)
        if _signature(trial) != error or _lacks_memory(trial):
            return ()
        failed.setdefault(history.space.key(trial.config), trial.id)
    return tuple(failed.values())[:ALIKE] if len(failed) >= ALIKE else ()


def why_stopped(history: History, what_to_do: str) -> str:
    """Return the error of a study whose first trials all failed: the whole traceback, and what to do.

    `what_to_do`: a sentence that says how to resume the study.
    """
    first = history.trials[history.failed_alike[0]]
    count = len(history.failed_alike)
    parts = [f"its first {count} trials have all failed with the same error, before they reported a value:"]
    parts.append(printable(first.error or "").strip())
    output = printable(first.output).strip().splitlines()
    if output and first.error_kind != "raised":
        parts += [f"The output of trial {first.id} ended with:", *output[-_OUTPUT_LINES:]]
    parts.append(f"{what_to_do} The failed trials then run again.")
    parts.append("on_failure='go_on' continues even if all trials fail.")
    return "\n".join(parts)


def to_retry(trials: Iterable[TrialRecord]) -> list[int]:
    """Return the trials that run again after the user has fixed what failed."""
    return [
        trial.id
        for trial in trials
        if trial.origin != KNOWN
        and (trial.state is State.FAILED or (trial.state is State.WAITING and trial.failures_since_retry))
    ]


def _is_of_command(trial: TrialRecord) -> bool:
    return trial.error_kind != "raised" and _TRACEBACK not in (trial.error or "")


def _lacks_memory(trial: TrialRecord) -> bool:
    return trial.error_kind == "memory" or _MEMORY.search(exception_line(trial)) is not None


def _signature(trial: TrialRecord) -> tuple[str, ...]:
    """Return a value that is the same for failures with the same cause.

    For exceptions it is their type and the line that raised them, as their messages may quote values. For other
    errors it is their text without numbers.
    """
    line = exception_line(trial)
    frames = _FRAME.findall((trial.error or "") + trial.output)
    named = _NAMED.match(line)
    if frames and named is not None:
        return (str(trial.error_kind), named[1], *frames[-1])
    return str(trial.error_kind), _DIGITS.sub("0", line)


def failure_text(trial: TrialRecord) -> str:
    """Return the error of the last failed attempt: one line, and the last lines of its output if they help.

    Output does not help beside a traceback, or if a metric was not a number.
    """
    error = trial.error or ""
    lines = [last_line(error)]
    if "Traceback (most recent call last)" not in error and trial.error_kind not in _CLEAR_KINDS:
        lines += [f"    {line}" for line in last_lines(trial.output, _SHOWN_OUTPUT_LINES)]
    return "\n".join(lines)
