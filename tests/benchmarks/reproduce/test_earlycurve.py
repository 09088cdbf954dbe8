"""Tests of the EarlyCurve reproduction and of the scores of predictions."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.reproduce import Entry, Reproduction, Request, learning_curves, reproduce
from benchmarks.reproduce import curve_predictions as predictions
from thriftune.replay import recorded


@pytest.fixture(scope="module")
def reproduction() -> Reproduction:
    return reproduce("earlycurve", Request(None, quick=True))


def entries(reproduction: Reproduction, title: str) -> dict[str, Entry]:
    (one,) = (each for each in reproduction.sections if each.title.startswith(title))
    return {each.what: each for each in one.entries}


# --- the reproduction


def test_every_number_is_a_share(reproduction: Reproduction) -> None:
    assert reproduction.paper == "earlycurve"
    for each in (entry for one in reproduction.sections for entry in one.entries):
        assert 0.0 <= each.ours <= 1.0, each
        assert each.unit == "%"


def test_the_best_of_sixteen_is_predicted_as_in_the_paper(reproduction: Reproduction) -> None:
    shares = entries(reproduction, "Figure 8 (c)")
    whole = [each for what, each in shares.items() if what.startswith("theta 1:")]
    assert [each.ours for each in whole] == [1.0, 1.0]
    top_3 = shares["theta 0.7: the best is among the predicted 3"]
    assert (top_3.ours, top_3.paper) == (1.0, 1.0)
    top_1 = shares["theta 0.7: the best is predicted to be the best (paper: nearly)"]
    assert top_1.paper == 0.7
    assert top_1.ours <= top_3.ours
    assert shares["theta 0.3: the best is among the predicted 3 (paper: 70 to 80 %)"].paper is None


def test_one_stage_has_larger_errors_when_the_learning_rate_drops(reproduction: Reproduction) -> None:
    resnet, all_curves = entries(reproduction, "Figure 11"), entries(reproduction, "Error of")
    assert resnet["mean error, ours"].ours < resnet["mean error, SLAQ's one stage"].ours
    for name in ("residual", "synthetic, with drops"):
        assert all_curves[f"{name}: ours"].ours < all_curves[f"{name}: SLAQ's one stage"].ours
    assert resnet["mean error, ours"].ours == all_curves["residual: ours"].ours


def test_the_source_of_the_curves_is_the_first_difference(reproduction: Reproduction) -> None:
    assert "use --data for recorded ones" in reproduction.differs[0]
    assert reproduction.differs[-1].startswith("Quick")


def test_every_picture_is_drawn(reproduction: Reproduction, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = {each.name: each.draw for each in reproduction.sections if each.draw is not None}
    assert list(drawn) == ["figure_8c", "figure_11"]
    for name, draw in drawn.items():
        draw(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_recorded_curves_are_used_if_available(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    ends = random.uniform(1, 2, (1, 300, 1))
    losses = ends + 1 / np.arange(1, 21) + 0.001 * random.normal(size=(1, 300, 20))
    losses[0, 7, 5:] = np.nan
    np.savez(tmp_path / learning_curves.TASKSET, valid_loss=losses)
    lines = ["app,global_bsz,epoch,metric"]
    lines += [f"{app},{size},{k},{k / 20}" for app in ("imagenet", "other") for size in (1, 2) for k in range(20)]
    (tmp_path / learning_curves.VALIDATION).write_bytes(gzip.compress("\n".join(lines).encode()))
    messages: list[str] = []
    reproduction = reproduce("earlycurve", Request(tmp_path, quick=True, progress=messages.append))
    assert "TaskSet and ImageNet" in reproduction.differs[0]
    assert "TaskSet, task 1 of 1" in messages
    assert entries(reproduction, "Figure 8 (c): the best of 16 is found, TaskSet")
    assert entries(reproduction, "Error of")["ImageNet, learning rate drops: ours"].ours < 0.2


# --- the curves


@pytest.mark.parametrize("name", recorded.names())
def test_shipped_curves(name: str) -> None:
    curves = learning_curves.shipped(name)
    assert curves.shape in ((16, 100), (16, 150))
    assert np.isfinite(curves).all()


def test_synthetic_curves_drop_and_are_reproducible() -> None:
    curves = learning_curves.synthetic(8)
    assert curves.shape == (8, 90)
    assert (curves[:, -1] < curves[:, 20]).all()
    assert (learning_curves.synthetic(8) == curves).all()


# --- the predictions


STEPS = np.arange(1.0, 71.0)
METHODS = (
    predictions.ours,
    predictions.last_value,
    predictions.one_stage,
    predictions.as_printed,
    predictions.power_law,
)


@pytest.mark.parametrize("method", METHODS)
def test_a_constant_curve_is_predicted_to_stay_constant(method: predictions.Method) -> None:
    assert method(STEPS, np.full(70, 0.3), 100) == pytest.approx(0.3)


@pytest.mark.parametrize("method", [predictions.one_stage, predictions.as_printed, predictions.power_law])
def test_a_curve_of_the_fitted_form_is_predicted_exactly(method: predictions.Method) -> None:
    values = 0.5 + (2.0 / STEPS if method is predictions.power_law else 1.0 / (1.0 + 0.5 * STEPS))
    assert method(STEPS, values, 100) == pytest.approx(0.52, abs=1e-3)


def test_as_printed_a_stage_starts_where_a_loss_halves() -> None:
    """The values before the stage are then not fitted."""
    values = np.where(STEPS <= 40, 1.0 + 1e-3 / STEPS, 0.3)
    assert predictions.as_printed(STEPS, values, 100) == pytest.approx(0.3)
    assert abs(predictions.one_stage(STEPS, values, 100) - 0.3) > 0.05
    few = values[:20]
    assert predictions.as_printed(STEPS[:20], few, 100) == predictions.one_stage(STEPS[:20], few, 100)


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=2))
def test_with_few_values_the_power_law_predicts_the_last(values: list[float]) -> None:
    assert predictions.power_law(STEPS[: len(values)], np.array(values), 100) == values[-1]


# --- their scores


def test_perfect_guesses_find_the_best_and_reversed_ones_do_not() -> None:
    true = np.arange(32.0)
    assert predictions.tops(true, true, 1, 50) == (1.0, 1.0)
    assert predictions.tops(-true, true, 1, 50) == (0.0, 0.0)
    assert predictions.tops(-true, true, -1, 50) == (0.0, 0.0)
    assert predictions.tops(true, true, -1, 50) == (1.0, 1.0)
    fourth = np.array([3.0, 0.0, 1.0, 2.0])  # the best is guessed to be the last of four
    assert predictions.tops(fourth, np.arange(4.0), 1, 5) == (0.0, 0.0)
    assert predictions.tops(fourth - [1.5, 0, 0, 0], np.arange(4.0), 1, 5) == (0.0, 1.0)


def test_a_diverged_curve_is_the_worst() -> None:
    true = np.array([np.nan, 2.0, 1.0, 3.0])
    assert predictions.tops(np.array([np.nan, 5.0, 4.0, 6.0]), true, 1, 3) == (1.0, 1.0)


def test_errors_are_relative_and_at_most_one() -> None:
    curves = np.array([[4.0, 2.0, 1.0], [3.0, 3.0, 2.0], [1.0, 1.0, 1.0]])
    errors = predictions.relative_errors(predictions.last_value, curves, 0.6)  # two of three steps are observed
    assert errors.tolist() == [1.0, 0.5, 0.0]


def test_predictions_at_the_end_are_exact() -> None:
    scores = predictions.score_predictions(
        learning_curves.synthetic(20), 1, 1.0, 10, {"one stage": predictions.one_stage}
    )
    assert (scores.top_1, scores.top_3, scores.last_top_1, scores.last_top_3) == (1.0, 1.0, 1.0, 1.0)
    assert (scores.error, scores.within) == (0.0, 1.0)
    assert scores.baselines == {"one stage": 0.0}


def test_curves_that_diverge_do_not_count_in_errors() -> None:
    curves = learning_curves.synthetic(20)
    diverged = np.concatenate([curves, np.full((3, 90), np.nan)])
    with_nan, clean = (
        predictions.score_predictions(each, 1, 0.7, 10, {"last": predictions.last_value})
        for each in (diverged, curves)
    )
    assert with_nan.error == clean.error
    assert with_nan.baselines == clean.baselines
    assert math.isfinite(with_nan.top_3)
