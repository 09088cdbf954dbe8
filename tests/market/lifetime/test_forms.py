"""Every form answers the same questions, consistently; and finds its own parameters again."""

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
    def test_from_all_alive_to_all_dead(self, model: Lifetime) -> None:
        t = np.linspace(0.0, 60.0, 500)
        cdf = model.cdf(t)
        assert cdf[0] == pytest.approx(0.0, abs=1e-9)
        assert np.all(np.diff(cdf) >= -1e-12)
        assert np.all((cdf >= 0.0) & (cdf <= 1.0))
        assert model.cdf(-1.0) == 0.0
        if math.isfinite(model.end):
            assert model.cdf(model.end) == 1.0

    def test_one_is_answered_with_one_and_many_with_many(self, model: Lifetime) -> None:
        for ask in (model.cdf, model.survival, model.pdf, model.hazard):
            assert isinstance(ask(1.5), float)
            many = ask(np.array([0.5, 1.5]))
            assert many.shape == (2,)
            assert many[1] == pytest.approx(ask(1.5))
        ages = np.array([[0.0], [1.0], [2.0]])
        assert model.survival(np.array([1.0, 2.0]), ages).shape == (3, 2)

    def test_the_density_is_the_slope_of_the_cdf(self, model: Lifetime) -> None:
        t = np.linspace(0.31, min(model.end, 20.0) - 0.013, 41)
        slope = (model.cdf(t + 1e-5) - model.cdf(t - 1e-5)) / 2e-5
        if not isinstance(model, KaplanMeier):  # whose steps have none
            assert model.pdf(t) == pytest.approx(slope, rel=1e-3, abs=1e-6)
        assert model.hazard(t) * model.survival(t) == pytest.approx(model.pdf(t), rel=1e-6)

    def test_who_is_alive_has_its_past_behind_it(self, model: Lifetime) -> None:
        for age, more in ((0.5, 1.0), (1.0, 2.5), (2.0, 1.5)):
            expected = model.survival(age + more) / model.survival(age)
            assert model.survival(more, age) == pytest.approx(expected, rel=1e-9)
        assert model.survival(0.0, 1.0) == 1.0
        if math.isfinite(model.end):
            assert model.survival(1.0, model.end) == 0.0
            assert model.survival(0.0, model.end + 1.0) == 0.0

    def test_samples_are_of_it(self, model: Lifetime) -> None:
        drawn = model.sample(4000, np.random.default_rng(0))
        assert np.all(drawn > 0.0)
        assert drawn.mean() == pytest.approx(model.mean(), rel=0.1)
        for t in (0.5, 2.0, 4.5, 12.0):
            assert (drawn <= t).mean() == pytest.approx(model.cdf(t), abs=0.04)
        assert np.array_equal(drawn, model.sample(4000, np.random.default_rng(0)))

    def test_it_is_a_survival_to_all_that_ask_for_one(self, model: Lifetime) -> None:
        near = 0.02 if isinstance(model, KaplanMeier) else 1e-3  # steps are not for quadrature
        assert mean_hours(model) == pytest.approx(model.mean(), rel=near)
        assert 2.0 <= expected_hours(model, 2.0, 1.0) < 100.0
        job = Job(work_hours=3.0, checkpoint_hours=0.1)
        assert 3.0 <= best_schedule(job, model, resolution_hours=0.25).expected_hours < 100.0

    def test_the_likelihood_of_who_died_and_who_was_stopped(self, model: Lifetime) -> None:
        hours, ended = np.array([0.7, 1.4, 1.9]), np.array([True, False, True])
        expected = math.log(model.pdf(0.7)) + math.log(model.survival(1.4)) + math.log(model.pdf(1.9))
        assert model.log_likelihood(hours, ended) == pytest.approx(expected)


def test_known_means() -> None:
    assert Exponential(5.0).mean() == pytest.approx(5.0)
    assert Weibull(10.0, 0.5).mean() == pytest.approx(20.0, rel=1e-4)
    assert Weibull(10.0, 2.0).mean() == pytest.approx(10.0 * math.gamma(1.5))
    # SciSpot's Eq. 3, and what is alive at the forced end.
    a, tau1, tau2, b, end = 0.45, 1.0, 0.8, 24.0, 24.0
    upper = -a * (end + tau1) * math.exp(-end / tau1) + a * (end - tau2) * math.exp((end - b) / tau2)
    lower = -a * tau1 - a * tau2 * math.exp(-b / tau2)
    left = 1.0 - a * (2.0 - math.exp(-end / tau1))
    assert Bathtub(a, tau1, tau2, b, end).mean() == pytest.approx(upper - lower + left * end, rel=1e-5)


