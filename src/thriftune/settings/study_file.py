"""Read study files: TOML that describes the same study as a script's tune()."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from thriftune.common.clock import WallClock
from thriftune.common.setting_kinds import Kind
from thriftune.errors import SettingError, SpaceError
from thriftune.search import SEARCHERS
from thriftune.settings.bound_names import check_bound
from thriftune.settings.data_places import data_places
from thriftune.settings.engine_options import Local, Ray, engine_of
from thriftune.settings.initial_events import initial_events
from thriftune.settings.known_results import known_tables
from thriftune.settings.make_spec import make_spec
from thriftune.settings.ray_node_types import read_node_types
from thriftune.settings.study_file_keys import check_key
from thriftune.settings.study_paths import absolute_path, absolute_source
from thriftune.settings.table import SETTINGS, Settings
from thriftune.space.objectives import needed_metrics, parse_constraints, parse_objectives
from thriftune.space.space import Space
from thriftune.state.events import Event
from thriftune.state.spec import Spec, Target
from thriftune.stopping import STOPPERS
from thriftune.training.command_line import command_target

_FILE_KINDS: Mapping[str, Kind] = {
    "command": Kind((list,), "a list of strings, such as ['python', 'train.py', '--lr', '{lr}']"),
    "function": Kind((str,), "a string such as 'train.py:train'"),
    "metrics": Kind((dict,), "a table: write [metrics] and in it NAME = 'regular expression'"),
    "space": Kind((dict,), "a table: write [space.NAME] for every parameter"),
    "warm_start": Kind((str, list), "the name of a study, or a list of names"),
    "store": Kind((str,), "a path"),
    "profile": Kind(
        (str, dict), "the path of a profile, or a table such as {seconds_per_step = {1 = 4.0, 2 = 2.2}}"
    ),
    "cloud": Kind((dict, list), "a table of a kind of machine, or several: write [cloud] or [[cloud]]"),
}
"""Keys that only study files have."""

KINDS: Mapping[str, Kind] = {**{name: each.kind for name, each in SETTINGS.items()}, **_FILE_KINDS}
"""All keys of a study file, with the values that each may have."""

_INITIAL = ("enqueue", "known", "attrs")
"""Settings that become the study's first events."""


@dataclass(frozen=True, slots=True)
class StudyFile:
    """A study file that has been checked.

    - `store` and `seed`: None if the file has none.
    - `profile`, `cloud`: as in the file; read_plan_file() reads them. With engine "ray", the machines of `cloud`
      are also among the options of the spec's engine.
    - `initial_events`: enqueued configurations, known results and attributes.
    """

    spec: Spec
    warm_start: list[str]
    store: str | None
    seed: int | None
    profile: str | Mapping[str, Any] | None
    cloud: Mapping[str, Any] | list[Any]
    initial_events: list[Event] = field(default_factory=list)


def read_study_file(path: Path, overrides: Mapping[str, Any] | None = None) -> StudyFile:
    """Read and check a study file. Raise SettingError for what cannot be used.

    The error has the file's name, unless it is about a value of `overrides`.

    Nothing is imported or run. Relative paths in the file are relative to its folder.

    - `overrides`: values by key, which replace the file's.
    """
    data = _read(path)
    replaced = dict(overrides or {})
    for key in ("engine", "searcher", "stopping"):
        table = data.get(key)
        if isinstance(table, dict) and key in replaced and table.get("name") == replaced[key]:
            del replaced[key]  # the same name: the options in the file stay
    try:
        return _study({**data, **replaced}, path.absolute())
    except (SettingError, SpaceError) as error:
        raise with_file_name(error, path, replaced) from None


def with_file_name(error: Exception, path: Path, overrides: Mapping[str, Any] | None) -> SettingError:
    """Return the error with the file's name before it, unless it is about a value that replaces the file's.

    Errors about the value of a setting begin with the setting's name.
    """
    first_word = re.match(r"\w*", str(error))
    is_override = first_word is not None and first_word[0] in (overrides or {})
    return SettingError(str(error) if is_override else f"{path}: {error}")


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise SettingError(f"{path}: is not UTF-8 text; a study file is TOML") from None
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
        raise SettingError(
            f"{path}: is not valid TOML: {str(error).replace('at end of document', last)}"
        ) from None


