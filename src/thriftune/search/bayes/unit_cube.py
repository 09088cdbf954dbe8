"""A search space as arrays: snapping, encoding and varying many points of the unit cube at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from thriftune.search.bayes.kernel import CHOICE_WEIGHT, Array, Booleans, Indices, ThetaLayout
from thriftune.space.conditions import Between, Condition, numbers_in
from thriftune.space.parameters import Choice, Int
from thriftune.space.scales import Scale
from thriftune.space.space import Space

MAX_VALUES_WITHOUT_GRADIENT = 32
"""An Int with more values is optimised by gradient like a Float, then rounded to its nearest value."""

MAX_NEIGHBOURS = 128
"""The most neighbours that are tried for one point."""

MAX_LISTED_VALUES = 4096
"""The values of an Int with more values than this are computed when needed and not listed."""

NEIGHBOUR_REACH = 2
"""Neighbours of a smooth Int are this many values below and above it."""

_SAME_VALUE = 1e-12
"""Numbers in [0, 1] that differ by less stand for the same listed value."""


@dataclass(frozen=True)
class _ParentCondition:
    """A condition on the value of another parameter."""

    parent: int  # index of the other parameter
    allowed: Condition  # the values, or the range, for which the condition holds
    units: Array  # the allowed values as numbers in [0, 1] if the parent's values are listed


@dataclass(frozen=True)
class _Dimension:
    """One searched parameter and its columns."""

    scale: Scale
    columns: slice
    levels: Array | None  # its values as numbers in [0, 1], ascending; None if they are not listed
    is_stepped: bool  # True for an Int, and for a Float with a step
    is_choice: bool
    conditions: tuple[_ParentCondition, ...]

    @property
    def width(self) -> int:
        return self.scale.width

    @property
    def smooth(self) -> bool:
        """Return whether the parameter is optimised by gradient."""
        return self.levels is None or (self.is_stepped and len(self.levels) > MAX_VALUES_WITHOUT_GRADIENT)

    def nearest(self, u: Array) -> Array:
        """Return the numbers of the parameter values that are nearest to u."""
        if self.levels is not None:
            nearest: Array = self.levels[np.searchsorted(0.5 * (self.levels[1:] + self.levels[:-1]), u)]
            return nearest
        return np.array([self.scale.unit(self.scale.value(x)) for x in u.tolist()]) if self.is_stepped else u

    def meets(self, condition: _ParentCondition, u: Array) -> Booleans:
        """Return which of these snapped numbers stand for a value that meets the condition."""
        if self.levels is None:  # the numbers of two values may be closer than their rounding errors
            return np.array([self.scale.value(x) in condition.allowed for x in u.tolist()], dtype=bool)
        if isinstance(condition.allowed, Between):
            low, high = condition.units[[0, -1]]
            in_range: Booleans = (u > low - _SAME_VALUE) & (u < high + _SAME_VALUE)
            return in_range
        is_allowed: Booleans = np.abs(u[:, None] - condition.units).min(axis=1) < _SAME_VALUE
        return is_allowed


class Cube:
    """The searched parameters of a space as arrays.

    A point is a row of U (m, p): for each parameter a number in [0, 1], as Space.from_unit() takes them. Its row
    of X (m, D) equals Space.encode() of the same configuration.
    """

    def __init__(self, space: Space) -> None:
        number = {name: i for i, name in enumerate(space.searched)}
        self._dimensions: list[_Dimension] = []
        for name in space.searched:
            scale, parameter = space.scales[name], space[name]
            is_choice = isinstance(parameter, Choice)
            is_stepped = isinstance(parameter, Int) or getattr(parameter, "step", None) is not None
            is_listed = scale.count is not None and (is_choice or scale.count <= MAX_LISTED_VALUES)
            values = scale.levels(MAX_LISTED_VALUES) if is_listed else ()
            levels = np.array([scale.unit(value) for value in values]) if is_listed else None
            conditions = tuple(
                _ParentCondition(number[other], allowed, _units(allowed, space.scales[other]))
                for other, allowed in _conditions(space, name)
            )
            columns = space.columns[name]
            self._dimensions.append(_Dimension(scale, columns, levels, is_stepped, is_choice, conditions))
        self.p = len(space.searched)
        self.D = space.dimensions
        self.smooth = np.array([dimension.smooth for dimension in self._dimensions])
        """(p,) True for all and only the parameters that are optimised by gradient."""
        self._first_column = np.array([dimension.columns.start for dimension in self._dimensions])

    @cached_property
    def layout(self) -> ThetaLayout:
        """Return the hyperparameters of a model of this space.

        A parameter with a single value has a length scale, too, which has no effect.
        """
        column_parameter = np.repeat(np.arange(self.p), [dimension.width for dimension in self._dimensions])
        is_choice = np.array([dimension.is_choice for dimension in self._dimensions])
        # A warping of one or two values would have no effect. A scale without a count has infinitely many values.
        warped = [
            d.columns.start
            for d in self._dimensions
            if not d.is_choice and not (d.scale.count and d.scale.count <= 2)
        ]
        weights = np.where(is_choice[column_parameter], CHOICE_WEIGHT, 1.0)
        return ThetaLayout(self.p, column_parameter, weights, np.array(warped, dtype=np.intp))

    def snap(self, U: Array) -> Array:
        """Return the nearest points that are configurations."""
        U = np.clip(U, 0.0, 1.0)
        for i, dimension in enumerate(self._dimensions):
            U[:, i] = dimension.nearest(U[:, i])
        return U

    def encode(self, U: Array) -> tuple[Array, Booleans]:
        """Return X of snapped points, and which of their parameters are active (m, p)."""
        X = np.empty((len(U), self.D))
        active = np.ones(U.shape, dtype=bool)
        for i, dimension in enumerate(self._dimensions):
            for condition in dimension.conditions:
                parent = condition.parent
                active[:, i] &= active[:, parent] & self._dimensions[parent].meets(condition, U[:, parent])
            is_active = active[:, i]
            if dimension.is_choice:
                own = X[:, dimension.columns]
                own[:] = 0.0
                picked = np.minimum((U[:, i] * dimension.width).astype(np.intp), dimension.width - 1)
                own[np.flatnonzero(is_active), picked[is_active]] = 1.0
            else:
                X[:, dimension.columns.start] = np.where(is_active, U[:, i], 0.5)
        return X, active

    def gradient_by_u(self, gradient_by_x: Array) -> Array:
        """Return the gradient by U (m, p), given the one by X (m, D); correct for smooth parameters only."""
        gradient: Array = gradient_by_x[:, self._first_column]
        return gradient

    def neighbours(self, U: Array, active: Booleans, rng: np.random.Generator) -> tuple[Array, Indices]:
        """Return points that differ from a row of U in one active parameter, and the index of that row.

        A smooth Int takes the next NEIGHBOUR_REACH values on each side, another parameter any of its values. If a
        row has more than MAX_NEIGHBOURS neighbours, a random subset is returned.
        """
        neighbours: list[Array] = []
        rows: list[int] = []
        for j, row in enumerate(U):
            parameters: list[int] = []
            values: list[float] = []
            for i, dimension in enumerate(self._dimensions):
                levels = dimension.levels
                if levels is None or not active[j, i]:
                    continue
                if dimension.smooth:
                    level = int(np.searchsorted(levels, row[i] - _SAME_VALUE))
                    nearby = levels[max(level - NEIGHBOUR_REACH, 0) : level + NEIGHBOUR_REACH + 1]
                    others = np.delete(nearby, min(level, NEIGHBOUR_REACH))
                else:
                    others = levels[np.abs(levels - row[i]) > _SAME_VALUE]
                parameters += [i] * len(others)
                values += others.tolist()
            chosen = np.arange(len(parameters))
            if len(parameters) > MAX_NEIGHBOURS:
                chosen = rng.choice(len(parameters), MAX_NEIGHBOURS, replace=False)
            changed = np.repeat(row[None], len(chosen), axis=0)
            changed[np.arange(len(chosen)), np.array(parameters, dtype=np.intp)[chosen]] = np.array(values)[chosen]
            neighbours.append(changed)
            rows += [j] * len(chosen)
        return np.concatenate([np.empty((0, self.p)), *neighbours]), np.array(rows, dtype=np.intp)

    def sample_near(self, centres: Array, count: int, rng: np.random.Generator) -> Array:
        """Return `count` random points near each centre, at distances from 0.003 to about a third of the cube."""
        U = np.repeat(centres, count, axis=0)
        m = len(U)
        # About three coordinates change, and at least one does.
        change = rng.random(U.shape) < min(1.0, 3.0 / self.p)
        change[np.arange(m), rng.integers(self.p, size=m)] = True
        size = 10.0 ** rng.uniform(-2.5, -0.5, (m, 1))
        moved = U + size * rng.standard_normal(U.shape)
        # Reflect at the ends. Clipping would put too many points exactly there.
        moved = 1.0 - np.abs(1.0 - np.mod(np.abs(moved), 2.0))
        # Among few values, the next one is not more similar than any other. Half of the time, take any value.
        few = ~self.smooth
        uniform = rng.random((m, int(few.sum())))
        moved[:, few] = np.where(rng.random(uniform.shape) < 0.5, uniform, moved[:, few])
        return np.where(change, moved, U)


def _conditions(space: Space, name: str) -> Iterator[tuple[str, Condition]]:
    """Yield the searched parameters on which this one depends, with the values that they must have."""
    for other, allowed in (space[name].when or {}).items():
        if other in space.searched:
            yield other, allowed
        else:  # a fixed parameter meets the condition whenever it is active itself
            yield from _conditions(space, other)


def _units(allowed: Condition, scale: Scale) -> Array:
    """Return the allowed values as numbers in [0, 1]; for a range, only its first and last value."""
    if not isinstance(allowed, Between):
        return np.array([scale.unit(value) for value in allowed])
    if scale.count is None:
        return np.empty(0)
    first, after = numbers_in(allowed, scale)
    return np.array([scale.unit(scale.nth(first)), scale.unit(scale.nth(after - 1))])
