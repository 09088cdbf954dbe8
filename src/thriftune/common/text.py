"""Make the output and errors of programs safe to show, and extract the important lines."""

from __future__ import annotations

import re

# Terminal escape sequences, which move the cursor or change colours.
_ESCAPES = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)|.)", re.DOTALL)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Return the output of a program without escape sequences, control characters and overwritten text."""
    lines = _ESCAPES.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(_CONTROLS.sub("", line.rstrip("\r").rpartition("\r")[2]) for line in lines)


def escaped(text: str) -> str:
    """Return a name or a value on one line, with control characters written out, such as \\x1b."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def last_line(error: str | None) -> str:
    """Return the line of a traceback or message that names the error; empty if it has none."""
    lines = [line for line in printable(error or "").splitlines() if line.strip()]
    frames = [i for i, line in enumerate(lines) if line.startswith('  File "')]
    after = lines[frames[-1] + 1 :] if frames else lines  # the first line of the message
    return next((line.strip() for line in after if not line.startswith(" ")), "")


def last_lines(output: str, count: int) -> list[str]:
    """Return the last lines that are not blank, without escapes, each at most _LINE_CHARACTERS long."""
    lines = [line.rstrip() for line in printable(output).splitlines() if line.strip()]
    return [line if len(line) <= _LINE_CHARACTERS else f"{line[:_LINE_CHARACTERS]}..." for line in lines[-count:]]


_LINE_CHARACTERS = 300
