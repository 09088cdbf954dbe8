"""The colours and the style that all figures share, and the functions that create figures and write them to files.

Drawing needs matplotlib, which comes with the extra `plot`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from thriftune.errors import MissingExtra, SettingError

SUFFIXES = (".png", ".svg", ".pdf")
"""Endings of the files that a figure can be written to."""

ACCENT, MUTED, WARNING, INK = "#d1495b", "#8d99ae", "#c9a227", "#2b2d42"
SERIES = ("#d1495b", "#2e6f95", "#c9a227", "#52796f", "#7d5ba6", "#8d99ae", "#bc6c25", "#2b2d42")
"""Colours of series of equal importance."""

_STYLE: Any = {
    "font.size": 10,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": "#e5e7eb",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "legend.columnspacing": 1.2,
    "xtick.color": INK,
    "ytick.color": INK,
}


def check_plot_path(path: Path) -> None:
    """Check that a figure can be written to this file, before any slow work starts.

    Raises SettingError for a wrong suffix or a missing folder, and MissingExtra without matplotlib.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise SettingError(f"plot: {str(path)!r} must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    check_matplotlib()
    if not path.absolute().parent.is_dir():
        raise SettingError(f"plot: there is no folder {path.parent}; make it first")


def check_matplotlib() -> None:
    """Raise MissingExtra if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtra("a plot needs matplotlib; install it with: pip install 'thriftune[plot]'") from None


@contextmanager
def picture(
    path: Path,
    title: str,
    panels: int = 1,
    width: float = 6.2,
    height: float = 4.2,
    stacked: Sequence[float] = (),
) -> Iterator[list[Any]]:
    """Yield the axes of a new figure, and write it to `path` after the block.

    The file is not written if the block raises an error. The figure has `panels` panels side by side. `width` and
    `height` of a panel are in inches. `stacked` gives panels one above the other instead, with a common x axis and
    these relative heights.
    """
    check_plot_path(path)
    with drawing(title, width * panels, height) as figure:
        if stacked:
            yield list(figure.subplots(len(stacked), 1, sharex=True, height_ratios=stacked, squeeze=False)[:, 0])
        else:
            yield list(figure.subplots(1, panels, squeeze=False)[0])
    save(figure, path)


@contextmanager
def drawing(title: str, width: float, height: float) -> Iterator[Any]:
    """Yield an empty figure in the common style.

    The title is added when the block ends. Sizes are in inches.
    """
    check_matplotlib()
    import matplotlib as mpl

    from thriftune.show.notebook_figure import NotebookFigure  # late: needs the extra

    with mpl.rc_context(_STYLE):
        figure = NotebookFigure(figsize=(width, height), dpi=150, layout="constrained")
        yield figure
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)


def save(figure: Any, path: Path) -> None:
    """Write the figure to a file, in the format of the file's suffix."""
    check_plot_path(path)
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        figure.savefig(path)


def legend(axes: Any, columns: int = 3) -> None:
    """Draw the legend above the axes, beside the title, so that it hides no data."""
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.3, ncols=columns)


def dollar_axis(axes: Any, *, log: bool) -> None:
    """Show the values of the y axis as dollars, on a logarithmic scale if `log`."""
    if log:
        from matplotlib.ticker import LogLocator  # late: needs the extra

        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        axes.yaxis.set_minor_formatter(_dollars)
    axes.yaxis.set_major_formatter(_dollars)


def _dollars(value: float, _position: object) -> str:
    return f"${value:g}"
