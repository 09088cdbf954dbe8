"""The command `python -m benchmarks.reproduce PAPER`."""

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
        """Run the command; an expected error becomes one line and exit status 1."""
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
    help="Recorded prices, lifetimes and curves; default $THRIFTUNE_DATA. Missing data is synthetic or shipped.",
)
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    default="reproduced",
    show_default=True,
    metavar="FOLDER",
    help="Folder for the pictures.",
)
@click.option("--quick", is_flag=True, help="Run only a few cases, in seconds.")
@json_option
def reproduce_command(paper: str, data: Path | None, to: Path, quick: bool, as_json: bool) -> None:
    """Compute a paper's tables and figures again and show them beside the paper's.

    PAPER is spottune, rubberband, scispot or earlycurve. The output ends with the differences in data and method.
    It takes up to some minutes. Machines are simulated, so it costs nothing.
    """
    from benchmarks.reproduce import Request, reproduce

    if data is not None and not data.is_dir():
        raise SettingError(f"data: {str(data)!r} is not a folder; give the folder of the records, or omit --data")
    if to.exists() and not to.is_dir():
        raise SettingError(f"to: {str(to)!r} is a file; give a folder for the pictures")
    if _can_draw():  # a folder that cannot be created is an error before the long computation
        to.mkdir(parents=True, exist_ok=True)
    reproduction = reproduce(paper, Request(data, quick, lambda step: click.echo(f"{step} ...", err=True)))
    pictures, missing = _draw(reproduction, to)
    if as_json:
        print_json(_as_json(reproduction, pictures))
        if missing:
            click.echo(missing, err=True)
    else:
        _show(reproduction, pictures, missing)


def _can_draw() -> bool:
    from thriftune.show.plot_style import check_plot_path

    try:
        check_plot_path(Path("any.png"))
    except MissingExtra:
        return False
    return True


def _draw(reproduction: Reproduction, to: Path) -> tuple[dict[str, Path], str]:
    """Draw the pictures and return their paths by name.

    Also return the reason if none can be drawn.
    """
    from thriftune.show.plot_style import check_plot_path

    pictures: dict[str, Path] = {}
    for section in reproduction.sections:
        if section.draw is None:
            continue
        path = to / f"{reproduction.paper}_{section.name}.png"
        try:
            check_plot_path(path)
        except MissingExtra as error:
            return {}, f"no pictures: {error}"
        section.draw(path)
        pictures[section.name] = path
    return pictures, ""


def _show(reproduction: Reproduction, pictures: dict[str, Path], missing: str) -> None:
    from rich.table import Table
    from rich.text import Text

    from thriftune.cli.screen import open_console, section, table

    console = open_console()
    for each in reproduction.sections:
        section(console, each.title)
        rows = [(entry.what, *_cells(entry)) for entry in each.entries]
        table(console, ("what", "paper", "ours", "+-"), rows)
        if each.comment:
            console.print(Text(each.comment, style="dim"))
    section(console, "What differs")
    differs = Table.grid(padding=(0, 1))
    for line in reproduction.differs:
        differs.add_row("-", Text(line))
    console.print(differs)
    if pictures or missing:
        section(console, "Pictures")
    for path in pictures.values():
        console.print(Text(str(path)))
    if missing:
        console.print(Text(missing))


def _cells(entry: Entry) -> list[str]:
    """Return the texts of the paper's number, ours and its spread.

    The last two have the same number of decimals.
    """
    scale = 100.0 if entry.unit == "%" else 1.0
    places = {"$": 2, "%": 1}.get(entry.unit, _places(entry.ours))
    paper = None if entry.paper is None else f"{scale * entry.paper:.6g}"
    numbers = [
        paper,
        *(None if each is None else f"{scale * each:,.{places}f}" for each in (entry.ours, entry.spread)),
    ]
    return ["" if each is None else _with_unit(each, entry.unit) for each in numbers]


def _places(value: float) -> int:
    """Return the number of decimals that shows three digits."""
    return max(0, 2 - math.floor(math.log10(abs(value)))) if value and math.isfinite(value) else 2


def _with_unit(number: str, unit: str) -> str:
    return f"${number}" if unit == "$" else f"{number} {unit}".rstrip()


def _as_json(reproduction: Reproduction, pictures: dict[str, Path]) -> dict[str, Any]:
    return {
        "paper": reproduction.paper,
        "sections": [_section_json(each, pictures.get(each.name)) for each in reproduction.sections],
        "differs": list(reproduction.differs),
    }


def _section_json(section: Section, picture: Path | None) -> dict[str, Any]:
    return {
        "title": section.title,
        "entries": [vars(entry) for entry in section.entries],
        "told": section.comment,
        "picture": None if picture is None else str(picture),
    }


if __name__ == "__main__":
    reproduce_command(prog_name="python -m benchmarks.reproduce")
