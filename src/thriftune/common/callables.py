"""Inspect functions that users pass: their arguments and their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable


def one_argument_problem(function: Callable[..., object]) -> str | None:
    """Return why a function cannot be called with one argument.

    Returns None if it can, or its signature is not known.
    """
    try:
        # Inspect the wrapper and not the wrapped function: a wrapper may supply further arguments.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(None)
        return None
    except TypeError:
        bare = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
        return f"takes the arguments {inspect.Signature(bare)}" if bare else "takes no argument"


def function_name(function: object) -> str:
    """Return the name of a function, or the class name of a callable object."""
    return getattr(function, "__name__", type(function).__name__)
