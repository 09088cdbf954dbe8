"""Read study files for plans: the job, the profile of its steps, and the machines that can be rented."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from thriftune.common.clock import WallClock
from thriftune.errors import SettingError
from thriftune.market.billing import PER_SECOND
from thriftune.market.catalog import Catalog
from thriftune.planning.cloud_profile import CloudProfile, with_default_waits
from thriftune.planning.job import JobSpec
from thriftune.planning.profile import Profile, profile_path
from thriftune.planning.study_job import job_of_study
from thriftune.settings.cloud_tables import read_cloud_tables
from thriftune.settings.deadlines import as_duration, check_ahead
from thriftune.settings.engine_options import Ray, engine_of
from thriftune.settings.ray_node_types import read_node_types
from thriftune.settings.study_file import StudyFile, read_study_file, with_file_name
from thriftune.state.spec import Spec


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A study file as plans see it.

    - `study`: its spec, with the deadline as a duration from now.
    - `clouds`: the machine types that can be rented.
    - `notes`: sentences that say what the plan assumes.
    """

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
    machine_option: str = "--machine NAME",
) -> PlanFile:
    """Read a study file for a plan. Raise SettingError as read_study_file() does.

    - `overrides`: values by key, which replace the file's.
    - `profile`: a profile to use instead of the file's. Without either, the profile that `thriftune profile` wrote
      beside the file is used.
    - `machine`: the only machine type to plan for, by its name in the file or else in the catalog.
    - `clouds_needed`: whether a file without machines is an error.
    - `machine_option`: the command-line option with which users can name machines; the error about a file without
      machines mentions it.
    """
    file = read_study_file(path, overrides)
    file = replace(file, spec=_with_deadline_from_now(file.spec, path, overrides))
    given_profile = None if profile is None else Profile.read(profile)
    try:
        job, notes = job_of_study(file.spec)
        clouds = _machine_types(file, path.absolute().parent)
        if machine is not None:
            named = [cloud for cloud in clouds if cloud.name == machine]
            if not named:
                notes.append(
                    f"{machine}: is not in the study file; the plan assumes that such a machine is ready at once, "
                    "and as fast as the profile's machine"
                )
            clouds = named or [CloudProfile.of(Catalog.shipped().find(machine), PER_SECOND)]
        if not clouds and clouds_needed:
            raise SettingError(
                f"cloud: is missing; write [cloud] and in it machine = 'p3.8xlarge', or give {machine_option}"
            )
        known = given_profile or _read_profile(file.profile, path)
        return PlanFile(file.spec, job, known, with_default_waits(clouds, known.queue, known.init), notes)
    except SettingError as error:
        raise with_file_name(error, path, overrides) from None


def _with_deadline_from_now(spec: Spec, path: Path, overrides: Mapping[str, Any] | None) -> Spec:
    """Return the spec with a deadline by the clock turned into a duration from now."""
    now = WallClock().now()
    try:
        check_ahead(spec, now)
        return as_duration(spec, now)
    except SettingError as error:
        raise with_file_name(error, path, overrides) from None


def _read_profile(setting: str | Mapping[str, Any] | None, path: Path) -> Profile:
    """Read the profile that a study file names or contains, or the one beside the file."""
    if isinstance(setting, str):
        return Profile.read(path.parent / Path(setting).expanduser())
    if setting is not None:
        return Profile.from_json(setting)
    beside = profile_path(path)
    if not beside.exists():
        raise SettingError(
            f"profile: is missing, and {beside.name} does not exist; measure one with: thriftune profile {path}"
        )
    return Profile.read(beside)


def _machine_types(file: StudyFile, folder: Path) -> list[CloudProfile]:
    """Return the machine types of a study file; with engine "ray", its node types."""
    engine = engine_of({"name": file.spec.engine, **file.spec.engine_options})
    if isinstance(engine, Ray):
        return read_node_types(engine.machines, engine.worker, folder)
    return read_cloud_tables(file.cloud, folder)
