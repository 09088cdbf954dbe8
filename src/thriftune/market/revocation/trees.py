"""Which rows are positive, how likely? Gradient-boosted trees on binned features, monotone where asked.

Newton steps on the logistic loss, trees of one depth grown level by level on histograms. A split on a monotone
feature must order its two values, and bounds their subtrees by the middle, so that the sum is monotone as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Floats = NDArray[np.float64]
Bins = NDArray[np.uint8]

_BINS = 48
_WORTH = 1e-6  # of log loss; where nothing ever happened, trees would go on forever to say so more loudly


@dataclass(frozen=True)
class Growth:
    """How trees grow: few, shallow and shrunken, since neighbouring minutes tell nearly the same."""

    depth: int = 4
    rate: float = 0.08
    rows: float = 0.5  # share that each tree sees
    columns: float = 0.6
    ridge: float = 10.0
    least: float = 5.0  # sum of p (1 - p) in a leaf


@dataclass
class Trees:
    """Complete binary trees of one depth, their inner nodes in heap order."""

    edges: list[Floats]  # by feature: a value belongs to the bin of as many edges as lie below it
    start: float  # log odds before the first tree
    depth: int
    features: list[NDArray[np.intp]] = field(default_factory=list)
    bins: list[Bins] = field(default_factory=list)  # go right where the feature's bin is above
    values: list[Floats] = field(default_factory=list)  # of the leaves

    def binned(self, x: NDArray[np.float32]) -> Bins:
        columns = [np.searchsorted(edges, x[:, i], side="left") for i, edges in enumerate(self.edges)]
        return np.stack(columns, axis=1).astype(np.uint8)

    def log_odds(self, x: NDArray[np.float32]) -> Floats:
        told = np.full(len(x), self.start)
        if not self.features or not len(x):
            return told
        binned = self.binned(x).T.ravel()
        rows = np.arange(len(x))
        features, bins = np.stack(self.features), np.stack(self.bins)
        offset = features * len(x)
        nodes = np.zeros((len(features), len(x)), np.intp)
        first = (np.arange(len(features)) * features.shape[1])[:, None]
        for _ in range(self.depth):
            inner = nodes + first
            nodes = 2 * nodes + 1 + (binned[offset.ravel()[inner] + rows] > bins.ravel()[inner])
        leaves = nodes - (2**self.depth - 1) + (np.arange(len(features)) * 2**self.depth)[:, None]
        told += np.stack(self.values).ravel()[leaves].sum(axis=0)
        return told


def boost(
    x: NDArray[np.float32],
    y: NDArray[np.bool_],
    directions: NDArray[np.int8],
    rng: np.random.Generator,
    trees: int,
    growth: Growth,
    judge: tuple[NDArray[np.float32], NDArray[np.bool_]] | None = None,
    patience: int = 20,
) -> Trees:
    """Fits `trees` trees; with `judge`, those up to its least log loss, once `patience` more do not lower it."""
    odds = (y.sum() + 0.5) / (len(y) - y.sum() + 0.5)
    model = Trees([_edges(column) for column in x.T], float(np.log(odds)), growth.depth)
    binned = model.binned(x)
    told = np.full(len(y), model.start)
    judged, truth, best, least = None, None, 0, np.inf
    if judge is not None:
        judged, truth = model.binned(judge[0]), judge[1]
        guess = np.full(len(truth), model.start)
        least = _loss(guess, truth)
    for count in range(1, trees + 1):
        p = expit(told)
        rows = np.flatnonzero(rng.random(len(y)) < growth.rows)
        columns = np.sort(rng.permutation(x.shape[1])[: max(1, round(growth.columns * x.shape[1]))])
        tree = _grow(binned, p - y, p * (1.0 - p), rows, columns, directions, growth)
        model.features.append(tree[0])
        model.bins.append(tree[1])
        model.values.append(tree[2])
        told += _walk(tree, binned, growth.depth)
        if judged is not None and truth is not None:
            guess += _walk(tree, judged, growth.depth)
            loss = _loss(guess, truth)
            if loss < least - _WORTH:
                best, least = count, loss
            elif count - best >= patience:
                break
    if judge is not None:
        del model.features[best:], model.bins[best:], model.values[best:]
    return model


_Tree = tuple[NDArray[np.intp], Bins, Floats]


def _grow(
    binned: Bins,
    slope: Floats,
    curvature: Floats,
    rows: NDArray[np.intp],
    columns: NDArray[np.intp],
    directions: NDArray[np.int8],
    growth: Growth,
) -> _Tree:
    inner = 2**growth.depth - 1
    features, bins = np.zeros(inner, np.intp), np.full(inner, 255, np.uint8)  # 255: all go left
    seen = binned[np.ix_(rows, columns)]
    codes = seen + np.arange(len(columns)) * _BINS
    weights = [np.repeat(w[rows], len(columns)) for w in (slope, curvature)]
    way = directions[columns][None, :, None]
    nodes = np.zeros(len(rows), np.intp)
    low, high = np.full(1, -np.inf), np.full(1, np.inf)
    for level in range(growth.depth + 1):
        many = 2**level
        size = len(columns) * _BINS
        if level == growth.depth:
            g, h = (np.bincount(nodes, w[rows], many) for w in (slope, curvature))
            return features, bins, growth.rate * np.clip(-g / (h + growth.ridge), low, high)
        place = (codes + (nodes * size)[:, None]).ravel()
        shape = (many, len(columns), _BINS)
        g_left, h_left = (np.bincount(place, w, many * size).reshape(shape).cumsum(axis=2) for w in weights)
        g_all, h_all = g_left[:, :1, -1:], h_left[:, :1, -1:]
        bound = low[:, None, None], high[:, None, None]
        left, gain_left = _leaf(g_left, h_left, bound, growth.ridge)
        right, gain_right = _leaf(g_all - g_left, h_all - h_left, bound, growth.ridge)
        gain = gain_left + gain_right - _leaf(g_all, h_all, bound, growth.ridge)[1]
        fine = (h_left >= growth.least) & (h_all - h_left >= growth.least) & (way * (right - left) >= 0.0)
        gain = np.where(fine, gain, 0.0).reshape(many, -1)
        chosen = gain.argmax(axis=1)
        column, cut = chosen // _BINS, chosen % _BINS
        split = gain[np.arange(many), chosen] > 1e-9
        here = np.arange(many - 1, 2 * many - 1)
        features[here] = np.where(split, columns[column], 0)
        bins[here] = np.where(split, cut, 255)
        middle = 0.5 * (left.reshape(many, -1) + right.reshape(many, -1))[np.arange(many), chosen]
        way_here = np.where(split, directions[columns[column]], 0)
        lows, highs = np.repeat(low, 2), np.repeat(high, 2)
        highs[0::2] = np.where(way_here > 0, middle, high)
        lows[1::2] = np.where(way_here > 0, middle, low)
        lows[0::2] = np.where(way_here < 0, middle, low)
        highs[1::2] = np.where(way_here < 0, middle, high)
        low, high = lows, highs
        nodes = 2 * nodes + (seen[np.arange(len(rows)), column[nodes]] > bins[here][nodes])
    raise AssertionError("unreachable")


def _leaf(g: Floats, h: Floats, bound: tuple[Floats, Floats], ridge: float) -> tuple[Floats, Floats]:
    """The best value within the bounds, and how far it lowers the loss."""
    value = np.clip(-g / (h + ridge), *bound)
    return value, -(g * value + 0.5 * (h + ridge) * value * value)


def _walk(tree: _Tree, binned: Bins, depth: int) -> Floats:
    features, bins, values = tree
    nodes, rows = np.zeros(len(binned), np.intp), np.arange(len(binned))
    for _ in range(depth):
        nodes = 2 * nodes + 1 + (binned[rows, features[nodes]] > bins[nodes])
    told: Floats = values[nodes - (2**depth - 1)]
    return told


def _edges(column: NDArray[np.float32]) -> Floats:
    """At most _BINS - 1 values that part the column into bins of about equal mass."""
    cuts = np.quantile(column.astype(float), np.arange(1, _BINS) / _BINS, method="lower")
    return np.unique(cuts)


def _loss(log_odds: Floats, y: NDArray[np.bool_]) -> float:
    return float(np.mean(np.logaddexp(0.0, np.where(y, -log_odds, log_odds))))
