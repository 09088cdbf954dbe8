"""Gradient-boosted trees for binary labels.

Features are binned, and the trees are monotone in chosen features. Each tree is a Newton step on the logistic
loss. All trees have the same depth and grow level by level from histograms. A split on a monotone feature must
order the values of its two children, and the middle of these values bounds all leaves below them. Every tree is
therefore monotone, and so is their sum.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Floats = NDArray[np.float64]
Bins = NDArray[np.uint8]

_BINS = 48
_ALL_LEFT = 255  # the bin of a node without a split: no row's bin is above it
# Smaller improvements of the log loss do not count. Otherwise, if no label is positive, every tree would improve
# the loss a little, without end.
_MIN_IMPROVEMENT = 1e-6
_MIN_GAIN = 1e-9  # smallest gain of a split, above the noise of float sums


@dataclass(frozen=True)
class Growth:
    """Settings of the growth of trees.

    Trees are shallow and have small values, because queries at neighbouring minutes are nearly identical.
    """

    depth: int = 4
    learning_rate: float = 0.08
    row_share: float = 0.5  # share of the rows that is drawn for each tree
    column_share: float = 0.6  # share of the features that is drawn for each tree
    ridge: float = 10.0
    min_curvature: float = 5.0  # sum of p (1 - p) over the rows of a leaf


@dataclass
class Trees:
    """Complete binary trees of equal depth, with the inner nodes in heap order."""

    edges: list[Floats]  # per feature, rising; a value's bin is the number of edges below it
    start: float  # log odds before the first tree
    depth: int
    features: list[NDArray[np.intp]] = field(default_factory=list)
    bins: list[Bins] = field(default_factory=list)  # a row goes right if its feature's bin is above the node's bin
    values: list[Floats] = field(default_factory=list)  # the values of the leaves, in log odds

    def binned(self, x: NDArray[np.float32]) -> Bins:
        """Return the bin of each value."""
        columns = [np.searchsorted(edges, x[:, i], side="left") for i, edges in enumerate(self.edges)]
        return np.stack(columns, axis=1).astype(np.uint8)

    def log_odds(self, x: NDArray[np.float32]) -> Floats:
        """Return the predicted log odds of each row of features."""
        log_odds = np.full(len(x), self.start)
        if not self.features or not len(x):
            return log_odds
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
        log_odds += np.stack(self.values).ravel()[leaves].sum(axis=0)
        return log_odds


def boost(
    x: NDArray[np.float32],
    y: NDArray[np.bool_],
    directions: NDArray[np.int8],
    rng: np.random.Generator,
    tree_count: int,
    growth: Growth,
    validation: tuple[NDArray[np.float32], NDArray[np.bool_]] | None = None,
    patience: int = 20,
) -> Trees:
    """Fit `tree_count` trees, or fewer if they do not improve the validation loss.

    `directions` has one entry per feature: 1 rising, -1 falling, 0 free. With `validation` (features and labels),
    only the trees up to its smallest log loss remain, and fitting stops after `patience` trees without
    improvement.
    """
    odds = (y.sum() + 0.5) / (len(y) - y.sum() + 0.5)
    model = Trees([_bin_edges(column) for column in x.T], float(np.log(odds)), growth.depth)
    binned = model.binned(x)
    log_odds = np.full(len(y), model.start)
    valid_binned, valid_y, best_count, best_loss = None, None, 0, np.inf
    if validation is not None:
        valid_binned, valid_y = model.binned(validation[0]), validation[1]
        valid_log_odds = np.full(len(valid_y), model.start)
        best_loss = _log_loss(valid_log_odds, valid_y)
    for count in range(1, tree_count + 1):
        p = expit(log_odds)
        rows = np.flatnonzero(rng.random(len(y)) < growth.row_share)
        columns = np.sort(rng.permutation(x.shape[1])[: max(1, round(growth.column_share * x.shape[1]))])
        tree = _grow(binned, p - y, p * (1.0 - p), rows, columns, directions, growth)
        model.features.append(tree[0])
        model.bins.append(tree[1])
        model.values.append(tree[2])
        log_odds += _predict(tree, binned, growth.depth)
        if valid_binned is not None and valid_y is not None:
            valid_log_odds += _predict(tree, valid_binned, growth.depth)
            loss = _log_loss(valid_log_odds, valid_y)
            if loss < best_loss - _MIN_IMPROVEMENT:
                best_count, best_loss = count, loss
            elif count - best_count >= patience:
                break
    if validation is not None:
        del model.features[best_count:], model.bins[best_count:], model.values[best_count:]
    return model


_Tree = tuple[NDArray[np.intp], Bins, Floats]  # features and bins of the inner nodes, values of the leaves


def _grow(
    binned: Bins,
    slope: Floats,
    curvature: Floats,
    rows: NDArray[np.intp],
    columns: NDArray[np.intp],
    directions: NDArray[np.int8],
    growth: Growth,
) -> _Tree:
    """Grow one tree on these rows and columns.

    `slope` and `curvature` are the first and second derivatives of the loss.
    """
    inner_count = 2**growth.depth - 1
    features, bins = np.zeros(inner_count, np.intp), np.full(inner_count, _ALL_LEFT, np.uint8)
    sample = binned[np.ix_(rows, columns)]
    codes = sample + np.arange(len(columns)) * _BINS
    weights = [np.repeat(w[rows], len(columns)) for w in (slope, curvature)]
    column_directions = directions[columns][None, :, None]
    nodes = np.zeros(len(rows), np.intp)
    low, high = np.full(1, -np.inf), np.full(1, np.inf)  # bounds of each node's leaves
    for level in range(growth.depth + 1):
        width = 2**level
        size = len(columns) * _BINS
        if level == growth.depth:
            g, h = (np.bincount(nodes, w[rows], width) for w in (slope, curvature))
            return features, bins, growth.learning_rate * np.clip(-g / (h + growth.ridge), low, high)
        cells = (codes + (nodes * size)[:, None]).ravel()
        shape = (width, len(columns), _BINS)
        g_left, h_left = (np.bincount(cells, w, width * size).reshape(shape).cumsum(axis=2) for w in weights)
        g_all, h_all = g_left[:, :1, -1:], h_left[:, :1, -1:]
        bounds = low[:, None, None], high[:, None, None]
        left, gain_left = _best_value(g_left, h_left, bounds, growth.ridge)
        right, gain_right = _best_value(g_all - g_left, h_all - h_left, bounds, growth.ridge)
        gain = gain_left + gain_right - _best_value(g_all, h_all, bounds, growth.ridge)[1]
        allowed = (h_left >= growth.min_curvature) & (h_all - h_left >= growth.min_curvature)
        allowed &= column_directions * (right - left) >= 0.0
        gain = np.where(allowed, gain, 0.0).reshape(width, -1)
        best = gain.argmax(axis=1)
        column, cut = best // _BINS, best % _BINS
        split = gain[np.arange(width), best] > _MIN_GAIN
        level_nodes = np.arange(width - 1, 2 * width - 1)
        features[level_nodes] = np.where(split, columns[column], 0)
        bins[level_nodes] = np.where(split, cut, _ALL_LEFT)
        middle = 0.5 * (left.reshape(width, -1) + right.reshape(width, -1))[np.arange(width), best]
        direction = np.where(split, directions[columns[column]], 0)
        lows, highs = np.repeat(low, 2), np.repeat(high, 2)
        highs[0::2] = np.where(direction > 0, middle, high)
        lows[1::2] = np.where(direction > 0, middle, low)
        lows[0::2] = np.where(direction < 0, middle, low)
        highs[1::2] = np.where(direction < 0, middle, high)
        low, high = lows, highs
        nodes = 2 * nodes + (sample[np.arange(len(rows)), column[nodes]] > bins[level_nodes][nodes])
    raise AssertionError("unreachable")


def _best_value(g: Floats, h: Floats, bounds: tuple[Floats, Floats], ridge: float) -> tuple[Floats, Floats]:
    """Return the leaf value within the bounds that lowers the loss most.

    Also return how much it lowers the loss. `g` and `h` are the sums of the first and second derivatives of the
    loss over the leaf's rows.
    """
    value = np.clip(-g / (h + ridge), *bounds)
    return value, -(g * value + 0.5 * (h + ridge) * value * value)


def _predict(tree: _Tree, binned: Bins, depth: int) -> Floats:
    features, bins, values = tree
    nodes, rows = np.zeros(len(binned), np.intp), np.arange(len(binned))
    for _ in range(depth):
        nodes = 2 * nodes + 1 + (binned[rows, features[nodes]] > bins[nodes])
    leaf_values: Floats = values[nodes - (2**depth - 1)]
    return leaf_values


def _bin_edges(column: NDArray[np.float32]) -> Floats:
    """Return the edges of bins with about equal numbers of rows.

    The column has at most _BINS - 1 edges.
    """
    cuts = np.quantile(column.astype(float), np.arange(1, _BINS) / _BINS, method="lower")
    return np.unique(cuts)


def _log_loss(log_odds: Floats, y: NDArray[np.bool_]) -> float:
    return float(np.mean(np.logaddexp(0.0, np.where(y, -log_odds, log_odds))))
