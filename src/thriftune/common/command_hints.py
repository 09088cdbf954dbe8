"""Commands of the command line that a message suggests."""

from __future__ import annotations

import shlex


def show_hint(study: str, store_url: str, trial: int | str | None = None) -> str:
    """What to type to see a study, or one trial of it; nothing where it is gone with its process."""
    return _typed("show", study, store_url, trial)


def logs_hint(study: str, store_url: str, trial: int | str) -> str:
    """Return what to type to see all that a trial printed; nothing where it is gone with its process."""
    return _typed("logs", study, store_url, trial)


def _typed(command: str, study: str, store_url: str, trial: int | str | None) -> str:
    if store_url == ":memory:":
        return ""
    one = "" if trial is None else f" --trial {trial}"
    return f"thriftune {command} {study}{one} --store {shlex.quote(store_url)}"
