"""Can the results of the papers be reproduced?

Each paper has a module with a function of the same name, which returns a `Reproduction`.
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
    """One reproduced number beside the paper's."""

    what: str  # what the number measures
    ours: float
    paper: float | None = None  # None if the paper gives no number
    spread: float | None = None  # standard deviation of our number over starts and seeds
    unit: str = ""  # "$", "%" (0.41 is 41 %), "h", "times" or ""


@dataclass(frozen=True)
class Section:
    """One table or figure of the paper."""

    title: str
    entries: Sequence[Entry]
    comment: str = ""  # what the section shows, and why our numbers differ
    name: str = ""  # of the picture
    draw: Callable[[Path], None] | None = None  # draws the picture to a path


@dataclass(frozen=True)
class Reproduction:
    """The reproduced sections of a paper.

    `differs` has the differences in data and method, one sentence each.
    """

    paper: str
    sections: Sequence[Section]
    differs: Sequence[str]


@dataclass(frozen=True)
class Request:
    """The options of a reproduction."""

    data: Path | None  # the folder of records; without it, synthetic data is used
    quick: bool = False  # run only a few seeds and cases
    progress: Callable[[str], object] = lambda _: None  # is called with a message before each long step

    def record(self, name: str) -> Path | None:
        """Return the path of a record, or None if the folder does not have it."""
        path = None if self.data is None else self.data / name
        return path if path is not None and path.is_file() else None


def reproduce(paper: str, request: Request) -> Reproduction:
    """Reproduce a paper.

    This takes seconds with `quick`, and up to some minutes without.
    """
    if paper not in PAPERS:
        raise SettingError(f"paper: {paper!r} is not known; use one of {', '.join(PAPERS)}")
    reproduce_paper: Callable[[Request], Reproduction] = getattr(import_module(f"{__name__}.{paper}"), paper)
    return reproduce_paper(request)
