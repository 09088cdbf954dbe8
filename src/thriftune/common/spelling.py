"""Find known names that resemble a name that a user has mistyped."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_SHOWN = 3
"""The most names that a hint lists."""


def nearest_names(name: str, known: Iterable[str], most: int = _SHOWN) -> list[str]:
    """Return known names that are spelled like this one, or are its initials (lr for learning_rate)."""
    by_spelling = {each.lower(): each for each in known}
    short = name.lower()
    initials = "".join(word[0] for word in short.replace("-", "_").split("_") if word)
    if len(initials) > 1 and initials in by_spelling:
        return [by_spelling[initials]]
    return [by_spelling[each] for each in get_close_matches(short, by_spelling, n=most)]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "did you mean a or b?" with the most similar known names; empty if none is similar."""
    similar = nearest_names(name, known)
    return f"did you mean {' or '.join(similar)}?" if similar else ""
