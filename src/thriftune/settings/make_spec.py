"""Turn the settings that users give into the spec that a study's log stores."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from thriftune.clouds.local import cores
from thriftune.common.durations import seconds
from thriftune.common.setting_kinds import check_settings
from thriftune.errors import SettingError
from thriftune.object_store.urls import OPTIONS, folder_of, is_object_url, parse_object_url
from thriftune.search import SEARCHERS
from thriftune.settings.data_places import data_places
from thriftune.settings.deadlines import parse_deadline
from thriftune.settings.engine_options import Local, engine_of
from thriftune.settings.table import SETTINGS, Settings
from thriftune.space.objectives import parse_constraints, parse_objectives
from thriftune.space.space import Space
from thriftune.state.spec import Spec, Target
from thriftune.state.stored_settings import StoredSettings
from thriftune.stopping import STOPPERS
from thriftune.stopping.checks import check_needs
from thriftune.system import System, system_of


def make_spec(space: Space | Mapping[str, Any], settings: Settings, *, target: Target, name: str) -> Spec:
    """Return the spec of a new study, without the fingerprint of its code.

    open_study() adds the fingerprint, unless the caller has. Raise SettingError or SpaceError for a setting that
    cannot be used.

    - `target`: what each trial runs.
    - `name`: the study's name, if the settings have none.
    """
    objectives = parse_objectives(settings.minimize, settings.maximize)
    check_settings(settings, SETTINGS)
    limited = settings.trials is not None or settings.deadline is not None or settings.budget is not None
    if target.kind != "outside" and not limited:
        raise SettingError("give at least one limit: trials, deadline or budget")
    engine = engine_of(settings.engine)
    is_local = isinstance(engine, Local)
    searcher, searcher_options = _searcher(settings)
    rule, rule_options = _stopping_rule(settings)
    as_given = {each.name: getattr(settings, each.name) for each in fields(StoredSettings)}
    converted = {each: getattr(settings, each) for each in _STORED_AS}
    return Spec(
        name=name if settings.name is None else settings.name,
        space=Space(space),
        objectives=objectives,
        constraints=parse_constraints(settings.constraints),
        seed=secrets.randbits(32) if settings.seed is None else settings.seed,
        id=secrets.token_hex(8),
        searcher=searcher,
        searcher_options=searcher_options,
        stopping=rule,
        stopping_options=rule_options,
        target=target,
        workers=cores() if settings.workers is None and is_local else settings.workers,
        engine="local" if is_local else "ray",
        engine_options=engine.options,
        system=stored_system(settings.system, target),
        data=data_places(settings.data),
        storage="" if settings.storage is None else normal_storage(settings.storage),
        **as_given,
        **_stored(converted),
    )


def with_limits(spec: Spec, limits: Mapping[str, Any]) -> Spec:
    """Return the spec with other limits: settings that `resume` takes, as tune() takes them."""
    for name, value in limits.items():
        SETTINGS[name].kind.check(name, value)
    return replace(spec, **_stored(limits))


def normal_storage(given: str | Path) -> str:
    """Return the setting `storage` as the log stores it: an absolute folder, or the URL of an object store."""
    text = str(given)
    if "://" not in text:
        scheme, _, rest = text.partition(":/")
        if isinstance(given, Path) and rest and scheme in (*OPTIONS, "file"):
            raise SettingError(f"storage: {given!r} is a path, which cannot hold a URL; give it as a string")
        return str(folder_of(text))
    if is_object_url(text) or not text.startswith("file://"):
        return str(parse_object_url(text))
    return str(folder_of(text))


def stored_system(given: str | System | Mapping[str, Any], target: Target) -> Mapping[str, Any] | None:
    """Return the setting `system` as the log stores it; None if trials are not to be measured."""
    system = system_of(given)
    if system is None or target.kind == "outside":
        return None
    if target.kind == "command":
        if given != "auto":
            raise SettingError("system: works for training functions only, not for commands; leave it out")
        return None
    return system.written


def _searcher(settings: Settings) -> tuple[str, dict[str, Any]]:
    """Return the searcher's name and options."""
    searcher = settings.searcher
    SEARCHERS.check(searcher)
    name, options = SEARCHERS.name_and_options(searcher)
    if settings.stop_when_converged is True:
        _check_expects_gain(SEARCHERS.kind(searcher) if isinstance(searcher, str) else searcher, name)
    return name, options


def _check_expects_gain(searcher: object, name: str) -> None:
    """Raise SettingError unless the searcher, or its class, has the method expected_gain()."""
    if not callable(getattr(searcher, "expected_gain", None)):
        raise SettingError(
            f"stop_when_converged: needs searcher='bayes', or one with expected_gain(past); {name!r} does not "
            "have this method"
        )


def _stopping_rule(settings: Settings) -> tuple[str, dict[str, Any]]:
    """Return the stopping rule's name and options."""
    rule = settings.stopping
    STOPPERS.check(rule)
    name, options = STOPPERS.name_and_options(rule)
    kind = STOPPERS.kind(rule) if isinstance(rule, str) else type(rule)
    check_needs(kind, options, settings.max_steps, settings.trials)
    return name, options


def _stored(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings under the names and in the form in which a spec has them."""
    stored: dict[str, Any] = {}
    for name, value in given.items():
        stored |= _STORED_AS[name](value) if name in _STORED_AS else {name: value}
    return stored


def _deadline(value: Any) -> dict[str, Any]:
    deadline = parse_deadline(value)
    return {"deadline_seconds": deadline.seconds, "deadline_at": deadline.at}


_STORED_AS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "deadline": _deadline,
    "budget": lambda value: {"budget_dollars": value},
    "timeout": lambda value: {"timeout_seconds": seconds("timeout", value)},
    "max_trial_time": lambda value: {"max_trial_seconds": seconds("max_trial_time", value)},
    "target": lambda value: {"target_value": value},
}
"""Settings that a spec has under another name or in another unit."""
