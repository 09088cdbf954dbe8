"""Where are the points of a space? Many at a time, one number a parameter, and how each of them can be varied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from thriftune.search.bayes.kernel import CATEGORY, Array, Booleans, Indices, Layout
from thriftune.space.axes import Axis
from thriftune.space.conditions import Between, Condition, numbers_in
from thriftune.space.parameters import Choice, Int
from thriftune.space.space import Space

MANY = 32
"""An Int of more values than this is climbed like a Float and then put on its nearest value."""

NEIGHBOURS = 128
"""Points looked at around one, at most."""

LISTED = 4096
"""An Int of more values than this has them computed, not listed."""


@dataclass(frozen=True)
class _Condition:
    """What another parameter has to be."""

    parent: int
    asked: Condition  # one of these values, or in this range
    units: Array  # of a parent whose values are listed, those values as numbers in [0, 1]


@dataclass(frozen=True)
class _Dimension:
    """One parameter, as columns."""

    axis: Axis
    columns: slice
    levels: Array | None  # its values as numbers in [0, 1], rising; None: too many
    whole: bool  # an Int, or a Float with a step
    choice: bool
    conditions: tuple[_Condition, ...]

    @property
    def width(self) -> int:
        return self.axis.width

    @property
    def smooth(self) -> bool:
        """Whether it is climbed by its slope."""
        return self.levels is None or (self.whole and len(self.levels) > MANY)

    def nearest(self, u: Array) -> Array:
        """The numbers of the values nearest to u."""
        if self.levels is not None:
            found: Array = self.levels[np.searchsorted(0.5 * (self.levels[1:] + self.levels[:-1]), u)]
            return found
        return np.array([self.axis.unit(self.axis.value(each)) for each in u.tolist()]) if self.whole else u

    def meets(self, condition: _Condition, u: Array) -> Booleans:
        """Return for each number of a snapped point whether its value is one that the condition asks for."""
        if self.levels is None:  # the numbers of two values may be closer than their rounding errors
            return np.array([self.axis.value(each) in condition.asked for each in u.tolist()], dtype=bool)
        if isinstance(condition.asked, Between):
            low, high = condition.units[[0, -1]]
            inside: Booleans = (u > low - 1e-12) & (u < high + 1e-12)
            return inside
        found: Booleans = np.abs(u[:, None] - condition.units).min(axis=1) < 1e-12
        return found


class Cube:
    """A space as an array sees it.

    A point is a row of U (m, p): numbers in [0, 1], one a parameter, as from_unit() takes them. Its row of X
    (m, D) is what encode() gives for the same configuration.
    """

    def __init__(self, space: Space) -> None:
        number = {name: i for i, name in enumerate(space.searched)}
        self._dimensions: list[_Dimension] = []
        for name in space.searched:
            axis, parameter = space.axes[name], space[name]
            choice = isinstance(parameter, Choice)
            whole = isinstance(parameter, Int) or getattr(parameter, "step", None) is not None
            listed = axis.count is not None and (choice or axis.count <= LISTED)
            levels = np.array([axis.unit(value) for value in axis.levels(LISTED)]) if listed else None
            conditions = tuple(
                _Condition(number[other], asked, _units(asked, space.axes[other]))
                for other, asked in _conditions(space, name)
            )
            self._dimensions.append(_Dimension(axis, space.columns[name], levels, whole, choice, conditions))
        self.p = len(space.searched)
        self.D = space.dimensions
        self.smooth = np.array([dimension.smooth for dimension in self._dimensions])
        """(p,) which parameters are climbed by their slope."""
        self._first_column = np.array([dimension.columns.start for dimension in self._dimensions])

    @cached_property
    def layout(self) -> Layout:
        """Columns of a constant never differ; they keep a length scale, on which nothing depends."""
        owner = np.repeat(np.arange(self.p), [dimension.width for dimension in self._dimensions])
        choice = np.array([dimension.choice for dimension in self._dimensions])
        warped = [d.columns.start for d in self._dimensions if not d.choice and (d.axis.count or 3) > 2]
        return Layout(self.p, owner, np.where(choice[owner], CATEGORY, 1.0), np.array(warped, dtype=np.intp))

    def snap(self, U: Array) -> Array:
        """The nearest points that are configurations."""
        U = np.clip(U, 0.0, 1.0)
        for i, dimension in enumerate(self._dimensions):
            U[:, i] = dimension.nearest(U[:, i])
        return U

    def columns(self, U: Array) -> tuple[Array, Booleans]:
        """X of snapped points, and which of their parameters are active (m, p)."""
        X = np.empty((len(U), self.D))
        active = np.ones(U.shape, dtype=bool)
        for i, dimension in enumerate(self._dimensions):
            for condition in dimension.conditions:
                parent = condition.parent
                active[:, i] &= active[:, parent] & self._dimensions[parent].meets(condition, U[:, parent])
            on = active[:, i]
            if dimension.choice:
                own = X[:, dimension.columns]
                own[:] = 0.0
                picked = np.minimum((U[:, i] * dimension.width).astype(np.intp), dimension.width - 1)
                own[np.flatnonzero(on), picked[on]] = 1.0
            else:
                X[:, dimension.columns.start] = np.where(on, U[:, i], 0.5)
        return X, active

    def slope(self, X_slope: Array) -> Array:
        """(m, p) of (m, D): by U, for what is smooth."""
        slope: Array = X_slope[:, self._first_column]
        return slope

    def neighbours(self, U: Array, active: Booleans, rng: np.random.Generator) -> tuple[Array, Indices]:
        """Points that differ from a row of U in one parameter, and the number of that row.

        Any value of one that has few, the next two of an Int that has many; some of these where they are more
        than NEIGHBOURS.
        """
        rows: list[Array] = []
        owners: list[int] = []
        for j, row in enumerate(U):
            which: list[int] = []
            values: list[float] = []
            for i, dimension in enumerate(self._dimensions):
                levels = dimension.levels
                if levels is None or not active[j, i]:
                    continue
                if dimension.smooth:
                    at = int(np.searchsorted(levels, row[i] - 1e-12))
                    others = np.delete(levels[max(at - 2, 0) : at + 3], min(at, 2))
                else:
                    others = levels[np.abs(levels - row[i]) > 1e-12]
                which += [i] * len(others)
                values += others.tolist()
            kept = np.arange(len(which))
            if len(which) > NEIGHBOURS:
                kept = rng.choice(len(which), NEIGHBOURS, replace=False)
            changed = np.repeat(row[None], len(kept), axis=0)
            changed[np.arange(len(kept)), np.array(which, dtype=np.intp)[kept]] = np.array(values)[kept]
            rows.append(changed)
            owners += [j] * len(kept)
        return np.concatenate([np.empty((0, self.p)), *rows]), np.array(owners, dtype=np.intp)

    def around(self, centres: Array, count: int, rng: np.random.Generator) -> Array:
        """`count` points near each of the centres, from very near to a third of the space away."""
        U = np.repeat(centres, count, axis=0)
        m = len(U)
        # About three coordinates change, and at least one does.
        change = rng.random(U.shape) < min(1.0, 3.0 / self.p)
        change[np.arange(m), rng.integers(self.p, size=m)] = True
        size = 10.0 ** rng.uniform(-2.5, -0.5, (m, 1))
        moved = U + size * rng.standard_normal(U.shape)
        # Reflected at the ends, so that they are not crowded.
        moved = 1.0 - np.abs(1.0 - np.mod(np.abs(moved), 2.0))
        # Of few values, the next ones are no nearer than any: half of the time, any.
        few = ~self.smooth
        anywhere = rng.random((m, int(few.sum())))
        moved[:, few] = np.where(rng.random(anywhere.shape) < 0.5, anywhere, moved[:, few])
        return np.where(change, moved, U)


def _conditions(space: Space, name: str) -> Iterator[tuple[str, Condition]]:
    """Yield the searched parameters on which this one depends, with what each has to be."""
    for other, asked in (space[name].when or {}).items():
        if other in space.searched:
            yield other, asked
        else:  # a fixed value meets what is asked of it whenever it is active
            yield from _conditions(space, other)


def _units(asked: Condition, axis: Axis) -> Array:
    """Return the values of a condition as numbers in [0, 1]; for a range, those of its first and last value."""
    if not isinstance(asked, Between):
        return np.array([axis.unit(value) for value in asked])
    if axis.count is None:
        return np.empty(0)
    first, after = numbers_in(asked, axis)
    return np.array([axis.unit(axis.nth(first)), axis.unit(axis.nth(after - 1))])
