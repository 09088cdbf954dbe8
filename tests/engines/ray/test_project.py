"""Tests that an actor runs a study's code from an archive. The actor runs in a process without Ray."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.launch.test_project_archive import STORE
from tests.support.projects import editable, empty_site, git, install, source, write
from thriftune.launch.send_code import send_code
from thriftune.state.spec import Target

_ACTOR = """
import json, sys, dataclasses
from pathlib import Path
from thriftune.engines.ray.worker_actor import WorkerActor
from thriftune.training.run import Run
folder, target = Path(sys.argv[1]), json.loads(sys.argv[2])
(folder / "actor").mkdir(parents=True)
actor = WorkerActor(str(folder / "actor"), target, {}, ["/gone"])
actor.open()
answers = 0
for attempt in (1, 2):
    run = Run(1, attempt, {"lr": 0.5}, 0, ["loss"], 1, 0, str(folder), 2)
    orders = [(attempt, "start", (run, {}))]
    while True:
        events = actor.next_events(answers, orders).events
        answers, orders = answers + 1, []
        if not events:
            continue
        for event in events:
            print(json.dumps([type(event).__name__, dataclasses.asdict(event)]), flush=True)
        if type(events[-1]).__name__ in ("Ended", "Failed", "Lost"):
            break
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A git repository with a study in a folder, which uses a module of another folder."""
    root = write(tmp_path / "project", "study/train.py", "study/command.py", "shared/helper.py", "study/data.txt")
    (root / "shared/helper.py").write_text("def loss(lr): return lr * 2\n")
    (root / "study/data.txt").write_text("3")
    (root / "study/train.py").write_text(
        "import helper, second\n"
        "def train(trial):\n"
        "    trial.report(loss=helper.loss(trial['lr']) + int(open('data.txt').read()) + len(second.value))\n"
    )
    (root / "study/command.py").write_text(
        "import sys, second\nprint('loss=' + str(float(sys.argv[1]) + int(open('data.txt').read())))\n"
    )
    git(root, "init", "--quiet")
    return root


def run_on_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Target) -> list[tuple[str, Any]]:
    """Run two attempts in a process that sees nothing but the objects. Return its events."""
    url = (tmp_path / "objects").as_uri()
    archive = send_code(target, None, url, f"{url}/studies/1", STORE, lambda _: None)
    (tmp_path / "project").rename(tmp_path / "gone")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "node cache"))
    data = {"kind": target.kind, "where": target.where, "command": target.command, "patterns": target.patterns}
    data |= {"folder": target.folder, "archive": {**archive, "versions": {"numpy": "0.1"}}}
    process = subprocess.run(
        [sys.executable, "-c", _ACTOR, str(tmp_path / "node"), json.dumps(data)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
        cwd=tmp_path,
    )
    return [tuple(json.loads(line)) for line in process.stdout.splitlines()]


@pytest.mark.parametrize("kind", ["function", "command"])
def test_a_study_file_runs_from_the_archive(
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    site = empty_site(tmp_path, monkeypatch)
    install(site, "second", editable(source(tmp_path / "code", "second")))
    for path in (project / "shared", tmp_path / "code/src"):
        monkeypatch.syspath_prepend(str(path))
    folder = str(project / "study")
    if kind == "function":
        target = Target("function", where="train.py:train", folder=folder)
    else:
        command = (sys.executable, "command.py", "{lr}")
        target = Target("command", command=command, patterns={"loss": "loss=(.*)"}, folder=folder)
    events = run_on_node(tmp_path, monkeypatch, target)
    reports = [event for name, event in events if name == "Reported"]
    assert [report["metrics"]["loss"] for report in reports] == [10.0 if kind == "function" else 3.5] * 2, events
    (warned,) = [event for name, event in events if name == "Warned" and "packages" in event["message"]]
    assert warned["once"]
    assert warned["message"].startswith(
        "a machine has other packages than the one that started the study: numpy is"
    )


def test_a_pickled_function_finds_its_modules(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = project / "study/script.py"
    script.write_text(
        "import sys; sys.path.append('../shared')\n"
        "import helper\n"
        "from thriftune.engines import pickled\n"
        "from thriftune.launch.project_archive import script_folder\n"
        "from pathlib import Path\n"
        "def train(trial):\n"
        "    trial.report(loss=helper.loss(trial['lr']) + int(open('data.txt').read()))\n"
        "pickled.write(Path(sys.argv[1]), pickled.dump('train', {'train': train}))\n"
        "print(script_folder(), *sys.path, sep='\\n')\n"
    )
    pickle = tmp_path / "function.pickle"
    process = subprocess.run(
        [sys.executable, str(script), str(pickle)],
        cwd=project / "study",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    folder, *paths = process.stdout.splitlines()
    absolute = tuple(str(project / "study" / path) for path in paths)
    target = Target("pickled", where=str(pickle), folder=str(project / "study"), paths=absolute, project=folder)
    events = run_on_node(tmp_path, monkeypatch, target)
    reports = [event for name, event in events if name == "Reported"]
    assert [report["metrics"]["loss"] for report in reports] == [4.0, 4.0], events
