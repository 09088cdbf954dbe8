"""How does a parameter become the axis of a picture? Where its values stand, on which scale, with which labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thriftune.common.text import escaped
from thriftune.space.parameters import Choice, Float, Int
from thriftune.space.space import Space

_FEW = 8
"""Whole numbers of so few values have each of them labelled."""

_WIDE = 200.0
"""Below this ratio of its ends, a logarithmic axis has labels between powers of ten, too."""

_LONGEST = 14
"""Characters of a label."""


def is_discrete(space: Space, name: str) -> bool:
    """Return whether a parameter has few values, each of which has a place of its own."""
    parameter = space[name]
    return isinstance(parameter, Choice) or (isinstance(parameter, Int) and len(_few(parameter)) > 0)


def place(space: Space, name: str, value: Any) -> float:
    """Return where a value stands on the axis: a choice by its number, a number at itself."""
    parameter = space[name]
    return float(parameter.choices.index(value)) if isinstance(parameter, Choice) else float(value)


def set_axis(axes: Any, which: str, space: Space, name: str) -> None:
    """Give an axis, "x" or "y", the scale, the range and the labels of a parameter."""
    parameter = space[name]
    getattr(axes, f"set_{which}label")(escaped(name))
    if isinstance(parameter, Choice):
        labels = [short(choice) for choice in parameter.choices]
        turned = {"rotation": 30, "ha": "right"} if which == "x" and sum(map(len, labels)) > 28 else {}
        getattr(axes, f"set_{which}ticks")(range(len(labels)), labels, **turned)
        getattr(axes, f"set_{which}lim")(-0.5, len(labels) - 0.5)
        return
    assert isinstance(parameter, Float | Int)
    axis = getattr(axes, f"{which}axis")
    if parameter.log:
        getattr(axes, f"set_{which}lim")(*ends(parameter))
        set_log(axes, which)
    elif isinstance(parameter, Int):
        axis.get_major_locator().set_params(integer=True)
    if isinstance(parameter, Int) and (few := _few(parameter)):
        getattr(axes, f"set_{which}ticks")(few, [str(value) for value in few])
        getattr(axes, f"set_{which}ticks")([], minor=True)
    if parameter.low < parameter.high:
        getattr(axes, f"set_{which}lim")(*ends(parameter))


def set_log(axes: Any, which: str) -> None:
    """Give an axis a logarithmic scale with plain numbers, also where it spans less than a power of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # late: needs the extra

    getattr(axes, f"set_{which}scale")("log")
    low, high = getattr(axes, f"get_{which}lim")()
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < _WIDE else (1.0,), numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def ends(parameter: Float | Int) -> tuple[float, float]:
    """Return from where to where its axis goes: a little further than its values do."""
    low, high = float(parameter.low), float(parameter.high)
    if isinstance(parameter, Int) and _few(parameter) and not parameter.log:
        half = (parameter.step or 1) / 2
        return low - half, high + half
    if parameter.log:
        room = (high / low) ** 0.04
        return low / room, high * room
    room = 0.04 * (high - low)
    return low - room, high + room


def _few(parameter: Int) -> Sequence[int]:
    """Return all values of a whole number that has few; none else."""
    values = range(parameter.low, parameter.high + 1, parameter.step or 1)
    return values if len(values) <= _FEW else ()


def short(value: Any) -> str:
    """Return a value as a label."""
    text = escaped(f"{value:.4g}" if isinstance(value, float) else str(value))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
