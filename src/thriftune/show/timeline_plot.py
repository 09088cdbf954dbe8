"""What does a study look like on its machines? Each of them in a row, over time, in the colours of its trials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from thriftune.common.formatting import format_dollars, plural, time_unit
from thriftune.errors import ThriftuneError
from thriftune.results.ledger import AttemptWork, Ledger, LedgerRow
from thriftune.show.plot_style import INK, MUTED, SERIES, check, legend, picture

_MACHINE = "machine"
_WAITS = "#d9dde4"
_COLORS = [color for color in SERIES if color != MUTED]  # which is too much like it
_FILLED, _GAPS = 0.82, 200  # of a lane's height; of more lanes than so many, all of it
_HEADING = 0.9  # the room above an offer's lanes, in lanes; of many lanes, a share of them
_HEADING_SHARE = 0.03
_WIDTH, _LEAST_HEIGHT, _MOST_HEIGHT = 10.0, 2.6, 12.0  # inches
_POINTS = 72  # an inch
_NAMED_LANES = 24
"""No more than so many have their machine's name beside them."""
_OUTLINED = 600
"""More bars than so many have no outlines: there would be nothing else to see."""
_MOST_SHAPES = 20_000
"""More than so many are pixels also in a file of shapes, which nobody could open else."""


class Bar(NamedTuple):
    """A rectangle: from when to when, and where in the lanes, from the topmost down."""

    since: float
    until: float
    top: float
    bottom: float


Group = tuple[str, list[list[LedgerRow]]]
"""An offer, and the lanes of its machines."""


@dataclass
class Layout:
    """Where everything is, in lanes from the topmost down."""

    lanes: int
    bottom: float = 0.0
    headings: list[tuple[float, str, list[list[LedgerRow]]]] = field(default_factory=list)
    names: dict[float, str] = field(default_factory=dict)  # by the middle of the lane
    lives: list[Bar] = field(default_factory=list)
    bars: list[tuple[int, Bar]] = field(default_factory=list)  # with whose trial's it is
    crosses: list[tuple[float, float]] = field(default_factory=list)  # when, and in which lane


def plot_timeline(name: str, ledger: Ledger, path: Path) -> None:
    """Machines as rows, by offer and time; trials as colours; a cross where a provider took a machine away.

    A row is used again when its machine is gone, so that there are no more than there ever were machines at once.
    """
    check(path)
    if not ledger.rows:
        raise ThriftuneError(f"there is nothing to plot: {name!r} has had no machine yet")
    groups = [(offer, lanes(rows)) for offer, rows in _by_offer(ledger.rows)]
    taken = sum(row.taken_away for row in ledger.rows)
    lost = f", {taken} taken away" if taken else ""
    lives, rented = ("drive", " if rented") if ledger.is_own_machine else (_MACHINE, "")
    title = f"{name}: {plural(len(ledger.rows), lives)}{lost}, {format_dollars(ledger.dollars)}{rented}"
    with picture(path, title, width=_WIDTH, height=_height(groups)) as (axes,):
        _draw(axes, laid_out(groups), lives)


def lanes(rows: Iterable[LedgerRow]) -> list[list[LedgerRow]]:
    """Machines that were there at the same time in different lanes, the topmost that is free."""
    found: list[list[LedgerRow]] = []
    held: list[tuple[float, int]] = []  # a heap: until when, which lane
    free: list[int] = []  # a heap
    for row in sorted(rows, key=lambda row: row.since):
        while held and held[0][0] <= row.since:
            heappush(free, heappop(held)[1])
        if not free:
            free.append(len(found))
            found.append([])
        lane = heappop(free)
        found[lane].append(row)
        heappush(held, (row.end, lane))
    return found


def stacked(work: Iterable[AttemptWork]) -> tuple[list[int], int]:
    """Attempts that were on a machine at the same time, one above the other: at which slot each begins, and how
    many slots that takes."""
    starts: list[int] = []
    taken_until: list[float] = []  # by slot
    for each in work:
        first = 0
        while any(until > each.since for until in taken_until[first : first + each.workers]):
            first += 1
        taken_until += [-inf] * (first + each.workers - len(taken_until))
        taken_until[first : first + each.workers] = [each.until] * each.workers
        starts.append(first)
    return starts, len(taken_until)


def _by_offer(rows: Sequence[LedgerRow]) -> list[tuple[str, list[LedgerRow]]]:
    offers = dict.fromkeys(row.offer for row in rows)
    return [(offer, [row for row in rows if row.offer == offer]) for offer in offers]


