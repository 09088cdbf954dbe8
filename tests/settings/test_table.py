"""Tests that tune(), study files, the command line and the docs pages have every setting of the table."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import click
import pytest

import thriftune as tt
from thriftune.cli.run import resume_command, run_command
from thriftune.common.setting_kinds import Setting
from thriftune.settings.study_file import KINDS
from thriftune.settings.table import GROUPS, SETTINGS, Settings, in_groups
from thriftune.state.spec import Spec
from thriftune.state.stored_settings import StoredSettings
from thriftune.study.tune import Arguments

DOCS = Path(__file__).parents[2] / "docs"


def options(command: click.Command) -> dict[str, click.Option]:
    return {str(each.name): each for each in command.params if isinstance(each, click.Option)}


def test_every_field_of_the_table_is_a_setting() -> None:
    assert [each.name for each in fields(Settings)] == list(SETTINGS)


def test_every_setting_is_in_a_group_and_has_help() -> None:
    grouped = [each.name for group in in_groups(SETTINGS).values() for each in group]
    assert sorted(grouped) == sorted(SETTINGS)
    assert all(each.group in GROUPS for each in SETTINGS.values())
    assert all(each.help.endswith(".") for each in SETTINGS.values())


def test_tune_takes_every_setting_with_its_default() -> None:
    parameters = inspect.signature(tt.tune).parameters
    assert list(parameters)[:2] == ["train", "space"]
    for name, setting in SETTINGS.items():
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].default == setting.default


def test_the_help_of_tune_describes_every_argument() -> None:
    text = tt.tune.__doc__ or ""
    for each in fields(Arguments):
        if each.name not in ("train", "space"):
            assert f"- `{each.name}`: " in text


def test_the_signature_is_in_the_order_of_the_help() -> None:
    names = list(inspect.signature(tt.tune).parameters)
    assert names[2:5] == ["minimize", "maximize", "constraints"]
    text = tt.tune.__doc__ or ""
    positions = [text.index(f"- `{name}`: ") for name in names[2:]]
    assert positions == sorted(positions)


def test_the_help_of_tune_names_the_choices() -> None:
    assert "One of 'stop', 'go_on'." in (tt.tune.__doc__ or "")


def test_study_files_take_every_setting() -> None:
    assert all(KINDS[name] is setting.kind for name, setting in SETTINGS.items())


def test_a_spec_has_the_settings_that_are_stored_as_given() -> None:
    stored = {each.name for each in fields(StoredSettings)}
    assert stored <= {each.name for each in fields(Spec)} & SETTINGS.keys()


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda each: each.name)
def test_a_setting_with_a_metavar_is_an_option_of_run_and_may_be_one_of_resume(setting: Setting) -> None:
    run, resume = options(run_command), options(resume_command)
    assert (setting.name in run) == (setting.kind.metavar is not None)
    assert (setting.name in resume) == setting.at_resume
    for command in (run, resume):
        if setting.name in command:
            name = setting.name.replace("_", "-")
            assert command[setting.name].help == setting.help
            assert command[setting.name].opts == [f"--{name}"]
            assert command[setting.name].secondary_opts == ([f"--no-{name}"] if setting.kind.metavar == "" else [])


def test_the_page_on_study_files_names_every_key() -> None:
    page = (DOCS / "study-file.md").read_text()
    missing = [key for key in KINDS if not re.search(rf"`(\[+)?{key}(\.NAME)?(\]+)?`", page)]
    assert not missing


def test_the_page_on_the_command_line_names_every_option_of_resume() -> None:
    page = (DOCS / "command-line.md").read_text()
    assert [f"--{name}" for name in SETTINGS if SETTINGS[name].at_resume and f"--{name}" not in page] == []
