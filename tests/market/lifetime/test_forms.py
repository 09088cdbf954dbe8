"""Tests that all distributions share, and tests of their fits."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from thriftune.errors import SettingError
from thriftune.market.checkpoint_schedule import Job, best_schedule
from thriftune.market.lifetime import (
    Bathtub,
    Exponential,
    Fitted,
    GompertzMakeham,
    KaplanMeier,
    Lifetime,
    Phases,
    Weibull,
)
from thriftune.market.lifetime.fitting import By
from thriftune.market.lifetime.pooling import fit_lifetime
from thriftune.market.running_time import expected_hours, mean_hours

MODELS: dict[str, Lifetime] = {
    "exponential": Exponential(5.0),
    "weibull, young": Weibull(10.0, 0.5),
    "weibull, old": Weibull(10.0, 3.0),
    "gompertz-makeham": GompertzMakeham(0.05, 1e-5, 0.5),
    "bathtub": Bathtub(0.45, 1.0, 0.8, 24.0, 24.0),
    "bathtub, much left": Bathtub(0.4, 1.5, 0.8, 25.0, 24.0),
    "phases": Phases(0.3, 0.5, 40.0, 0.9, 24.3, 0.25),
    "phases, endless": Phases(0.3, 0.5, 40.0, 0.9),
    "kaplan-meier": KaplanMeier.fit([1.0, 2.0, 2.0, 4.0, 5.0, 7.0], [True, True, False, True, False, True]),
    "kaplan-meier, some left": KaplanMeier.fit([1.0, 2.0, 3.0, 9.0], [True, True, False, False]),
}
FORMS: list[type[Fitted]] = [Exponential, Weibull, GompertzMakeham, Bathtub, Phases]


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
class TestEveryForm:
    def test_the_cdf_rises_from_0_to_1(self, model: Lifetime) -> None:
        t = np.linspace(0.0, 60.0, 500)
        cdf = model.cdf(t)
        assert cdf[0] == pytest.approx(0.0, abs=1e-9)
        assert np.all(np.diff(cdf) >= -1e-12)
        assert np.all((cdf >= 0.0) & (cdf <= 1.0))
        assert model.cdf(-1.0) == 0.0
        if math.isfinite(model.end):
            assert model.cdf(model.end) == 1.0

    def test_a_number_gives_a_float_and_an_array_an_array(self, model: Lifetime) -> None:
        for function in (model.cdf, model.survival, model.pdf, model.hazard):
            assert isinstance(function(1.5), float)
            values = function(np.array([0.5, 1.5]))
            assert values.shape == (2,)
            assert values[1] == pytest.approx(function(1.5))
        ages = np.array([[0.0], [1.0], [2.0]])
        assert model.survival(np.array([1.0, 2.0]), ages).shape == (3, 2)

    def test_the_density_is_the_slope_of_the_cdf(self, model: Lifetime) -> None:
        t = np.linspace(0.31, min(model.end, 20.0) - 0.013, 41)
        slope = (model.cdf(t + 1e-5) - model.cdf(t - 1e-5)) / 2e-5
        if not isinstance(model, KaplanMeier):  # a step function has no slope
            assert model.pdf(t) == pytest.approx(slope, rel=1e-3, abs=1e-6)
        assert model.hazard(t) * model.survival(t) == pytest.approx(model.pdf(t), rel=1e-6)

    def test_survival_is_conditioned_on_age(self, model: Lifetime) -> None:
        for age, more in ((0.5, 1.0), (1.0, 2.5), (2.0, 1.5)):
            expected = model.survival(age + more) / model.survival(age)
            assert model.survival(more, age) == pytest.approx(expected, rel=1e-9)
        assert model.survival(0.0, 1.0) == 1.0
        if math.isfinite(model.end):
            assert model.survival(1.0, model.end) == 0.0
            assert model.survival(0.0, model.end + 1.0) == 0.0

    def test_samples_have_the_distribution(self, model: Lifetime) -> None:
        drawn = model.sample(4000, np.random.default_rng(0))
        assert np.all(drawn > 0.0)
        assert drawn.mean() == pytest.approx(model.mean(), rel=0.1)
        for t in (0.5, 2.0, 4.5, 12.0):
            assert (drawn <= t).mean() == pytest.approx(model.cdf(t), abs=0.04)
        assert np.array_equal(drawn, model.sample(4000, np.random.default_rng(0)))

    def test_the_model_implements_survival(self, model: Lifetime) -> None:
        near = 0.02 if isinstance(model, KaplanMeier) else 1e-3  # quadrature of a step function is less exact
        assert mean_hours(model) == pytest.approx(model.mean(), rel=near)
        assert 2.0 <= expected_hours(model, 2.0, 1.0) < 100.0
        job = Job(work_hours=3.0, checkpoint_hours=0.1)
        assert 3.0 <= best_schedule(job, model, resolution_hours=0.25).expected_hours < 100.0

    def test_the_likelihood_counts_preempted_and_stopped_machines(self, model: Lifetime) -> None:
        hours, ended = np.array([0.7, 1.4, 1.9]), np.array([True, False, True])
        expected = math.log(model.pdf(0.7)) + math.log(model.survival(1.4)) + math.log(model.pdf(1.9))
        assert model.log_likelihood(hours, ended) == pytest.approx(expected)


def test_known_means() -> None:
    assert Exponential(5.0).mean() == pytest.approx(5.0)
    assert Weibull(10.0, 0.5).mean() == pytest.approx(20.0, rel=1e-4)
    assert Weibull(10.0, 2.0).mean() == pytest.approx(10.0 * math.gamma(1.5))
    # SciSpot's Eq. 3, plus the machines that are alive at the forced end.
    a, tau1, tau2, b, end = 0.45, 1.0, 0.8, 24.0, 24.0
    upper = -a * (end + tau1) * math.exp(-end / tau1) + a * (end - tau2) * math.exp((end - b) / tau2)
    lower = -a * tau1 - a * tau2 * math.exp(-b / tau2)
    left = 1.0 - a * (2.0 - math.exp(-end / tau1))
    assert Bathtub(a, tau1, tau2, b, end).mean() == pytest.approx(upper - lower + left * end, rel=1e-5)


def test_weibull_equals_scipys() -> None:
    t = np.array([0.1, 1.0, 7.0, 30.0])
    reference = stats.weibull_min(0.7, scale=12.0)
    ours = Weibull(12.0, 0.7)
    assert ours.cdf(t) == pytest.approx(reference.cdf(t))
    assert ours.pdf(t) == pytest.approx(reference.pdf(t))
    assert ours.mean() == pytest.approx(reference.mean(), rel=1e-3)


def test_the_bathtub_has_the_papers_formulas() -> None:
    a, tau1, tau2, b = 0.45, 1.0, 0.8, 24.0
    model = Bathtub(a, tau1, tau2, b, 24.0)
    t = np.array([0.5, 3.0, 12.0, 23.0])
    assert model.cdf(t) == pytest.approx(a * (1 - np.exp(-t / tau1) + np.exp((t - b) / tau2)), abs=1e-9)
    r1, r2 = 1 / tau1, 1 / tau2
    hazard = (r1 * np.exp(-r1 * t) + r2 * np.exp(r2 * (t - b))) / (
        1 / a - 1 + np.exp(-r1 * t) - np.exp(r2 * (t - b))
    )
    assert model.hazard(t) == pytest.approx(hazard, rel=1e-6)


# --- fitting


@pytest.mark.parametrize("by", ["likelihood", "least_squares"])
@pytest.mark.parametrize(
    "truth",
    [
        Exponential(5.0),
        Weibull(10.0, 0.6),
        GompertzMakeham(0.05, 1e-6, 0.6),
        Bathtub(0.45, 1.0, 0.8, 24.1, 24.0),
        Phases(0.3, 0.5, 40.0, 0.9, 24.3, 0.25),
        Phases(0.3, 0.5, 40.0, 0.9),
    ],
    ids=repr,
)
def test_a_fit_to_samples_recovers_the_distribution(truth: Fitted, by: By) -> None:
    rng = np.random.default_rng(3)
    hours = truth.sample(1500, rng)
    stopped = rng.exponential(15.0, 1500)  # by their users
    ended = hours < stopped
    seen = np.where(ended, hours, stopped)
    fitted = type(truth).fit(seen, ended, by=by)
    t = np.array([0.3, 1.0, 4.0, 10.0, 20.0, 23.5])
    assert fitted.cdf(t) == pytest.approx(truth.cdf(t), abs=0.06)
    if by == "likelihood":
        assert fitted.log_likelihood(seen, ended) >= truth.log_likelihood(seen, ended) - 3.0


def test_counting_user_stops_as_preemptions_underestimates_lifetimes() -> None:
    rng = np.random.default_rng(0)
    hours, stopped = rng.exponential(20.0, 2000), rng.exponential(5.0, 2000)
    seen, ended = np.minimum(hours, stopped), hours < stopped
    assert Exponential.fit(seen, ended).mean_hours == pytest.approx(20.0, rel=0.1)
    assert Exponential.fit(seen, np.ones(2000, dtype=bool)).mean_hours == pytest.approx(4.0, rel=0.1)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_the_default_fits_nearly_as_well_as_its_special_cases(data: st.DataObject) -> None:
    """The default has the exponential and the Weibull as special cases.

    Its fit must be about as good.
    """
    n = data.draw(st.integers(30, 80))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    hours = Weibull(data.draw(st.floats(1.0, 50.0)), data.draw(st.floats(0.4, 3.0))).sample(n, rng)
    ended = rng.random(n) < data.draw(st.floats(0.4, 1.0))
    if ended.sum() < 10:
        return
    best = max(form.fit(hours, ended).log_likelihood(hours, ended) for form in (Exponential, Weibull))
    assert Phases.fit(hours, ended).log_likelihood(hours, ended) > best - 2.0


@pytest.mark.parametrize("n", [2, 3, 5, 8, 13, 30])
def test_few_late_losses_are_no_end_of_life(n: int) -> None:
    invented = 0
    for seed in range(10):
        hours = Exponential(10.0).sample(n, np.random.default_rng(seed))
        invented += math.isfinite(Phases.fit(hours, np.ones(n, dtype=bool)).end_hours)
    assert invented <= 1
    few = Phases.fit([1.0, 2.0, 3.5, 6.0, 10.0], [True] * 5)
    assert few.survival(8.0, age=3.0) > 0.01
    stopped = Phases.fit([10.0] * 200, [True] * 2 + [False] * 198)
    assert stopped.survival(2.0, age=10.0) > 0.5


def test_an_unknown_method_or_level_is_refused() -> None:
    with pytest.raises(SettingError, match="by 'mom' must be one of 'likelihood', 'least_squares'"):
        Weibull.fit([1.0, 2.0], [True, True], by="mom")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="level 95 must be between 0 and 1"):
        Weibull(1.0, 1.0).intervals([1.0, 2.0], [True, True], level=95)


def test_intervals_of_a_bathtub_contain_the_fit() -> None:
    rng = np.random.default_rng(0)
    truth = Bathtub(0.45, 1.0, 0.8, 24.1, 24.0)
    hours, ended = truth.sample(150, rng), np.ones(150, dtype=bool)
    fitted = Bathtub.fit(hours, ended)
    for name, (low, high) in fitted.intervals(hours, ended).items():
        assert low < getattr(fitted, name) < high
    low, high = fitted.intervals(hours, ended)["late_start"]
    assert high - low < 3.0


def test_one_late_loss_gives_no_spike() -> None:
    hours = np.array([0.1, 0.2, 0.2, 0.5, 0.9, 1.3, 2.0, 3.0, 24.2])
    fitted = Phases.fit(hours, np.ones(9, dtype=bool))
    assert fitted.pdf(24.2) < 20.0


@pytest.mark.parametrize("form", FORMS)
def test_weights_count_like_repetitions(form: type[Fitted]) -> None:
    hours, ended = np.array([0.5, 1.0, 2.0, 5.0, 9.0]), np.array([True, True, True, False, True])
    twice = form.fit(np.repeat(hours, [1, 2, 1, 3, 1]), np.repeat(ended, [1, 2, 1, 3, 1]))
    weighted = form.fit(hours, ended, weights=[1, 2, 1, 3, 1])
    t = np.array([0.3, 1.0, 3.0, 8.0])
    assert weighted.cdf(t) == pytest.approx(twice.cdf(t), abs=0.05)


def test_intervals_contain_the_truth_at_their_level() -> None:
    rng = np.random.default_rng(1)
    held = []
    for _ in range(60):
        hours = Weibull(10.0, 0.6).sample(120, rng)
        fitted = Weibull.fit(hours, np.ones(120, dtype=bool))
        low, high = fitted.intervals(hours, np.ones(120, dtype=bool), level=0.8)["shape"]
        assert low < fitted.shape < high
        held.append(low < 0.6 < high)
    assert 0.65 <= np.mean(held) <= 0.95


def test_an_interval_is_wide_if_the_observations_do_not_determine_it() -> None:
    """No machine in the record came near the end of life."""
    model = Phases(0.3, 0.5, 4.0, 0.9, 24.3, 0.25)
    hours, ended = np.array([0.2, 0.4, 1.0, 2.0, 3.0, 5.0, 8.0]), np.ones(7, dtype=bool)
    low, high = model.intervals(hours, ended)["spread_hours"]
    assert low < 0.01
    assert high > 100.0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("by", ["likelihood", "least_squares"])
def test_few_or_unusual_observations_are_fitted_or_refused(form: type[Fitted], by: By) -> None:
    for hours in ([1.0, 1.0], [1e-6, 500.0], [24.0, 24.0, 24.0], [0.1, 0.1, 0.1, 30.0]):
        with contextlib.suppress(SettingError):
            fitted = form.fit(hours, [True] * len(hours), by=by)
            assert 0.0 <= fitted.cdf(10.0) <= 1.0


def test_intervals_of_a_least_squares_fit() -> None:
    hours = Exponential(5.0).sample(80, np.random.default_rng(2))
    ended = np.ones(80, dtype=bool)
    fitted = Exponential.fit(hours, ended, by="least_squares")
    low, high = fitted.intervals(hours, ended, by="least_squares")["mean_hours"]
    assert low < fitted.mean_hours < high
    assert 1.0 < high / low < 3.0


# --- invalid arguments


@pytest.mark.parametrize(
    ("hours", "ended", "message"),
    [
        ([], [], "no observation to fit"),
        ([1.0, 2.0], [True], "hours has 2 values, but ended has 1"),
        ([1.0, -2.0], [True, True], r"hours\[1\] is -2.0"),
        ([1.0, math.nan], [True, True], r"hours\[1\] is nan"),
        (["soon", 1.0], [True, True], "hours must be numbers"),
        ([1.0, 2.0], [True, 7], "ended must be true"),
        ([1.0, 2.0], [True, False], "1 preemption among 2 machines; at least 2 are needed"),
        ([1.0, 2.0], [False, False], "no preemption among 2 machines"),
    ],
)
def test_invalid_observations_are_refused(hours: list[object], ended: list[object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Weibull.fit(hours, ended)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Weibull(-1.0, 2.0), "Weibull: scale_hours -1 must be above 0"),
        (lambda: Exponential(0.0), "Exponential: mean_hours 0 must be above 0"),
        (lambda: Phases(2.0, 1.0, 1.0, 1.0), "Phases: young 2 must be between 0 and 1"),
        (lambda: Bathtub(0.5, 1.0, 1.0, math.nan), "Bathtub: late_start is not a number"),
    ],
)
def test_invalid_parameters_are_refused(make: Callable[[], Lifetime], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make()


def test_a_lifetime_of_zero_can_be_fitted() -> None:
    assert math.isfinite(Weibull.fit([0.0, 0.0, 1.0, 2.0], [True] * 4).shape)


# --- rounded hours and many machines


@pytest.mark.parametrize("tick", [1.0, 0.5, 0.25])
@pytest.mark.parametrize("seed", range(3))
def test_rounded_hours_are_fitted_as_a_whole(tick: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    hours = np.minimum(rng.exponential(50.0, 200), 24.0 + rng.normal(0.0, 0.2, 200))
    hours = np.round(hours / tick) * tick
    fitted = fit_lifetime(hours, np.ones(200, dtype=bool))
    assert fitted.mean() == pytest.approx(hours.mean(), rel=0.02)
    assert fitted.survival(20.0) == pytest.approx(np.mean(hours > 20.0), abs=0.03)


@pytest.mark.parametrize("form", [Exponential, Weibull, Phases])
def test_equal_lifetimes_can_be_fitted(form: type[Fitted]) -> None:
    fitted = form.fit(np.full(50, 2.0), np.ones(50, dtype=bool))
    assert fitted.mean() == pytest.approx(2.0, rel=0.2)


def test_a_hard_age_limit_does_not_distort_the_early_curve() -> None:
    truth = Phases(0.3, 0.5, 60.0, 1.0, 30.0, 0.1)
    hours = np.minimum(truth.sample(400, np.random.default_rng(1)), 24.0)
    fitted = fit_lifetime(hours, np.ones(400, dtype=bool))
    early = np.array([0.5, 2.0, 10.0, 20.0])
    assert fitted.cdf(early) == pytest.approx(truth.cdf(early), abs=0.05)


def test_many_machines_are_fitted_accurately() -> None:
    truth = Phases(0.3, 0.5, 60.0, 1.0, 24.3, 0.25)
    fitted = fit_lifetime(truth.sample(20_000, np.random.default_rng(0)), np.ones(20_000, dtype=bool))
    ages = np.array([0.1, 0.5, 2.0, 10.0, 23.0, 24.3, 24.6])
    assert fitted.cdf(ages) == pytest.approx(truth.cdf(ages), abs=0.012)
