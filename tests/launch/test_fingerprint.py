"""Tests of fingerprints: changes of code and data are found, and changes of layout and comments are not."""

from __future__ import annotations

import functools
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import thriftune as tt
from tests.loop.test_failures import run
from thriftune.errors import StudyChanged
from thriftune.launch.fingerprint import changes, of_function, of_target
from thriftune.state.spec import Target

NUMBER = 0


def module(folder: Path, source: str) -> ModuleType:
    """Return a new module "own" with this source."""
    global NUMBER
    NUMBER += 1
    path = folder / f"own_{NUMBER}.py"
    path.write_text(textwrap.dedent(source))
    own = ModuleType("own")
    own.__file__ = str(path)
    sys.modules["own"] = own
    exec(compile(path.read_text(), str(path), "exec"), own.__dict__)
    return own


TRAIN = '''
    import math
    import numpy as np

    EPOCHS, RATE, NAME = 5, 0.1, "a secret"
    IMAGES = np.zeros(10)

    class Net:
        """Documented."""
        width = 3
        def forward(self, x):
            return math.tanh(x) * self.width

    def helper(x, scale=2.0):
        return Net().forward(x) * scale  # a comment

    def train(trial):
        """Report a loss."""
        for epoch in range(EPOCHS):
            trial.report(loss=helper(trial["lr"]) + RATE + IMAGES.sum(), note=NAME)
'''


def changes_after(folder: Path, *replacements: tuple[str, str]) -> tuple[list[str], list[str]]:
    """Return the changes of code and of data that are found after edits of TRAIN."""
    before = of_function(module(folder, TRAIN).train)
    source = TRAIN
    for old, new in replacements:
        assert old in source
        source = source.replace(old, new)
    return tuple(changes(before, of_function(module(folder, source).train)))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# a comment", "# another comment"),
        ('"""Report a loss."""', '"""Report the loss."""'),
        ('"""Documented."""', ""),
        ("x, scale=2.0", "x,   scale = 2.0"),
        ('"a secret"', "'a secret'"),
    ],
)
def test_comments_docstrings_and_layout_are_no_change(tmp_path: Path, old: str, new: str) -> None:
    assert changes_after(tmp_path, (old, new)) == ([], [])


@pytest.mark.parametrize(
    ("old", "new", "code", "data"),
    [
        ('trial["lr"])', 'trial["lr"] * 2)', ["train has changed"], []),
        ("* scale", "+ scale", ["helper has changed"], []),
        ("math.tanh(x)", "math.sin(x)", ["Net has changed", "Net.forward has changed"], []),
        ("width = 3", "width = 4", ["Net has changed"], []),
        ("5, 0.1", "6, 0.1", [], ["EPOCHS was 5, is now 6"]),
        ("a secret", "another one", [], ["NAME has changed"]),
        ("np.zeros(10)", "np.ones(10)", [], ["the data of IMAGES have changed"]),
        ("scale=2.0", "scale=3.0", ["helper has changed"], ["helper(default 0) was 2.0, is now 3.0"]),
    ],
)
def test_code_and_data_that_a_function_uses_are_compared(
    tmp_path: Path, old: str, new: str, code: list[str], data: list[str]
) -> None:
    assert changes_after(tmp_path, (old, new)) == (code, data)


def test_strings_are_stored_as_digests_only(tmp_path: Path) -> None:
    assert "a secret" not in str(of_function(module(tmp_path, TRAIN).train))


def test_installed_code_is_not_part_of_a_fingerprint() -> None:
    def train(trial: tt.Trial) -> float:
        return float(np.mean([trial["lr"]]))

    assert list(of_function(train)) == ["code train"]


def test_arguments_of_partial_functions_and_closures_are_compared() -> None:
    def make_train(rate: float) -> Any:
        def train(trial: Any, depth: int) -> float:
            return rate * depth * float(trial["lr"])

        return functools.partial(train, depth=int(rate) + 2)

    assert changes(of_function(make_train(0.1)), of_function(make_train(0.1))) == ([], [])
    difference = changes(of_function(make_train(0.1)), of_function(make_train(1.5)))
    assert difference.code == []
    assert difference.data == ["partial(depth=) was 2, is now 3", "rate was 0.1, is now 1.5"]


