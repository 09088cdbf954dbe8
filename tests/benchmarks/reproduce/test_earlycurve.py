"""EarlyCurve's figures: on the curves that come with thriftune; and how predictions are scored."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.reproduce import Entry, Reproduction, Request, reproduce
from benchmarks.reproduce import foretelling as ft
from benchmarks.reproduce import learning_curves as lc
from thriftune.replay import recorded


@pytest.fixture(scope="module")
def found() -> Reproduction:
    return reproduce("earlycurve", Request(None, quick=True))


def entries(found: Reproduction, title: str) -> dict[str, Entry]:
    (one,) = (each for each in found.sections if each.title.startswith(title))
    return {each.what: each for each in one.entries}


# --- the reproduction


def test_every_number_is_a_share(found: Reproduction) -> None:
    assert found.paper == "earlycurve"
    for each in (entry for one in found.sections for entry in one.entries):
        assert 0.0 <= each.ours <= 1.0, each
        assert each.unit == "%"


def test_the_best_of_sixteen_is_found_as_in_the_paper(found: Reproduction) -> None:
    told = entries(found, "Figure 8 (c)")
    whole = [each for what, each in told.items() if what.startswith("theta 1:")]
    assert [each.ours for each in whole] == [1.0, 1.0]
    top_3 = told["theta 0.7: the best is among the predicted 3"]
    assert (top_3.ours, top_3.paper) == (1.0, 1.0)
    top_1 = told["theta 0.7: the best is predicted to be it (paper: nearly)"]
    assert top_1.paper == 0.7
    assert top_1.ours <= top_3.ours
    assert told["theta 0.3: the best is among the predicted 3 (paper: 70 to 80 %)"].paper is None


def test_one_stage_is_further_off_where_the_learning_rate_drops(found: Reproduction) -> None:
    resnet, all_curves = entries(found, "Figure 11"), entries(found, "Error of")
    assert resnet["mean error, ours"].ours < resnet["mean error, SLAQ's one stage"].ours
    for name in ("residual", "made up, with drops"):
        assert all_curves[f"{name}: ours"].ours < all_curves[f"{name}: SLAQ's one stage"].ours
    assert resnet["mean error, ours"].ours == all_curves["residual: ours"].ours


def test_what_the_curves_are_is_said_first(found: Reproduction) -> None:
    assert "recorded ones are taken with --data" in found.differs[0]
    assert found.differs[-1].startswith("Quick")


def test_every_picture_is_drawn(found: Reproduction, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = {each.name: each.draw for each in found.sections if each.draw is not None}
    assert list(drawn) == ["figure_8c", "figure_11"]
    for name, draw in drawn.items():
        draw(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_recorded_curves_are_taken_where_they_are(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    ends = random.uniform(1, 2, (1, 300, 1))
    losses = ends + 1 / np.arange(1, 21) + 0.001 * random.normal(size=(1, 300, 20))
    losses[0, 7, 5:] = np.nan
    np.savez(tmp_path / lc.TASKSET, valid_loss=losses)
    lines = ["app,global_bsz,epoch,metric"]
    lines += [f"{app},{size},{k},{k / 20}" for app in ("imagenet", "other") for size in (1, 2) for k in range(20)]
    (tmp_path / lc.VALIDATION).write_bytes(gzip.compress("\n".join(lines).encode()))
    told: list[str] = []
    found = reproduce("earlycurve", Request(tmp_path, quick=True, told=told.append))
    assert "TaskSet and ImageNet" in found.differs[0]
    assert "TaskSet, task 1 of 1" in told
    assert entries(found, "Figure 8 (c): the best of 16 is found, TaskSet")
    assert entries(found, "Error of")["ImageNet, learning rate drops: ours"].ours < 0.2


# --- the curves


@pytest.mark.parametrize("name", recorded.names())
def test_curves_that_come_with_thriftune(name: str) -> None:
    curves = lc.shipped(name)
    assert curves.shape in ((16, 100), (16, 150))
    assert np.isfinite(curves).all()


def test_made_up_curves_drop_and_are_the_same_again() -> None:
    curves = lc.made_up(8)
    assert curves.shape == (8, 90)
    assert (curves[:, -1] < curves[:, 20]).all()
    assert (lc.made_up(8) == curves).all()


# --- the predictions


STEPS = np.arange(1.0, 71.0)
METHODS = (ft.ours, ft.last_value, ft.one_stage, ft.as_printed, ft.power_law)


@pytest.mark.parametrize("method", METHODS)
def test_a_curve_that_stands_still_stays_there(method: ft.Method) -> None:
    assert method(STEPS, np.full(70, 0.3), 100) == pytest.approx(0.3)


@pytest.mark.parametrize("method", [ft.one_stage, ft.as_printed, ft.power_law])
def test_a_curve_of_the_form_is_foretold(method: ft.Method) -> None:
    values = 0.5 + (2.0 / STEPS if method is ft.power_law else 1.0 / (1.0 + 0.5 * STEPS))
    assert method(STEPS, values, 100) == pytest.approx(0.52, abs=1e-3)


def test_as_printed_a_stage_begins_where_a_loss_halves() -> None:
    """Then the values before it are not fitted."""
    values = np.where(STEPS <= 40, 1.0 + 1e-3 / STEPS, 0.3)
    assert ft.as_printed(STEPS, values, 100) == pytest.approx(0.3)
    assert abs(ft.one_stage(STEPS, values, 100) - 0.3) > 0.05
    few = values[:20]
    assert ft.as_printed(STEPS[:20], few, 100) == ft.one_stage(STEPS[:20], few, 100)


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=2))
def test_few_values_are_no_power_law(values: list[float]) -> None:
    assert ft.power_law(STEPS[: len(values)], np.array(values), 100) == values[-1]


# --- their scores


def test_who_knows_finds_the_best_and_who_has_it_backwards_does_not() -> None:
    true = np.arange(32.0)
    assert ft.tops(true, true, 1, 50) == (1.0, 1.0)
    assert ft.tops(-true, true, 1, 50) == (0.0, 0.0)
    assert ft.tops(-true, true, -1, 50) == (0.0, 0.0)
    assert ft.tops(true, true, -1, 50) == (1.0, 1.0)
    fourth = np.array([3.0, 0.0, 1.0, 2.0])  # of the best; there are no more than these
    assert ft.tops(fourth, np.arange(4.0), 1, 5) == (0.0, 0.0)
    assert ft.tops(fourth - [1.5, 0, 0, 0], np.arange(4.0), 1, 5) == (0.0, 1.0)


def test_what_has_diverged_is_the_worst() -> None:
    true = np.array([np.nan, 2.0, 1.0, 3.0])
    assert ft.tops(np.array([np.nan, 5.0, 4.0, 6.0]), true, 1, 3) == (1.0, 1.0)


def test_errors_are_relative_and_at_most_one() -> None:
    curves = np.array([[4.0, 2.0, 1.0], [3.0, 3.0, 2.0], [1.0, 1.0, 1.0]])
    errors = ft.relative_errors(ft.last_value, curves, 0.6)  # two of three steps are seen
    assert errors.tolist() == [1.0, 0.5, 0.0]


def test_nothing_is_left_to_foretell_at_the_end() -> None:
    told = ft.foretold(lc.made_up(20), 1, 1.0, 10, {"one stage": ft.one_stage})
    assert (told.top_1, told.top_3, told.last_top_1, told.last_top_3) == (1.0, 1.0, 1.0, 1.0)
    assert (told.error, told.within) == (0.0, 1.0)
    assert told.baselines == {"one stage": 0.0}


def test_curves_that_diverge_do_not_count_in_errors() -> None:
    curves = lc.made_up(20)
    spoiled = np.concatenate([curves, np.full((3, 90), np.nan)])
    told, clean = (ft.foretold(each, 1, 0.7, 10, {"last": ft.last_value}) for each in (spoiled, curves))
    assert told.error == clean.error
    assert told.baselines == clean.baselines
    assert math.isfinite(told.top_3)
