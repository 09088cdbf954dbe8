"""Tests of the figures that `thriftune market` shows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.market.known_lifetimes import Exponential as Memoryless
from thriftune.errors import SettingError
from thriftune.market import Lifetimes, PriceSeries, synthetic_lifetimes, synthetic_prices
from thriftune.market.lifetime import Exponential, KaplanMeier, Phases, Weibull
from thriftune.market.summary import (
    HOUR,
    QUANTILE_LEVELS,
    ages_to_show,
    checkpoint_figures,
    fit_default_form,
    fit_form,
    job_figures,
    lifetime_figures,
    on_demand_offer,
    price_figures,
    r_squared,
    revocations,
    select_lifetimes,
)

STEPS = PriceSeries("c5.large", "us-east-1a", np.array([0, 2, 3, 6]) * HOUR, [1.0, 5.0, 1.0, 9.0], end=8 * HOUR)


def lives(hours: list[float], ended: list[bool], type: str = "c-2", zone: str = "z") -> Lifetimes:
    n = len(hours)
    return Lifetimes(np.full(n, type), np.full(n, zone), np.zeros(n, dtype=bool), np.array(hours), np.array(ended))


def synthetic_record(n: int = 80) -> Lifetimes:
    rng = np.random.default_rng(0)
    records = [(f"m-{cores}", *synthetic_lifetimes(n, rng, cores=cores)) for cores in (8, 16)]
    types = np.repeat([type for type, _, _ in records], n)
    hours, ended = (np.concatenate([record[i] for record in records]) for i in (1, 2))
    return Lifetimes(types, np.full(2 * n, "z"), np.zeros(2 * n, dtype=bool), hours, ended)


# --- prices


def test_price_statistics_are_weighted_by_time() -> None:
    figures = price_figures(STEPS)
    assert (figures.rows, figures.lowest, figures.median, figures.highest) == (4, 1.0, 1.0, 9.0)
    assert figures.mean == pytest.approx((5 * 1 + 5 + 2 * 9) / 8)
    assert figures.changes_a_day == pytest.approx(9.0)
    mostly_high = PriceSeries("a", "b", [0, 1], [1.0, 2.0], end=10)
    assert price_figures(mostly_high).median == 2.0


def test_figures_of_a_record_with_a_single_time() -> None:
    one = PriceSeries("a", "b", [5.0], [2.0])
    figures = price_figures(one)
    assert (figures.median, figures.mean) == (2.0, 2.0)
    assert math.isnan(figures.changes_a_day)
    lost = revocations(one, 3.0)
    assert (len(lost.times), lost.available_share) == (0, 1.0)
    assert math.isnan(lost.within_an_hour)


def test_revocations() -> None:
    lost = revocations(STEPS, 2.0)
    assert lost.times.tolist() == [2 * HOUR, 6 * HOUR]
    assert lost.lived_hours.tolist() == [2.0, 3.0]
    assert lost.available_share == pytest.approx(5 / 8)
    assert lost.mean_price == 1.0
    # Two of the five hours with a machine are the last before a preemption.
    assert lost.within_an_hour == pytest.approx(2 / 5, abs=0.01)


def test_a_maximum_price_that_is_never_or_always_exceeded() -> None:
    high, low = revocations(STEPS, 9.0), revocations(STEPS, 0.5)
    assert (len(high.times), high.available_share, high.within_an_hour) == (0, 1.0, 0.0)
    assert (len(low.times), low.available_share) == (0, 0.0)
    assert math.isnan(low.within_an_hour)
    assert math.isnan(low.mean_price)
    with pytest.raises(SettingError, match="max price -1 must be a number"):
        revocations(STEPS, -1.0)


@given(st.integers(0, 5), st.floats(0.02, 2.0))
def test_revocations_agree_with_the_series(seed: int, max_price: float) -> None:
    (series,) = synthetic_prices({"a": 0.5}, np.random.default_rng(seed), zones=["z"], days=2).values()
    lost = revocations(series, max_price)
    assert (series.price_at(lost.times) > max_price).all()
    begun = lost.times - lost.lived_hours * HOUR
    assert series.next_above(max_price, begun) == pytest.approx(lost.times)
    assert 0.0 <= lost.available_share <= 1.0


def test_on_demand_offers_are_those_of_the_region() -> None:
    offer = on_demand_offer("r4.large", "us-east-1c")
    assert offer is not None
    assert offer.region == "us-east-1"
    offer = on_demand_offer("n1-highcpu-2", "us-central1-c")
    assert offer is not None
    assert on_demand_offer("r4.large", "eu-west-1a") is None
    assert on_demand_offer("z9.huge", "us-east-1a") is None


# --- lifetimes


def test_quantiles_are_observed_ages() -> None:
    figures = lifetime_figures(lives([float(hour) for hour in range(1, 11)], [True] * 10))
    assert dict(zip(QUANTILE_LEVELS, figures.quantiles, strict=True)) == {0.1: 1, 0.25: 3, 0.5: 5, 0.75: 8, 0.9: 9}
    assert (figures.machines, figures.revoked, figures.stopped) == (10, 10, 0)


def test_quantiles_beyond_all_observed_ages_are_nan() -> None:
    figures = lifetime_figures(lives([1.0, 2.0, 3.0, 4.0], [True, False, False, False]))
    assert figures.quantiles[:2] == (1.0, 1.0)
    assert all(math.isnan(age) for age in figures.quantiles[2:])
    assert figures.mean > 1.0
    none = lifetime_figures(lives([1.0, 2.0], [False, False]))
    assert all(math.isnan(age) for age in none.quantiles)
    assert none.mean == math.inf


def test_unknown_types_and_zones_are_errors() -> None:
    with pytest.raises(SettingError, match="no lifetime of a 'm-9' is recorded; recorded types are m-8, m-16"):
        select_lifetimes(synthetic_record(), "m-9")
    with pytest.raises(SettingError, match="no lifetime of a m-8 in 'x' is recorded; its recorded zones are z"):
        select_lifetimes(synthetic_record(), "m-8", "x")
    assert len(select_lifetimes(synthetic_record(), "m-8", "z")) == 80


def test_fit_figures_measure_the_fit() -> None:
    both = synthetic_record()
    own = select_lifetimes(both, "m-16")
    default, exponential = fit_default_form(both, "m-16"), fit_form(Exponential, own, "least_squares")
    assert isinstance(default.model, Phases)
    assert default.parameters == dict(zip(default.parameters, default.model.values(), strict=True))
    assert default.log_likelihood == pytest.approx(default.model.log_likelihood(own.hours, own.ended))
    assert 1.0 >= default.r2 > exponential.r2
    assert exponential.by == "least squares"
    low, high = exponential.intervals["mean_hours"]
    assert low < exponential.parameters["mean_hours"] < high
    assert exponential.mean == pytest.approx(exponential.parameters["mean_hours"])


def test_r2_is_1_for_the_curve_itself_and_nan_for_one_point() -> None:
    curve = KaplanMeier.fit([1.0, 2.0, 4.0], [True, True, True])
    assert r_squared(curve, curve) == pytest.approx(1.0)
    assert r_squared(Exponential(2.0), curve) < 1.0
    assert math.isnan(r_squared(curve, KaplanMeier.fit([1.0, 2.0], [True, False])))


def test_phases_are_always_fitted_by_likelihood() -> None:
    assert fit_form(Phases, select_lifetimes(synthetic_record(), "m-16"), "least_squares").by == "likelihood"


def test_a_failed_fit_has_its_reason() -> None:
    few = lives([1.0, 2.0, 3.0], [True, False, False])
    fit = fit_form(Weibull, few, "likelihood")
    assert fit.model is None
    assert "1 preemption among 3 machines" in fit.failure


# --- jobs


def test_with_constant_hazard_age_does_not_matter() -> None:
    figures = job_figures(Memoryless(rate=0.1), [1.0, 2.0], [0.0, 5.0], restart_hours=0.0)
    assert [(one.job_hours, one.age) for one in figures] == [(1.0, 0.0), (1.0, 5.0), (2.0, 0.0), (2.0, 5.0)]
    assert figures[0].failure_probability == figures[1].failure_probability == pytest.approx(1 - math.exp(-0.1))
    assert figures[3].expected_hours == pytest.approx(math.expm1(0.2) / 0.1)
    assert all(one.keep for one in figures)


def test_checkpoint_figures_of_short_and_long_jobs() -> None:
    short, long = checkpoint_figures(Memoryless(rate=0.1), [1.0, 60.0], 0.02, 0.1)
    for one in (short, long):
        assert one.best.expected_hours <= one.young_daly.expected_hours
        assert one.job_hours < one.best.expected_hours <= one.without
        assert math.fsum(one.best.segments) == pytest.approx(one.job_hours)


def test_a_job_longer_than_any_life_is_refused() -> None:
    with pytest.raises(SettingError, match="a job of 200 h: these machines do not live long enough for it"):
        list(checkpoint_figures(Memoryless(rate=0.1, end=0.5), [200.0], 0.5, 0.0))


def test_ages_to_show() -> None:
    assert ages_to_show(lives([24.0, 3.0], [True, False])) == (24.0, [0.0, 1.0, 6.0, 12.0, 18.0])
    assert ages_to_show(lives([0.5], [True]))[1] == [0.0, 0.12, 0.25, 0.38]
