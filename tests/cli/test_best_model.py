"""`thriftune best` with --checkpoint, --model and --to, and the best models that other commands name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import thriftune as tt
from tests.cli.programs import RunCli, parse_json, run
from tests.results.test_models import read, tune, valley
from thriftune.show.describe import better_model_line
from thriftune.show.ending import end_line


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """Return the path of the store that the helpers and study files use."""
    return tmp_path / "s.db"


@pytest.fixture
def best(tmp_path: Path) -> tt.TrialRecord:
    """Run a study whose trials are best after step 3 of 7, and return its best trial."""
    return tune(valley, tmp_path).best


@pytest.fixture
def last(tmp_path: Path) -> tt.TrialRecord:
    """Run the same study with the last value as the value of a trial, and return its best trial."""
    return tune(valley, tmp_path, value="last").best


def test_best_prints_only_the_folder_of_the_model(run_cli: RunCli, best: tt.TrialRecord, tmp_path: Path) -> None:
    result = run_cli("best", "s", "--checkpoint")
    assert (result.stdout, result.stderr) == (f"{best.checkpoint}\n", "")
    assert run_cli("best", "s", "--model").stdout == result.stdout
    shell = f'cat "$({sys.executable} -m thriftune best s --checkpoint --store s.db)/loss"'
    done = subprocess.run(["sh", "-c", shell], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert float(done.stdout) == best.value


def test_the_best_model_as_json(run_cli: RunCli, last: tt.TrialRecord, tmp_path: Path) -> None:
    parsed = parse_json(run_cli("best", "s", "--checkpoint", "--json").stdout)
    assert parsed == {"trial": last.id, "step": 7, "value": last.value, "checkpoint": str(last.checkpoint)}
    model = parse_json(run_cli("best", "s", "--model", "--json").stdout)
    assert (model["trial"], model["step"], model["value"]) == (last.id, 3, last["x"])
    assert read(Path(model["checkpoint"])) == last["x"]
    assert parse_json(run_cli("best", "s", "--json").stdout)["checkpoint"] == str(last.checkpoint)
    shown = parse_json(run_cli("show", "s", "--json").stdout)
    assert shown["best_model"] == model
    assert [trial["checkpoint_step"] for trial in shown["trials"]] == [7, 7, 7]


def test_best_copies_the_model_to_a_new_folder(
    run_cli: RunCli, last: tt.TrialRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_cli("best", "s", "--to", "copy").stdout == f"{tmp_path}/copy\n"
    assert read(tmp_path / "copy") == last.value
    run_cli("best", "s", "--model", "--to", "copy/of/model")
    assert read(tmp_path / "copy/of/model") == last["x"]
    assert "copy exists already; name a new folder" in run_cli("best", "s", "--to", "copy", status=1).stderr
    parsed = parse_json(run_cli("best", "s", "--trial", "0", "--to", "other", "--json").stdout)
    assert parsed["checkpoint"] == str(tmp_path / "other")
    assert read(tmp_path / "other") == parsed["value"] == tt.load("s", "s.db").trials[0].value


def test_best_prints_the_model_of_a_chosen_trial(run_cli: RunCli, best: tt.TrialRecord, tmp_path: Path) -> None:
    for trial in tt.load("s", tmp_path / "s.db").trials:
        assert run_cli("best", "s", "--trial", str(trial.id)).stdout == f"{trial.checkpoint}\n"
        shown = run_cli("show", "s", "--trial", str(trial.id)).stdout
        assert f"\nmodel of step 3: {trial.checkpoint}\n" in shown
    assert "has no trial 9" in run_cli("best", "s", "--trial", "9", status=1).stderr
    assert "leave out --trial" in run_cli("best", "s", "--model", "--trial", "0", status=2).stderr


def test_a_corrupt_checkpoint_is_reported_on_standard_error(
    run_cli: RunCli, best: tt.TrialRecord, tmp_path: Path
) -> None:
    assert best.checkpoint is not None
    (best.checkpoint / "loss").write_text("0")
    result = run_cli("best", "s", "--checkpoint")
    assert result.stderr.startswith(f"trial {best.id}: checkpoint of step 3 is corrupt")
    assert read(Path(result.stdout.strip())) == best["x"] + 3
    assert "checkpoint of step 3 is corrupt" in run_cli("best", "s", "--model").stderr
    for path in Path(best.folder).glob("checkpoints/*/state/loss"):
        path.write_text("0")
    assert "no other one is left" in run_cli("best", "s", "--checkpoint", status=1).stderr


def test_commands_without_a_saved_model(run_cli: RunCli, tmp_path: Path) -> None:
    result = tune(lambda trial: trial["x"], tmp_path, max_steps=None)
    for option in ("--checkpoint", "--model"):
        assert "give save= to trial.report()" in run_cli("best", "s", option, status=1).stderr.replace(
            "Give", "give"
        )
    assert better_model_line(result.history) == ""
    assert "model" not in run_cli("show", "s").stdout
    shown = parse_json(run_cli("show", "s", "--json").stdout)
    assert (shown["best_model"], shown["best"]["checkpoint"]) == (None, None)


def test_several_objectives_require_the_choice_of_a_trial(run_cli: RunCli, tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> None:
        trial.report(loss=trial["x"], size=1 - trial["x"], save=lambda folder: (folder / "x").write_text("x"))

    result = tune(train, tmp_path, minimize=["loss", "size"], trials=2)
    front = ", ".join(str(trial.id) for trial in result.front)
    error = run_cli("best", "s", "--checkpoint", status=1).stderr
    assert (
        error
        == f"error: the study has 2 objectives and no single best trial; choose one with --trial N: {front}\n"
    )
    assert run_cli("best", "s", "--trial", "1").stdout == f"{result.trials[1].checkpoint}\n"
    assert "no single best model" in run_cli("best", "s", "--model", status=1).stderr


# --- models that are better than the best trial's ---------------------------------------------------------


def test_the_best_trials_own_model_is_not_mentioned(run_cli: RunCli, best: tt.TrialRecord, tmp_path: Path) -> None:
    history = tt.load("s", tmp_path / "s.db").history
    assert better_model_line(history) == ""
    assert "\nmodel" not in run_cli("show", "s").stdout


def test_a_better_step_of_the_best_trial_is_mentioned(
    run_cli: RunCli, last: tt.TrialRecord, tmp_path: Path
) -> None:
    study = tt.load("s", tmp_path / "s.db")
    message = (
        f"trial {last.id} at step 3 has the best saved model: loss {last['x']:.6g}; "
        f"the trial's own value is {last.value:.6g}"
    )
    assert better_model_line(study.history) == message
    assert f"; model: {message}; " in end_line(study.spec, study.history, 0.0)
    assert message in " ".join(run_cli("show", "s").stdout.split())


def test_a_better_model_of_another_trial_is_mentioned(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> None:
        for step in trial.steps():
            loss = 1 / (1 + step) if trial.id == 0 else 0.01 if step == 2 else 3.0
            trial.report(loss=loss, save=lambda folder: (folder / "loss").write_text("x"))

    history = tune(train, tmp_path, value="last", trials=2).history
    assert better_model_line(history) == (
        "trial 1 at step 2 has the best saved model: loss 0.01; trial 0, the best finished one, has 0.125"
    )


def test_a_best_value_without_a_checkpoint_is_mentioned(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> None:
        for step in trial.steps():
            loss = [3, 2, 1, 4][step - 1] + trial.id
            trial.report(loss=loss, save=None if step == 3 else lambda folder: (folder / "loss").write_text("x"))

    history = tune(train, tmp_path, max_steps=4, trials=1).history
    assert better_model_line(history) == (
        "trial 0 at step 2 has the best saved model: loss 2; the trial's own value is 1, at step 3, not saved"
    )


# --- commands ---------------------------------------------------------------------------------------------

STUDY = """
command = ["{python}", "train.py", "{{x}}"]
minimize = "loss"
trials = 2
max_steps = 4
workers = 1
seed = 0
store = "s.db"
value = "{value}"
[space]
x = {{ type = "float", low = 0.0, high = 1.0 }}
"""

SAVES_WITH_REPORTS = """
import sys, thriftune
for step in thriftune.current_trial().steps():
    loss = float(sys.argv[1]) + abs(step - 1)
    thriftune.report(loss=loss, save=lambda folder: (folder / "loss").write_text(repr(loss)))
