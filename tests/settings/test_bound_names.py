"""Tests of the names that a Python file binds, and of the error for a misspelled function."""

from __future__ import annotations

from pathlib import Path

import pytest

from thriftune.errors import SettingError
from thriftune.settings.bound_names import bound_names, check_bound
from thriftune.settings.study_file import read_study_file

STUDY = 'function = "s.py:{name}"\nminimize = "loss"\ntrials = 2\n[space.x]\ntype = "float"\nlow = 0\nhigh = 1\n'


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def train(trial):\n    inner = 1\n    def within(): ...\n", ["train"]),
        ("class Train:\n    x = 1\n    def call(self): ...\n", ["Train"]),
        ("class Net:\n    def __getattr__(self, name): ...\ndef train(net): net.eval()\n", ["Net", "train"]),
        ("async def train(trial): ...", ["train"]),
        ("train = other = lambda trial: (y := 1)\n", ["train", "other"]),
        ("train: object = 1\na, (b, *c) = 1, (2, 3)\nx += 1\n", ["train", "a", "b", "c", "x"]),
        ("from m import f as train, g\nimport a.b\nimport c.d as e\n", ["train", "g", "a", "e"]),
        ("if 1:\n    def train(t): ...\nelse:\n    train = 2\n", ["train"]),
        ("try:\n    import m\nexcept ImportError:\n    from n import train\n", ["m", "train"]),
        ("with open('f') as train: pass\nfor i in []: j = i\nprint(k := 2)\n", ["train", "i", "j", "k"]),
        ("match 1:\n    case [a, *b]: pass\n    case {'k': c, **d}: pass\n", ["a", "b", "d", "c"]),
        ("", []),
    ],
)
def test_names_bound_at_the_top_level_are_found(text: str, names: list[str], tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(text)
    assert bound_names(tmp_path / "s.py") == names
    scope: dict[str, object] = {}
    if "import" not in text and "open" not in text and "x +=" not in text:
        exec(text, scope)  # Python binds no other names
        assert scope.keys() - {"__builtins__", "__annotations__"} <= set(names)


@pytest.mark.parametrize(
    "text",
    [
        "def train(:",
        "from m import *",
        "def set():\n    global train\n    train = 1\n",
        "globals()['train'] = 1",
        "exec('train = 1')",
        "import sys\nsetattr(sys.modules[__name__], 'train', 1)",
        "def __getattr__(name): ...",
        "import sys\nsys.modules[__name__] = object()",
        "import m\nm.__dict__['train'] = 1",
        "x = '\0'",
    ],
)
def test_a_file_that_may_bind_other_names_is_not_checked(text: str, tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(text)
    assert bound_names(tmp_path / "s.py") is None
    check_bound(tmp_path / "s.py", "train")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import os\ndef train(trial): ...\n", r"s\.py has no 'trian' at its top level; did you mean train\?"),
        ("import os\ndef fit(t): ...\n", "has no 'trian' at its top level; it has os, fit"),
        ("# nothing\n", "has no 'trian' at its top level; it has no name at all"),
    ],
)
def test_a_misspelled_function_in_a_study_file_is_an_error_with_the_nearest_name(
    text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "s.py").write_text(text + "raise SystemExit('this was run')\n")
    (tmp_path / "s.toml").write_text(STUDY.format(name="trian"))
    with pytest.raises(SettingError, match=message):
        read_study_file(tmp_path / "s.toml")


def test_a_function_that_the_file_binds_is_accepted_without_running_the_file(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("def train(trial): ...\nraise SystemExit('this was run')\n")
    (tmp_path / "s.toml").write_text(STUDY.format(name="train"))
    assert read_study_file(tmp_path / "s.toml").spec.target.where == "s.py:train"
