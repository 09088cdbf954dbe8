"""The figures that the benchmark judges by."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.market.revocation import judgement


def test_the_scores_of_a_small_case() -> None:
    p = np.array([0.9, 0.8, 0.4, 0.2, 0.1])
    y = np.array([True, False, True, False, False])
    told = judgement(p, y)
    assert told["log loss"] == pytest.approx(-np.mean(np.log([0.9, 0.2, 0.4, 0.8, 0.9])))
    assert told["Brier"] == pytest.approx(np.mean([0.01, 0.64, 0.36, 0.04, 0.01]))
    assert told["accuracy"] == pytest.approx(3 / 5)
    assert told["F1"] == pytest.approx(0.5)  # one of two foretold came true, one of two was foretold
    assert told["AUC"] == pytest.approx(5 / 6)  # of the six pairs, one is in the wrong order
    assert told["revoked"] == pytest.approx(2 / 5)


def test_reliability_is_the_gap_between_what_is_told_and_what_happens() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(0.0, 1.0, 200_000)
    y = rng.random(len(p)) < p
    assert judgement(p, y)["reliability error"] < 0.005
    assert judgement(np.clip(p - 0.2, 0.0, 1.0), y)["reliability error"] == pytest.approx(0.18, abs=0.01)


def test_without_a_revocation_some_scores_are_unknown() -> None:
    told = judgement(np.array([0.1, 0.2]), np.array([False, False]))
    assert np.isnan(told["F1"])
    assert np.isnan(told["AUC"])
    assert told["accuracy"] == 1.0