def test_against_scipy() -> None:
    t = np.array([0.1, 1.0, 7.0, 30.0])
    reference = stats.weibull_min(0.7, scale=12.0)
    ours = Weibull(12.0, 0.7)
    assert ours.cdf(t) == pytest.approx(reference.cdf(t))
    assert ours.pdf(t) == pytest.approx(reference.pdf(t))
    assert ours.mean() == pytest.approx(reference.mean(), rel=1e-3)


def test_the_bathtub_is_the_papers() -> None:
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
def test_a_form_finds_itself_again(truth: Fitted, by: By) -> None:
    rng = np.random.default_rng(3)
    hours = truth.sample(1500, rng)
    stopped = rng.exponential(15.0, 1500)  # by their owners
    ended = hours < stopped
    seen = np.where(ended, hours, stopped)
    found = type(truth).fit(seen, ended, by=by)
    t = np.array([0.3, 1.0, 4.0, 10.0, 20.0, 23.5])
    assert found.cdf(t) == pytest.approx(truth.cdf(t), abs=0.06)
    if by == "likelihood":
        assert found.log_likelihood(seen, ended) >= truth.log_likelihood(seen, ended) - 3.0


def test_to_count_owners_stops_as_deaths_would_be_wrong() -> None:
    rng = np.random.default_rng(0)
    hours, stopped = rng.exponential(20.0, 2000), rng.exponential(5.0, 2000)
    seen, ended = np.minimum(hours, stopped), hours < stopped
    assert Exponential.fit(seen, ended).mean_hours == pytest.approx(20.0, rel=0.1)
    assert Exponential.fit(seen, np.ones(2000, dtype=bool)).mean_hours == pytest.approx(4.0, rel=0.1)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_the_default_form_is_never_far_behind_a_special_case(data: st.DataObject) -> None:
    """It contains the exponential and the Weibull, so it must fit as well, but for what its search may miss."""
    n = data.draw(st.integers(30, 80))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    hours = Weibull(data.draw(st.floats(1.0, 50.0)), data.draw(st.floats(0.4, 3.0))).sample(n, rng)
    ended = rng.random(n) < data.draw(st.floats(0.4, 1.0))
    if ended.sum() < 10:
        return
    best = max(form.fit(hours, ended).log_likelihood(hours, ended) for form in (Exponential, Weibull))
    assert Phases.fit(hours, ended).log_likelihood(hours, ended) > best - 2.0


@pytest.mark.parametrize("n", [2, 3, 5, 8, 13, 30])
def test_an_end_of_life_is_not_made_up_of_the_last_that_died(n: int) -> None:
    invented = 0
    for seed in range(10):
        hours = Exponential(10.0).sample(n, np.random.default_rng(seed))
        invented += math.isfinite(Phases.fit(hours, np.ones(n, dtype=bool)).end_hours)
    assert invented <= 1
    few = Phases.fit([1.0, 2.0, 3.5, 6.0, 10.0], [True] * 5)
    assert few.survival(8.0, age=3.0) > 0.01
    stopped = Phases.fit([10.0] * 200, [True] * 2 + [False] * 198)
    assert stopped.survival(2.0, age=10.0) > 0.5


def test_how_it_is_fitted_is_one_of_two() -> None:
    with pytest.raises(SettingError, match="by 'mom' must be one of 'likelihood', 'least_squares'"):
        Weibull.fit([1.0, 2.0], [True, True], by="mom")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="level 95 must be between 0 and 1"):
        Weibull(1.0, 1.0).intervals([1.0, 2.0], [True, True], level=95)


def test_intervals_of_a_bathtub_hold_it() -> None:
    rng = np.random.default_rng(0)
    truth = Bathtub(0.45, 1.0, 0.8, 24.1, 24.0)
    hours, ended = truth.sample(150, rng), np.ones(150, dtype=bool)
    found = Bathtub.fit(hours, ended)
    for name, (low, high) in found.intervals(hours, ended).items():
        assert low < getattr(found, name) < high
    low, high = found.intervals(hours, ended)["late_start"]
    assert high - low < 3.0


def test_one_machine_that_came_to_the_end_is_no_spike() -> None:
    hours = np.array([0.1, 0.2, 0.2, 0.5, 0.9, 1.3, 2.0, 3.0, 24.2])
    found = Phases.fit(hours, np.ones(9, dtype=bool))
    assert found.pdf(24.2) < 20.0


@pytest.mark.parametrize("form", FORMS)
def test_weights_count_like_repetitions(form: type[Fitted]) -> None:
    hours, ended = np.array([0.5, 1.0, 2.0, 5.0, 9.0]), np.array([True, True, True, False, True])
    twice = form.fit(np.repeat(hours, [1, 2, 1, 3, 1]), np.repeat(ended, [1, 2, 1, 3, 1]))
    weighted = form.fit(hours, ended, weights=[1, 2, 1, 3, 1])
    t = np.array([0.3, 1.0, 3.0, 8.0])
    assert weighted.cdf(t) == pytest.approx(twice.cdf(t), abs=0.05)


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    held = []
    for _ in range(60):
        hours = Weibull(10.0, 0.6).sample(120, rng)
        found = Weibull.fit(hours, np.ones(120, dtype=bool))
        low, high = found.intervals(hours, np.ones(120, dtype=bool), level=0.8)["shape"]
        assert low < found.shape < high
        held.append(low < 0.6 < high)
    assert 0.65 <= np.mean(held) <= 0.95


