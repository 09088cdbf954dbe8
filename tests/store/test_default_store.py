"""Tests of the default store, which is the same for Python and the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import thriftune as tt
from thriftune.cli import cli
from thriftune.errors import SettingError
from thriftune.store.default_store import config_file, default_store
from thriftune.store.opening import open_store


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set up a user without any settings in an own home folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("THRIFTUNE_STORE", "THRIFTUNE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


def write(text: str) -> Path:
    file = config_file()
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return file


def used() -> str:
    with open_store(None) as store:
        return store.url


def one_trial() -> None:
    tt.tune(lambda trial: trial["x"], {"x": tt.Float(0, 1)}, minimize="loss", trials=1, name="s", progress=False)


def test_python_and_the_command_line_use_the_store_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THRIFTUNE_STORE", str(tmp_path / "mine" / "all.db"))
    monkeypatch.setenv("THRIFTUNE_HOME", str(tmp_path / "other"))
    one_trial()
    assert (tmp_path / "mine" / "all.db").is_file()
    assert [study.name for study in tt.studies()] == ["s"]
    listed = CliRunner().invoke(cli, ["list"])
    assert "s " in listed.stdout
    assert not (tmp_path / "other").exists()


def test_an_explicit_store_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRIFTUNE_STORE", f"sqlite:///{tmp_path}/mine.db")
    with open_store(tmp_path / "here.db") as store:
        assert store.url == str(tmp_path / "here.db")
    assert used() == str(tmp_path / "mine.db")


def test_the_configuration_file_names_the_store(home: Path) -> None:
    write('[store]\npath = "~/tuning/studies.db"\n')
    one_trial()
    assert used() == str(home / "tuning" / "studies.db")
    shown = CliRunner().invoke(cli, ["best", "s"])
    assert shown.exit_code == 0, shown.output


def test_order_of_precedence(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert used() == str(home / ".thriftune" / "studies.db")
    write('[store]\npath = "/elsewhere/a.db"\n')
    assert default_store() == "/elsewhere/a.db"
    monkeypatch.setenv("THRIFTUNE_HOME", str(tmp_path / "b"))
    assert default_store() == tmp_path / "b" / "studies.db"
    monkeypatch.setenv("THRIFTUNE_STORE", "c.db")
    assert default_store() == "c.db"
    assert used() == str(tmp_path / "c.db")


def test_a_path_is_relative_to_the_configuration_file(home: Path) -> None:
    file = write('[store]\npath = "../tuning/"\n')
    assert file == home / ".config" / "thriftune" / "config.toml"
    assert used() == str(home / ".config" / "tuning" / "studies.db")


def test_the_configuration_file_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert config_file() == tmp_path / "xdg" / "thriftune" / "config.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert config_file() == tmp_path / "home" / ".config" / "thriftune" / "config.toml"


def test_a_url_is_not_changed() -> None:
    write('[store]\npath = "sqlite:////elsewhere/a.db"\n')
    assert default_store() == "sqlite:////elsewhere/a.db"


@pytest.mark.parametrize("text", ["", "[store]\n"])
def test_a_configuration_file_may_name_no_store(text: str, home: Path) -> None:
    write(text)
    assert used() == str(home / ".thriftune" / "studies.db")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[store\n", "not valid TOML"),
        ('[stor]\npath = "a"\n', r"stor: unknown; did you mean store\?"),
        ('[store]\nurl = "a"\n', "url: unknown; it may have path"),
        ("[store]\npath = 3\n", "path: 3 must be a path or URL of a store"),
        ('store = "a.db"\n', r"store: 'a.db' must be a table: write \[store\]"),
    ],
)
def test_errors_name_an_invalid_configuration_file(text: str, message: str) -> None:
    file = write(text)
    with pytest.raises(SettingError, match=message) as error:
        open_store(None)
    assert str(error.value).startswith(str(file))
    listed = CliRunner().invoke(cli, ["list"])
    assert listed.exit_code == 1
    assert str(file) in listed.stderr


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s5://bucket/x", "store: s5:// is not supported; use a path"),
        ("sqlite://studies.db", "store: sqlite:// without a path is not supported"),
        ("s3://bucket/x?regoin=eu-west-1", "store: s3:// has no option 'regoin'; did you mean region"),
        ("s3:///x", "store: 's3:///x' names no bucket"),
    ],
)
def test_errors_about_a_url_name_the_setting(url: str, message: str) -> None:
    with pytest.raises(SettingError, match=re.escape(message)):
        open_store(url)
