"""What does a study file say? TOML to the same Spec that a script's tune() makes."""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from thriftune.common.clock import WallClock
from thriftune.errors import SettingError, SpaceError
from thriftune.launch.drive import make_spec
from thriftune.launch.warm_start import in_folder
from thriftune.search import SEARCHERS
from thriftune.settings.bound_names import check_bound
from thriftune.settings.engine_options import Local, Ray, engine_of
from thriftune.settings.initial_events import told_before
from thriftune.settings.known_results import known_tables
from thriftune.space.objectives import needed_metrics, parse_constraints, parse_objectives
from thriftune.space.space import Space
from thriftune.state.events import Event
from thriftune.state.spec import Spec, Target
from thriftune.stopping import STOPPERS
from thriftune.training.command_line import command_target

_NUMBER, _WHOLE, _TEXT = "a number", "a whole number", "a string"
_DURATION = "seconds, or a string such as '20m'"

Types = Mapping[str, tuple[tuple[type, ...], str]]
"""By key: what its value may be, and that in words."""

_TYPES: Types = {
    "name": ((str,), _TEXT),
    "command": ((list,), "a list of strings, such as ['python', 'train.py', '--lr', '{lr}']"),
    "function": ((str,), "a string such as 'train.py:train'"),
    "minimize": ((str, list), "the name of a metric, or a list of names"),
    "maximize": ((str, list), "the name of a metric, or a list of names"),
    "constraints": ((str, list), "a list of strings, such as ['latency_ms <= 10']"),
    "trials": ((int,), _WHOLE),
    "max_steps": ((int,), _WHOLE),
    "deadline": (
        (int, float, str, datetime.datetime),
        f"{_DURATION}; or a time such as 2026-11-20 09:00:00",
    ),
    "budget": ((int, float), _NUMBER),
    "timeout": ((int, float, str), _DURATION),
    "retries": ((int,), _WHOLE),
    "workers": ((int,), _WHOLE),
    "engine": ((str, dict), "'local', 'ray', or a table such as {name = \"ray\", cpus = 2}"),
    "system": ((str, dict), "'auto', 'off', or a table such as {knobs = [\"memory\"], aim = \"energy\"}"),
    "searcher": ((str, dict), 'a name, or a table such as {name = "grid", points = 5}'),
    "stopping": ((str, dict), 'a name, or a table such as {name = "asha", eta = 4}'),
    "warm_start": ((str, list), "the name of a study, or a list of names"),
    "enqueue": ((list,), "tables: write [[enqueue]] and in it NAME = value"),
    "known": ((list,), "tables: write [[known]] and in it config = { NAME = value } and value = number"),
    "attrs": ((dict,), "a table: write [attrs] and in it NAME = value"),
    "seed": ((int,), _WHOLE),
    "store": ((str,), "a path"),
    "storage": ((str,), "the path of a folder"),
    "keep": ((int,), _WHOLE),
    "disk_full": ((str,), "'stop' or 'go_on'"),
    "value": ((str,), "'best', 'last' or 'auto'"),
    "target": ((int, float), _NUMBER),
    "patience": ((int,), _WHOLE),
    "stop_when_converged": ((bool,), "true or false"),
    "max_trial_time": ((int, float, str), _DURATION),
    "on_failure": ((str,), "'stop' or 'go_on'"),
    "profile": ((str, dict), "the path of a profile, or a table such as {seconds_per_step = {1 = 4.0, 2 = 2.2}}"),
    "cloud": ((dict, list), "a table of a kind of machine, or several: write [cloud] or [[cloud]]"),
    "space": ((dict,), "a table: write [space.NAME] for every parameter"),
    "metrics": ((dict,), "a table: write [metrics] and in it NAME = 'regular expression'"),
}

