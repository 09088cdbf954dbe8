"""Tests slice sampling with known densities."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest
from scipy import stats

from thriftune.search.bayes.kernel import Array
from thriftune.search.bayes.slice_sampler import draws

INF = math.inf


def chain(
    log_density: Callable[[Array], float],
    start: list[float],
    count: int,
    *,
    scale: float | list[float] = 1.0,
    low: float = -100.0,
    high: float = 100.0,
    seed: int = 0,
) -> Array:
    k = len(start)
    rng = np.random.default_rng(seed)
    scales, lows, highs = (np.broadcast_to(np.array(each, dtype=float), k) for each in (scale, low, high))
    return np.array(list(islice(draws(log_density, np.array(start), scales, lows, highs, rng), count)))


def normal(x: Array) -> float:
    return -0.5 * float(x @ x)


def exponential(x: Array) -> float:
    return -float(x[0]) if x[0] >= 0.0 else -INF


def bimodal(x: Array) -> float:
    return float(np.logaddexp(-2.0 * (x[0] - 1.2) ** 2, -2.0 * (x[0] + 1.2) ** 2))


def holed(x: Array) -> float:
    """Return the log density of a uniform distribution on [0, 1] and [2, 3]."""
    return 0.0 if 0.0 <= x[0] <= 1.0 or 2.0 <= x[0] <= 3.0 else -INF


KNOWN: dict[str, tuple[Callable[[Array], float], float, float, float, Callable[[Array], Array]]] = {
    "normal": (normal, 0.0, -100.0, 100.0, stats.norm.cdf),
    "far start": (normal, 30.0, -100.0, 100.0, stats.norm.cdf),
    "cut off": (normal, 0.0, -0.5, 2.0, stats.truncnorm(-0.5, 2.0).cdf),
    "a tail": (normal, 3.0, 3.0, 100.0, stats.truncnorm(3.0, 100.0).cdf),
    "exponential": (exponential, 1.0, -100.0, 100.0, stats.expon.cdf),
    "rises to a bound": (lambda x: 3.0 * float(x[0]), 0.0, -9.0, 0.0, lambda x: np.exp(3.0 * x)),
    "flat": (lambda x: 0.0, 0.0, -3.0, 3.0, stats.uniform(-3.0, 6.0).cdf),
    "two peaks": (bimodal, 1.0, -6.0, 6.0, lambda x: stats.norm.cdf(x[..., None], [-1.2, 1.2], 0.5).mean(axis=-1)),
    "-inf between": (holed, 0.5, -9.0, 9.0, lambda x: np.interp(x, [0.0, 1.0, 2.0, 3.0], [0.0, 0.5, 0.5, 1.0])),
}


@pytest.mark.parametrize(("log_density", "start", "low", "high", "cdf"), KNOWN.values(), ids=KNOWN)
def test_draws_follow_the_density(
    log_density: Callable[[Array], float], start: float, low: float, high: float, cdf: Callable[[Array], Array]
) -> None:
    drawn = chain(log_density, [start], 3040, low=low, high=high)[40:, 0]
    assert drawn.min() >= low
    assert drawn.max() <= high
    assert stats.kstest(drawn[::6], cdf).pvalue > 1e-3


@pytest.mark.parametrize("scale", [0.2, 1.0, 5.0])
def test_the_scale_need_not_be_exact(scale: float) -> None:
    drawn = chain(normal, [0.0], 3000, scale=scale)[:, 0]
    assert stats.kstest(drawn[::6], stats.norm.cdf).pvalue > 1e-3


@pytest.mark.parametrize("correlation", [0.0, 0.9, -0.6])
def test_correlated_normals(correlation: float) -> None:
    sizes = np.array([1.0, 3.0])
    covariance = np.array([[1.0, correlation], [correlation, 1.0]]) * np.outer(sizes, sizes)
    precision, middle = np.linalg.inv(covariance), np.array([1.0, -2.0])

    def log_density(x: Array) -> float:
        return -0.5 * float((x - middle) @ precision @ (x - middle))

    drawn = chain(log_density, [1.0, -2.0], 5000, scale=[1.0, 3.0])
    assert drawn.mean(axis=0) / sizes == pytest.approx(middle / sizes, abs=0.15)
    assert np.cov(drawn.T) / np.outer(sizes, sizes) == pytest.approx(covariance / np.outer(sizes, sizes), abs=0.2)


def test_many_dimensions_and_a_corner() -> None:
    drawn = chain(normal, [0.0] * 8, 6000, low=0.0, high=5.0)
    assert (drawn >= 0.0).all()
    assert (drawn <= 5.0).all()
    assert drawn.mean(axis=0) == pytest.approx(np.full(8, math.sqrt(2.0 / math.pi)), abs=0.1)


def test_a_coordinate_with_scale_zero_does_not_change() -> None:
    drawn = chain(normal, [0.5, 1.0], 500, scale=[1.0, 0.0])
    assert set(drawn[:, 1]) == {1.0}
    assert len(set(drawn[:, 0])) > 400


@pytest.mark.parametrize("elsewhere", [-INF, -1e300])
def test_the_chain_stays_at_the_only_point_with_a_density(elsewhere: float) -> None:
    drawn = chain(lambda x: 0.0 if x[0] == 0.25 else elsewhere, [0.25], 5)
    assert drawn.tolist() == [[0.25]] * 5


def test_a_chain_that_starts_without_a_density_finds_one() -> None:
    drawn = chain(lambda x: 0.0 if x[0] > 0.5 else -INF, [0.4], 200, low=0.0, high=1.0)
    assert drawn[20:].min() > 0.5
    assert chain(lambda x: -INF, [0.4], 3).tolist() == [[0.4]] * 3


def test_the_same_seed_gives_the_same_chain() -> None:
    first, again, other = (chain(normal, [0.0, 0.0], 20, seed=seed) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
