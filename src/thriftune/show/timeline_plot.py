"""Draw which trial used which machine when: a row for each machine, a colour for each trial."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from thriftune.common.formatting import format_dollars, plural, time_unit
from thriftune.errors import ThriftuneError
from thriftune.results.cost_ledger import AttemptWork, Ledger, LedgerRow
from thriftune.show.plot_style import INK, MUTED, SERIES, check_plot_path, legend, picture

_MACHINE = "machine"
_WAITING_COLOR = "#d9dde4"
_TRIAL_COLORS = [color for color in SERIES if color != MUTED]  # MUTED looks too much like _WAITING_COLOR

_LANE_FILL = 0.82
"""Share of a lane's height that its bars fill; the rest is a gap."""

_MAX_LANES_WITH_GAPS = 200
"""With more lanes than this, bars fill their whole lane."""

_HEADING = 0.9
"""Height of an offer's heading, in lanes."""

_HEADING_SHARE = 0.03
"""Least height of a heading as a share of all lanes, so that it has room for its text where lanes are thin."""

_WIDTH, _MIN_HEIGHT, _MAX_HEIGHT = 10.0, 2.6, 12.0  # of the figure, in inches
_POINTS_PER_INCH = 72

_MAX_NAMED_LANES = 24
"""With more lanes than this, machine names would overlap and are left out."""

_MAX_OUTLINED_BARS = 600
"""With more bars than this, bars have no outlines: the outlines would hide the bars."""

_MAX_VECTOR_BARS = 20_000
"""More bars than this are drawn as pixels also in SVG and PDF files, which would be too large to open."""


class Bar(NamedTuple):
    """A rectangle: its times in seconds, and its edges in lanes from the top."""

    since: float
    until: float
    top: float
    bottom: float


OfferLanes = tuple[str, list[list[LedgerRow]]]
"""An offer, and its machines by lane; the machines in a lane follow one after the other."""


@dataclass
class TimelineLayout:
    """The positions of everything in the figure.

    Times are in seconds, heights in lanes from the top.
    """

    lanes: int
    bottom: float = 0.0  # the height of all that was added
    headings: list[tuple[float, str, list[list[LedgerRow]]]] = field(
        default_factory=list
    )  # height, offer, its lanes
    names: dict[float, str] = field(default_factory=dict)  # of machines, by the middle of the lane
    machines: list[Bar] = field(default_factory=list)
    trials: list[tuple[int, Bar]] = field(default_factory=list)  # a trial's id and one of its attempts
    preemptions: list[tuple[float, float]] = field(default_factory=list)  # when, and the middle of the lane


def plot_timeline(name: str, ledger: Ledger, path: Path) -> None:
    """Write a figure with the machines of a study over time, by offer, to `path`.

    A cross marks a preemption. A machine uses the lane of one that has ended, so the figure has only as many lanes
    as there were machines at the same time. Raises ThriftuneError if the study has used no machine.
    """
    check_plot_path(path)
    if not ledger.rows:
        raise ThriftuneError(f"there is nothing to plot: {name!r} has used no machine yet")
    groups = [(offer, assign_lanes(rows)) for offer, rows in _by_offer(ledger.rows)]
    preempted = sum(row.taken_away for row in ledger.rows)
    preempted_note = f", {preempted} preempted" if preempted else ""
    unit, rented_note = ("run", " if rented") if ledger.is_own_machine else (_MACHINE, "")
    machines = plural(len(ledger.rows), unit)
    title = f"{name}: {machines}{preempted_note}, {format_dollars(ledger.dollars)}{rented_note}"
    with picture(path, title, width=_WIDTH, height=_figure_height(groups)) as (axes,):
        _draw(axes, layout_of(groups), unit)


def assign_lanes(rows: Iterable[LedgerRow]) -> list[list[LedgerRow]]:
    """Return the machines by lane.

    Each machine gets the topmost lane that is free when it starts.
    """
    lanes: list[list[LedgerRow]] = []
    busy: list[tuple[float, int]] = []  # a heap of (end of the machine, its lane)
    free: list[int] = []  # a heap of lanes
    for row in sorted(rows, key=lambda row: row.since):
        while busy and busy[0][0] <= row.since:
            heappush(free, heappop(busy)[1])
        if not free:
            free.append(len(lanes))
            lanes.append([])
        lane = heappop(free)
        lanes[lane].append(row)
        heappush(busy, (row.end, lane))
    return lanes


def stack_attempts(work: Iterable[AttemptWork]) -> tuple[list[int], int]:
    """Return the first slot of each attempt on a machine.

    Also return the number of slots that all attempts need. Attempts that overlap in time get different
    slots. An attempt with several workers gets as many slots.
    """
    first_slots: list[int] = []
    busy_until: list[float] = []  # by slot
    for attempt in work:
        first = 0
        while any(until > attempt.since for until in busy_until[first : first + attempt.workers]):
            first += 1
        busy_until += [-inf] * (first + attempt.workers - len(busy_until))
        busy_until[first : first + attempt.workers] = [attempt.until] * attempt.workers
        first_slots.append(first)
    return first_slots, len(busy_until)


def _by_offer(rows: Sequence[LedgerRow]) -> list[tuple[str, list[LedgerRow]]]:
    offers = dict.fromkeys(row.offer for row in rows)
    return [(offer, [row for row in rows if row.offer == offer]) for offer in offers]


