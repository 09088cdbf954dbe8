"""Do the papers' results come out here, too? Their tables and figures beside ours, and what differs.

Each paper is a module with a function of its name, which gives a Reproduction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from thriftune.errors import SettingError

PAPERS = ("spottune", "rubberband", "scispot", "earlycurve")


@dataclass(frozen=True)
class Entry:
    """One number. `paper`: what the paper reports, None where it gives none. `spread`: of ours over starts and
    seeds, one standard deviation. `unit`: "$", "%" (then 0.41 is 41 %), "h", "times" or ""."""

    what: str
    ours: float
    paper: float | None = None
    spread: float | None = None
    unit: str = ""


@dataclass(frozen=True)
class Section:
    """One table or figure of the paper. `told`: in a sentence or two, what it shows, and why ours is not theirs.
    `draw`: makes its picture at that path."""

    title: str
    entries: Sequence[Entry]
    told: str = ""
    name: str = ""  # of its picture
    draw: Callable[[Path], None] | None = None


@dataclass(frozen=True)
class Reproduction:
    """`paper`: which one. `differs`: what differs in data and method, one sentence each."""

    paper: str
    sections: Sequence[Section]
    differs: Sequence[str]


@dataclass(frozen=True)
class Request:
    """`data`: the folder of records, None: none is there, so that markets and machines are made up.
    `quick`: few seeds and cases, to see it run. `told`: how it goes on."""

    data: Path | None
    quick: bool = False
    told: Callable[[str], object] = lambda _: None

    def record(self, name: str) -> Path | None:
        """The file of that name among the records; None: it is not there."""
        path = None if self.data is None else self.data / name
        return path if path is not None and path.is_file() else None


def reproduce(paper: str, request: Request) -> Reproduction:
    """Takes seconds if it is to be quick, else up to some minutes."""
    if paper not in PAPERS:
        raise SettingError(f"paper: {paper!r} is not known; use one of {', '.join(PAPERS)}")
    made: Callable[[Request], Reproduction] = getattr(import_module(f"{__name__}.{paper}"), paper)
    return made(request)
