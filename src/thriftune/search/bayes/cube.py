"""Where are the points of a space? Many at a time, one number a parameter, and what of them can be varied how."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from thriftune.parameters import Choice, Float, Int
from thriftune.search.bayes.kernel import CATEGORY, Array, Layout
from thriftune.space import Space

MANY = 32
"""An Int of more values than this is climbed like a Float and then put on its nearest value."""


@dataclass(frozen=True)
class _Dimension:
    """One parameter that can vary, as columns."""

    name: str
    columns: slice
    levels: Array | None  # its values as numbers in [0, 1], rising; None: any number
    choice: bool
    conditions: tuple[tuple[int, Array | None], ...]  # (parent, its levels that are asked for)


class Cube:
    """A space as an array sees it: a point is a row of U (m, p), numbers in [0, 1], one a parameter; its X is what
    the space's encode() gives for the same configuration."""

    def __init__(self, space: Space) -> None:
        self.space = space
        index = {name: i for i, name in enumerate(space.names)}
        self._dimensions: list[_Dimension] = []
        for name, parameter in space.items():
            levels = _levels(parameter)
            conditions = []
            for other, values in (parameter.when or {}).items():
                parent = space[other]
                rows = [_unit(parent, value) for value in values]
                conditions.append((index[other], np.array(rows)))
            self._dimensions.append(
                _Dimension(name, space.columns[name], levels, isinstance(parameter, Choice), tuple(conditions))
            )
        self.p = len(space)
        self.D = space.dimensions
        self.smooth = np.array(
            [d.levels is None or (not d.choice and len(d.levels) > MANY) for d in self._dimensions]
        )
        """(p,) whether a parameter is climbed by its slope."""
        self._column = np.array([d.columns.start for d in self._dimensions])
        self.conditional = any(d.conditions for d in self._dimensions)

    @cached_property
    def layout(self) -> Layout:
        """Columns of a constant are never different; they keep a length scale, which then nothing depends on."""
        owner = np.concatenate([[i] * (d.columns.stop - d.columns.start) for i, d in enumerate(self._dimensions)])
        warped = [d.columns.start for d in self._dimensions if not d.choice and (d.levels is None or len(d.levels) > 2)]
        weights = np.concatenate(
            [[CATEGORY if d.choice else 1.0] * (d.columns.stop - d.columns.start) for d in self._dimensions]
        )
        return Layout(self.p, owner.astype(np.intp), weights, np.array(warped, dtype=np.intp))

    def snap(self, U: Array) -> Array:
        """The nearest points that are configurations."""
        U = np.clip(U, 0.0, 1.0)
        for i, dimension in enumerate(self._dimensions):
            if dimension.levels is not None:
                U[:, i] = _nearest(dimension.levels, U[:, i])
        return U

    def columns(self, U: Array) -> tuple[Array, npt_bool]:
        """X (m, D) of snapped points, and which of their parameters are active (m, p)."""
        X = np.empty((len(U), self.D))
        active = np.ones(U.shape, dtype=bool)
        for i, dimension in enumerate(self._dimensions):
            for parent, asked in dimension.conditions:
                holds = np.abs(U[:, parent, None] - asked).min(axis=1) < 1e-12
                active[:, i] &= active[:, parent] & holds
            on = active[:, i]
            if dimension.choice:
                own = X[:, dimension.columns]
                own[:] = 0.0
                width = own.shape[1]
                picked = np.minimum((U[:, i] * width).astype(np.intp), width - 1)
                own[np.arange(len(U)), picked] = 1.0
                own[~on] = 0.0
            else:
                X[:, dimension.columns.start] = np.where(on, U[:, i], 0.5)
        return X, active

    def slope(self, X_slope: Array) -> Array:
        """(m, p) of (m, D): by U, for what is smooth."""
        return X_slope[:, self._column]

    def row(self, config: Mapping[str, Any]) -> list[float]:
        """U of a configuration; the middle for what is inactive."""
        return [_unit(self.space[name], config[name]) if name in config else 0.5 for name in self.space.names]

    def config(self, row: Sequence[float]) -> dict[str, Any]:
        return self.space.from_unit(row)

    def neighbours(self, U: Array, active: npt_bool) -> tuple[Array, np.ndarray]:
        """Every point that differs from a row of U in one parameter with few values; and that row's number."""
        rows, owners = [], []
        for j, row in enumerate(U):
            for i, dimension in enumerate(self._dimensions):
                levels = dimension.levels
                if levels is None or not active[j, i]:
                    continue
                if self.smooth[i]:
                    at = int(np.searchsorted(levels, row[i] - 1e-12))
                    others = levels[[k for k in (at - 2, at - 1, at + 1, at + 2) if 0 <= k < len(levels)]]
                else:
                    others = levels[np.abs(levels - row[i]) > 1e-12]
                for level in others:
                    changed = row.copy()
                    changed[i] = level
                    rows.append(changed)
                    owners.append(j)
        return np.array(rows).reshape(-1, self.p), np.array(owners, dtype=np.intp)

    def around(self, centres: Array, count: int, rng: np.random.Generator) -> Array:
        """`count` points near each of the centres, from very near to a third of the space away."""
        U = np.repeat(centres, count, axis=0)
        m = len(U)
        size = 10.0 ** rng.uniform(-2.5, -0.5, (m, 1))
        # About three coordinates change, and at least one does.
        chance = min(1.0, 3.0 / self.p)
        change = rng.random(U.shape) < chance
        change[np.arange(m), rng.integers(self.p, size=m)] = True
        moved = U + size * rng.standard_normal(U.shape)
        anywhere = rng.random(U.shape)
        # Reflected at the ends, so that they are not crowded.
        moved = np.abs(moved)
        moved = np.where(moved > 1.0, 2.0 - moved, moved)
        few = ~self.smooth
        moved[:, few] = np.where(rng.random((m, int(few.sum()))) < 0.5, anywhere[:, few], moved[:, few])
        return np.where(change, moved, U)


npt_bool = np.ndarray


def _levels(parameter: object) -> Array | None:
    if isinstance(parameter, Choice):
        k = len(parameter.choices)
        return (np.arange(k) + 0.5) / k
    if isinstance(parameter, Int):
        if parameter.high - parameter.low >= 4096:
            return None
        axis = parameter._axis()
        return np.array([axis.unit(v) for v in range(parameter.low, parameter.high + 1)])
    assert isinstance(parameter, Float)
    return np.array([0.5]) if parameter.low == parameter.high else None


def _unit(parameter: Any, value: Any) -> float:
    axis = parameter._axis()
    if isinstance(parameter, Choice):
        return (axis.index[value] + 0.5) / axis.width
    return float(axis.unit(value))


def _nearest(levels: Array, u: Array) -> Array:
    middles = 0.5 * (levels[1:] + levels[:-1])
    return levels[np.searchsorted(middles, u)]
