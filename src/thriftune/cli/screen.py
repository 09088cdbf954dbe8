"""What is on the screen made of? Facts, tables, sections, charts; and a word when it takes a while."""

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

PATIENCE_SECONDS = 2.0
_WIDTH_OF_PIPES = 120


def open_console() -> Console:
    return Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH_OF_PIPES)


def facts_table() -> Table:
    """Of two columns: what, and its value."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    return facts


def table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
    """Cells as they are, without markup; all but the first `left` columns are of numbers."""
    made = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for i, name in enumerate(columns):
        made.add_column(Text(name), justify="left" if i < left else "right", no_wrap=i < left)
    for row in rows:
        made.add_row(*map(Text, row))
    console.print(made)


def section(console: Console, title: str) -> None:
    console.print()
    console.print(Text(title, style="bold"))


def listed(console: Console, lines: Sequence[str], most: int) -> None:
    for line in lines[:most]:
        console.print(Text(line))
    if len(lines) > most:
        console.print(Text(f"and {len(lines) - most} more", style="dim"))


def chart(
    console: Console, curve: Sequence[tuple[float, float]], *, stairs: bool, log: bool | None = None
) -> None:
    width = max(10, min(72, console.width - 16))
    for line in draw(curve, width=width, height=8, stairs=stairs, log=log):
        console.print(Text(line, no_wrap=True, overflow="crop"))


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Says on standard error what is being done, if that takes a while."""
    word = Timer(PATIENCE_SECONDS, lambda: click.echo(f"{what} ...", err=True))
    word.daemon = True
    word.start()
    try:
        yield
    finally:
        word.cancel()
