"""Look at the datasets of a study before it starts: they must exist, and have room on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from thriftune.errors import SettingError
from thriftune.launch.code_digests import digest, file_digest
from thriftune.object_store.dataset_listing import OpenObjects, list_dataset
from thriftune.object_store.protocol import ObjectStore, ObjectStoreError
from thriftune.object_store.urls import ObjectUrl, is_object_url
from thriftune.space.objectives import join_with_and
from thriftune.state.spec import Spec, dataset_part
from thriftune.training.cache_files import room_for, sizes_and_times
from thriftune.training.data_folder import DataFolder

_BRIEF_SECONDS = 2.0
"""How long requests are retried for a study that may have nothing left to do."""


def with_data_versions(spec: Spec, open_objects: OpenObjects | None = None) -> Spec:
    """Return the spec whose fingerprint has the current version of each dataset.

    Raises SettingError if a dataset does not exist, cannot be read, or has no room on the machine of the trials.
    Called before a study starts.
    """
    if not spec.data:
        return spec
    versions: dict[str, str] = {}
    urls: list[str] = []
    needed = 0
    for name, place in spec.data.items():
        part = dataset_part(name, place)
        if not is_object_url(place):
            if (version := _local_version(name, Path(place), spec)) is not None:
                versions[part] = version
            continue
        try:
            listing = list_dataset(place, open_objects)
        except (ObjectStoreError, SettingError) as error:
            raise SettingError(f"data: {name}: {error}") from error
        versions[part] = listing.version
        needed += room_for(each.size for each in listing.files)
        urls.append(name)
    if urls and spec.engine == "local":
        DataFolder().check_room(needed, f"data: the dataset{'s' * (len(urls) > 1)} {join_with_and(urls)}")
    return replace(spec, code={**_without_data(spec.code), **versions})


def with_data_versions_if_found(spec: Spec) -> Spec:
    """Return the spec as with_data_versions() does, but without versions if a dataset cannot be used now.

    Called for a study that exists: with nothing left to run, it needs no data. check_data() raises the error if
    something is left.
    """
    try:
        return with_data_versions(spec, _open_briefly)
    except SettingError:
        return replace(spec, code=_without_data(spec.code))


def _open_briefly(url: ObjectUrl) -> ObjectStore:
    """Open an object store that gives up soon if it cannot be reached."""
    from thriftune.object_store.opening import open_objects  # only now: obstore may not be installed

    return open_objects(url, retry_seconds=_BRIEF_SECONDS)


def check_data(spec: Spec) -> Spec:
    """Return the spec with the versions of its datasets, which are looked up if they are missing.

    Raises SettingError as with_data_versions() does.
    """
    here = spec.engine == "local"  # nodes of a cluster may have other paths than this machine
    parts = [dataset_part(name, place) for name, place in spec.data.items() if here or is_object_url(place)]
    return with_data_versions(spec) if any(part not in spec.code for part in parts) else spec


def _without_data(code: Mapping[str, str]) -> dict[str, str]:
    return {part: version for part, version in code.items() if not part.startswith(dataset_part())}


def _local_version(name: str, path: Path, spec: Spec) -> str | None:
    """Return a digest of a file, or of the names and sizes in a folder; None if another machine must have it."""
    if path.is_dir():
        sizes = sorted((each, size) for each, (size, _) in sizes_and_times(path).items())
        return digest(repr(sizes).encode())
    if path.exists():
        return file_digest(path)
    if spec.engine == "local":
        raise SettingError(f"data: {name}: {path} does not exist")
    return None
