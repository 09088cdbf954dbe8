"""Tests that all revocation models share, and tests of the default model."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import needs_torch
from tests.market.revocation.markets import START, Prices, changed_after, spiky
from thriftune.errors import MissingExtra, SettingError
from thriftune.market.revocation import (
    LogisticRegression,
    RevocationModel,
    RevocationPredictor,
    RevPred,
    Tributary,
)
from thriftune.market.revocation.features import DIRECTIONS, NAMES, features
from thriftune.market.revocation.price_curve import DAY, HOUR, PriceCurve, revoked

MODELS: dict[str, Callable[[], RevocationPredictor]] = {
    "default": RevocationModel,
    "logistic": LogisticRegression,
    "tributary": lambda: Tributary(rows=300, epochs=1),
    "revpred": lambda: RevPred(rows=300, epochs=1),
}
EVERY = pytest.mark.parametrize(
    "name", ["default", "logistic", *(pytest.param(n, marks=needs_torch) for n in ("tributary", "revpred"))]
)
FITTED_DAYS, ALL_DAYS = 8.0, 12.0


@cache
def market() -> Prices:
    return spiky(ALL_DAYS, seed=5)


@cache
def fitted(name: str) -> RevocationPredictor:
    return MODELS[name]().fit(known())


def known() -> Prices:
    cut = START + FITTED_DAYS * DAY
    seen = market().times <= cut
    return Prices(market().times[seen], market().prices[seen], cut)


@EVERY
def test_the_answer_has_the_shape_of_the_query(name: str) -> None:
    model, now = fitted(name), START + 9 * DAY
    assert isinstance(model.probability(market(), now, 0.2), float)
    t = now + HOUR * np.arange(4.0)
    assert np.shape(model.probability(market(), t, 0.2)) == (4,)
    assert np.shape(model.probability(market(), t[:, None], np.array([0.11, 0.15, 0.3]))) == (4, 3)
    assert np.shape(model.probability(market(), np.zeros(0), 0.2)) == (0,)


@EVERY
def test_single_and_joint_queries_give_the_same(name: str) -> None:
    rng = np.random.default_rng(0)
    t, max_price = START + rng.uniform(0.0, ALL_DAYS * DAY, 20), rng.uniform(0.05, 0.4, 20)
    together = fitted(name).probability(market(), t, max_price)
    alone = [fitted(name).probability(market(), float(a), float(b)) for a, b in zip(t, max_price, strict=True)]
    assert together == pytest.approx(alone, abs=1e-6)
    assert (np.asarray(together) >= 0.0).all()
    assert (np.asarray(together) <= 1.0).all()


@EVERY
def test_a_price_above_the_maximum_has_probability_1(name: str) -> None:
    t = START + 9 * DAY + HOUR * np.arange(24.0)
    price = PriceCurve(market()).price(t)
    assert (np.asarray(fitted(name).probability(market(), t, price * 0.99)) == 1.0).all()
    assert (np.asarray(fitted(name).probability(market(), t, price)) < 1.0).all()


@EVERY
@settings(max_examples=20, deadline=None)
@given(st.floats(0.0, ALL_DAYS - 0.01), st.floats(0.03, 1.0), st.sampled_from([0.1, 0.9, 3.0]))
def test_later_prices_are_not_used(name: str, day: float, max_price: float, factor: float) -> None:
    t = START + day * DAY
    other = changed_after(market(), t, factor)
    shorter = Prices(market().times[market().times <= t], market().prices[market().times <= t], t)
    probabilities = fitted(name).probability(market(), t, max_price)
    assert fitted(name).probability(other, t, max_price) == probabilities
    assert fitted(name).probability(shorter, t, max_price) == probabilities


@EVERY
def test_the_same_series_gives_the_same_model(name: str) -> None:
    t = START + 9 * DAY + HOUR * np.arange(48.0)
    again = MODELS[name]().fit(known())
    assert np.array_equal(again.probability(market(), t, 0.15), fitted(name).probability(market(), t, 0.15))


@EVERY
def test_the_seed_determines_the_model(name: str) -> None:
    t = START + 9 * DAY + HOUR * np.arange(48.0)
    probabilities = [
        np.asarray(MODELS[name]().fit(known(), np.random.default_rng(seed)).probability(market(), t, 0.15))
        for seed in (1, 1, 2)
    ]
    assert np.array_equal(probabilities[0], probabilities[1])
    assert not np.array_equal(probabilities[0], probabilities[2])


@EVERY
def test_a_short_series_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match="too short"):
        MODELS[name]().fit(spiky(0.5))


@EVERY
def test_a_whole_history_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match=r"give history\[type, zone\]"):
        MODELS[name]().fit({("m", "z"): spiky(3.0)})  # type: ignore[arg-type]


@EVERY
def test_a_query_before_fitting_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match="not fitted yet"):
        MODELS[name]().probability(market(), START + DAY, 0.1)


def test_the_error_without_torch_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # makes the import fail
    with pytest.raises(MissingExtra, match=r"thriftune\[revpred\]"):
        RevPred().fit(known())


@settings(max_examples=50, deadline=None)
@given(st.floats(0.0, ALL_DAYS), st.lists(st.floats(0.02, 3.0), min_size=2, max_size=30))
def test_the_probability_never_rises_with_the_maximum_price(day: float, prices: list[float]) -> None:
    probabilities = fitted("default").probability(market(), START + day * DAY, np.sort(prices))
    assert (np.diff(np.asarray(probabilities)) <= 0.0).all()


@settings(max_examples=50, deadline=None)
@given(st.floats(0.0, ALL_DAYS), st.lists(st.floats(0.05, 3.0), min_size=2, max_size=30))
def test_each_feature_follows_the_maximum_price_in_its_direction(day: float, prices: list[float]) -> None:
    x = features(PriceCurve(market()), np.full(len(prices), START + day * DAY), np.sort(prices))
    assert x.shape == (len(prices), len(NAMES))
    curve = np.diff(x, axis=0)
    assert (curve[:, DIRECTIONS == 0] == 0.0).all()
    assert (curve * DIRECTIONS <= 0.0).all()  # a higher maximum price never makes a preemption likelier


def test_probabilities_are_reliable_on_later_days() -> None:
    """The default is reliable and better than the simple baselines."""
    series = spiky(40.0, seed=3)
    cut = START + 28 * DAY
    seen = series.times <= cut
    earlier = Prices(series.times[seen], series.prices[seen], cut)
    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(cut, series.end - HOUR, 5000))
    max_price = PriceCurve(series).price(t) * rng.uniform(1.05, 2.0, len(t))
    y = revoked(PriceCurve(series), t, max_price)
    p = np.asarray(RevocationModel().fit(earlier).probability(series, t, max_price))
    baseline = np.asarray(LogisticRegression().fit(earlier).probability(series, t, max_price))
    bins = np.array_split(np.argsort(p), 10)
    assert sum(abs((p[b] - y[b]).sum()) for b in bins) / len(p) < 0.05
    assert np.mean((p - y) ** 2) < 0.8 * np.mean((y.mean() - y) ** 2)
    assert np.mean((p - y) ** 2) < np.mean((baseline - y) ** 2)


def test_a_constant_market_has_a_small_probability() -> None:
    calm = Prices(START + DAY * np.arange(30.0), np.full(30, 0.5), START + 30 * DAY)
    probabilities = RevocationModel().fit(calm).probability(calm, START + 20 * DAY + HOUR * np.arange(9.0), 0.6)
    assert (np.asarray(probabilities) > 0.0).all()
    assert (np.asarray(probabilities) < 0.01).all()


def test_after_the_end_the_last_price_is_used() -> None:
    probabilities = fitted("default").probability(known(), known().end + 60.0, np.array([0.01, 5.0]))
    assert np.asarray(probabilities)[0] == 1.0
    assert np.asarray(probabilities)[1] < 0.2