def test_lambdas_are_compared_by_their_code() -> None:
    first, second, third = (lambda trial: trial["lr"]), (lambda trial: trial["lr"]), (lambda trial: -trial["lr"])
    assert changes(of_function(first), of_function(second)) == ([], [])
    assert changes(of_function(first), of_function(third)).code == ["<lambda> has changed"]


def test_digests_of_different_python_versions_are_not_compared() -> None:
    assert changes({"code f": "py3.11:x"}, {"code f": "py3.12:y"}) == ([], [])
    assert changes({"code f": "py3.11:x"}, {"code f": "blake2b-y"}) == ([], [])
    assert changes({"code f": "py3.11:x"}, {"code f": "py3.11:y"}).code == ["f has changed"]


def test_a_fingerprint_is_the_same_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "show.py").write_text(
        "from thriftune.launch.fingerprint import of_function\n"
        "train = lambda trial: trial['act'] in {'relu', 'tanh', 'gelu', 'silu'}\n"
        "print(of_function(train))\n"
    )
    assert len({run(tmp_path, "show.py").stdout for _ in range(3)}) == 1


def test_the_attributes_of_a_callable_object_are_compared() -> None:
    class Trainer:
        def __init__(self, epochs: int) -> None:
            self.epochs = epochs
            self.me = self

        def __call__(self, trial: tt.Trial) -> float:
            return self.epochs * float(trial["lr"])

    difference = changes(of_function(Trainer(3)), of_function(Trainer(4)))
    assert difference == ([], ["Trainer.epochs was 3, is now 4"])
    assert changes(of_function(Trainer(3).__call__), of_function(Trainer(4).__call__)).data


