"""What a function that a user gave takes, and what it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable


def one_argument_problem(function: Callable[..., object]) -> str | None:
    """Why a function cannot be called with one argument; None if it can, or does not tell what it takes."""
    try:
        # Not of what it wraps: a wrapper may well fill in the rest.
        takes = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return None
    try:
        takes.bind(None)
        return None
    except TypeError:
        bare = [each.replace(annotation=each.empty) for each in takes.parameters.values()]
        return f"takes the arguments {inspect.Signature(bare)}" if bare else "takes no argument"


def function_name(function: object) -> str:
    """Return the name of a function, or of the class of an object that is called like one."""
    return getattr(function, "__name__", type(function).__name__)
