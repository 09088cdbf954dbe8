"""Tests of reading a configuration: trials as mappings, unknown names, and unread parameters."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import thriftune as tt
from thriftune.cli import cli
from thriftune.common.spelling import did_you_mean, nearest_names
from thriftune.space.space import Space
from thriftune.state import events as ev
from thriftune.state.unread_parameters import UnreadParameters

SPACE = {
    "lr": tt.Float(1e-3, 1e-1, log=True),
    "opt": tt.Choice(["sgd", "adam"]),
    "momentum": tt.Float(0, 1, when={"opt": "sgd"}),
    "dropout": tt.Float(0, 1),
    "epochs": 3,
}
BOTH = [{"opt": "sgd"}, {"opt": "adam"}]


def shown(name: str, store: Path, *options: str) -> str:
    return CliRunner().invoke(cli, ["show", name, "--store", str(store), *options]).output


# --- a mapping --------------------------------------------------------------------------------------------


def by_keywords(*, lr: float, opt: str, dropout: float, epochs: int, momentum: float = 0.0) -> float:
    assert opt == "adam" or momentum > 0
    return lr + dropout + epochs


def unpacks(trial: tt.Trial) -> float:
    assert trial
    assert dict(trial) == trial.config == {name: trial[name] for name in trial}
    assert len(trial) == len(list(trial.keys()))
    assert "epochs" in trial
    return by_keywords(**trial)


def test_a_trial_is_a_mapping(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "s.db"
    result = tt.tune(
        unpacks, SPACE, minimize="loss", trials=2, enqueue=BOTH, store=store, name="a", progress=False
    )
    assert result.history.counts[tt.State.COMPLETED] == 2, [trial.error for trial in result.trials]
    best = result.best
    assert dict(best) == best.config == dict(**best)
    assert (len(best), list(best), "epochs" in best) == (len(best.config), list(best.config), True)
    assert "never read" not in capfd.readouterr().err
    assert "never read" not in shown("a", store)


def test_a_trial_without_parameters_is_true() -> None:
    assert tt.TrialRecord(0, {}, 0.0)


# --- names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("learning_rate", ["lr"]),
        ("drop_out", ["dropout"]),
        ("momentun", ["momentum"]),
        ("LR", ["lr"]),
        ("batch", []),
        ("", []),
        ("_", []),
    ],
)
def test_the_nearest_names(name: str, near: list[str]) -> None:
    assert nearest_names(name, SPACE) == near


@given(st.text(max_size=9), st.lists(st.text(max_size=9), max_size=5))
def test_the_nearest_names_are_known_ones(name: str, known: list[str]) -> None:
    assert set(nearest_names(name, known)) <= set(known)
    assert bool(did_you_mean(name, known)) == bool(nearest_names(name, known))


def wrong_name(trial: tt.Trial) -> float:
    trial.get("learning_rate", 0.1)
    trial.get("learning_rate", 0.1)
    trial.get("momentum", 0.0)  # may be inactive
    return float(len(dict(trial)))


def test_get_with_an_unknown_name_warns_once_in_a_study(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "s.db"
    for trials in (4, 6):  # also when the study is resumed
        tt.tune(wrong_name, SPACE, minimize="n", trials=trials, workers=2, store=store, name="a", progress=False)
    warning = (
        "trial.get('learning_rate') always gives the default: the space has no parameter of that name; "
        "did you mean lr?"
    )
    lines = [line for line in capfd.readouterr().err.splitlines() if "learning_rate" in line]
    assert lines == [warning]
    history = tt.load("a", store).history
    assert history.warnings == [warning]
    assert not any(trial.warnings for trial in history.trials)
    assert shown("a", store).count("always gives the default") == 1
    assert json.loads(shown("a", store, "--json"))["warnings"] == [warning]


def test_a_missing_name_suggests_the_nearest() -> None:
    study = tt.Study(SPACE, minimize="loss")
    trial = study.ask()
    with pytest.raises(KeyError, match="did you mean dropout"):
        trial["dropuot"]
    with pytest.raises(KeyError, match="a parameter whose condition does not hold is left out"):
        trial["x"]


def misspelled(trial: tt.Trial) -> float:
    return float(trial["learning_rate"])


def inactive(trial: tt.Trial) -> float:
    return float(trial["momentum"])


def test_the_error_of_a_trial_for_a_missing_name(tmp_path: Path) -> None:
    errors = []
    for function in (misspelled, inactive):
        result = tt.tune(
            function,
            SPACE,
            minimize="n",
            trials=1,
            retries=0,
            enqueue=[{"opt": "adam"}],
            on_failure="go_on",
            progress=False,
            store=tmp_path / "s.db",
        )
        errors.append(result.trials[0].error or "")
    assert "did you mean lr?" in errors[0]
    assert "a parameter whose condition does not hold is left out" in errors[1]


# --- what is never read -----------------------------------------------------------------------------------


def reads_some(trial: tt.Trial) -> float:
    return float(trial["lr"]) + float(trial.get("momentum", 0.0)) + len(trial["opt"])


def test_unread_parameters_are_reported_at_the_end(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "s.db"
    tt.tune(reads_some, SPACE, minimize="n", trials=3, enqueue=BOTH, store=store, name="a", progress=False)
    warnings = [
        "the training function never read 'dropout' (set in 3 of 3 trials)",
        "the training function never read 'epochs' (set in 3 of 3 trials)",
    ]
    assert [line for line in capfd.readouterr().err.splitlines() if "never read" in line] == warnings
    assert tt.load("a", store).history.unread.sentences() == warnings
    assert all(" ".join(shown("a", store).split()).count(line) == 1 for line in warnings)
    assert json.loads(shown("a", store, "--json"))["warnings"] == warnings


def test_unread_parameters_are_reported_only_at_the_end() -> None:
    history = tt.Study(SPACE, minimize="loss").history
    history.unread.add_attempt({"a": 1}, ["a"], cut=False)
    assert history.all_warnings == []
    history.finish_reason = "all trials"
    assert history.all_warnings == ["the training function never read 'a' (set in 1 of 1 trial)"]


BRANCHES = {
    "kind": tt.Choice(["tree", "linear"]),
    "depth": tt.Int(1, 9, when={"kind": "tree"}),
    "rate": tt.Float(0, 1, when={"depth": tt.between(1, 9)}),
    "dropout": tt.Float(0, 1),
}


def branches(trial: tt.Trial) -> float:
    return float(trial.get("rate", 2.0))


def test_a_parameter_that_a_condition_depends_on_need_not_be_read(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    both = [{"kind": "tree"}, {"kind": "linear"}]
    tt.tune(
        branches, BRANCHES, minimize="n", trials=2, enqueue=both, store=tmp_path / "s.db", name="a", progress=False
    )
    warnings = ["the training function never read 'dropout' (set in 2 of 2 trials)"]
    assert [line for line in capfd.readouterr().err.splitlines() if "never read" in line] == warnings


def test_ask_and_tell_reports_no_unread_parameters() -> None:
    study = tt.Study(SPACE, minimize="loss")
    study.tell(study.ask(), 1.0)
    assert study.history.unread.sentences() == []


def test_one_reading_trial_is_enough_and_cut_attempts_do_not_count() -> None:
    unread = UnreadParameters()
    unread.add_attempt({"a": 1, "b": 2, "c": 3}, ["b", "c"], cut=True)
    assert unread.sentences() == []
    unread.add_attempt({"a": 1, "b": 2}, ["b"], cut=False)
    unread.add_attempt({"a": 1, "c": 2}, ["a", "c"], cut=False)
    assert unread.sentences() == [
        "the training function never read 'b' (set in 1 of 2 trials)",
        "the training function never read 'c' (set in 1 of 2 trials)",
    ]
    unread.add_attempt({"b": 2}, [], cut=True)
    assert len(unread.sentences()) == 1


def test_an_old_log_has_no_unread_parameters() -> None:
    space = Space(SPACE)
    history = tt.Study(space, minimize="loss").history
    old = ev.Codec.event("Ended", '{"at":1.0,"trial":0,"attempt":1,"seconds":1.0,"cut":false}')
    assert old == ev.Ended(1.0, 0, 1, 1.0)
    assert history.unread.sentences() == []
    with pytest.raises(ValueError, match="unread"):
        ev.Codec.event("Ended", '{"at":1.0,"trial":0,"attempt":1,"seconds":1.0,"unread":"ab"}')


# --- a loop of its own that goes on past the last step ----------------------------------------------------


def own_loop(trial: tt.Trial) -> None:
    for epoch in range(10):
        trial.report(loss=epoch + trial["x"])
    (trial.folder / "after").touch()


def ends_in_time(trial: tt.Trial) -> None:
    for epoch in range(trial.max_steps or 0):
        trial.report(loss=epoch + trial["x"])
    (trial.folder / "after").touch()


@pytest.mark.parametrize("function", [own_loop, ends_in_time])
def test_a_report_past_max_steps_warns_once_in_a_study(
    function: Callable[[tt.Trial], None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "s.db"
    for trials in (3, 5):
        result = tt.tune(
            function, {"x": tt.Float(0, 1)}, minimize="loss", max_steps=4, trials=trials, stopping="none",
            workers=2, store=store, name="a", progress=False,
        )  # fmt: skip
    warning = (
        "the training function went on after max_steps (4): it was ended at its next report, so the "
        "code after its loop does not run"
    )
    expected = [warning] if function is own_loop else []
    assert [line for line in capfd.readouterr().err.splitlines() if "max_steps" in line] == expected
    assert result.history.warnings == expected
    assert [trial.step for trial in result.trials] == [4] * 5
    ran_on = [Path(trial.folder, "after").exists() for trial in result.trials]
    assert ran_on == [function is ends_in_time] * 5


def catches(trial: tt.Trial) -> None:
    for epoch in range(10):
        try:
            trial.report(loss=epoch + trial["x"])
        except Exception:
            (trial.folder / "caught").touch()


def raises_again(trial: tt.Trial) -> None:
    for epoch in range(10):
        try:
            trial.report(loss=epoch + trial["x"])
        except:
            (trial.folder / "cleaned").touch()
            raise
    (trial.folder / "after").touch()


@pytest.mark.parametrize(("function", "left"), [(catches, []), (raises_again, ["cleaned"])])
def test_exceptions_seen_by_a_loop_of_the_training_function(
    function: Callable[[tt.Trial], None], left: list[str], tmp_path: Path
) -> None:
    result = tt.tune(
        function, {"x": tt.Float(0, 1)}, minimize="loss", max_steps=4, trials=1, store=tmp_path / "s.db",
        progress=False,
    )  # fmt: skip
    (trial,) = result.trials
    assert trial.state is tt.State.COMPLETED
    assert trial.step == 4
    assert [name for name in ("caught", "cleaned", "after") if Path(trial.folder, name).exists()] == left


COMMAND = """
minimize = "loss"
max_steps = 2
trials = 1
command = [{python!r}, "train.py", "{{x}}"]
[space.x]
type = "float"
low = 0
high = 1
"""


@pytest.mark.parametrize("prints", [True, False])
def test_a_command_that_goes_on_past_max_steps_is_ended_without_a_warning(prints: bool, tmp_path: Path) -> None:
    report = "print(f'loss={i}', flush=True); time.sleep(0.1)" if prints else "thriftune.report(loss=i)"
    (tmp_path / "train.py").write_text(f"import time, thriftune\nfor i in range(100):\n    {report}\n")
    metrics = "[metrics]\nloss = 'loss=(.+)'\n" if prints else ""
    (tmp_path / "a.toml").write_text(COMMAND.format(python=sys.executable) + metrics)
    store = tmp_path / "s.db"
    CliRunner().invoke(cli, ["run", str(tmp_path / "a.toml"), "--store", str(store)])
    result = tt.load("a", store)
    assert [trial.step for trial in result.trials] == [2]
    assert result.history.warnings == []
