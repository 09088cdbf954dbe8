"""Tests of scripts without a study file: their function and their space."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from thriftune.errors import SettingError
from thriftune.settings.script_file import read_script

SCRIPT = """
import thriftune as tt
from helper import LOW

space = {"lr": tt.Float(LOW, 1.0), "act": tt.Choice(["relu", "tanh"])}

def train(trial):
    pass

def other(trial):
    pass

if __name__ == "__main__":
    raise SystemExit("main was run")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text("LOW = 0.5")
    (tmp_path / "my train.py").write_text(SCRIPT)
    return tmp_path / "my train.py"


def test_a_script_has_a_space_and_a_function(script: Path) -> None:
    path_and_arguments = list(sys.path), list(sys.argv)
    spec = read_script(script, "train", "error", 7)
    assert (sys.path, sys.argv) == path_and_arguments
    assert (spec.name, spec.metric, spec.max_steps, spec.engine) == ("my-train", "error", 7, "local")
    assert list(spec.space.names) == ["lr", "act"]
    assert (spec.target.where, spec.target.folder) == ("my train.py:train", str(script.parent))
    assert read_script(script, "other", "error", 7, "ray").engine == "ray"
    assert read_script(script, "other", "error", 7).target.where == "my train.py:other"


def test_a_script_does_not_see_the_arguments_of_this_process(script: Path) -> None:
    script.write_text("import sys\nassert sys.argv == [__file__], sys.argv\n" + SCRIPT)
    assert read_script(script, "train", "loss", 7).name == "my-train"


def test_the_name_of_the_space_may_be_in_capitals(script: Path) -> None:
    script.write_text(SCRIPT.replace("space =", "SPACE ="))
    assert list(read_script(script, "train", "loss", 7).space.names) == ["lr", "act"]


@pytest.mark.parametrize(
    ("text", "replacement", "message"),
    [
        ("def train", "def trian", "has no function train; name another one with --function NAME"),
        ("space =", "spaces =", "has no space; write space = {"),
        ('space = {"lr"', 'space = 3; spaces = {"lr"', "has no space"),
        ("import LOW", "import HIGH", "cannot be imported: ImportError: cannot import name 'HIGH'"),
        ('__name__ == "__main__"', "True", "cannot be imported: SystemExit: main was run"),
        ("tt.Float(LOW, 1.0)", "tt.Float(2.0, 1.0)", "lr"),
    ],
)
def test_the_error_for_a_mistake_names_the_script(script: Path, text: str, replacement: str, message: str) -> None:
    script.write_text(SCRIPT.replace(text, replacement))
    with pytest.raises(SettingError) as error:
        read_script(script, "train", "loss", 7)
    assert str(error.value).startswith(f"{script}: ")
    assert message in str(error.value)


def test_a_missing_script_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="does not exist"):
        read_script(tmp_path / "train.py", "train", "loss", 7)
