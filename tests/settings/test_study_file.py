"""Tests of study files: every key, the defaults, and the error for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from thriftune.errors import SettingError
from thriftune.settings.study_file import StudyFile, read_study_file
from thriftune.space.space import Space
from thriftune.state.spec import Spec

SPACE = '[space.lr]\ntype = "float"\nlow = 1e-4\nhigh = 0.1\nlog = true\n'
BASE = 'command = ["train", "--lr", "{lr}"]\nminimize = "loss"\ntrials = 8\n'


def read(folder: Path, text: str, **overrides: object) -> StudyFile:
    path = folder / "digits.toml"
    path.write_text(text)
    return read_study_file(path, overrides)


def test_every_key_is_read(tmp_path: Path) -> None:
    text = """
        name = "other"
        command = ["python", "train.py", "--lr", "{lr}", "--data={data.train}"]
        maximize = "acc"
        trials = 100
        max_steps = 7
        deadline = "1h30m"
        budget = 2.5
        timeout = 90
        retries = 3
        workers = 2
        searcher = {name = "grid", points = 3}
        warm_start = ["a", "sub/b.db:b", "/abs/c.db:c", "sqlite:///d.db:d"]
        seed = 5
        store = "a/studies.db"
        storage = "b"
        keep = 4
        disk_full = "go_on"

        [data]
        train = "s3://bucket/train"
        valid = "valid.csv"

        [space.act]
        type = "choice"
        choices = ["relu", "tanh"]

        [space.lr]
        type = "float"
        low = 0.1
        high = 1.0
        when = {act = "relu"}

        [metrics]
        acc = 'acc=(\\S+)'
        step = 'epoch (\\d+)'
    """
    file = read(tmp_path, text)
    spec = file.spec
    assert (spec.name, spec.metric, spec.maximize, spec.seed) == ("other", "acc", True, 5)
    assert (spec.trials, spec.max_steps, spec.deadline_seconds, spec.budget_dollars) == (100, 7, 5400.0, 2.5)
    assert (spec.timeout_seconds, spec.retries, spec.workers, spec.keep) == (90.0, 3, 2, 4)
    assert (spec.disk_full, spec.storage, file.store) == ("go_on", f"{tmp_path}/b", f"{tmp_path}/a/studies.db")
    assert (spec.searcher, spec.searcher_options) == ("grid", {"points": 3})
    assert file.warm_start == ["a", f"{tmp_path}/sub/b.db:b", "/abs/c.db:c", "sqlite:///d.db:d"]
    assert isinstance(spec.space, Space)
    assert spec.space.names == ("act", "lr")
    assert spec.target.command == ("python", "train.py", "--lr", "{lr}", "--data={data.train}")
    assert spec.data == {"train": "s3://bucket/train", "valid": f"{tmp_path}/valid.csv"}
    assert spec.target.patterns == {"acc": r"acc=(\S+)", "step": r"epoch (\d+)"}
    assert spec.target.folder == str(tmp_path)
    assert Spec.from_json(spec.to_json()) == spec


def test_a_minimal_file_has_the_defaults(tmp_path: Path) -> None:
    file = read(tmp_path, BASE + SPACE)
    assert (file.spec.name, file.spec.searcher, file.store, file.seed) == ("digits", "bayes", None, None)
    assert (file.spec.storage, file.warm_start) == ("", [])
    assert read(tmp_path, 'warm_start = "old"\n' + BASE + SPACE).warm_start == ["old"]


def test_several_objectives_and_constraints_are_read(tmp_path: Path) -> None:
    objectives = """minimize = ["loss", "size"]\nmaximize = "acc"\nconstraints = ["size <= 5e6", "gap >= -1"]\n"""
    text = BASE.replace('minimize = "loss"\n', objectives) + SPACE
    spec = read(tmp_path, text).spec
    assert [str(objective) for objective in spec.objectives] == ["minimize loss", "minimize size", "maximize acc"]
    assert [str(constraint) for constraint in spec.constraints] == ["size <= 5000000", "gap >= -1"]
    patterns = "".join(f"{name} = '{name}=(.)'\n" for name in ("loss", "size", "acc", "gap"))
    assert list(read(tmp_path, f"{text}[metrics]\n{patterns}").spec.target.patterns) == list(spec.needed_metrics)


def test_overrides_replace_the_files_values_and_are_checked(tmp_path: Path) -> None:
    assert read(tmp_path, BASE + SPACE, trials=3, name="x").spec.trials == 3
    with pytest.raises(SettingError, match=r"^trials: 0 is too small; use 1 or more$"):
        read(tmp_path, BASE + SPACE, trials=0)
    with pytest.raises(SettingError, match=r"^searcher 'bays' is not known"):
        read(tmp_path, BASE + SPACE, searcher="bays")
    with pytest.raises(SettingError, match=r"digits\.toml: keep: 1 is too small; use 2 or more$"):
        read(tmp_path, "keep = 1\n" + BASE + SPACE, trials=3)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("/abs/s.db", "/abs/s.db"),
        (":memory:", ":memory:"),
        ("sqlite:////abs/s.db", "sqlite:////abs/s.db"),
    ],
)
def test_a_store_that_is_no_relative_path_is_unchanged(tmp_path: Path, text: str, stored: str) -> None:
    assert read(tmp_path, f'store = "{text}"\n{BASE}{SPACE}').store == stored


def test_the_file_of_a_function_must_exist_and_is_not_imported(tmp_path: Path) -> None:
    text = BASE.replace('command = ["train", "--lr", "{lr}"]', 'function = "train.py:train"') + SPACE
    with pytest.raises(SettingError, match=r"function: .*/train\.py does not exist"):
        read(tmp_path, text)
    (tmp_path / "train.py").write_text("def train(trial): ...\nraise SystemExit('imported')")
    target = read(tmp_path, text).spec.target
    assert (target.kind, target.where, target.folder) == ("function", "train.py:train", str(tmp_path))
    assert read(tmp_path, text.replace("train.py:", "package.module:")).spec.target.where == "package.module:train"


COMMAND = 'command = ["train", "--lr", "{lr}"]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trails = 8\n" + BASE + SPACE, "trails: unknown; did you mean trials?"),
        ("hue = 8\n" + BASE + SPACE, "hue: unknown; it may have "),
        ("minimize = \n" + SPACE, "is not valid TOML: Invalid value (at line 1, column 12)"),
        (BASE + SPACE + "x = [1,", "is not valid TOML: Invalid value (at line 9, the end of the file)"),
        (BASE.replace("8", "'ten'") + SPACE, "trials: 'ten' must be a whole number"),
        (BASE.replace("8", "true") + SPACE, "trials: True must be a whole number"),
        (BASE.replace("8", "0") + SPACE, "trials: 0 is too small; use 1 or more"),
        ("budget = 'much'\n" + BASE + SPACE, "budget: 'much' must be a number"),
        ("budget = -1\n" + BASE + SPACE, "budget: -1 must be above zero and finite"),
        ("deadline = 'soon'\n" + BASE + SPACE, "deadline: 'soon' is not a duration"),
        ("store = 5\n" + BASE + SPACE, "store: 5 must be a path"),
        ("keep = 1\n" + BASE + SPACE, "keep: 1 is too small; use 2 or more"),
        ("disk_full = 'cry'\n" + BASE + SPACE, "disk_full: 'cry' must be 'stop' or 'go_on'"),
        ("name = 'a/b'\n" + BASE + SPACE, "name: 'a/b' must be letters"),
        ("storage = 'ftp://bucket'\n" + BASE + SPACE, "storage: ftp:// is not supported; use s3://, gs://"),
        (BASE.replace("trials = 8", "") + SPACE, "give at least one limit"),
        (BASE + "maximize = 'loss'\n" + SPACE, "loss: is named twice; name each metric once"),
        (BASE.replace('"loss"', "3") + SPACE, "minimize: 3 must be the name of a metric, or a list of names"),
        (BASE.replace('"loss"', "[]") + SPACE, "give minimize or maximize or both"),
        (BASE.replace('"loss"', "[3]") + SPACE, "the metric to optimise must be a name, not 3"),
        (
            "constraints = 3\n" + BASE + SPACE,
            "constraints: 3 must be a list of strings, such as ['latency_ms <= 10']",
        ),
        (
            "constraints = ['gap < 3']\n" + BASE + SPACE,
            "constraints: 'gap < 3' is not a constraint; write NAME <= NUMBER or NAME",
        ),
        (BASE.replace('minimize = "loss"', "") + SPACE, "give minimize or maximize or both"),
        (BASE, "space: is missing; write [space.NAME] for every parameter"),
        ("space = 3\n" + BASE, "space: 3 must be a table"),
        (BASE + SPACE.replace("0.1", "1e-5"), "lr: low 0.0001 is above high 1e-05"),
        (BASE + SPACE + "hihg = 3\n", "lr: hihg is no setting of float"),
        (BASE.replace("{lr}", "{rl}") + SPACE, "command: {rl} in '{rl}' is not a parameter; the space has lr"),
        (BASE.replace(COMMAND, "command = 'train'\n") + SPACE, "command: 'train' must be a list of strings"),
        (BASE.replace(COMMAND, "command = ['a', 3]\n") + SPACE, "command: ['a', 3] must be a list of strings"),
        (BASE.replace(COMMAND, "") + SPACE, "neither command nor function is given"),
        ("function = 'train.py:f'\n" + BASE + SPACE, "both command and function are given"),
        (BASE.replace(COMMAND, "function = 'train.py'\n") + SPACE, "function: 'train.py' must be 'file.py:name'"),
        (
            BASE.replace(COMMAND, "function = 'm:f'\n") + SPACE + "[metrics]\nloss = 'x(.)'\n",
            "metrics: are read from the output of a command; a function reports them itself",
        ),
        (BASE + SPACE + "[metrics]\nloss = 'x'\n", "metrics: loss: 'x' has 0 groups"),
        (BASE + SPACE + "[metrics]\nloss = '('\n", "metrics: loss: '(' is not a regular expression"),
        (
            BASE + SPACE + "[metrics]\nacc = '(.)'\n",
            "metrics: there is no pattern for 'loss'; every objective",
        ),
        (
            BASE + SPACE + "[metrics]\nacc = '(.)'\nstep = '(.)'\n",
            "metrics: there is no pattern for 'loss'; every objective",
        ),
        (
            "constraints = ['gap <= 3']\n" + BASE + SPACE + "[metrics]\nloss = '(.)'\n",
            "metrics: there is no pattern for 'gap'; every objective",
        ),
        (
            BASE + SPACE + "[metrics]\nstep = '(.)'\n",
            "metrics: there is no pattern for 'loss'; every objective",
        ),
        (BASE + SPACE + "[metrics]\n", "metrics: there is no pattern for 'loss'; every objective"),
        (
            BASE.replace('minimize = "loss"', "") + SPACE + "[metrics]\nloss = '(.)'\n",
            "give minimize or maximize or both",
        ),
        (
            BASE.replace(COMMAND, "function = 'f'\n") + SPACE + "[metrics]\nloss = 'x(.)'\n",
            "function: 'f' must be",
        ),
        ("warm_start = 3\n" + BASE + SPACE, "warm_start: 3 must be the name of a study, or a list of names"),
        ("warm_start = ['a', 3]\n" + BASE + SPACE, "warm_start: 3 must be the name of a study"),
        ("name = ''\n" + BASE + SPACE, "name: '' must be letters"),
        ("searcher = 'magic'\n" + BASE + SPACE, "searcher 'magic' is not known; use one of bayes, random, sobol"),
        ("searcher = {points = 3}\n" + BASE + SPACE, "searcher: {'points': 3} must have a name"),
        (
            "searcher = {name = 'grid', pionts = 3}\n" + BASE + SPACE,
            "searcher: grid does not take pionts; its options: points",
        ),
        ("searcher = {name = 'grid', points = 0}\n" + BASE + SPACE, "grid: points: 0 is too small"),
        ("searcher = {name = 'random', n = 0}\n" + BASE + SPACE, "random does not take n; its options: none"),
    ],
)
def test_the_error_for_a_mistake_names_the_file_and_the_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingError) as error:
        read(tmp_path, text)
    assert str(error.value).startswith(f"{tmp_path}/digits.toml: ")
    assert message in str(error.value)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"cannot be read \(No such file or directory\)"):
        read_study_file(tmp_path / "none.toml")
    with pytest.raises(SettingError, match=r"cannot be read \(Is a directory\)"):
        read_study_file(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingError, match="is not UTF-8 text"):
        read_study_file(tmp_path / "bytes.toml")


# --- engines and machines ---------------------------------------------------------------------------------

CLOUD = """
[[cloud]]
machine = "m5.xlarge"
spot = true
price_per_hour = 0.07
[[cloud]]
machine = "m5.xlarge"
max_machines = 3
"""


def test_an_engine_is_a_name_or_a_table_with_options(tmp_path: Path) -> None:
    assert read(tmp_path, BASE + SPACE).spec.engine == "local"
    spec = read(tmp_path, BASE + 'engine = "ray"\n' + SPACE).spec
    assert (spec.engine, spec.engine_options, spec.workers) == ("ray", {}, None)
    with_options = BASE + 'engine = {name = "ray", cpus = 2, gang = 4}\n' + SPACE
    assert read(tmp_path, with_options).spec.engine_options == {"cpus": 2, "gang": 4}
    overridden = read(tmp_path, with_options, engine="ray").spec
    assert overridden.engine_options == {"cpus": 2, "gang": 4}, "the same engine keeps its options"
    with pytest.raises(SettingError, match=r"engine: \{'cpus': 2\} must have a name"):
        read(tmp_path, BASE + "engine = {cpus = 2}\n" + SPACE)
    local = read(tmp_path, with_options, engine="local").spec
    assert (local.engine, local.engine_options) == ("local", {})


def test_cloud_tables_are_the_machines_of_a_ray_engine_without_machines(tmp_path: Path) -> None:
    assert read(tmp_path, BASE + SPACE + CLOUD).spec.engine_options == {}
    spec = read(tmp_path, BASE + SPACE + CLOUD, engine="ray").spec
    assert spec.engine_options == {
        "machines": [
            {"machine": "m5.xlarge", "spot": True, "price_per_hour": 0.07},
            {"machine": "m5.xlarge", "max_machines": 3},
        ]
    }
    assert Spec.from_json(spec.to_json()) == spec
    with_machines = 'engine = {name = "ray", machines = ["m5.2xlarge_on-demand"]}\n'
    assert read(tmp_path, BASE + with_machines + SPACE + CLOUD).spec.engine_options == {
        "machines": ["m5.2xlarge_on-demand"]
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("engine = 3", "engine: 3 must be 'local', 'ray', or a table"),
        ('engine = "spark"', "engine 'spark' is not known"),
        ('engine = {name = "ray", cpu = 2}', "cpu"),
        ('engine = {name = "ray", machines = ["m5.xlarge"]}', "machines: 'm5.xlarge' is not a node type"),
        ('engine = {name = "ray", gpus = 1, machines = ["m5.xlarge_on-demand"]}', "no worker with"),
    ],
)
def test_a_wrong_engine_is_an_error_when_the_file_is_read(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(SettingError) as error:
        read(tmp_path, f"{BASE}{line}\n{SPACE}")
    assert message in str(error.value)


def test_a_python_file_is_an_error_with_advice(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def train(trial): ...\n")
    with pytest.raises(SettingError, match=r"train\.py: is a Python file.* run it with python .*'train\.py:NAME'"):
        read_study_file(tmp_path / "train.py")


@pytest.mark.parametrize(
    ("key", "table", "options"),
    [
        ("searcher", '{name = "grid", points = 4}', {"points": 4}),
        ("stopping", '{name = "asha", eta = 4}', {"eta": 4}),
    ],
)
def test_the_same_name_on_the_command_line_keeps_the_options_of_the_file(
    tmp_path: Path, key: str, table: str, options: dict[str, int]
) -> None:
    text = f"{key} = {table}\nmax_steps = 9\n{BASE}{SPACE}"
    name = table.split('"')[1]
    assert getattr(read(tmp_path, text, **{key: name}).spec, f"{key}_options") == options
    other = "random" if key == "searcher" else "median"
    assert getattr(read(tmp_path, text, **{key: other}).spec, f"{key}_options") == {}
