"""Tests of job stages: the paper's tables, Hyperband's brackets, and ASHA with trials in random order."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thriftune.errors import SettingError
from thriftune.planning import JobSpec, asha, hyperband, successive_halving
from thriftune.planning.job import Stage


def ranges(spec: JobSpec) -> list[tuple[int, int, int]]:
    """Return (trials, first step, last step) of each stage."""
    pairs = zip(spec.stages, spec.begins, strict=True)
    return [(stage.trials, begins, begins + stage.steps) for stage, begins in pairs]


def test_the_papers_table_3() -> None:
    assert ranges(successive_halving(32, 1, 50, eta=3)) == [(32, 0, 1), (10, 1, 4), (3, 4, 13), (1, 13, 50)]


def test_the_papers_simulated_job() -> None:
    spec = successive_halving(64, 4, 508)
    assert spec.stages == [(64, 4), (32, 8), (16, 16), (8, 32), (4, 64), (2, 128), (1, 256)]
    assert spec.begins == [0, 4, 12, 28, 60, 124, 252]
    assert spec.total_steps == 7 * 256


def test_the_last_stage_trains_to_the_last_step() -> None:
    spec = successive_halving(512, 4, 4096)
    assert len(spec.stages) == 10
    assert spec.stages[-1] == (1, 4096 - 4 * 511)
    assert ranges(successive_halving(8, 4, 10)) == [(8, 0, 4), (4, 4, 10)]


def test_a_job_without_halving_has_one_stage() -> None:
    assert successive_halving(1, 1, 10).stages == [(1, 10)]
    assert successive_halving(5, 10, 10).stages == [(5, 10)]
    assert successive_halving(2, 1, 10, eta=3).stages == [(2, 10)]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 300), st.integers(1, 20), st.integers(1, 2000), st.integers(2, 6))
def test_successive_halving_ends_at_the_last_step(n: int, r: int, R: int, eta: int) -> None:
    R = max(r, R)
    result = ranges(successive_halving(n, r, R, eta))
    assert result[0][:2] == (n, 0)
    assert result[-1][2] == R
    for (trials, begins, ends), (fewer, begins_then, ends_then) in pairwise(result):
        assert fewer == trials // eta >= 1
        assert begins_then == ends < ends_then
        assert begins < ends
    for (_, begins, ends), (_, begins_then, ends_then) in pairwise(result[:-1]):
        assert ends_then - begins_then == eta * (ends - begins)


def test_the_brackets_of_hyperband_follow_each_other() -> None:
    assert ranges(hyperband(1, 81, 3)) == [
        *[(81, 0, 1), (27, 1, 4), (9, 4, 13), (3, 13, 40), (1, 40, 81)],
        *[(34, 0, 3), (11, 3, 12), (3, 12, 39), (1, 39, 81)],
        *[(15, 0, 9), (5, 9, 36), (1, 36, 81)],
        *[(8, 0, 27), (2, 27, 81)],
        *[(5, 0, 81)],
    ]
    assert hyperband(7, 7).stages == [(1, 7)]


def test_stages_given_by_hand() -> None:
    """A stage with more trials than the one before has new trials; otherwise its trials continue."""
    spec = JobSpec.of([(8, 2), (4, 4), (4, 1), (5, 3)])
    assert spec.stages == [Stage(8, 2), Stage(4, 4), Stage(4, 1), Stage(5, 3)]
    assert spec.begins == [0, 2, 6, 0]
    assert spec.total_steps == 16 + 16 + 4 + 15


def test_jobs_can_be_added() -> None:
    first, then = successive_halving(4, 1, 7), successive_halving(2, 3, 9)
    both = first + then
    assert ranges(both) == ranges(first) + ranges(then)
    assert both.total_steps == first.total_steps + then.total_steps
    assert first.stages == successive_halving(4, 1, 7).stages  # neither job is changed


def go_on(n: int, eta: int, rng: np.random.Generator) -> int:
    """Count the trials among n that are promoted when they reach a rung one after the other."""
    values: list[float] = []
    gone_on = 0
    for value in rng.random(n):
        values.append(value)
        places = len(values) if len(values) < eta else len(values) // eta
        gone_on += sorted(values).index(value) < places
    return gone_on


@pytest.mark.parametrize(("n", "eta"), [(9, 3), (50, 2), (64, 4)])
def test_asha_agrees_with_random_orders_of_trials(n: int, eta: int) -> None:
    rng = np.random.default_rng(1)
    spec = asha(n, 1, eta**3, eta)
    assert [(begins, begins + stage.steps) for begins, stage in zip(spec.begins, spec.stages, strict=True)] == [
        (0, 1),
        (1, eta),
        (eta, eta**2),
        (eta**2, eta**3),
    ]
    for before, after in zip(spec.stages, spec.stages[1:], strict=False):
        drawn = [go_on(before.trials, eta, rng) for _ in range(1500)]
        error = 4.0 * float(np.std(drawn)) / math.sqrt(len(drawn))
        assert after.trials == pytest.approx(np.mean(drawn), abs=error + 0.5)  # half a trial, for rounding


def test_asha_has_at_least_one_trial_and_ends_at_the_last_step() -> None:
    assert ranges(asha(1, 1, 27, 3)) == [(1, 0, 1), (1, 1, 3), (1, 3, 9), (1, 9, 27)]
    assert asha(5, 4, 4).stages == [(5, 4)]


def test_asha_has_no_rung_near_the_last_step() -> None:
    """As in the stopping rule, trials train from step 3 to the last step without a rung."""
    assert [begins for _, begins, _ in ranges(asha(9, 1, 26, 3))] == [0, 1, 3]
    assert asha(4, 3, 8, 3).stages == [(4, 8)]


def test_invalid_values_are_rejected() -> None:
    with pytest.raises(SettingError, match="n: 0 is too small; use 1 or more"):
        successive_halving(0, 1, 10)
    with pytest.raises(SettingError, match="r: 20 steps are more than R, 10"):
        successive_halving(4, 20, 10)
    with pytest.raises(SettingError, match="eta: 1 is too small; use 2 or more"):
        hyperband(1, 10, eta=1)
    with pytest.raises(SettingError, match=r"R: 10\.5 must be a whole number"):
        asha(4, 1, 10.5)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="n: True must be a whole number"):
        successive_halving(True, 1, 10)
    with pytest.raises(SettingError, match="a job needs at least one stage"):
        JobSpec.of([])
    with pytest.raises(SettingError, match="trials: 0 is too small"):
        JobSpec.of([(4, 1), (0, 2)])
    with pytest.raises(SettingError, match="steps: 0 is too small"):
        JobSpec.of([(4, 0)])


@pytest.mark.parametrize("stages", [None, [4, 2], [(1, 2, 3)], "ab"])
def test_stages_must_be_pairs(stages: Any) -> None:
    with pytest.raises(SettingError, match=r"stages: .* must be pairs of trials and steps|trials 'a'"):
        JobSpec.of(stages)
