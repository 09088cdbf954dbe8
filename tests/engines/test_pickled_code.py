"""Tests that the pickled function of a study is loaded only if needed, and only if no other user can write it."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import thriftune as tt
from thriftune.cli import cli
from thriftune.engines import pickled
from thriftune.errors import SettingError
from thriftune.launch.drive import resume
from thriftune.show.progress import make_view
from thriftune.state.spec import Spec
from thriftune.store.opening import open_store

NOBODY = 65534


def train(trial: tt.Trial) -> None:
    for step in trial.steps():
        trial.report(loss=step + trial["x"])


class Bomb:
    """Writes a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store with a finished study, "s"."""
    store = tmp_path / "studies.db"
    space = {"x": tt.Float(0, 1)}
    tt.tune(train, space, minimize="loss", trials=1, max_steps=2, name="s", store=store, seed=0, progress=False)
    return store


@pytest.fixture
def function(store: Path) -> Path:
    return store.with_name("studies.db.files") / "s" / "function.pickle"


@pytest.fixture
def bomb(tmp_path: Path, function: Path) -> Path:
    """Replace the study's function by a bomb; return the path of its mark."""
    mark = tmp_path / "unpickled"
    function.write_bytes(pickle.dumps(Bomb(mark)))
    return mark


def ask_for_more(store: Path) -> None:
    with open_store(store) as opened:
        spec = opened.spec("s")
        opened.update_spec("s", {**spec, "trials": 2})


def go_on(store: Path) -> tt.Result:
    with open_store(store) as opened:
        return tt.Result(*resume("s", opened, make_view(Spec.from_json(opened.spec("s")), False)))


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize("command", ["list", "show", "best", "bill", "export", "stop"])
def test_commands_that_only_read_load_no_code(command: str, store: Path, bomb: Path) -> None:
    arguments = [] if command == "list" else ["s"]
    result = CliRunner().invoke(cli, [command, *arguments, "--store", str(store)])
    assert result.exit_code == 0, result.output
    assert not bomb.exists()


def test_loading_a_study_loads_no_code(store: Path, bomb: Path) -> None:
    assert tt.load("s", store=store).best.id == 0
    assert not bomb.exists()


def test_a_study_with_nothing_left_to_do_loads_no_code(store: Path, bomb: Path) -> None:
    assert len(go_on(store).trials) == 1
    assert not bomb.exists()


def test_a_study_is_resumed_with_its_function(store: Path) -> None:
    ask_for_more(store)
    assert [trial.state for trial in go_on(store).trials] == [tt.State.COMPLETED] * 2


class Own:
    """A searcher of the user's own."""

    def suggest(self, past: Any, rng: Any) -> Any:
        return {"x": 0.25}


def test_a_users_own_searcher_is_loaded_only_if_trials_are_left(tmp_path: Path) -> None:
    store = tmp_path / "studies.db"
    space = {"x": tt.Float(0, 1)}
    tt.tune(
        train, space, minimize="loss", trials=1, max_steps=2, name="s", store=store, searcher=Own(), progress=False
    )
    function = store.with_name("studies.db.files") / "s" / "function.pickle"
    whole = function.read_bytes()
    function.write_bytes(pickle.dumps(Bomb(tmp_path / "unpickled")))
    go_on(store)
    assert not (tmp_path / "unpickled").exists()
    function.write_bytes(whole)
    ask_for_more(store)
    assert [trial.config["x"] for trial in go_on(store).trials] == [0.25, 0.25]


def test_only_the_owner_may_read_the_files(open_umask: None, store: Path, function: Path) -> None:
    assert function.stat().st_mode & 0o777 == 0o600
    assert function.parent.stat().st_mode & 0o777 == 0o700
    assert store.stat().st_mode & 0o777 == 0o644
    assert store.with_name("studies.db.locks").stat().st_mode & 0o777 == 0o755


def test_a_folder_that_others_may_write_to_is_restricted(open_umask: None, tmp_path: Path) -> None:
    """Earlier versions made such folders if the umask let groups write."""
    folder = tmp_path / "studies.db.files" / "s"
    folder.mkdir(parents=True)
    space = {"x": tt.Float(0, 1)}
    tt.tune(
        train,
        space,
        minimize="loss",
        trials=1,
        max_steps=1,
        name="s",
        store=tmp_path / "studies.db",
        progress=False,
    )
    assert folder.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("whose", ["file", "folder"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_a_pickle_that_others_may_write_is_not_loaded(
    store: Path, function: Path, bomb: Path, whose: str, mode: int
) -> None:
    ask_for_more(store)
    changed = function if whose == "file" else function.parent
    changed.chmod(changed.stat().st_mode | mode)
    with pytest.raises(SettingError, match=f"{changed} can be written by other users.*chmod go-w"):
        go_on(store)
    assert not bomb.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("whose", ["file", "folder"])
def test_a_pickle_of_another_user_is_not_loaded(store: Path, function: Path, bomb: Path, whose: str) -> None:
    ask_for_more(store)
    changed = function if whose == "file" else function.parent
    os.chown(changed, NOBODY, NOBODY)
    with pytest.raises(SettingError, match=f"{changed} belongs to another user, {NOBODY}"):
        go_on(store)
    assert not bomb.exists()


def test_the_folder_of_a_linked_pickle_is_checked(tmp_path: Path) -> None:
    elsewhere, own = tmp_path / "elsewhere", tmp_path / "own"
    for folder in (elsewhere, own):
        folder.mkdir(mode=0o700)
    pickled.write(elsewhere / "function.pickle", b"")
    (own / "function.pickle").symlink_to(elsewhere / "function.pickle")
    pickled.check_owner(own / "function.pickle")
    elsewhere.chmod(0o777)
    with pytest.raises(SettingError, match=r"elsewhere can be written by other users"):
        pickled.check_owner(own / "function.pickle")