"""

WRITES_CHECKPOINT_FOLDER = """
import os, sys, thriftune
from pathlib import Path
folder = Path(os.environ["THRIFTUNE_CHECKPOINT_DIR"])
for step in range(1, 5):
    loss = float(sys.argv[1]) + abs(step - 4)
    (folder / "new").write_text(repr(loss))
    (folder / "new").replace(folder / "loss")
    thriftune.report(loss=loss)
"""


def run_command(folder: Path, script: str, value: str = "auto") -> tuple[str, tt.Study]:
    """Run a study whose trials run the script; return the output and the study."""
    (folder / "study.toml").write_text(STUDY.format(python=sys.executable, value=value))
    (folder / "train.py").write_text(script)
    out, _ = run("run", "study.toml", cwd=folder)
    return out, tt.load("study", folder / "s.db")


def test_a_command_that_saves_checkpoints_with_its_reports(run_cli: RunCli, tmp_path: Path) -> None:
    out, study = run_command(tmp_path, SAVES_WITH_REPORTS)
    assert study.best.checkpoint_step == 1
    assert study.best.load(read) == study.best.value == study.best_model.value
    assert "\nmodel " not in out
    to = tmp_path / "copy"
    assert run_cli("best", "study", "--to", str(to)).stdout == f"{to}\n"
    assert read(to) == study.best.value


def test_a_run_names_a_better_model_at_its_end(tmp_path: Path) -> None:
    out, study = run_command(tmp_path, SAVES_WITH_REPORTS, value="last")
    assert f"\nmodel   trial {study.best.id} at step 1 has the best saved model: loss " in out
    assert study.best.load(read) == study.best.value == study.best["x"] + 3


def test_a_command_that_writes_its_checkpoint_folder_itself(run_cli: RunCli, tmp_path: Path) -> None:
    _, study = run_command(tmp_path, WRITES_CHECKPOINT_FOLDER)
    assert study.best.checkpoint == Path(study.best.folder) / "state"
    assert study.best.checkpoint_step is None
    assert study.best.load(read) == study.best.value
    assert run_cli("best", "study", "--checkpoint").stdout == f"{study.best.checkpoint}\n"
    with pytest.raises(tt.errors.NoCheckpoint, match="are the checkpoint of its trial"):
        _ = study.best_model


def test_a_copy_includes_folders_and_links(run_cli: RunCli, tmp_path: Path) -> None:
    _, study = run_command(tmp_path, WRITES_CHECKPOINT_FOLDER)
    inner = Path(study.best.folder) / "state" / "inner"
    inner.mkdir()
    (inner / "link").symlink_to(os.pardir)
    run_cli("best", "study", "--to", str(tmp_path / "copy"))
    assert sorted(path.name for path in (tmp_path / "copy").rglob("*")) == ["inner", "link", "loss"]