def test_an_interval_is_open_where_the_observations_do_not_tell() -> None:
    """Nobody came near the end of life."""
    model = Phases(0.3, 0.5, 4.0, 0.9, 24.3, 0.25)
    hours, ended = np.array([0.2, 0.4, 1.0, 2.0, 3.0, 5.0, 8.0]), np.ones(7, dtype=bool)
    low, high = model.intervals(hours, ended)["spread_hours"]
    assert low < 0.01
    assert high > 100.0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("by", ["likelihood", "least_squares"])
def test_few_and_odd_observations_fit_or_are_refused(form: type[Fitted], by: By) -> None:
    for hours in ([1.0, 1.0], [1e-6, 500.0], [24.0, 24.0, 24.0], [0.1, 0.1, 0.1, 30.0]):
        with contextlib.suppress(SettingError):
            found = form.fit(hours, [True] * len(hours), by=by)
            assert 0.0 <= found.cdf(10.0) <= 1.0


def test_intervals_of_a_fit_by_least_squares() -> None:
    hours = Exponential(5.0).sample(80, np.random.default_rng(2))
    ended = np.ones(80, dtype=bool)
    found = Exponential.fit(hours, ended, by="least_squares")
    low, high = found.intervals(hours, ended, by="least_squares")["mean_hours"]
    assert low < found.mean_hours < high
    assert 1.0 < high / low < 3.0


# --- what cannot be


@pytest.mark.parametrize(
    ("hours", "ended", "message"),
    [
        ([], [], "there is no observation"),
        ([1.0, 2.0], [True], "there are 2 hours, but 1"),
        ([1.0, -2.0], [True, True], r"hours\[1\] is -2.0"),
        ([1.0, math.nan], [True, True], r"hours\[1\] is nan"),
        (["soon", 1.0], [True, True], "hours must be numbers"),
        ([1.0, 2.0], [True, 7], "ended must be true"),
        ([1.0, 2.0], [True, False], "1 revocation among 2 machines; at least 2 are needed"),
        ([1.0, 2.0], [False, False], "no revocation among 2 machines"),
    ],
)
def test_bad_observations(hours: list[object], ended: list[object], message: str) -> None:
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
def test_forms_that_cannot_be(make: Callable[[], Lifetime], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make()


def test_a_lifetime_of_zero_is_one_that_the_clock_could_not_tell() -> None:
    assert math.isfinite(Weibull.fit([0.0, 0.0, 1.0, 2.0], [True] * 4).shape)


# --- coarse clocks, and many machines


@pytest.mark.parametrize("tick", [1.0, 0.5, 0.25])
@pytest.mark.parametrize("seed", range(3))
def test_rounded_hours_are_fitted_as_the_whole_that_they_are(tick: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    hours = np.minimum(rng.exponential(50.0, 200), 24.0 + rng.normal(0.0, 0.2, 200))
    hours = np.round(hours / tick) * tick
    found = fit_lifetime(hours, np.ones(200, dtype=bool))
    assert found.mean() == pytest.approx(hours.mean(), rel=0.02)
    assert found.survival(20.0) == pytest.approx(np.mean(hours > 20.0), abs=0.03)


@pytest.mark.parametrize("form", [Exponential, Weibull, Phases])
def test_where_all_are_equal_there_is_a_fit(form: type[Fitted]) -> None:
    found = form.fit(np.full(50, 2.0), np.ones(50, dtype=bool))
    assert found.mean() == pytest.approx(2.0, rel=0.2)


def test_a_wall_that_all_run_into_leaves_the_rest_of_the_curve_as_it_is() -> None:
    truth = Phases(0.3, 0.5, 60.0, 1.0, 30.0, 0.1)
    hours = np.minimum(truth.sample(400, np.random.default_rng(1)), 24.0)
    found = fit_lifetime(hours, np.ones(400, dtype=bool))
    early = np.array([0.5, 2.0, 10.0, 20.0])
    assert found.cdf(early) == pytest.approx(truth.cdf(early), abs=0.05)


def test_many_machines_are_fitted_as_few_are() -> None:
    truth = Phases(0.3, 0.5, 60.0, 1.0, 24.3, 0.25)
    found = fit_lifetime(truth.sample(20_000, np.random.default_rng(0)), np.ones(20_000, dtype=bool))
    ages = np.array([0.1, 0.5, 2.0, 10.0, 23.0, 24.3, 24.6])
    assert found.cdf(ages) == pytest.approx(truth.cdf(ages), abs=0.012)
