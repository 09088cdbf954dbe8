"""What does a study file say about machines? What there is to train, how fast it goes, what can be rented."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, cycle, pairwise
from pathlib import Path
from typing import Any

from thriftune.common.clock import WallClock
from thriftune.common.durations import seconds
from thriftune.common.setting_kinds import FLAG, NUMBER, TEXT, Kind, check_key, whole_number
from thriftune.errors import SettingError
from thriftune.market.billing import PER_SECOND
from thriftune.market.catalog import Catalog
from thriftune.market.lifetime import Exponential, Lifetimes
from thriftune.market.survival import Survival
from thriftune.planning.cloud_profile import CloudProfile, with_default_waits
from thriftune.planning.job import JobSpec, Stage, asha
from thriftune.planning.latency import Latency
from thriftune.planning.profile import Profile, profile_path
from thriftune.settings.deadlines import as_duration, check_ahead
from thriftune.settings.engine_options import Ray, engine_of
from thriftune.settings.study_file import StudyFile, read_study_file
from thriftune.state.spec import Spec
from thriftune.stopping import STOPPERS
from thriftune.stopping import brackets as halving
from thriftune.stopping.asha import ASHA
from thriftune.stopping.halving import SuccessiveHalving
from thriftune.stopping.rung_rule import FIRST_RUNG_DIVISOR

_LATENCY = Kind(
    (int, float, str, list, dict), "seconds, a list of recorded ones, or a table {mean = 30, std = 10}"
)
_WHOLE = whole_number(0)

_CLOUD: Mapping[str, Kind] = {
    "machine": Kind((str,), "the name of a machine in the catalog, such as 'p3.8xlarge'"),
    "region": TEXT,
    "name": TEXT,
    "slots": _WHOLE,
    "price_per_hour": NUMBER,
    "queue": _LATENCY,
    "init": _LATENCY,
    "billing": Kind((str,), "'per_instance' or 'per_function'"),
    "minimum": Kind((int, float, str), "seconds, or a string such as '1m'"),
    "data_gb": NUMBER,
    "data_price": NUMBER,
    "speed": NUMBER,
    "max_machines": _WHOLE,
    "spot": FLAG,
    "lifetimes": Kind((str,), "the path of a record of lifetimes"),
    "type": Kind((str,), "a machine type of the record of lifetimes"),
    "mean_lifetime": Kind((int, float, str), "seconds, or a string such as '6h'"),
}
"""Keys of a [cloud] table."""

_MOMENTS: Mapping[str, Kind] = {"mean": NUMBER, "std": NUMBER}

_AS_GIVEN = (
    "name", "slots", "price_per_hour", "billing", "data_gb", "data_price", "speed", "max_machines",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlanFile:
    """All that a plan is made from. `notes`: what is taken to be so, in sentences."""

    study: Spec
    job: JobSpec
    profile: Profile
    clouds: list[CloudProfile]
    notes: list[str]


def read_plan_file(
    path: Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    profile: Path | None = None,
    machine: str | None = None,
    clouds_needed: bool = True,
) -> PlanFile:
    """A study file as a plan sees it. `profile` and `machine` win over what it says, and so do `overrides`.

    Where neither names a profile, it is the one that `thriftune profile` has left beside the file. `machine`: a
    kind of machine by its name there, or else in the catalog.
    """
    file = read_study_file(path, overrides)
    file = replace(file, spec=_from_now(file.spec, path))
    folder = path.absolute().parent
    given = None if profile is None else Profile.read(profile)
    try:
        job, notes = job_of(file.spec)
        clouds = _kinds(file, folder)
        if machine is not None:
            named = [cloud for cloud in clouds if cloud.name == machine]
            if not named:
                notes.append(
                    f"{machine}: the study file does not have it; planned is that such machines are there at "
                    "once, and as fast as the profile says"
                )
            clouds = named or [_in_catalog({"machine": machine}, None)]
        if not clouds and clouds_needed:
            raise SettingError(
                "cloud: there is none; write [cloud] and in it machine = 'p3.8xlarge', or give --machine NAME"
            )
        known = given or _profile(file.profile, path)
        return PlanFile(file.spec, job, known, with_default_waits(clouds, known.queue, known.init), notes)
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from None


def _from_now(study: Spec, path: Path) -> Spec:
    """Return the study with a deadline that counts from now, where it has one by the wall clock."""
    now = WallClock().now()
    try:
        check_ahead(study, now)
        return as_duration(study, now)
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from None


def _profile(given: str | Mapping[str, Any] | None, path: Path) -> Profile:
    if isinstance(given, str):
        return Profile.read(path.parent / Path(given).expanduser())
    if given is not None:
        return Profile.from_json(given)
    beside = profile_path(path)
    if not beside.exists():
        raise SettingError(
            f"profile: there is none, and no {beside.name}; measure one with: thriftune profile {path}"
        )
    return Profile.read(beside)


# --- what there is to train -------------------------------------------------------------------------------


def job_of(study: Spec) -> tuple[JobSpec, list[str]]:
    """The stages that the stopping rule makes of the study; and where they are not quite what will be."""
    last = study.max_steps
    if last is None:
        raise SettingError("max_steps: is missing; a plan must know how many steps a trial has")
    rule = STOPPERS.make(study.stopping, study.stopping_options)
    if isinstance(rule, SuccessiveHalving):  # which Hyperband is, too
        return _in_brackets(rule.bracket_kinds(last), study.trials), []
    if study.trials is None:
        raise SettingError(f"trials: is missing; a plan must know how many there are under {study.stopping}")
    if isinstance(rule, ASHA):
        first = rule.options["min_steps"] or max(1, last // FIRST_RUNG_DIVISOR)
        note = (
            "asha: planned is how many trials go on from a rung on average, and that they wait for each other "
            "there; they do not, and are done sooner"
        )
        return asha(study.trials, first, last, rule.options["eta"]), [note]
    notes = []
    if study.judged:
        notes.append(
            f"{study.stopping}: may stop trials early, and nobody knows which; planned is that all of them go on "
            f"to step {last}"
        )
    return JobSpec.of([(study.trials, last)]), notes


def _in_brackets(kinds: Sequence[Sequence[halving.BracketStage]], trials: int | None) -> JobSpec:
    """One bracket after the other, by turns, until all trials have been in one; or, one of each."""
    sizes = [kind[0].trials for kind in kinds]
    left = sum(sizes) if trials is None else trials
    jobs = []
    for kind, size in cycle(zip(kinds, sizes, strict=True)):
        jobs.append(_bracket(kind, min(size, left)))
        left -= size
        if left <= 0:
            break
    return sum(jobs[1:], jobs[0])


def _bracket(stages: Sequence[halving.BracketStage], trials: int) -> JobSpec:
    """Of one that could not be filled, the same part goes on."""

    def next_ones(alive: int, pair: tuple[halving.BracketStage, halving.BracketStage]) -> int:
        before, after = pair
        return max(1, after.trials * alive // before.trials)

    alive = accumulate(pairwise(stages), next_ones, initial=trials)
    found = [Stage(count, stage.end - stage.start) for count, stage in zip(alive, stages, strict=True)]
    return JobSpec(found, [stage.start for stage in stages])


# --- what can be rented -----------------------------------------------------------------------------------


def clouds_of(given: Mapping[str, Any] | Sequence[Any], folder: Path) -> list[CloudProfile]:
    """Every kind of machine; paths are relative to the folder."""
    tables = [given] if isinstance(given, Mapping) else given
    found = []
    for number, table in enumerate(tables, 1):
        where = "cloud" if len(tables) == 1 else f"cloud {number}"
        if not isinstance(table, Mapping):
            raise SettingError(f"{where}: {table!r} must be a table: write [[cloud]] above each kind of machine")
        try:
            found.append(_cloud(table, folder))
        except SettingError as error:
            raise SettingError(f"{where}: {str(error).removeprefix('cloud: ')}") from None
    return found


def _kinds(file: StudyFile, folder: Path) -> list[CloudProfile]:
    """On a cluster they are kinds of nodes, whose slots are the workers that find room there."""
    where = engine_of({"name": file.spec.engine, **file.spec.engine_options})
    if not isinstance(where, Ray):
        return clouds_of(file.cloud, folder)
    from thriftune.settings.node_types import kinds_of

    return kinds_of(where.machines, where.worker, folder)


def _cloud(table: Mapping[str, Any], folder: Path) -> CloudProfile:
    for key, value in table.items():
        check_key(key, value, _CLOUD)
    survival = _survival(table, folder)
    if "machine" in table:
        return _in_catalog(table, survival)
    if "region" in table:
        raise SettingError(
            f"region: {table['region']!r} is for a machine of the catalog; write machine = 'NAME', too"
        )
    for key in ("slots", "price_per_hour"):
        if key not in table:
            raise SettingError(f"{key}: is missing; give it, or machine = 'NAME', one of the catalog that has it")
    return CloudProfile(**_fields(table), survival=survival)


def _in_catalog(table: Mapping[str, Any], survival: Survival | None) -> CloudProfile:
    offer = Catalog.shipped().find(table["machine"], table.get("region"))
    fields = _fields(table)
    by = {"billing": fields.pop("billing")} if "billing" in fields else {}
    found = CloudProfile.of(offer, PER_SECOND, spot=survival is not None, survival=survival, **fields)
    return replace(found, **by)


def _fields(table: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a CloudProfile that it has."""
    found = {key: table[key] for key in _AS_GIVEN if key in table}
    found |= {key: _latency(key, table[key]) for key in ("queue", "init") if key in table}
    if "minimum" in table:
        found["minimum"] = seconds("minimum", table["minimum"])
    return found


