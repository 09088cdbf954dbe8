"""What do I type? The command line: `thriftune run`, `resume`, `list`, `show` and the other commands.

Each command's module is imported when the command is called, so that small commands such as `list` start fast.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from thriftune import __version__
from thriftune.common import exit_status
from thriftune.common.platforms import require_linux
from thriftune.errors import StudyInterrupted, ThriftuneError

_COMMANDS = {  # by command: the module that has it
    "run": "run",
    "resume": "run",
    "list": "listing",
    "show": "show",
    "logs": "logs",
    "best": "best",
    "importance": "importance",
    "bill": "bill",
    "stop": "manage",
    "rename": "manage",
    "delete": "manage",
    "export": "export",
    "record": "record",
    "simulate": "simulate",
    "profile": "profile",
    "plan": "plan",
    "market": "market",
    "cluster": "cluster",
    "cache": "cache",
    "report": "report",
}


class _Commands(click.Group):
    """The commands of _COMMANDS, each imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"thriftune.cli.{_COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(args[0], _COMMANDS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"use one of {', '.join(_COMMANDS)}"
            ctx.fail(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, and print an expected error as one line.

        Exit with the error's status, without a traceback.
        """
        try:
            require_linux()
            return super().invoke(ctx)
        except StudyInterrupted as interrupted:
            self._end(ctx, str(interrupted), exit_status.INTERRUPTED)
        except KeyboardInterrupt:
            self._end(ctx, "interrupted", exit_status.INTERRUPTED)
        except ThriftuneError as error:
            self._end(ctx, f"error: {error}", exit_status.ERROR)
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader of the output has closed the pipe; click handles that
                raise
            file = f"{error.filename}: " if error.filename else ""
            self._end(ctx, f"error: {file}{error.strerror or error}", exit_status.ERROR)

    def _end(self, ctx: click.Context, message: str, status: int) -> None:
        click.echo(message, err=True)
        ctx.exit(status)


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--store", metavar="PATH|URL", help="Where studies are stored. May stand after the command.")
@click.version_option(__version__, prog_name="thriftune", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, store: str | None) -> None:
    """Find good hyperparameters for the fewest dollars.

    A TOML file or a Python script describes a study. Studies are stored in $THRIFTUNE_STORE, or by default in
    ~/.thriftune/studies.db. You can resume a study by its name, whatever stopped it.

    Exit status: 0 done; 1 an error, or no trial has a value that meets the constraints; 2 a mistake in the command
    line; 130 interrupted.
    """
    ctx.obj = store


def main() -> None:
    """Run the command line, with the arguments of this process."""
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot show is replaced, instead of raising an error.
        with contextlib.suppress(ValueError):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="replace")
    cli(prog_name="thriftune")