def _figure_height(groups: Sequence[OfferLanes]) -> float:
    """Return the height of the figure in inches.

    Lanes whose machines have several slots are higher.
    """
    heights = [max(0.2, 0.08 * max(row.slots for row in lane)) for _, lanes in groups for lane in lanes]
    total = 1.5 + 0.25 * len(groups) + sum(min(height, 0.6) for height in heights)
    return min(_MAX_HEIGHT, max(_MIN_HEIGHT, total))


def layout_of(groups: Sequence[OfferLanes]) -> TimelineLayout:
    """Return the layout: each offer's lanes below its heading."""
    count = sum(len(lanes) for _, lanes in groups)
    heading = max(_HEADING, _HEADING_SHARE * count)
    fill = _LANE_FILL if count <= _MAX_LANES_WITH_GAPS else 1.0
    layout = TimelineLayout(count)
    for offer, lanes in groups:
        layout.headings.append((layout.bottom + 0.9 * heading, offer, lanes))
        layout.bottom += heading
        for lane in lanes:
            top, middle = layout.bottom, layout.bottom + fill / 2
            for row in lane:
                layout.machines.append(Bar(row.since, row.end, top, top + fill))
                layout.trials += _trial_bars(row, top, fill)
                layout.preemptions += [(row.end, middle)] if row.taken_away else []
            others = len({row.machine for row in lane}) - 1
            more = f" and {others} more" if others else ""
            layout.names[middle] = f"{lane[0].machine}{more}"
            layout.bottom += 1.0
    return layout


def _draw(axes: Any, layout: TimelineLayout, machine_word: str) -> None:
    began, ended = min(bar.since for bar in layout.machines), max(bar.until for bar in layout.machines)
    unit, seconds = time_unit(ended - began)
    for height, offer, lanes in layout.headings:
        machines = sum(map(len, lanes))
        shares_lanes = machines > len(lanes) and machine_word == _MACHINE
        at_once = f", at most {len(lanes)} at once" if shares_lanes else ""
        text = f"{offer}: {plural(machines, machine_word)}{at_once}"
        axes.text(0.0, height, text, color=INK, fontsize=9, va="bottom", ha="left")
    trials = sorted({trial for trial, _ in layout.trials})
    has_own_colors = len(trials) <= len(_TRIAL_COLORS)
    color_index = {trial: number % len(_TRIAL_COLORS) for number, trial in enumerate(trials)}
    bars_by_color: list[list[Bar]] = [[] for _ in _TRIAL_COLORS]
    for trial, bar in layout.trials:
        bars_by_color[color_index[trial]].append(bar)
    labels = [f"trial {trial}" if has_own_colors else None for trial in trials]
    series = [
        (layout.machines, _WAITING_COLOR, "waits"),
        *zip(bars_by_color, _TRIAL_COLORS, labels, strict=False),
    ]
    outlined = len(layout.machines) + len(layout.trials) <= _MAX_OUTLINED_BARS
    for bars, color, label in series:
        _draw_bars(axes, [_in_unit(bar, began, seconds) for bar in bars], color, label, outlined=outlined)
    if layout.preemptions:
        xs, ys = zip(*(((at - began) / seconds, lane) for at, lane in layout.preemptions), strict=True)
        size = max(3.0, min(6.0, 0.7 * _POINTS_PER_INCH * axes.figure.get_figheight() / layout.lanes))
        axes.plot(xs, ys, "x", color=INK, markersize=size, label="preempted", zorder=4, clip_on=False)
    axes.set(ylim=(layout.bottom + 0.3, 0.0), xlim=(0.0, (ended - began) / seconds or 1.0))
    color_note = "" if has_own_colors else f" ({len(trials)} trials; colours repeat)"
    axes.set_xlabel(f"time, {unit}{color_note}")
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    named = layout.names if layout.lanes <= _MAX_NAMED_LANES else {}
    axes.set_yticks(list(named), list(named.values()), fontsize=8)
    legend(axes, columns=len(trials) + 2 if has_own_colors else 2)


def _trial_bars(row: LedgerRow, top: float, fill: float) -> Iterable[tuple[int, Bar]]:
    """Yield a bar for each attempt on a machine.

    A bar is as high as the attempt's share of the machine's slots.
    """
    first_slots, slots = stack_attempts(row.work)
    height = fill / max(slots, row.slots, 1)
    for attempt, first in zip(row.work, first_slots, strict=True):
        bar_top = top + first * height
        yield attempt.trial, Bar(attempt.since, attempt.until, bar_top, bar_top + attempt.workers * height)


def _in_unit(bar: Bar, began: float, seconds: float) -> Bar:
    """Return the bar with its times counted from `began`, in units of `seconds`."""
    return bar._replace(since=(bar.since - began) / seconds, until=(bar.until - began) / seconds)


def _draw_bars(axes: Any, bars: Sequence[Bar], color: str, label: str | None, *, outlined: bool) -> None:
    from matplotlib.collections import PolyCollection  # late: needs the extra

    corners = [
        ((bar.since, bar.top), (bar.until, bar.top), (bar.until, bar.bottom), (bar.since, bar.bottom))
        for bar in bars
    ]
    edges: Any = {"edgecolors": "white", "linewidths": 0.6} if outlined else {"linewidths": 0}
    as_pixels = len(bars) > _MAX_VECTOR_BARS
    shapes = PolyCollection(corners, facecolors=color, label=label, rasterized=as_pixels, zorder=2, **edges)
    axes.add_collection(shapes)
