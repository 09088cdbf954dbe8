"""`thriftune best --checkpoint` and `--model`, and where else a study says which model is its best."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import thriftune as tt
from tests.cli.programs import run, strict
from tests.results.test_models import read, tune, valley
from thriftune.cli import cli
from thriftune.show.describe import better_model_line
from thriftune.show.ending import end_line


def run_cli(folder: Path, *words: str, status: int = 0) -> Result:
    result = CliRunner().invoke(cli, [*words, "--store", str(folder / "s.db")])
    assert result.exit_code == status, result.output
    return result


@pytest.fixture
def best(tmp_path: Path) -> tt.TrialRecord:
    """The best trial of a study whose trials are best after step 3 of 7."""
    return tune(valley, tmp_path).best


@pytest.fixture
def last(tmp_path: Path) -> tt.TrialRecord:
    """The best trial of the same study where the last value counts."""
    return tune(valley, tmp_path, value="last").best


def test_the_path_stands_alone(best: tt.TrialRecord, tmp_path: Path) -> None:
    sentence = run_cli(tmp_path, "best", "s", "--checkpoint")
    assert (sentence.stdout, sentence.stderr) == (f"{best.checkpoint}\n", "")
    assert run_cli(tmp_path, "best", "s", "--model").stdout == sentence.stdout
    shell = f'cat "$({sys.executable} -m thriftune best s --checkpoint --store s.db)/loss"'
    done = subprocess.run(["sh", "-c", shell], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert float(done.stdout) == best.value


def test_for_programs(last: tt.TrialRecord, tmp_path: Path) -> None:
    parsed = strict(run_cli(tmp_path, "best", "s", "--checkpoint", "--json").stdout)
    assert parsed == {"trial": last.id, "step": 7, "value": last.value, "checkpoint": str(last.checkpoint)}
    model = strict(run_cli(tmp_path, "best", "s", "--model", "--json").stdout)
    assert (model["trial"], model["step"], model["value"]) == (last.id, 3, last["x"])
    assert read(Path(model["checkpoint"])) == last["x"]
    assert strict(run_cli(tmp_path, "best", "s", "--json").stdout)["checkpoint"] == str(last.checkpoint)
    shown = strict(run_cli(tmp_path, "show", "s", "--json").stdout)
    assert shown["best_model"] == model
    assert [trial["checkpoint_step"] for trial in shown["trials"]] == [7, 7, 7]


def test_a_copy(last: tt.TrialRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_cli(tmp_path, "best", "s", "--to", "copy").stdout == f"{tmp_path}/copy\n"
    assert read(tmp_path / "copy") == last.value
    run_cli(tmp_path, "best", "s", "--model", "--to", "copy/of/model")
    assert read(tmp_path / "copy/of/model") == last["x"]
    assert (
        "copy exists already; name a new folder" in run_cli(tmp_path, "best", "s", "--to", "copy", status=1).stderr
    )
    parsed = strict(run_cli(tmp_path, "best", "s", "--trial", "0", "--to", "other", "--json").stdout)
    assert parsed["checkpoint"] == str(tmp_path / "other")
    assert read(tmp_path / "other") == parsed["value"] == tt.load("s", "s.db").trials[0].value


def test_a_trial_by_its_number(best: tt.TrialRecord, tmp_path: Path) -> None:
    for trial in tt.load("s", tmp_path / "s.db").trials:
        assert run_cli(tmp_path, "best", "s", "--trial", str(trial.id)).stdout == f"{trial.checkpoint}\n"
        shown = run_cli(tmp_path, "show", "s", "--trial", str(trial.id)).stdout
        assert f"\nmodel of step 3: {trial.checkpoint}\n" in shown
    assert "has no trial 9" in run_cli(tmp_path, "best", "s", "--trial", "9", status=1).stderr
    assert "leave out --trial" in run_cli(tmp_path, "best", "s", "--model", "--trial", "0", status=2).stderr


def test_a_corrupt_one_is_told_on_standard_error(best: tt.TrialRecord, tmp_path: Path) -> None:
    assert best.checkpoint is not None
    (best.checkpoint / "loss").write_text("0")
    sentence = run_cli(tmp_path, "best", "s", "--checkpoint")
    assert sentence.stderr.startswith(f"trial {best.id}: checkpoint of step 3 is corrupt")
    assert read(Path(sentence.stdout.strip())) == best["x"] + 3
    assert "checkpoint of step 3 is corrupt" in run_cli(tmp_path, "best", "s", "--model").stderr
    for path in Path(best.folder).glob("checkpoints/*/state/loss"):
        path.write_text("0")
    assert "no other one is left" in run_cli(tmp_path, "best", "s", "--checkpoint", status=1).stderr


def test_nothing_saved(tmp_path: Path) -> None:
    result = tune(lambda trial: trial["x"], tmp_path, max_steps=None)
    for option in ("--checkpoint", "--model"):
        assert "give save= to trial.report()" in run_cli(tmp_path, "best", "s", option, status=1).stderr.replace(
            "Give", "give"
        )
    assert better_model_line(result.history) == ""
    assert "model" not in run_cli(tmp_path, "show", "s").stdout
    shown = strict(run_cli(tmp_path, "show", "s", "--json").stdout)
    assert (shown["best_model"], shown["best"]["checkpoint"]) == (None, None)


def test_with_several_objectives_one_says_which_trial(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> None:
        trial.report(loss=trial["x"], size=1 - trial["x"], save=lambda folder: (folder / "x").write_text("x"))

    result = tune(train, tmp_path, minimize=["loss", "size"], trials=2)
    front = ", ".join(str(trial.id) for trial in result.front)
    sentence = run_cli(tmp_path, "best", "s", "--checkpoint", status=1).stderr
    assert (
        sentence
        == f"error: the study has 2 objectives and no single best trial; choose one with --trial N: {front}\n"
    )
    assert run_cli(tmp_path, "best", "s", "--trial", "1").stdout == f"{result.trials[1].checkpoint}\n"
    assert "no single best model" in run_cli(tmp_path, "best", "s", "--model", status=1).stderr


# --- which model is better than the best trial's ----------------------------------------------------------


def test_where_the_best_trials_own_model_is_the_best_nothing_is_said(best: tt.TrialRecord, tmp_path: Path) -> None:
    history = tt.load("s", tmp_path / "s.db").history
    assert better_model_line(history) == ""
    assert "\nmodel" not in run_cli(tmp_path, "show", "s").stdout


def test_a_better_step_of_the_best_trial_is_said(last: tt.TrialRecord, tmp_path: Path) -> None:
    study = tt.load("s", tmp_path / "s.db")
    sentence = (
        f"trial {last.id} at step 3 has the best saved model: loss {last['x']:.6g}; "
        f"the trial's own value is {last.value:.6g}"
    )
    assert better_model_line(study.history) == sentence
    assert f"; model: {sentence}; " in end_line(study.spec, study.history, 0.0)
    assert sentence in " ".join(run_cli(tmp_path, "show", "s").stdout.split())


def test_a_better_model_of_another_trial_is_said(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> None:
        for step in trial.steps():
            loss = 1 / (1 + step) if trial.id == 0 else 0.01 if step == 2 else 3.0
            trial.report(loss=loss, save=lambda folder: (folder / "loss").write_text("x"))

    history = tune(train, tmp_path, value="last", trials=2).history
    assert better_model_line(history) == (
        "trial 1 at step 2 has the best saved model: loss 0.01; trial 0, the best finished one, has 0.125"
    )


def test_a_best_value_that_was_not_saved_is_said(tmp_path: Path) -> None:
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

REPORTED = """
import sys, thriftune
for step in thriftune.current_trial().steps():
    loss = float(sys.argv[1]) + abs(step - 1)
    thriftune.report(loss=loss, save=lambda folder: (folder / "loss").write_text(repr(loss)))
