"""Stages: the paper's tables exactly, Hyperband's brackets, what ASHA does when its trials come in any order."""

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
    """Trials, and the steps from which and to which they train."""
    pairs = zip(spec.stages, spec.begins, strict=True)
    return [(stage.trials, begins, begins + stage.steps) for stage, begins in pairs]


def test_the_papers_table_3() -> None:
    assert ranges(successive_halving(32, 1, 50, eta=3)) == [(32, 0, 1), (10, 1, 4), (3, 4, 13), (1, 13, 50)]


def test_the_papers_simulated_job() -> None:
    spec = successive_halving(64, 4, 508)
    assert spec.stages == [(64, 4), (32, 8), (16, 16), (8, 32), (4, 64), (2, 128), (1, 256)]
    assert spec.begins == [0, 4, 12, 28, 60, 124, 252]
    assert spec.total_steps == 7 * 256


def test_the_last_stage_takes_what_is_left() -> None:
    spec = successive_halving(512, 4, 4096)
    assert len(spec.stages) == 10
    assert spec.stages[-1] == (1, 4096 - 4 * 511)
    assert ranges(successive_halving(8, 4, 10)) == [(8, 0, 4), (4, 4, 10)]


def test_where_there_is_nothing_to_halve_there_is_one_stage() -> None:
    assert successive_halving(1, 1, 10).stages == [(1, 10)]
    assert successive_halving(5, 10, 10).stages == [(5, 10)]
    assert successive_halving(2, 1, 10, eta=3).stages == [(2, 10)]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 300), st.integers(1, 20), st.integers(1, 2000), st.integers(2, 6))
def test_whatever_is_halved_ends_at_the_last_step(n: int, r: int, R: int, eta: int) -> None:
    R = max(r, R)
    told = ranges(successive_halving(n, r, R, eta))
    assert told[0][:2] == (n, 0)
    assert told[-1][2] == R
    for (trials, begins, ends), (fewer, begins_then, ends_then) in pairwise(told):
        assert fewer == trials // eta >= 1
        assert begins_then == ends < ends_then
        assert begins < ends
    for (_, begins, ends), (_, begins_then, ends_then) in pairwise(told[:-1]):
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


def test_by_hand() -> None:
    """More trials than before are new ones, and begin at 0; as many or fewer go on."""
    spec = JobSpec.of([(8, 2), (4, 4), (4, 1), (5, 3)])
    assert spec.stages == [Stage(8, 2), Stage(4, 4), Stage(4, 1), Stage(5, 3)]
    assert spec.begins == [0, 2, 6, 0]
    assert spec.total_steps == 16 + 16 + 4 + 15


def test_one_job_after_the_other() -> None:
    first, then = successive_halving(4, 1, 7), successive_halving(2, 3, 9)
    both = first + then
    assert ranges(both) == ranges(first) + ranges(then)
    assert both.total_steps == first.total_steps + then.total_steps
    assert first.stages == successive_halving(4, 1, 7).stages  # neither is changed


def go_on(n: int, eta: int, rng: np.random.Generator) -> int:
    """How many of n trials, which come to a rung one after the other, are among the best there when they come."""
    values: list[float] = []
    gone_on = 0
    for value in rng.random(n):
        values.append(value)
        places = len(values) if len(values) < eta else len(values) // eta
        gone_on += sorted(values).index(value) < places
    return gone_on


@pytest.mark.parametrize(("n", "eta"), [(9, 3), (50, 2), (64, 4)])
def test_asha_is_what_drawing_many_orders_gives(n: int, eta: int) -> None:
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
        assert after.trials == pytest.approx(np.mean(drawn), abs=error + 0.5)  # half a trial: it is rounded


def test_asha_keeps_at_least_one_and_ends_at_the_last_step() -> None:
    assert ranges(asha(1, 1, 27, 3)) == [(1, 0, 1), (1, 1, 3), (1, 3, 9), (1, 9, 27)]
    assert asha(5, 4, 4).stages == [(5, 4)]


def test_asha_has_no_rung_from_which_less_than_eta_times_as_much_is_left() -> None:
    """As the stopping rule: from step 9 on, it is done in one go."""
    assert [begins for _, begins, _ in ranges(asha(9, 1, 26, 3))] == [0, 1, 3]
    assert asha(4, 3, 8, 3).stages == [(4, 8)]


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(SettingError, match="n: 0 must be a whole number, at least 1"):
        successive_halving(0, 1, 10)
    with pytest.raises(SettingError, match="r: 20 steps are more than R, 10"):
        successive_halving(4, 20, 10)
    with pytest.raises(SettingError, match="eta: 1 must be a whole number, at least 2"):
        hyperband(1, 10, eta=1)
    with pytest.raises(SettingError, match=r"R: 10\.5 must be a whole number"):
        asha(4, 1, 10.5)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="n: True must be a whole number"):
        successive_halving(True, 1, 10)
    with pytest.raises(SettingError, match="a job needs at least one stage"):
        JobSpec.of([])
    with pytest.raises(SettingError, match="trials: 0 must be a whole number"):
        JobSpec.of([(4, 1), (0, 2)])
    with pytest.raises(SettingError, match="steps: 0 must be a whole number"):
        JobSpec.of([(4, 0)])


@pytest.mark.parametrize("stages", [None, [4, 2], [(1, 2, 3)], "ab"])
def test_stages_that_are_no_pairs_are_said(stages: Any) -> None:
    with pytest.raises(SettingError, match=r"stages: .* must be pairs of trials and steps|trials 'a'"):
        JobSpec.of(stages)
