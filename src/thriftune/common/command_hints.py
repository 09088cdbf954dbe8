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
    return _quoted("resume", study, store_url)


def stop_hint(study: str, store_url: str) -> str:
    """Return the command that stops a study."""
    return _quoted("stop", study, store_url)


def delete_hint(study: str, store_url: str) -> str:
    """Return the command that deletes a study."""
    return _quoted("delete", study, store_url)


def _command_line(command: str, study: str, store_url: str, trial: int | str | None) -> str:
    if store_url == ":memory:":
        return ""
    option = "" if trial is None else f" --trial {trial}"
    return _quoted(command, f"{study}{option}", store_url)


def _quoted(command: str, arguments: str, store_url: str) -> str:
    """Return a command line in which the store is one word for a shell."""
    return f"thriftune {command} {arguments} --store {shlex.quote(store_url)}"