def _height(groups: Sequence[Group]) -> float:
    """In inches: a machine that trials share is thicker."""
    each = [max(0.2, 0.08 * max(row.slots for row in lane)) for _, found in groups for lane in found]
    return min(_MOST_HEIGHT, max(_LEAST_HEIGHT, 1.5 + 0.25 * len(groups) + sum(min(one, 0.6) for one in each)))


def laid_out(groups: Sequence[Group]) -> Layout:
    """Each group below a line for its heading."""
    count = sum(len(found) for _, found in groups)
    heading = max(_HEADING, _HEADING_SHARE * count)
    filled = _FILLED if count <= _GAPS else 1.0
    layout = Layout(count)
    for offer, found in groups:
        layout.headings.append((layout.bottom + 0.9 * heading, offer, found))
        layout.bottom += heading
        for lane in found:
            top, middle = layout.bottom, layout.bottom + filled / 2
            for row in lane:
                layout.lives.append(Bar(row.since, row.end, top, top + filled))
                layout.bars += _bars(row, top, filled)
                layout.crosses += [(row.end, middle)] if row.taken_away else []
            others = len({row.machine for row in lane}) - 1
            more = f" and {others} more" if others else ""
            layout.names[middle] = f"{lane[0].machine}{more}"
            layout.bottom += 1.0
    return layout


def _draw(axes: Any, layout: Layout, what: str) -> None:
    began, ended = min(bar.since for bar in layout.lives), max(bar.until for bar in layout.lives)
    unit, seconds = time_unit(ended - began)
    for at, offer, found in layout.headings:
        lives = sum(map(len, found))
        at_once = f", {len(found)} at once at most" if lives > len(found) and what == _MACHINE else ""
        text = f"{offer}: {plural(lives, what)}{at_once}"
        axes.text(0.0, at, text, color=INK, fontsize=9, va="bottom", ha="left")
    trials = sorted({trial for trial, _ in layout.bars})
    few = len(trials) <= len(_COLORS)
    place = {trial: number % len(_COLORS) for number, trial in enumerate(trials)}
    of_color: list[list[Bar]] = [[] for _ in _COLORS]
    for trial, bar in layout.bars:
        of_color[place[trial]].append(bar)
    labels = [f"trial {trial}" if few else None for trial in trials]
    shown = [(layout.lives, _WAITS, "waits"), *zip(of_color, _COLORS, labels, strict=False)]
    outlined = len(layout.lives) + len(layout.bars) <= _OUTLINED
    for bars, color, label in shown:
        _add(axes, [_scaled(bar, began, seconds) for bar in bars], color, label, outlined=outlined)
    if layout.crosses:
        across, down = zip(*(((at - began) / seconds, lane) for at, lane in layout.crosses), strict=True)
        size = max(3.0, min(6.0, 0.7 * _POINTS * axes.figure.get_figheight() / layout.lanes))
        axes.plot(across, down, "x", color=INK, markersize=size, label="taken away", zorder=4, clip_on=False)
    axes.set(ylim=(layout.bottom + 0.3, 0.0), xlim=(0.0, (ended - began) / seconds or 1.0))
    axes.set_xlabel(f"time, {unit}" if few else f"time, {unit} (a colour is a trial; there are {len(trials)})")
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    named = layout.names if layout.lanes <= _NAMED_LANES else {}
    axes.set_yticks(list(named), list(named.values()), fontsize=8)
    legend(axes, columns=len(trials) + 2 if few else 2)


def _bars(row: LedgerRow, top: float, filled: float) -> Iterable[tuple[int, Bar]]:
    starts, slots = stacked(row.work)
    height = filled / max(slots, row.slots, 1)
    for work, first in zip(row.work, starts, strict=True):
        place = top + first * height
        yield work.trial, Bar(work.since, work.until, place, place + work.workers * height)


def _scaled(bar: Bar, began: float, seconds: float) -> Bar:
    return bar._replace(since=(bar.since - began) / seconds, until=(bar.until - began) / seconds)


def _add(axes: Any, bars: Sequence[Bar], color: str, label: str | None, *, outlined: bool) -> None:
    from matplotlib.collections import PolyCollection  # late: needs the extra

    corners = [
        ((bar.since, bar.top), (bar.until, bar.top), (bar.until, bar.bottom), (bar.since, bar.bottom))
        for bar in bars
    ]
    edges: Any = {"edgecolors": "white", "linewidths": 0.6} if outlined else {"linewidths": 0}
    many = len(bars) > _MOST_SHAPES
    axes.add_collection(PolyCollection(corners, facecolors=color, label=label, rasterized=many, zorder=2, **edges))
