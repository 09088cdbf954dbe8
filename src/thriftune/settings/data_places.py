"""Check the setting `data`: the URLs and paths of the datasets that trials read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from thriftune.errors import SettingError
from thriftune.object_store.urls import folder_of, is_object_url, parse_object_url
from thriftune.settings.study_paths import absolute_path

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_FILE_URL = "file://"


def data_places(given: Mapping[str, Any] | None, folder: Path | None = None) -> dict[str, str]:
    """Return the URL or the absolute path of each dataset, by name. Raise SettingError for what cannot be one.

    Nothing is looked up.

    - `folder`: relative paths are relative to it; by default to the current folder.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise SettingError(f"data: {given!r} must be a dict such as {{'train': 's3://bucket/train'}}")
    places = {}
    for name, place in given.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise SettingError(
                f"data: the name {name!r} must be letters, digits, '_' and '-', and begin with a letter"
            )
        if not isinstance(place, (str, Path)) or not str(place):
            raise SettingError(f"data: {name}: {place!r} must be a URL or a path")
        places[name] = _place(name, str(place), folder or Path.cwd())
    return places


def _place(name: str, text: str, folder: Path) -> str:
    if is_object_url(text):
        parse_object_url(text, f"data: {name}")
        return text
    if text.startswith(_FILE_URL):
        try:
            return str(folder_of(text))
        except SettingError as error:
            raise SettingError(f"data: {name}: {error}") from None
    if "://" in text:
        parse_object_url(text, f"data: {name}")  # raises: the scheme is unknown
    return absolute_path(folder, text)
