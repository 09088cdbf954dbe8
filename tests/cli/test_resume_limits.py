"""`thriftune resume` with new limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import thriftune as tt
from tests.cli import studies
from thriftune.cli import cli, run
from thriftune.errors import SettingError
from thriftune.settings.make_spec import with_limits
from thriftune.show.progress import SilentView
from thriftune.state.spec import Spec


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Run a study of two trials to its end, and return its store."""
    tt.tune(
        train, {"x": tt.Float(0, 1)}, minimize="loss", trials=2, workers=1, name="s", progress=False, seed=0,
        store=tmp_path / "s.db",
    )  # fmt: skip
    return str(tmp_path / "s.db")


def train(trial: tt.Trial) -> float:
    return float(trial["x"])


def resume(store: str, *options: str) -> Result:
    return CliRunner().invoke(cli, ["resume", "s", "--store", store, "--quiet", *options])


def test_a_finished_study_continues_with_more_trials(store: str) -> None:
    done = resume(store, "--trials", "4", "--deadline", "1h", "--budget", "3", "--workers", "2")
    assert done.exit_code == 0, done.output
    study = tt.load("s", store)
    assert len(study.trials) == 4
    spec = study.spec
    assert (spec.trials, spec.deadline_seconds, spec.budget_dollars, spec.workers) == (4, 3600.0, 3.0, 2)
    assert resume(store).exit_code == 0
    assert len(tt.load("s", store).trials) == 4, "a limit that is not given stays"


def test_the_progress_shows_the_new_limits(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Spec] = []

    def make_view(spec: Spec, progress: bool | None) -> SilentView:
        shown.append(spec)
        return SilentView()

    monkeypatch.setattr(run, "make_view", make_view)
    resume(store, "--trials", "4", "--deadline", "1h", "--budget", "3", "--workers", "2")
    assert shown == [tt.load("s", store).spec]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--trials", "0"), "trials: 0 is too small; use 1 or more"),
        (("--budget", "-1"), "budget: -1.0 must be above zero and finite"),
        (("--budget", "nan"), "budget: nan must be above zero and finite"),
        (("--deadline", "soon"), "deadline: 'soon' is not a duration; write seconds, or '90s'"),
        (("--workers", "0"), "workers: 0 is too small; use 1 or more"),
        (("--trials", "many"), "Invalid value for '--trials'"),
    ],
)
def test_an_invalid_limit_is_refused_before_the_study_changes(
    options: tuple[str, ...], message: str, store: str
) -> None:
    before = tt.load("s", store).spec
    done = resume(store, *options)
    assert done.exit_code != 0
    assert message in done.output
    after = tt.load("s", store)
    assert (len(after.trials), after.spec) == (2, before)


def test_a_limit_that_was_already_reached_starts_no_trial(store: str) -> None:
    assert resume(store, "--trials", "1").exit_code == 0
    assert len(tt.load("s", store).trials) == 2


def test_with_limits_changes_only_the_given_limits() -> None:
    spec = studies.spec(deadline_seconds=60.0, workers=3)
    assert with_limits(spec, {}) == spec
    assert with_limits(spec, {"trials": 9}) == replace(spec, trials=9)
    assert with_limits(spec, {"workers": 2}) == replace(spec, workers=2)
    with pytest.raises(SettingError, match="trials: 0"):
        with_limits(spec, {"trials": 0})