_AS_GIVEN = (
    "minimize", "maximize", "constraints", "trials", "max_steps", "deadline", "budget", "timeout", "retries",
    "workers", "engine", "system", "keep", "disk_full", "seed", "value", "patience", "stop_when_converged",
    "max_trial_time", "on_failure",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StudyFile:
    """A study file, checked. `store` is None where it names none; `seed`, too.

    `profile` and `cloud` are as they stand there: plan_file reads them, and whoever does not plan ignores them;
    but on a cluster, the kinds of machines are among the options of the spec's engine.
    """

    spec: Spec
    warm_start: list[str]
    store: str | None
    seed: int | None
    profile: str | Mapping[str, Any] | None
    cloud: Mapping[str, Any] | list[Any]
    told: list[Event] = field(default_factory=list)  # configurations to try first, known results, attributes


def read_study_file(path: Path, overrides: Mapping[str, Any] | None = None) -> StudyFile:
    """Reads and checks all of it; nothing is imported or run. `overrides` win over what the file says.

    Paths in it are relative to its folder, which is also where its command or function runs.
    """
    data = _read(path)
    given = dict(overrides or {})
    said = data.get("engine")
    if isinstance(said, dict) and "engine" in given and said.get("name") == given["engine"]:
        del given["engine"]  # only named again: the options are meant to stay
    try:
        return _study({**data, **given}, path.absolute())
    except (SettingError, SpaceError) as error:
        raise SettingError(f"{path}: {error}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise SettingError(f"{path}: is no UTF-8 text; a study file is TOML") from None
    except OSError as error:
        raise SettingError(f"{path}: the study file cannot be read ({error.strerror})") from None
    if path.suffix == ".py":
        raise SettingError(
            f"{path}: is a Python file, and a study file is TOML; if it calls tune(), run it with "
            f"python {path}, else describe the study in a file of its own (docs/study-file.md), with "
            f"function = '{path.name}:NAME'"
        )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        last = f"at line {len(text.splitlines())}, the end of the file"
        raise SettingError(f"{path}: is no valid TOML: {str(error).replace('at end of document', last)}") from None


def _study(data: Mapping[str, Any], path: Path) -> StudyFile:
    for key, value in data.items():
        check_key(key, value, _TYPES)
    if isinstance(said := data.get("system"), str) and said not in ("auto", "off"):
        raise SettingError(f"system: {said!r} must be {_TYPES['system'][1]}")
    folder = path.parent
    if not data.get("space"):
        raise SettingError("space: there is none; write [space.NAME] for every parameter")
    space = Space.from_json(data["space"])
    searcher, searcher_options = _named("searcher", data.get("searcher", "bayes"))
    rule, rule_options = _named("stopping", data.get("stopping", "auto"))
    given = {key: data[key] for key in _AS_GIVEN if key in data}
    if "engine" in data:
        given["engine"] = _engine(data, folder)
    if "target" in data:
        given["target_value"] = data["target"]
    spec = make_spec(
        space,
        name=data.get("name", path.stem),
        searcher=SEARCHERS.make(searcher, searcher_options),
        stopping=STOPPERS.make(rule, rule_options),
        target=_target(data, space, folder),
        storage=_in(folder, data.get("storage")),
        **{"minimize": None, "maximize": None, "seed": None, **given},
    )
    return StudyFile(
        # As they are written there: what is not mentioned may be another in the study that is taken up.
        replace(spec, searcher_options=searcher_options, stopping_options=rule_options),
        _warm_start(data.get("warm_start", []), folder),
        _in(folder, data.get("store")),
        data.get("seed"),
        data.get("profile"),
        data.get("cloud", []),
        _told(data, spec),
    )


def _told(data: Mapping[str, Any], spec: Spec) -> list[Event]:
    """Return the events of what the file tells the study before it runs."""
    now = WallClock().now()
    told = told_before(spec, now, enqueue=data.get("enqueue"), known=None, attrs=data.get("attrs"))
    return [*told, *known_tables(spec.space, spec.needed_metrics, now, data.get("known", []))]


def check_key(key: str, value: object, known: Types) -> None:
    """Whether a table may have it, and with such a value."""
    if key not in known:
        close = get_close_matches(key, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"it may have {', '.join(known)}"
        raise SettingError(f"{key}: unknown; {hint}")
    types, what = known[key]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise SettingError(f"{key}: {value!r} must be {what}")


def _engine(data: Mapping[str, Any], folder: Path) -> Local | Ray:
    """On a cluster, the [cloud] tables are kinds of nodes, unless the engine has machines of its own."""
    where = engine_of(data["engine"])
    if not isinstance(where, Ray):
        return where
    from thriftune.settings.node_types import kinds_of  # late: plan_file, which it needs, reads study files

    tables = data.get("cloud", [])
    if tables and not where.machines:
        where = replace(where, machines=[tables] if isinstance(tables, Mapping) else tables)
    kinds_of(where.machines, where.worker, folder)  # checked now, before anything is recorded
    return where


def _named(setting: str, given: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(given, str):
        return given, {}
    options = dict(given)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise SettingError(f"{setting}: {given!r} must have a name: {_TYPES[setting][1]}")
    return name, options


def _warm_start(given: str | list[Any], folder: Path) -> list[str]:
    listed = [given] if isinstance(given, str) else given
    for name in listed:
        if not isinstance(name, str):
            raise SettingError(f"warm_start: {name!r} must be the name of a study")
    return [in_folder(folder, name) for name in listed]


def _target(data: Mapping[str, Any], space: Space, folder: Path) -> Target:
    if ("command" in data) == ("function" in data):
        both = "both command and function are" if "command" in data else "neither command nor function is"
        raise SettingError(f"{both} given; a trial runs exactly one of them")
    if "command" in data:
        return command_target(data["command"], data.get("metrics", {}), space, _needed(data), folder)
    where = data["function"]
    source, _, name = where.rpartition(":")
    if not source or not name.isidentifier():
        raise SettingError(f"function: {where!r} must be 'file.py:name' or 'package.module:name'")
    # Not imported here: that may take long, or do things, and is for the workers.
    if source.endswith(".py"):
        if not (folder / source).is_file():
            raise SettingError(f"function: there is no file {folder / source}")
        check_bound(folder / source, name)
    if "metrics" in data:
        raise SettingError("metrics: are read from the output of a command; a function reports them itself")
    return Target("function", where=where, folder=str(folder))


def _needed(data: Mapping[str, Any]) -> tuple[str, ...]:
    """The metrics that a command must give."""
    objectives = parse_objectives(data.get("minimize"), data.get("maximize"))
    return needed_metrics(objectives, parse_constraints(data.get("constraints")))


def _in(folder: Path, given: str | None) -> str | None:
    """A path of the file as one that holds anywhere."""
    if given is None or given == ":memory:" or "://" in given:
        return given
    return str(folder / Path(given).expanduser())