def _study(data: Mapping[str, Any], path: Path) -> StudyFile:
    for key, value in data.items():
        check_key(key, value, KINDS)
    if isinstance(system := data.get("system"), str) and system not in ("auto", "off"):
        raise SettingError(f"system: {system!r} must be {KINDS['system'].description}")
    folder = path.parent
    if not data.get("space"):
        raise SettingError("space: is missing; write [space.NAME] for every parameter")
    space = Space.from_json(data["space"])
    searcher, searcher_options = _name_and_options("searcher", data)
    rule, rule_options = _name_and_options("stopping", data)
    settings = {key: value for key, value in data.items() if key in SETTINGS and key not in _INITIAL}
    settings |= {
        "searcher": SEARCHERS.make(searcher, searcher_options),
        "stopping": STOPPERS.make(rule, rule_options),
        "storage": _absolute(folder, data.get("storage")),
        "data": data_places(data.get("data"), folder),
    }
    if "engine" in data:
        settings["engine"] = _engine(data, folder)
    spec = make_spec(space, Settings(**settings), target=_target(data, space, folder), name=path.stem)
    # Only options that the file names are stored: a study that goes on keeps those that the file omits.
    spec = replace(spec, searcher_options=searcher_options, stopping_options=rule_options)
    sources = data.get("warm_start", [])
    return StudyFile(
        spec,
        _warm_start([sources] if isinstance(sources, str) else sources, folder),
        _absolute(folder, data.get("store")),
        data.get("seed"),
        data.get("profile"),
        data.get("cloud", []),
        _initial_events(data, spec),
    )


def _initial_events(data: Mapping[str, Any], spec: Spec) -> list[Event]:
    now = WallClock().now()
    events = initial_events(spec, now, enqueue=data.get("enqueue"), known=None, attrs=data.get("attrs"))
    return [*events, *known_tables(spec.space, spec.needed_metrics, now, data.get("known", []))]


def _engine(data: Mapping[str, Any], folder: Path) -> Local | Ray:
    """Return the engine. On a cluster, [cloud] tables are its machines, unless it has machines of its own."""
    engine = engine_of(data["engine"])
    if not isinstance(engine, Ray):
        return engine
    tables = data.get("cloud", [])
    if tables and not engine.machines:
        engine = replace(engine, machines=[tables] if isinstance(tables, Mapping) else tables)
    read_node_types(engine.machines, engine.worker, folder)  # checks them before anything is recorded
    return engine


def _name_and_options(setting: str, data: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of a searcher or stopping rule, which may be a name or a table."""
    value = data.get(setting, SETTINGS[setting].default)
    if isinstance(value, str):
        return value, {}
    options = dict(value)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise SettingError(f"{setting}: {value!r} must have a name: {KINDS[setting].description}")
    return name, options


def _warm_start(sources: list[Any], folder: Path) -> list[str]:
    for source in sources:
        if not isinstance(source, str):
            raise SettingError(f"warm_start: {source!r} must be the name of a study")
    return [absolute_source(folder, source) for source in sources]


def _target(data: Mapping[str, Any], space: Space, folder: Path) -> Target:
    """Return what each trial runs: the file's command or function."""
    if ("command" in data) == ("function" in data):
        both = "both command and function are" if "command" in data else "neither command nor function is"
        raise SettingError(f"{both} given; a trial runs exactly one of them")
    if "command" in data:
        datasets = data.get("data", {})
        return command_target(data["command"], data.get("metrics"), space, _needed(data), folder, datasets)
    where = data["function"]
    source, _, name = where.rpartition(":")
    if not source or not name.isidentifier():
        raise SettingError(f"function: {where!r} must be 'file.py:name' or 'package.module:name'")
    # Only workers import the file: importing may take long and have side effects.
    if source.endswith(".py"):
        if not (folder / source).is_file():
            raise SettingError(f"function: {folder / source} does not exist")
        check_bound(folder / source, name)
    if "metrics" in data:
        raise SettingError("metrics: are read from the output of a command; a function reports them itself")
    return Target("function", where=where, folder=str(folder))


def _needed(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the metrics that a command must report."""
    objectives = parse_objectives(data.get("minimize"), data.get("maximize"))
    return needed_metrics(objectives, parse_constraints(data.get("constraints")))


def _absolute(folder: Path, path: str | None) -> str | None:
    """Return a path of the file as an absolute one."""
    return None if path is None else absolute_path(folder, path)