def test_files_named_in_a_command_are_compared(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    (tmp_path / "data.csv").write_text("1,2")
    target = Target("command", command=("python", "train.py", "--data", "data.csv", "{lr}"), folder=str(tmp_path))
    before = of_target(target)
    (tmp_path / "train.py").write_text("# a comment\nprint( 1 )\n")
    assert changes(before, of_target(target)) == ([], [])
    (tmp_path / "train.py").write_text("print(2)")
    (tmp_path / "data.csv").write_text("1,3")
    assert changes(before, of_target(target)) == (["train.py has changed"], ["the data of data.csv have changed"])
    (tmp_path / "train.py").write_text("print(2")  # an incomplete file, as while it is written
    assert changes(before, of_target(target)).code == ["train.py has changed"]


def test_the_file_of_a_function_in_a_study_file_is_compared(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    for name, where in (("train.py", "train.py:f"), ("package/part.py", "package.part:f")):
        (tmp_path / name).write_text("def f(trial): return 1")
        target = Target("function", where=where, folder=str(tmp_path))
        before = of_target(target)
        (tmp_path / name).write_text("def f(trial): return 2")
        assert changes(before, of_target(target)).code == [f"{name} has changed"]


def test_imported_files_are_compared(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    for name, source in {
        "train.py": "import helper\nfrom package.part import f\nimport numpy, missing",
        "helper.py": "import deeper",
        "deeper.py": "import train  # a cycle",
        "package/__init__.py": "",
        "package/part.py": "from . import other\nfrom .third import x",
        "package/other.py": "import helper",
        "package/third.py": "x = 1",
    }.items():
        (tmp_path / name).write_text(source)
    for target in (
        Target("function", where="train.py:f", folder=str(tmp_path)),
        Target("command", command=("python", "train.py"), folder=str(tmp_path)),
    ):
        before = of_target(target)
        for name in ("helper.py", "deeper.py", "package/part.py", "package/other.py", "package/third.py"):
            old = (tmp_path / name).read_text()
            (tmp_path / name).write_text(f"{old}\ny = 2")
            assert changes(before, of_target(target)).code == [f"{name} has changed"]
            (tmp_path / name).write_text(old)


def test_functions_typed_into_a_console_are_compared() -> None:
    first: dict[str, Any] = {"__name__": "__console__"}
    second: dict[str, Any] = {"__name__": "__console__"}
    exec("SCALE = 2.0\ndef train(trial): return SCALE * trial['x']", first)
    exec("SCALE = 3.0\ndef train(trial): return SCALE * trial['x'] - 7", second)
    difference = changes(of_function(first["train"]), of_function(second["train"]))
    assert difference == (["train has changed"], ["SCALE was 2.0, is now 3.0"])


# --- unusual code and data --------------------------------------------------------------------------------


@functools.lru_cache
def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


class Settings(dict[str, Any]):
    __getattr__ = dict.__getitem__


class Anything:
    def __getattr__(self, name: str) -> Any:
        return self


class Linked:
    def __init__(self, next_item: Any) -> None:
        self.next_item = next_item


def linked(count: int) -> Any:
    first = None
    for _ in range(count):
        first = Linked(first)
    return first


RING: list[Any] = [1]
RING.append(RING)
DEEP: list[Any] = []
for _ in range(5000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "value",
    [fib, Settings(a=1), Anything(), RING, DEEP, 10**5000, linked(3000), {1: RING}, object(), {"f": fib}, sys],
    ids=range(11),
)
def test_a_function_may_use_any_object(value: Any) -> None:
    def train(trial: Any) -> Any:
        return value

    assert changes(of_function(train), of_function(train)) == ([], [])
    assert changes(of_function(functools.partial(train, value)), of_function(train)) == ([], [])


def test_a_data_frame_of_mixed_objects_has_a_digest() -> None:
    frame = pytest.importorskip("pandas").DataFrame({"a": [1, "x", None, (1, 2)]})

    def train(trial: Any) -> Any:
        return frame

    assert of_function(train)["data frame"]


def test_many_functions_that_call_each_other_are_each_digested_once(tmp_path: Path) -> None:
    lines = ["import functools", "def scaled(f):", "    @functools.wraps(f)"]
    lines += ["    def g(x): return f(x) * 2", "    return g"]
    for number in range(40):
        calls = " + ".join(f"f{i}(x)" for i in (number + 1, number + 2) if i < 40) or "x"
        lines += ["@scaled", f"def f{number}(x): return {calls}"]
    source = "\n".join([*lines, "train = f0"])
    before = of_function(module(tmp_path, source).train)
    after = of_function(module(tmp_path, source.replace("f(x) * 2", "f(x) * 3")).train)
    assert changes(before, after).code == [f"f{number} has changed" for number in sorted(range(40), key=str)]


MODULE = """
import hmod
from collections import OrderedDict
TABLE, NAMES = OrderedDict(k=1), {'b', 'a'}
def report(result): print('hello 1')
def loss(x): return 2 * x
LOSSES = {'f': loss}
def train(trial):
    from inner import x
    trial.report(loss=LOSSES['f'](TABLE['k']) + hmod.f() + len(NAMES) + x)
"""


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ("hello 1", "hello 2", ([], [])),  # train calls a method of that name
        ("2 * x", "3 * x", (["LOSSES[f] has changed"], [])),
        ("k=1", "k=2", ([], ["TABLE has changed"])),
        ("{'b', 'a'}", "{'a', 'b'}", ([], [])),
        ("{'b', 'a'}", "{'a', 'c'}", ([], ["NAMES has changed"])),
    ],
)
def test_tables_of_functions_sets_and_imported_modules_are_compared(
    old: str, new: str, difference: tuple[list[str], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hmod.py").write_text("import behind\ndef f(): return behind.g()\n")
    (tmp_path / "behind.py").write_text("def g(): return 1\n")
    (tmp_path / "inner.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("hmod", "behind"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    before = of_function(module(tmp_path, MODULE).train)
    assert {"file hmod", "file behind.py", "file inner"} <= before.keys()
    assert changes(before, of_function(module(tmp_path, MODULE.replace(old, new)).train)) == difference
    for name in ("behind.py", "inner.py"):
        (tmp_path / name).write_text("def g(): return 2\nx = 2\n")
    after = changes(before, of_function(module(tmp_path, MODULE).train)).code
    assert after == ["behind.py has changed", "inner has changed"]


def test_large_numbers_are_stored_as_digests() -> None:
    secret = 987654321

    def train(trial: Any) -> Any:
        return secret

    assert "987654321" not in str(of_function(train))


# --- real scripts and studies -----------------------------------------------------------------------------

SCRIPT = """
import thriftune as tt

RATE = 1.0

def train(trial):
    for step in trial.steps():
        trial.report(loss=RATE * trial["x"] / step)

if __name__ == "__main__":
    result = tt.tune(train, {"x": tt.Float(0, 1)}, minimize="loss", trials=4, max_steps=2, name="s", store="s.db")
    print(len(result.trials))
"""


def edit(script: Path, old: str, new: str) -> subprocess.CompletedProcess[str]:
    text = script.read_text()
    assert old in text
    script.write_text(text.replace(old, new))
    return run(script.parent, script.name)


def test_a_changed_script_is_an_error_until_the_user_chooses(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    assert run(tmp_path, "script.py").stdout == "4\n"
    again = edit(script, "/ step)", "/ step)  # the same")
    assert again.returncode == 0, again.stderr
    changed = edit(script, "/ step", "/ step ** 2")
    assert changed.returncode == 1
    assert (
        "study 's': 4 trials have values from before a change: train has changed. Choose one: " in changed.stderr
    )
    more = edit(script, "max_steps=2", "max_steps=3")
    assert "train has changed; max_steps was 2, is now 3. Choose" in more.stderr
    mixed = edit(script, 'store="s.db"', 'store="s.db", on_change="go_on"')
    assert mixed.returncode == 0, mixed.stderr
    assert "4 trials have values from before a change: train has changed" in mixed.stderr
    assert edit(script, "trials=4", "trials=5").stdout == "5\n"  # the last trial runs the new code
    assert "has changed" not in run(tmp_path, "script.py").stderr
    fresh = edit(script, 'on_change="go_on"', "fresh=True")
    assert "study 's' starts over; the old study is kept as 's-before-" in fresh.stderr
    assert fresh.stdout == "5\n"
    assert [summary.trials for summary in tt.studies(tmp_path / "s.db")] == [5, 5]


def test_a_changed_value_that_the_function_reads_is_a_warning(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    run(tmp_path, "script.py")
    changed = edit(script, "RATE = 1.0", "RATE = 2.0")
    assert changed.returncode == 0, changed.stderr
    assert "4 trials have values from before a change: RATE was 1.0, is now 2.0" in changed.stderr


def twice() -> Any:
    def train(trial: tt.Trial) -> float:
        return float(trial["x"]) * 2

    return train


def thrice() -> Any:
    def train(trial: tt.Trial) -> float:
        return float(trial["x"]) * 3

    return train


def tune(folder: Path, train: Any, **settings: Any) -> tt.Result:
    settings = {"trials": 3, "name": "s", "store": folder / "s.db", "progress": False, **settings}
    return tt.tune(train, {"x": tt.Float(0, 1)}, minimize="loss", workers=1, **settings)


def test_the_code_of_a_study_without_values_may_change(tmp_path: Path) -> None:
    def broken(trial: tt.Trial) -> float:
        raise ValueError("not yet")

    space = {"x": tt.Float(0, 1)}
    settings: dict[str, Any] = {"name": "s", "store": tmp_path / "s.db", "progress": False, "minimize": "loss"}
    with pytest.raises(tt.StudyFailed, match="not yet"):
        tt.tune(broken, space, trials=5, **settings)

    def broken(trial: tt.Trial) -> float:  # type: ignore[no-redef]
        return float(trial["x"])

    assert len(tt.tune(broken, space, trials=5, **settings).trials) == 5


def test_with_retry_failed_a_changed_function_is_only_a_warning(tmp_path: Path) -> None:
    tune(tmp_path, twice())
    with pytest.raises(StudyChanged, match="3 trials have values from before a change: train has changed"):
        tune(tmp_path, thrice())
    with pytest.warns(UserWarning, match="train has changed"):
        tune(tmp_path, thrice(), retry_failed=True)


def test_a_changed_command_is_an_error_at_a_resume(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('loss=0.5')\n")
    (tmp_path / "study.toml").write_text(
        'name = "c"\ncommand = ["python", "train.py", "{x}"]\nminimize = "loss"\ntrials = 2\n'
        "[metrics]\nloss = 'loss=(\\S+)'\n[space.x]\ntype = \"float\"\nlow = 0.0\nhigh = 1.0\n"
    )
    assert run(tmp_path, "-m", "thriftune", "run", "study.toml", "--store", "s.db").returncode == 0
    (tmp_path / "train.py").write_text("print('loss=0.6')\n")
    for command in (["resume", "c"], ["run", "study.toml", "--trials", "3"]):
        failed = run(tmp_path, "-m", "thriftune", *command, "--store", "s.db")
        assert failed.returncode == 1
        assert "2 trials have values from before a change: train.py has changed" in failed.stderr
    mixed = run(
        tmp_path,
        "-m",
        "thriftune",
        "run",
        "study.toml",
        "--trials",
        "3",
        "--on-change",
        "go_on",
        "--store",
        "s.db",
    )
    assert mixed.returncode == 0, mixed.stderr
    fresh = run(tmp_path, "-m", "thriftune", "run", "study.toml", "--fresh", "--store", "s.db")
    assert "study 'c' starts over; the old study is kept as 'c-before-" in fresh.stderr


def test_a_finished_study_prints_its_result_and_how_to_run_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tune(tmp_path, twice())
    capsys.readouterr()
    tune(tmp_path, twice(), progress=None)
    output = capsys.readouterr().err
    assert "s: nothing left to do (all 3 trials done); best loss " in output
    assert ". To run more, raise its limits; to start over, fresh=True (--fresh)" in output
    assert "retry_failed" not in output


SCRIPT_WITH_HELPER = """
import sys
import thriftune as tt
import helper

def train(trial):
    return helper.loss(trial["x"])

if __name__ == "__main__":
    tt.tune(train, {"x": tt.Float(0, 1)}, minimize="loss", trials=int(sys.argv[1]), name="s", store="s.db")
"""


def test_a_changed_module_of_a_script_is_an_error_at_a_resume(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT_WITH_HELPER)
    (tmp_path / "helper.py").write_text("def loss(x): return 2 * x\n")
    assert run(tmp_path, "script.py", "3").returncode == 0
    resume = ["-m", "thriftune", "resume", "s", "--store", "s.db", "--trials"]
    assert run(tmp_path, *resume, "4").returncode == 0
    (tmp_path / "helper.py").write_text("def loss(x): return 30 * x\n")
    failed = run(tmp_path, *resume, "5")
    assert failed.returncode == 1
    assert "4 trials have values from before a change: helper has changed" in failed.stderr
    mixed = run(tmp_path, *resume, "5", "--on-change", "go_on")
    assert mixed.returncode == 0, mixed.stderr
    (tmp_path / "script.py").write_text(SCRIPT_WITH_HELPER.replace('trial["x"])', 'trial["x"]) + 1'))
    unchanged = run(tmp_path, *resume, "6")
    assert unchanged.returncode == 0, unchanged.stderr
    assert "goes on with its stored function, although in its script train has changed" in unchanged.stderr
    assert len(tt.load("s", tmp_path / "s.db").trials) == 6


KILL_AFTER_SET_ASIDE = """
import os, signal, sys
import thriftune.launch.open_study as launch
import script

set_aside = launch.set_aside

def set_aside_and_die(store, name):
    set_aside(store, name)
    os.kill(os.getpid(), signal.SIGKILL)

launch.set_aside = set_aside_and_die
script.tune(fresh=True)
"""


def test_a_kill_between_renaming_the_old_study_and_starting_the_new_one_loses_nothing(tmp_path: Path) -> None:
    body, _, rest = SCRIPT.partition('if __name__ == "__main__":\n')
    script = f"{body}def tune(**settings):\n{rest.replace('s.db' + chr(34), 's.db' + chr(34) + ', **settings')}"
    (tmp_path / "script.py").write_text(script)
    (tmp_path / "killed.py").write_text(KILL_AFTER_SET_ASIDE)
    assert run(tmp_path, "-c", "import script; script.tune()").stdout == "4\n"
    assert run(tmp_path, "killed.py").returncode == -9
    (old,) = tt.studies(tmp_path / "s.db")
    assert (old.name.startswith("s-before-"), old.trials) == (True, 4)
    again = run(tmp_path, "-c", "import script; script.tune(fresh=True)")
    assert again.stdout == "4\n", again.stderr
    assert {each.name: each.trials for each in tt.studies(tmp_path / "s.db")} == {"s": 4, old.name: 4}
