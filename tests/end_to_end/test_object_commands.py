"""Commands that write their state into THRIFTUNE_CHECKPOINT_DIR, with an object store."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

import thriftune as tt
from thriftune.cli import cli
from thriftune.store.opening import open_store

SCRIPT = """
import os, pathlib
folder = pathlib.Path(os.environ["THRIFTUNE_CHECKPOINT_DIR"])
for step in range(1, 4):
    (folder / "unfinished").write_text(str(step))
    (folder / "unfinished").rename(folder / "step")
    print(f"loss={1 / step} step={step}", flush=True)
"""


def test_the_model_of_a_command_is_what_it_has_written_last(s3_url: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "study.toml").write_text(
        'command = ["python", "train.py"]\nminimize = "loss"\nmax_steps = 3\ntrials = 1\nworkers = 1\n'
        f'stopping = "none"\nstore = "s.db"\nstorage = "{s3_url}"\n[space.x]\ntype = "float"\nlow = 0\nhigh = 1\n'
        "[metrics]\nloss = 'loss=([0-9.]+)'\nstep = 'step=(\\d+)'\n"
    )
    run = CliRunner()
    ran = run.invoke(cli, ["run", str(tmp_path / "study.toml")])
    assert ran.exit_code == 0, ran.output
    with open_store(tmp_path / "s.db") as store:
        trial = tt.load("study", store).trials[0]
        assert trial.load(lambda folder: (folder / "step").read_text()) == "3"
    best = run.invoke(cli, ["best", "study", "--checkpoint", "--store", str(tmp_path / "s.db")])
    assert Path(best.output.strip(), "step").read_text() == "3"
    shown = run.invoke(cli, ["show", "study", "--json", "--store", str(tmp_path / "s.db")])
    assert json.loads(shown.output)["best"]["checkpoint"] == best.output.strip()
