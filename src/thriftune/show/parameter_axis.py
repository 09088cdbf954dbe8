"""Draw a parameter as an axis of a figure: the positions of its values, the scale, the limits and the labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thriftune.common.text import escaped
from thriftune.space.parameters import Choice, Float, Int
from thriftune.space.space import Space

_MAX_LABELLED_INTS = 8
"""An integer parameter with at most this many values is discrete: each value has its own label."""

_WIDE_RATIO = 200.0
"""A logarithmic axis whose ends have at least this ratio has labels at powers of ten only."""

_MAX_LABEL = 14
"""Characters of the longest label."""

_MARGIN = 0.04
"""Margin at each end of an axis, as a share of its length."""

_MAX_FLAT_LABELS = 28
"""Characters in all labels of a horizontal axis; longer labels are rotated."""

_GOLDEN_RATIO = 0.6180339887498949


def is_discrete(space: Space, name: str) -> bool:
    """Return whether a parameter is a choice, or an integer with few values."""
    parameter = space[name]
    return isinstance(parameter, Choice) or (isinstance(parameter, Int) and len(_labelled_ints(parameter)) > 0)


def axis_position(space: Space, name: str, value: Any) -> float:
    """Return the position of a value on the axis.

    A choice is at its index, a number at itself.
    """
    parameter = space[name]
    return float(parameter.choices.index(value)) if isinstance(parameter, Choice) else float(value)


def spread_offset(number: int) -> float:
    """Return a number in [-1, 1) that spreads consecutive trial numbers evenly."""
    return 2.0 * ((number * _GOLDEN_RATIO) % 1.0) - 1.0


def set_parameter_axis(axes: Any, which: str, space: Space, name: str) -> None:
    """Set the scale, limits and labels of an axis to those of a parameter.

    `which` is "x" or "y".
    """
    parameter = space[name]
    getattr(axes, f"set_{which}label")(escaped(name))
    if isinstance(parameter, Choice):
        labels = [short_label(choice) for choice in parameter.choices]
        is_long = which == "x" and sum(map(len, labels)) > _MAX_FLAT_LABELS
        rotation = {"rotation": 30, "ha": "right"} if is_long else {}
        getattr(axes, f"set_{which}ticks")(range(len(labels)), labels, **rotation)
        getattr(axes, f"set_{which}lim")(-0.5, len(labels) - 0.5)
        return
    assert isinstance(parameter, Float | Int)
    axis = getattr(axes, f"{which}axis")
    if parameter.log:
        getattr(axes, f"set_{which}lim")(*axis_limits(parameter))
        set_log_axis(axes, which)
    elif isinstance(parameter, Int):
        axis.get_major_locator().set_params(integer=True)
    if isinstance(parameter, Int) and (values := _labelled_ints(parameter)):
        getattr(axes, f"set_{which}ticks")(values, [str(value) for value in values])
        getattr(axes, f"set_{which}ticks")([], minor=True)
    if parameter.low < parameter.high:
        getattr(axes, f"set_{which}lim")(*axis_limits(parameter))


def set_log_axis(axes: Any, which: str) -> None:
    """Give an axis a logarithmic scale with plain numbers.

    The axis may span less than a power of ten. `which` is "x" or "y".
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # late: needs the extra

    getattr(axes, f"set_{which}scale")("log")
    low, high = getattr(axes, f"get_{which}lim")()
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < _WIDE_RATIO else (1.0,), numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def axis_limits(parameter: Float | Int) -> tuple[float, float]:
    """Return the ends of a parameter's axis: its range with a margin at each end."""
    low, high = float(parameter.low), float(parameter.high)
    if isinstance(parameter, Int) and _labelled_ints(parameter) and not parameter.log:
        half = (parameter.step or 1) / 2
        return low - half, high + half
    if parameter.log:
        factor = (high / low) ** _MARGIN
        return low / factor, high * factor
    margin = _MARGIN * (high - low)
    return low - margin, high + margin


def _labelled_ints(parameter: Int) -> Sequence[int]:
    """Return all values of an integer parameter that has few of them.

    Return nothing for a parameter with more values.
    """
    values = range(parameter.low, parameter.high + 1, parameter.step or 1)
    return values if len(values) <= _MAX_LABELLED_INTS else ()


def short_label(value: Any) -> str:
    """Return a value as text of at most 14 characters."""
    text = escaped(f"{value:.4g}" if isinstance(value, float) else str(value))
    return text if len(text) <= _MAX_LABEL else f"{text[: _MAX_LABEL - 3]}..."
