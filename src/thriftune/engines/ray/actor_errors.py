"""Interpret the errors of calls to actors."""

from __future__ import annotations

import sys


def is_temporary(error: BaseException) -> bool:
    """Return whether the actor may become reachable again."""
    return type(error).__name__ == "ActorUnavailableError"


def unsuitable_node(error: BaseException) -> str:
    """Return why no worker can ever start on the node.

    Returns an empty string if the error does not come from the node.
    """
    why = error_line(error)
    if "No module named 'thriftune" in why:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return f"{why}; install the same thriftune there, for Python {version}"
    return str(error).rpartition("SettingError: ")[2].strip() if "SettingError: " in str(error) else ""


def is_out_of_memory(error: BaseException) -> bool:
    return "OutOfMemory" in type(error).__name__ or "running low on memory" in str(error)


def error_line(error: BaseException) -> str:
    """Return the most useful line of an error that Ray raised.

    This is the line of the exception in the actor, or else the first line.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[0] if lines else type(error).__name__
    return next((line for line in reversed(lines) if "Error:" in line), first)
