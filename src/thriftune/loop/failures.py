"""What do failed attempts tell? Whether another attempt can help, when it begins, and whether all fail alike."""

from __future__ import annotations

import re
from collections.abc import Iterable

from thriftune.common.text import last_line, last_lines, printable
from thriftune.state.events import KNOWN
from thriftune.state.history import History
from thriftune.state.trial_record import State, TrialRecord

ALIKE = 3
"""This many trials with different configurations have to fail alike before the study stops. One or two may be bad
luck of their configurations; more would keep the user waiting."""

BACKOFF_SECONDS, MOST_BACKOFF_SECONDS = 1.0, 60.0
"""The first retry begins this long after the failure, each further one twice as late, up to the longest."""

_SHOWN_OUTPUT_LINES = 5
"""Lines of output that are shown where the error itself says too little."""

_SAY_ENOUGH = ("nan", "lost")

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
"""Errors that depend on how large a configuration is."""

_TRACEBACK = "Traceback (most recent call last):"
_NAMED = re.compile(r"(?:\w+\.)*(\w+)(?::|$)")
_FRAME = re.compile(r'  File "(.*)", line (\d+)')
_DIGITS = re.compile(r"\d+")

_OUTPUT_LINES = 20
"""This much of a command's output is shown when the study stops; `thriftune show --trial` has more."""

CANNOT_START = "cannot be started"
"""Part of the error of an attempt whose command is not there, or may not be run."""


def retry_seconds(failures: int) -> float:
    """Return how long after its last failure a trial that failed this often begins again."""
    # Beyond the longest the exponent does not matter, and could become too large for a float.
    return min(MOST_BACKOFF_SECONDS, BACKOFF_SECONDS * 2.0 ** min(failures - 1, 32))


def exception_line(trial: TrialRecord) -> str:
    """Return the line that says what went wrong in the last failed attempt.

    Of a command it is the last line of a Python traceback in its output, else the last line of its output.
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
    """Return whether another attempt of this trial would fail in the same way, whatever happens meanwhile."""
    if trial.error_kind == "raised" and CANNOT_START in (trial.error or ""):
        return True
    named = _NAMED.match(exception_line(trial))
    raised = trial.error_kind == "raised" or _TRACEBACK in trial.output
    return raised and named is not None and named[1] in _PERMANENT


def failed_alike(history: History) -> tuple[int, ...]:
    """Return the trials with whose failures the study is to stop; none if it goes on.

    These are the first trials that failed, with different configurations, all before they reported anything that
    is of use, and with the same error. No trial may have reported by then. An error for want of memory depends on
    the configuration and does not count.
    """
    found: dict[tuple[object, ...], int] = {}
    error: tuple[str, ...] | None = None
    for trial in history.trials:
        if trial.reports and trial.error_kind != "no_value":
            return ()
        if not trial.failures_since_retry:
            continue
        if error is None:
            error = _signature(trial)
        if _signature(trial) != error or _wants_memory(trial):
            return ()
        found.setdefault(history.space.key(trial.config), trial.id)
    return tuple(found.values())[:ALIKE] if len(found) >= ALIKE else ()


def why_stopped(history: History, how_to_go_on: str) -> str:
    """Return the error of a study whose first trials all failed: what they raised, whole, and what to do.

    `how_to_go_on`: what to type when the cause is mended.
    """
    first = history.trials[history.failed_alike[0]]
    count = len(history.failed_alike)
    parts = [f"its first {count} trials have all failed alike, before they reported a value:"]
    parts.append(printable(first.error or "").strip())
    output = printable(first.output).strip().splitlines()
    if output and first.error_kind != "raised":
        parts += [f"The output of trial {first.id} ended with:", *output[-_OUTPUT_LINES:]]
    parts.append(f"When it is mended, {how_to_go_on}: the failed trials run again.")
    parts.append("With on_failure='go_on' a study goes on whatever fails.")
    return "\n".join(parts)


def to_retry(trials: Iterable[TrialRecord]) -> list[int]:
    """Return the trials that are to run again when their user has mended what failed."""
    return [
        trial.id
        for trial in trials
        if trial.origin != KNOWN
        and (trial.state is State.FAILED or (trial.state is State.WAITING and trial.failures_since_retry))
    ]


def _is_of_command(trial: TrialRecord) -> bool:
    return trial.error_kind != "raised" and _TRACEBACK not in (trial.error or "")


def _wants_memory(trial: TrialRecord) -> bool:
    return trial.error_kind == "memory" or _MEMORY.search(exception_line(trial)) is not None


def _signature(trial: TrialRecord) -> tuple[str, ...]:
    """Return what two failures have in common if they are of the same cause.

    Exceptions are alike if they have the same type and were raised at the same line, whatever values their
    messages quote; other errors if they differ in numbers only.
    """
    line = exception_line(trial)
    frames = _FRAME.findall((trial.error or "") + trial.output)
    named = _NAMED.match(line)
    if frames and named is not None:
        return (str(trial.error_kind), named[1], *frames[-1])
    return str(trial.error_kind), _DIGITS.sub("0", line)


def failure_text(trial: TrialRecord) -> str:
    """Return why its last failed attempt failed: a line, and where that says too little, the end of its output.

    A traceback says enough, and so does a metric that is no number.
    """
    error = trial.error or ""
    lines = [last_line(error)]
    if "Traceback (most recent call last)" not in error and trial.error_kind not in _SAY_ENOUGH:
        lines += [f"    {line}" for line in last_lines(trial.output, _SHOWN_OUTPUT_LINES)]
    return "\n".join(lines)
