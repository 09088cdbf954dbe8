"""Tests of the scores that the revocation benchmark computes."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.market.revocation import judgement


def test_scores_of_a_small_case() -> None:
    p = np.array([0.9, 0.8, 0.4, 0.2, 0.1])
    y = np.array([True, False, True, False, False])
    scores = judgement(p, y)
    assert scores["log loss"] == pytest.approx(-np.mean(np.log([0.9, 0.2, 0.4, 0.8, 0.9])))
    assert scores["Brier"] == pytest.approx(np.mean([0.01, 0.64, 0.36, 0.04, 0.01]))
    assert scores["accuracy"] == pytest.approx(3 / 5)
    assert scores["F1"] == pytest.approx(0.5)  # precision and recall are one half
    assert scores["AUC"] == pytest.approx(5 / 6)  # one of the six pairs is in the wrong order
    assert scores["revoked"] == pytest.approx(2 / 5)


def test_reliability_error_is_the_gap_between_prediction_and_frequency() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(0.0, 1.0, 200_000)
    y = rng.random(len(p)) < p
    assert judgement(p, y)["reliability error"] < 0.005
    assert judgement(np.clip(p - 0.2, 0.0, 1.0), y)["reliability error"] == pytest.approx(0.18, abs=0.01)


def test_without_a_preemption_some_scores_are_nan() -> None:
    scores = judgement(np.array([0.1, 0.2]), np.array([False, False]))
    assert np.isnan(scores["F1"])
    assert np.isnan(scores["AUC"])
    assert scores["accuracy"] == 1.0