"""

BY_ITSELF = """
import os, sys, thriftune
from pathlib import Path
folder = Path(os.environ["THRIFTUNE_CHECKPOINT_DIR"])
for step in range(1, 5):
    loss = float(sys.argv[1]) + abs(step - 4)
    (folder / "new").write_text(repr(loss))
    (folder / "new").replace(folder / "loss")
    thriftune.report(loss=loss)
"""


def command(folder: Path, script: str, value: str = "auto") -> tuple[str, Any]:
    (folder / "study.toml").write_text(STUDY.format(python=sys.executable, value=value))
    (folder / "train.py").write_text(script)
    out, _ = run("run", "study.toml", cwd=folder)
    return out, tt.load("study", folder / "s.db")


def test_a_command_that_saves_with_its_reports(tmp_path: Path) -> None:
    out, study = command(tmp_path, REPORTED)
    assert study.best.checkpoint_step == 1
    assert study.best.load(read) == study.best.value == study.best_model.value
    assert "\nmodel " not in out
    to = tmp_path / "copy"
    assert run_cli(tmp_path, "best", "study", "--to", str(to)).stdout == f"{to}\n"
    assert read(to) == study.best.value


def test_a_run_says_at_its_end_where_a_better_model_is(tmp_path: Path) -> None:
    out, study = command(tmp_path, REPORTED, value="last")
    assert f"\nmodel   trial {study.best.id} at step 1 has the best saved model: loss " in out
    assert study.best.load(read) == study.best.value == study.best["x"] + 3


def test_a_command_that_saves_by_itself(tmp_path: Path) -> None:
    _, study = command(tmp_path, BY_ITSELF)
    assert study.best.checkpoint == Path(study.best.folder) / "state"
    assert study.best.checkpoint_step is None
    assert study.best.load(read) == study.best.value
    assert run_cli(tmp_path, "best", "study", "--checkpoint").stdout == f"{study.best.checkpoint}\n"
    with pytest.raises(tt.errors.NoCheckpoint, match="are the checkpoint of its trial"):
        _ = study.best_model


def test_a_copy_takes_the_folders_of_a_command_too(tmp_path: Path) -> None:
    _, study = command(tmp_path, BY_ITSELF)
    inner = Path(study.best.folder) / "state" / "inner"
    inner.mkdir()
    (inner / "link").symlink_to(os.pardir)
    run_cli(tmp_path, "best", "study", "--to", str(tmp_path / "copy"))
    assert sorted(path.name for path in (tmp_path / "copy").rglob("*")) == ["inner", "link", "loss"]
