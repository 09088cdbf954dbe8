"""Tests of the RubberBand reproduction, most of them with the synthetic scaling."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.reproduce import Entry, Reproduction, Request, reproduce
from benchmarks.reproduce import rubberband_studies as studies
from benchmarks.reproduce.rubberband import TABLE_2
from tests.benchmarks.reproduce.checks import check_pictures, entries_from_json, section
from thriftune.errors import SettingError

HEAD = "app,cluster,num_nodes,num_replicas,local_bsz,step_time,sync_time\n"


@pytest.fixture(scope="module")
def reproduction() -> Reproduction:
    return reproduce("rubberband", Request(None, quick=True))


@pytest.fixture(scope="module")
def by_name() -> dict[str, studies.Study]:
    return {
        study.name: study for study in (run_study(studies.amdahl_scaling, True) for run_study in studies.STUDIES)
    }


def entry(reproduction: Reproduction, name: str, what: str) -> Entry:
    (one,) = (each for each in section(reproduction, name).entries if each.what == what)
    return one


def record(path: Path, rows: str) -> Path:
    path.write_bytes(gzip.compress((HEAD + rows).encode()))
    return path


def small_record(folder: Path) -> Path:
    """Write a record with 0.5 s of synchronisation per step.

    A step takes 1 s for 100 images per worker, and 2 s for 200.
    """
    rows = [
        f"imagenet,dgx-ext,{max(1, workers // 8)},{workers},{images},{images / 100},{waits}\n"
        for workers in studies.WORKERS
        for images in (200, 100)
        for waits in (0.5 if workers > 1 else 0.0,)
    ]
    others = "imagenet,other,1,1,100,9.0,0.0\ncifar10,dgx-ext,1,1,100,9.0,0.0\nimagenet,dgx-ext,2,2,100,9.0,0.0\n"
    return record(folder / studies.SCALING_FILE, others + "".join(rows))


# --- the output


def test_every_figure_is_finite(reproduction: Reproduction) -> None:
    assert reproduction.paper == "rubberband"
    assert [each.name for each in reproduction.sections] == [
        "stragglers",
        "data_price",
        "trials",
        "waits",
        "deadlines",
    ]
    for each in reproduction.sections:
        assert each.comment
        assert each.entries
        for one in each.entries:
            assert math.isfinite(one.ours), one
            assert one.unit in ("", "$", "%", "times")


def test_the_source_of_the_data_is_the_first_difference(reproduction: Reproduction, tmp_path: Path) -> None:
    assert "synthetic" in reproduction.differs[0]
    assert studies.SCALING_FILE in reproduction.differs[0]
    small_record(tmp_path)
    recorded = reproduce("rubberband", Request(tmp_path, quick=True))
    assert "recorded" in recorded.differs[0]
    assert recorded.differs[1:] == reproduction.differs[1:]
    assert reproduce("rubberband", Request(tmp_path / "empty", quick=True)).differs == reproduction.differs


def test_progress_is_reported() -> None:
    messages: list[str] = []
    reproduce("rubberband", Request(None, quick=True, progress=messages.append))
    assert [each.partition(":")[0] for each in messages] == [
        "stragglers",
        "data price",
        "trials",
        "waits",
        "deadlines",
    ]


def test_entries_can_be_written_as_json(reproduction: Reproduction) -> None:
    entries = entries_from_json(reproduction)
    assert {one["unit"] for one in entries} == {"", "$", "%", "times"}


def test_every_section_has_its_picture(reproduction: Reproduction, tmp_path: Path) -> None:
    check_pictures(reproduction, tmp_path)


# --- the studies


def test_no_planner_is_cheaper_than_the_exact_one(by_name: dict[str, studies.Study]) -> None:
    for study in by_name.values():
        for each in study.costs.values():
            assert len(each) == len(study.values)
            for costs in each:
                assert tuple(costs) == studies.PLANNERS
                known = [dollars for dollars in costs.values() if not math.isnan(dollars)]
                assert costs["exact"] <= min(known) * (1.0 + 1e-9)


def test_stragglers_raise_the_cost_of_whole_machines(by_name: dict[str, studies.Study]) -> None:
    costs = by_name["stragglers"].costs
    for planner in ("static", "greedy", "exact"):
        calm, wild = (costs["per_instance"][at][planner] / costs["per_function"][at][planner] for at in (0, -1))
        assert 1.0 - 1e-9 <= calm < wild


def test_elasticity_saves_less_if_data_is_expensive(by_name: dict[str, studies.Study]) -> None:
    study = by_name["data price"]
    large, small = (study.ratios(setting, "static", "exact") for setting in study.costs)
    assert large[0] == small[0]  # the size of free data makes no difference
    assert large[0] > large[-1] >= 1.0
    assert small[-1] == pytest.approx(small[0], rel=0.1)


def test_elasticity_saves_more_with_more_trials(reproduction: Reproduction) -> None:
    saved = [
        entry(reproduction, "trials", f"{n} trials, billed by the function: static less exact").ours
        for n in (16, 512)
    ]
    assert 0.0 <= saved[0] < saved[1]


def test_elasticity_saves_most_at_the_tightest_deadline(by_name: dict[str, studies.Study]) -> None:
    study = by_name["waits"]
    assert study.deadline_seconds is None
    for setting in study.costs:
        ratios = study.ratios(setting, "static", "exact")
        assert ratios[0] > ratios[-1] >= 1.0
    assert all(math.isnan(costs["naive_elastic"]) for costs in study.costs["1 s to initialise"])


def test_table_2_equals_the_paper_in_one_number(reproduction: Reproduction) -> None:
    anchored = entry(reproduction, "deadlines", "40 minutes: static")
    assert anchored.paper == TABLE_2[40]["static"] == 14.99
    assert anchored.ours == pytest.approx(14.99, abs=0.01)
    for planner in ("static", "greedy", "exact"):
        costs = [
            entry(reproduction, "deadlines", f"{minutes} minutes: {planner}").ours for minutes in (20, 30, 40)
        ]
        assert costs == sorted(costs, reverse=True)
    saved = entry(reproduction, "deadlines", "20 minutes: exact saves, as a share of static")
    assert (saved.paper, saved.unit) == (0.53, "%")
    assert 0.0 < saved.ours < 1.0


# --- scaling


@given(batch=st.integers(128, 4096), workers=st.integers(1, 64))
def test_amdahl_scaling_is_sublinear_and_better_with_large_batches(batch: int, workers: int) -> None:
    def speedup(images: int) -> float:
        return studies.amdahl_scaling(images, 1) / studies.amdahl_scaling(images, workers)

    assert 1.0 <= speedup(batch) <= workers
    assert speedup(2 * batch) >= speedup(batch)


def test_recorded_steps_depend_on_the_images_per_worker(tmp_path: Path) -> None:
    seconds = studies.recorded(small_record(tmp_path))
    assert seconds(200, 1) == 2.0
    assert seconds(150, 1) == pytest.approx(1.5)
    assert seconds(300, 2) == pytest.approx(1.5)
    # One worker does 800 images in four passes of 200. Two workers do 400 each in two passes, one synchronised.
    assert seconds(800, 1) == pytest.approx(8.0)
    assert seconds(800, 2) == pytest.approx(2.0 + 1.5)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("imagenet,dgx-ext,1,1,100,1.0,0.0\n", r"no step times for \[2, 4, 8, 16\] workers"),
        ("imagenet,dgx-ext,1,one,100,1.0,0.0\n", "is not a record of step times"),
        ("imagenet,dgx-ext\n", "is not a record of step times"),
    ],
)
def test_an_invalid_record_is_refused(tmp_path: Path, rows: str, message: str) -> None:
    file = record(tmp_path / studies.SCALING_FILE, rows)
    with pytest.raises(SettingError, match=message) as error:
        reproduce("rubberband", Request(tmp_path))
    assert str(file) in str(error.value)
    file.write_bytes(b"not gzipped")
    with pytest.raises(SettingError, match="is not a record of step times"):
        studies.recorded(file)
