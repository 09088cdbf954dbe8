"""Tests of boosted trees: accuracy, monotonicity and edge cases."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from thriftune.market.revocation.trees import Growth, boost

GROWTH = Growth()


def test_trees_learn_true_probabilities() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, (20_000, 3)).astype(np.float32)
    # An interaction, which a linear model cannot express; the third feature is noise.
    truth = expit(4.0 * x[:, 0] * x[:, 1])
    y = rng.random(len(x)) < truth
    model = boost(
        x[:10_000], y[:10_000], np.zeros(3, np.int8), rng, 80, GROWTH, (x[10_000:15_000], y[10_000:15_000])
    )
    p = expit(model.log_odds(x[15_000:]))
    assert np.sqrt(np.mean((p - truth[15_000:]) ** 2)) < 0.08


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_trees_are_monotone_in_all_chosen_features(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((1500, 4)).astype(np.float32)
    y = rng.random(1500) < expit(np.sin(3 * x[:, 0]) - x[:, 1] * x[:, 3] + x[:, 2])  # not monotone at all
    model = boost(
        x, y, np.array([1, -1, 0, 1], np.int8), rng, 25, Growth(learning_rate=0.3, ridge=1.0, min_curvature=1.0)
    )
    low = rng.standard_normal((500, 4)).astype(np.float32)
    high = low + np.array([1, -1, 0, 1], np.float32) * rng.exponential(0.5, (500, 4)).astype(np.float32)
    assert (model.log_odds(high) >= model.log_odds(low)).all()


def test_boosting_stops_without_improvement() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((4000, 5)).astype(np.float32)
    y = rng.random(4000) < 0.2  # nothing to learn
    model = boost(x[:2000], y[:2000], np.zeros(5, np.int8), rng, 100, GROWTH, (x[2000:], y[2000:]), patience=5)
    assert len(model.values) < 20


def test_labels_of_one_kind_give_small_probabilities() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((500, 2)).astype(np.float32)
    p = expit(boost(x, np.zeros(500, bool), np.zeros(2, np.int8), rng, 30, GROWTH).log_odds(x))
    assert ((p >= 0.0) & (p < 0.01)).all()


def test_no_rows_give_no_predictions() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((500, 2)).astype(np.float32)
    model = boost(x, x[:, 0] > 0, np.zeros(2, np.int8), rng, 5, GROWTH)
    assert model.log_odds(x[:0]).shape == (0,)
