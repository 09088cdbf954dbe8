"""Tests the environment of a training function: the script's arguments, folder, paths and variables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import thriftune as tt
from thriftune.engines import pickled
from thriftune.store.opening import open_store

TUNE = """
import thriftune as tt

def tune(train, **more):
    settings = {"minimize": "loss", "trials": 2, "workers": 1, "name": "s", "store": "s.db", "retries": 0} | more
    return tt.tune(train, {"x": tt.Float(0, 1)}, **settings)
"""


def run(folder: Path, script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the script in that folder as a user does."""
    (folder / "tuning.py").write_text(TUNE)
    (folder / "script.py").write_text(script)
    return in_folder(folder, sys.executable, "script.py", *arguments, **variables)


def in_folder(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=os.environ | variables, capture_output=True, text=True, timeout=300, check=False
    )


def losses(done: subprocess.CompletedProcess[str]) -> list[float]:
    assert done.returncode == 0, done.stderr
    return [float(line) for line in done.stdout.split()]


PARSES_ARGUMENTS = """
import argparse
from tuning import tune

parser = argparse.ArgumentParser()
parser.add_argument("--loss", type=float, required=True)
options = parser.parse_args()

def train(trial):
    return parser.parse_args().loss + options.loss

if __name__ == "__main__":
    for trial in tune(train).trials:
        print(trial.value)
"""


def test_a_script_that_parses_its_arguments_at_the_top(tmp_path: Path) -> None:
    assert losses(run(tmp_path, PARSES_ARGUMENTS, "--loss", "0.25")) == [0.5, 0.5]


def test_a_module_that_parses_the_arguments_when_it_is_imported(tmp_path: Path) -> None:
    """It does so also when the study is resumed by its name, from another command line."""
    (tmp_path / "settings.py").write_text(
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--loss', type=float, required=True)\n"
        "options = parser.parse_args()\n"
    )
    script = (
        "from settings import options\n"
        "from tuning import tune\n"
        "def train(trial):\n    import settings\n    return settings.options.loss + options.loss\n"
        "for trial in tune(train).trials:\n    print(trial.value)\n"
    )
    assert losses(run(tmp_path, script, "--loss", "0.25")) == [0.5, 0.5]
    with open_store(tmp_path / "s.db") as store:
        store.update_spec("s", {**store.spec("s"), "trials": 3})
    command = [sys.executable, "-m", "thriftune", "resume", "s", "--store", "s.db"]
    resumed = in_folder(tmp_path, *command)
    assert resumed.returncode == 0, resumed.stderr
    assert [trial.value for trial in tt.load("s", tmp_path / "s.db").trials] == [0.5] * 3


def test_a_file_beside_the_script_is_read_by_its_relative_path(tmp_path: Path) -> None:
    """A trial that changes folder, arguments, paths and environment does not affect later ones."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "loss.txt").write_text("0.75")
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from tuning import tune\n"
        "os.environ['SET_BEFORE'] = 'yes'\n"
        "sys.path.append('elsewhere')\n"
        "def train(trial):\n"
        "    assert sys.argv == ['script.py', '-v'], sys.argv\n"
        "    assert os.environ['SET_BEFORE'] == 'yes'\n"
        "    assert sys.path[-1] == 'elsewhere', sys.path\n"
        "    loss = float(Path('data/loss.txt').read_text())\n"
        "    os.chdir('/'); sys.argv = []; sys.path.clear(); os.environ.clear()\n"
        "    return loss\n"
        "for trial in tune(train).trials:\n    print(trial.value)\n"
    )
    assert losses(run(tmp_path, script, "-v")) == [0.75, 0.75]


def test_a_module_beside_the_script_is_imported_inside_the_function(tmp_path: Path) -> None:
    """The script is started from another folder."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "models.py").write_text("LOSS = 0.125\n")
    (tmp_path / "sub" / "tuning.py").write_text(TUNE)
    (tmp_path / "sub" / "main.py").write_text(
        "from tuning import tune\n"
        "def train(trial):\n    import models\n    return models.LOSS\n"
        "for trial in tune(train).trials:\n    print(trial.value)\n"
    )
    assert losses(in_folder(tmp_path, sys.executable, "sub/main.py")) == [0.125, 0.125]


