"""Command lines that messages suggest to the user."""

from __future__ import annotations

import shlex


def show_hint(study: str, store_url: str, trial: int | str | None = None) -> str:
    """Return the command that shows a study or one of its trials; empty for a study in memory."""
    return _command_line("show", study, store_url, trial)


def logs_hint(study: str, store_url: str, trial: int | str) -> str:
    """Return the command that shows the output of a trial; empty for a study in memory."""
    return _command_line("logs", study, store_url, trial)


def how_to_resume(study: str, store_url: str) -> str:
    """Return a sentence with the command that resumes a study; empty for a study in memory."""
    return "" if store_url == ":memory:" else f"To resume: {resume_hint(study, store_url)}"


def resume_hint(study: str, store_url: str) -> str:
    """Return the command that resumes a study."""
    return f"thriftune resume {study} --store {shlex.quote(store_url)}"


def _command_line(command: str, study: str, store_url: str, trial: int | str | None) -> str:
    if store_url == ":memory:":
        return ""
    option = "" if trial is None else f" --trial {trial}"
    return f"thriftune {command} {study}{option} --store {shlex.quote(store_url)}"