def _latency(key: str, given: Any) -> Latency:
    if isinstance(given, (str, int, float)):
        given = seconds(key, given)
    try:
        if isinstance(given, Mapping):
            for name, value in given.items():
                check_key(name, value, _MOMENTS)
            if "mean" not in given:
                raise SettingError(f"{given!r} must have a mean, such as {{mean = 30, std = 10}}")
            return Latency(**given)
        if isinstance(given, list) and not all(isinstance(each, (int, float)) for each in given):
            raise SettingError(f"{given!r} must be recorded seconds, each a number")
        return Latency.of(given)
    except SettingError as error:
        raise SettingError(f"{key}: {str(error).removeprefix('latency: ')}") from None


def _survival(table: Mapping[str, Any], folder: Path) -> Survival | None:
    """How long a spot machine lives; None of one that is not."""
    ways = [key for key in ("lifetimes", "mean_lifetime") if key in table]
    told = [key for key in (*ways, "type") if key in table]
    if not table.get("spot", False):
        if told:
            raise SettingError(f"{told[0]}: is of machines that may be taken away; write spot = true, too")
        return None
    if len(ways) != 1:
        raise SettingError(
            "spot: such a machine may be taken away; write either lifetimes = 'FILE' or mean_lifetime = '6h'"
        )
    if "lifetimes" in table:
        return _recorded(table, folder / Path(table["lifetimes"]).expanduser())
    if "type" in table:
        raise SettingError(f"type: {table['type']!r} is of a record; write lifetimes = 'FILE' for mean_lifetime")
    mean = seconds("mean_lifetime", table["mean_lifetime"])
    if mean is None or not 0.0 < mean < math.inf:
        raise SettingError(f"mean_lifetime: {table['mean_lifetime']!r} must be above 0")
    return Exponential(mean / 3600.0)


def _recorded(table: Mapping[str, Any], path: Path) -> Survival:
    lives = Lifetimes.read(path)
    kind = table.get("type", table.get("machine", table.get("name", "")))
    if kind not in lives.types:
        raise SettingError(
            f"lifetimes: {path} has none of {kind!r}; write type = 'NAME', which may be {', '.join(lives.types)}"
        )
    return lives.fit(kind)