def test_the_environment_is_that_of_the_call_and_is_not_written_to_disk(tmp_path: Path) -> None:
    script = (
        "import os\n"
        "from tuning import tune\n"
        "def train(trial):\n    return float(os.environ['LOSS']) + len(os.environ['API_KEY'])\n"
        "for loss in ('0.5', '0.25'):\n"
        "    os.environ['LOSS'] = loss\n"
        "    print(tune(train, name='s' + loss[2:], trials=1).best.value)\n"
    )
    secret = "not-to-be-written"
    assert losses(run(tmp_path, script, API_KEY=secret)) == [0.5 + len(secret), 0.25 + len(secret)]
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "function.pickle" for path in written)
    assert not [path for path in written if secret.encode() in path.read_bytes()]


def test_a_function_of_a_study_file_has_its_own_file_as_the_only_argument(tmp_path: Path) -> None:
    """A file that parses arguments must not see those of thriftune's command line."""
    (tmp_path / "train.py").write_text(
        "import argparse, sys\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--loss', type=float, default=0.5)\n"
        "options = parser.parse_args()\n"
        "def train(trial):\n    print(sys.argv)\n    return options.loss if len(sys.argv) == 1 else 1.0\n"
    )
    (tmp_path / "study.toml").write_text(
        'name = "s"\nfunction = "train.py:train"\nminimize = "loss"\ntrials = 1\nstore = "s.db"\n'
        '[space.x]\ntype = "float"\nlow = 0\nhigh = 1\n'
    )
    done = in_folder(tmp_path, sys.executable, "-m", "thriftune", "run", "study.toml", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["best"]["value"] == 0.5


def test_a_pickle_of_an_older_version_has_no_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["driver"])
    path = tmp_path / "function.pickle"
    dumped = pickled.dump("train", {"train": len})
    pickled.write(path, dumped.split(b"\n", 1)[1])
    pickled.set_arguments(path)
    assert (sys.argv, pickled.load(path)) == (["driver"], {"train": len})
    monkeypatch.setattr(sys, "argv", ["script.py", "caf\udce9", "--x=1\n2"])
    pickled.write(path, pickled.dump("train", {"train": len}))
    monkeypatch.setattr(sys, "argv", ["driver"])
    pickled.set_arguments(path)
    assert (sys.argv, pickled.load(path)) == (["script.py", "caf\udce9", "--x=1\n2"], {"train": len})
    pickled.set_arguments(tmp_path / "none")
    assert sys.argv[0] == "script.py"


@pytest.mark.cluster
def test_on_a_cluster_a_trial_has_the_arguments_the_paths_and_an_existing_folder(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "settings.py").write_text("import sys\nLOSS = float(sys.argv[1])\n")
    (tmp_path / "loss.txt").write_text("0.5")
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tuning import tune\n"
        "sys.path.append('lib')\n"
        "def train(trial):\n"
        "    import settings\n"
        "    loss = float(Path('loss.txt').read_text()) + settings.LOSS\n"
        "    sys.argv.clear()\n"
        "    return loss\n"
        "for trial in tune(train, engine='ray').trials:\n    print(trial.value)\n"
    )
    assert losses(run(tmp_path, script, "0.25")) == [0.75, 0.75]


SPAWNING = """
import multiprocessing
import thriftune as tt

HALF = 0.5

def train(trial):
    return HALF * trial["x"]

def tune():
    space = {"x": tt.Float(0, 1)}
    result = tt.tune(train, space, minimize="loss", trials=2, name="s", store="s.db", progress=False)
    print([str(trial.state) for trial in result.trials])

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=tune)
    process.start()
    process.join()
"""


def test_a_process_that_the_script_spawns_may_tune(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SPAWNING)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "['COMPLETED', 'COMPLETED']\n", done.stderr


RUN_BY_PATH = SPAWNING.partition("if __name__")[0] + "tune()\n"


def test_a_script_that_is_run_by_its_path_may_tune(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(RUN_BY_PATH)
    done = subprocess.run(
        [sys.executable, "-c", "import runpy; runpy.run_path('script.py')"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout == "['COMPLETED', 'COMPLETED']\n", done.stderr
