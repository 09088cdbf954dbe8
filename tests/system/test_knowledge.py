"""Pooling of effects over trials."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thriftune.system.estimate import Effect
from thriftune.system.knowledge import _without_prior, pool

PRIOR = Effect(0.0, 0.4)
effects = st.lists(st.builds(Effect, st.floats(-2.0, 2.0), st.floats(0.01, 1.0)), max_size=20)


def test_without_trials_the_prior_is_expected() -> None:
    expected = pool([], PRIOR)
    assert expected.log_ratio == 0.0
    assert PRIOR.error < expected.error < 1.2 * PRIOR.error


def test_trials_that_agree_make_it_surer() -> None:
    few, many = (pool([Effect(-0.3, 0.05)] * count, PRIOR) for count in (2, 20))
    assert few.log_ratio == pytest.approx(-0.3, abs=0.03)
    assert many.log_ratio == pytest.approx(-0.3, abs=0.01)
    assert many.error < few.error < 0.2
    assert many.error < 0.06


def test_trials_that_disagree_leave_doubt() -> None:
    expected = pool([Effect(-0.5, 0.05), Effect(0.4, 0.05)] * 5, PRIOR)
    assert expected.error > 0.3


def test_a_trial_with_a_great_error_counts_little() -> None:
    assert abs(pool([Effect(-0.3, 0.05)] * 3 + [Effect(1.0, 1.0)], PRIOR).log_ratio - -0.3) < 0.15


@given(effects)
def test_the_expected_effect_lies_between_the_prior_and_the_trials(trials: list[Effect]) -> None:
    expected = pool(trials, PRIOR)
    ratios = [PRIOR.log_ratio, *(effect.log_ratio for effect in trials)]
    assert min(ratios) - 1e-9 <= expected.log_ratio <= max(ratios) + 1e-9
    assert expected.error > 0.0


def test_a_prior_is_taken_out_of_an_effect() -> None:
    measured, prior = Effect(-0.5, 0.2), Effect(0.1, 0.4)
    precision = measured.error**-2 + prior.error**-2
    mean = (measured.log_ratio * measured.error**-2 + prior.log_ratio * prior.error**-2) / precision
    assert _without_prior(Effect(mean, precision**-0.5), prior) == pytest.approx(measured)
    assert _without_prior(prior, prior).error == float("inf")
