"""What do I type? The command line: `thriftune run`, `resume`, `list`, `show` and the rest.

Each command is loaded when it is called, so that `list` and `report` start as fast as Python does.
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
from thriftune.common.platforms import require_linux
from thriftune.errors import StudyInterrupted, ThriftuneError
from thriftune.launch.interruption import INTERRUPTED

_COMMANDS = {
    "run": "run",
    "resume": "run",
    "list": "listing",
    "show": "show",
    "logs": "logs",
    "best": "show",
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
    "report": "report",
}


class _Commands(click.Group):
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
        """Expected errors are one line and a status, never a traceback."""
        try:
            require_linux()
            return super().invoke(ctx)
        except StudyInterrupted as interrupted:
            self._end(ctx, str(interrupted), INTERRUPTED)
        except KeyboardInterrupt:
            self._end(ctx, "interrupted", INTERRUPTED)
        except ThriftuneError as error:
            self._end(ctx, f"error: {error}", 1)
        except OSError as error:
            if error.errno == errno.EPIPE:  # whoever read our output has seen enough
                raise
            what = f"{error.filename}: " if error.filename else ""
            self._end(ctx, f"error: {what}{error.strerror or error}", 1)

    def _end(self, ctx: click.Context, message: str, status: int) -> None:
        click.echo(message, err=True)
        ctx.exit(status)


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--store", metavar="PATH", help="Where studies are recorded; also taken after the command.")
@click.version_option(__version__, prog_name="thriftune", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, store: str | None) -> None:
    """Good hyperparameters for the fewest dollars.

    A study is described by a TOML file or a Python script, recorded in a store ($THRIFTUNE_STORE, or
    ~/.thriftune/studies.db by default), and can be resumed by its name whatever happened to it. Exit
    status: 0 done, 1 an error or no trial with a value that meets the constraints, 2 a mistake in the
    command line, 130 interrupted.
    """
    ctx.obj = store


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows another one, rather than end the program.
        with contextlib.suppress(ValueError):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="replace")
    cli(prog_name="thriftune")
