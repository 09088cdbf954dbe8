"""`python -m benchmarks.reproduce PAPER` prints a paper's tables and figures beside ours, and draws them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from thriftune.cli.common import json_option, print_json
from thriftune.errors import MissingExtra, SettingError, ThriftuneError

if TYPE_CHECKING:
    from benchmarks.reproduce import Entry, Reproduction, Section


class _Command(click.Command):
    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command. An expected error becomes one line and status 1."""
        try:
            return super().invoke(ctx)
        except ThriftuneError as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(1)


@click.command("reproduce", cls=_Command)
@click.argument("paper")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    envvar="THRIFTUNE_DATA",
    metavar="FOLDER",
    help="Of recorded prices, lifetimes and curves; $THRIFTUNE_DATA by default. Without: made up, or shipped.",
)
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    default="reproduced",
    show_default=True,
    metavar="FOLDER",
    help="Where the pictures go.",
)
@click.option("--quick", is_flag=True, help="Few cases, to see it run: seconds.")
@json_option
def reproduce_command(paper: str, data: Path | None, to: Path, quick: bool, as_json: bool) -> None:
    """Compute a paper's tables and figures anew, beside the paper's own.

    PAPER is spottune, rubberband, scispot or earlycurve. Then comes what differs in data and method. Takes up to
    some minutes, and needs no money: machines are simulated.
    """
    from benchmarks.reproduce import Request, reproduce

    if data is not None and not data.is_dir():
        raise SettingError(f"data: {str(data)!r} is no folder; give that of the records, or leave it out")
    if to.exists() and not to.is_dir():
        raise SettingError(f"to: {str(to)!r} is a file; give a folder for the pictures")
    if _can_draw():  # that nothing can be written there is told before it is computed
        to.mkdir(parents=True, exist_ok=True)
    found = reproduce(paper, Request(data, quick, lambda what: click.echo(f"{what} ...", err=True)))
    written, missing = _draw(found, to)
    if as_json:
        print_json(_as_json(found, written))
        if missing:
            click.echo(missing, err=True)
    else:
        _show(found, written, missing)


def _can_draw() -> bool:
    from thriftune.show.plot_style import check

    try:
        check(Path("any.png"))
    except MissingExtra:
        return False
    return True


def _draw(found: Reproduction, to: Path) -> tuple[dict[str, Path], str]:
    """The pictures by their names; and why there are none."""
    from thriftune.show.plot_style import check

    written: dict[str, Path] = {}
    for section in found.sections:
        if section.draw is None:
            continue
        path = to / f"{found.paper}_{section.name}.png"
        try:
            check(path)
        except MissingExtra as error:
            return {}, f"no pictures: {error}"
        section.draw(path)
        written[section.name] = path
    return written, ""


def _show(found: Reproduction, written: dict[str, Path], missing: str) -> None:
    from rich.table import Table
    from rich.text import Text

    from thriftune.cli.screen import open_console, section, table

    console = open_console()
    for each in found.sections:
        section(console, each.title)
        rows = [(entry.what, *_cells(entry)) for entry in each.entries]
        table(console, ("what", "paper", "ours", "+-"), rows)
        if each.told:
            console.print(Text(each.told, style="dim"))
    section(console, "What differs")
    differs = Table.grid(padding=(0, 1))
    for line in found.differs:
        differs.add_row("-", Text(line))
    console.print(differs)
    if written or missing:
        section(console, "Pictures")
    for path in written.values():
        console.print(Text(str(path)))
    if missing:
        console.print(Text(missing))


def _cells(entry: Entry) -> list[str]:
    """Paper, ours, and how far ours spreads: the paper's as printed, the others to as many places."""
    scale = 100.0 if entry.unit == "%" else 1.0
    places = {"$": 2, "%": 1}.get(entry.unit, _places(entry.ours))
    paper = None if entry.paper is None else f"{scale * entry.paper:.6g}"
    numbers = [
        paper,
        *(None if each is None else f"{scale * each:,.{places}f}" for each in (entry.ours, entry.spread)),
    ]
    return ["" if each is None else _with_unit(each, entry.unit) for each in numbers]


def _places(value: float) -> int:
    """So that three digits are shown."""
    return max(0, 2 - math.floor(math.log10(abs(value)))) if value and math.isfinite(value) else 2


def _with_unit(number: str, unit: str) -> str:
    return f"${number}" if unit == "$" else f"{number} {unit}".rstrip()


def _as_json(found: Reproduction, written: dict[str, Path]) -> dict[str, Any]:
    return {
        "paper": found.paper,
        "sections": [_section_json(each, written.get(each.name)) for each in found.sections],
        "differs": list(found.differs),
    }


def _section_json(section: Section, picture: Path | None) -> dict[str, Any]:
    return {
        "title": section.title,
        "entries": [vars(entry) for entry in section.entries],
        "told": section.told,
        "picture": None if picture is None else str(picture),
    }


if __name__ == "__main__":
    reproduce_command(prog_name="python -m benchmarks.reproduce")
