"""Find metrics in the output of a command, with the patterns of its study."""

from __future__ import annotations

import codecs
import contextlib
import re
import signal
import time
from collections.abc import Iterator, Mapping

from thriftune.training.run import TrialFailed

_PIECE_CHARACTERS = 16_384
"""The longest text that is matched in one call, because a pattern such as `.*loss=(...)` takes quadratic time."""

_OVERLAP_CHARACTERS = 4_096
"""The length of the text that two successive pieces of a line share. A match that is not longer is always
found."""

_MATCH_SECONDS = 5.0
"""The CPU time that all patterns together may use for one piece. Usual patterns take some microseconds."""

_ADVICE = "Use a simpler one, without a repetition inside a repetition, such as (a+)+, and without .* at its start"

SLOW_SECONDS, SLOW_SHARE = 10.0, 0.5
"""Patterns count as slow when they have used this much CPU time, and this share of the command's time."""


class PrintedMetrics:
    """Splits output into lines, and matches each with every pattern.

    A line ends at a line feed or a carriage return. A line longer than a piece is matched in pieces that overlap.
    """

    def __init__(self, patterns: Mapping[str, re.Pattern[str]]) -> None:
        self.patterns = patterns
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""  # the part of the current line that may still be part of a match
        self._starts = dict.fromkeys(patterns, 0)  # the position in the text from which each pattern searches next
        self._began_at = time.monotonic()
        self._cpu_seconds = dict.fromkeys(patterns, 0.0)  # total CPU time of each pattern
        self._warned = False

    def feed(self, output: bytes) -> Iterator[list[tuple[str, str]]]:
        """Yield the (name, text of number) pairs of each line, or piece of a long line.

        Raises TrialFailed if matching takes too long. Must be called on the main thread.
        """
        with _raising_when_timer_ends():
            *ended, rest = self._decoder.decode(output).replace("\r", "\n").split("\n")
            for line in ended:
                yield from self._add(line)
                yield self._matches(len(self._text))
                self._text, self._starts = "", dict.fromkeys(self.patterns, 0)
            yield from self._add(rest)

    def _add(self, text: str) -> Iterator[list[tuple[str, str]]]:
        """Add text to the current line; yield the matches of each full piece."""
        while len(self._text) + len(text) > _PIECE_CHARACTERS:
            room = _PIECE_CHARACTERS - len(self._text)
            self._text, text = self._text + text[:room], text[room:]
            yield self._matches(_PIECE_CHARACTERS - _OVERLAP_CHARACTERS)
            self._forget(_PIECE_CHARACTERS - 2 * _OVERLAP_CHARACTERS)
        self._text += text

    def _forget(self, count: int) -> None:
        """Drop the first `count` characters of the text."""
        self._text = self._text[count:]
        # At least one character stays before the start of a search, so that `^` and `\b` do not match at the
        # start.
        self._starts = {name: max(1, start - count) for name, start in self._starts.items()}

    def _matches(self, horizon: int) -> list[tuple[str, str]]:
        """Return (name, text of the number) of each match that begins before the horizon.

        `horizon`: a position in the text. Later matches are found in the next piece.
        """
        numbers: list[tuple[str, str]] = []
        name, used = "", time.thread_time()
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, _MATCH_SECONDS)
            try:
                for name, pattern in self.patterns.items():
                    numbers += [(name, number) for number in self._numbers(name, pattern, horizon)]
                    before, used = used, time.thread_time()
                    self._cpu_seconds[name] += used - before
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        except _TimerEnded:
            slow = self.patterns[name].pattern
            raise TrialFailed(
                "raised",
                f"metrics: {name}: the pattern {slow!r} took more than {_MATCH_SECONDS:g} s on "
                f"{len(self._text):,} characters of output. {_ADVICE}",
            ) from None
        return numbers

    def take_warning(self) -> str | None:
        """Return a warning if the patterns use much of the command's time.

        Returns None if they do not, or if the warning was returned before.
        """
        used = sum(self._cpu_seconds.values())
        if self._warned or used <= SLOW_SECONDS or used <= SLOW_SHARE * (time.monotonic() - self._began_at):
            return None
        self._warned = True
        name = max(self._cpu_seconds, key=self._cpu_seconds.__getitem__)
        return (
            f"metrics: {name}: the pattern {self.patterns[name].pattern!r} is slow on the output of the command, "
            f"which slows the command down: the patterns have taken {used:.0f} s. {_ADVICE}"
        )

    def _numbers(self, name: str, pattern: re.Pattern[str], horizon: int) -> Iterator[str]:
        """Yield the texts of one pattern's numbers that begin before the horizon.

        Also records the position from which the pattern searches next.
        """
        start, self._starts[name] = self._starts[name], max(horizon, self._starts[name])
        for match in pattern.finditer(self._text, start):
            if match.start(1) >= horizon and horizon < len(self._text):
                self._starts[name] = match.start()
                return
            self._starts[name] = max(horizon, match.end())
            if match.group(1) is not None:
                yield match.group(1)


def no_number_error(name: str, pattern: str, text: str) -> str:
    """Return the error for a pattern that has found a text that is no number."""
    group = r"(\d+)" if name == "step" else "([-+0-9.eE]+|nan)"
    return (
        f"metrics: {name}: the pattern {pattern!r} found {text!r}, which is no number; "
        f"change it to find only numbers, with a group such as {group}"
    )


class _TimerEnded(Exception):
    """Raised when the CPU time for matching is used up."""


@contextlib.contextmanager
def _raising_when_timer_ends() -> Iterator[None]:
    """Raise _TimerEnded in the main thread when ITIMER_VIRTUAL ends.

    The `re` module holds the interpreter's lock while it matches, so no other thread could stop it. But it runs
    signal handlers, and ends the match if one raises an exception. The timer measures CPU time, which does not
    depend on the load of the machine.
    """

    def end(*_: object) -> None:
        raise _TimerEnded

    before = signal.signal(signal.SIGVTALRM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGVTALRM, before)
