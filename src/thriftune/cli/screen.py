"""Helpers that print to the terminal: facts, tables, section titles, charts, and a note during slow work."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Timer

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from thriftune.results.curves import draw

YES_NO = {True: "yes", False: "no", None: "-"}
"""Cell texts for a truth value that may be unknown."""

PATIENCE_SECONDS = 2.0
"""Seconds of slow work after which busy() tells the user what is being done."""

_PIPE_WIDTH = 120
"""Width of the output, in characters, when it does not go to a terminal."""

_MIN_CHART_WIDTH, _MAX_CHART_WIDTH = 10, 72  # characters
_CHART_LABEL_WIDTH = 16  # characters to the left of a chart
_CHART_HEIGHT = 8  # lines


def open_console() -> Console:
    """Return a console for standard output."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def facts_table() -> Table:
    """Return an empty table with a column of labels and a column of values."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    return facts


def table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
    """Print a table.

    The first `left` columns are aligned to the left. The others hold numbers, aligned to the right.
    """
    printed = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for i, name in enumerate(columns):
        printed.add_column(Text(name), justify="left" if i < left else "right", no_wrap=i < left)
    for row in rows:
        printed.add_row(*map(Text, row))
    console.print(printed)


def section(console: Console, title: str) -> None:
    """Print an empty line and a title in bold."""
    console.print()
    console.print(Text(title, style="bold"))


def listed(console: Console, lines: Sequence[str], most: int) -> None:
    """Print at most `most` lines, and how many more there are."""
    for line in lines[:most]:
        console.print(Text(line))
    if len(lines) > most:
        console.print(Text(f"and {len(lines) - most} more", style="dim"))


def chart(
    console: Console, curve: Sequence[tuple[float, float]], *, stairs: bool, log: bool | None = None
) -> None:
    """Print a curve as a chart of characters.

    `stairs`: each value holds until the next one. `log`: draw a logarithmic y axis; None: if that shows more.
    """
    width = max(_MIN_CHART_WIDTH, min(_MAX_CHART_WIDTH, console.width - _CHART_LABEL_WIDTH))
    for line in draw(curve, width=width, height=_CHART_HEIGHT, stairs=stairs, log=log):
        console.print(Text(line, no_wrap=True, overflow="crop"))


@contextmanager
def busy(activity: str) -> Iterator[None]:
    """Print `activity` to standard error if the block runs over PATIENCE_SECONDS."""
    note = Timer(PATIENCE_SECONDS, lambda: click.echo(f"{activity} ...", err=True))
    note.daemon = True
    note.start()
    try:
        yield
    finally:
        note.cancel()
