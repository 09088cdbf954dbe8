"""Parse the URLs of object stores, such as s3://bucket/prefix?region=eu-west-1.

    s3://BUCKET/PREFIX       Amazon S3 and servers with its protocol; options: region, endpoint, profile
    gs://BUCKET/PREFIX       Google Cloud Storage; options: endpoint
    az://CONTAINER/PREFIX    Azure Blob Storage; options: account, endpoint
    file:///PATH             a folder, the same as its plain path

A URL never contains credentials. They come from the usual places of each provider.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from thriftune.errors import SettingError

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "s3": ("region", "endpoint", "profile"),
    "gs": ("endpoint",),
    "az": ("account", "endpoint"),
    "memory": (),  # in this process alone, for tests
}
"""The options of each scheme."""

_FOLDER_SCHEME = "file"
_PREFIX = re.compile(r"[^\x00-\x1f\\]*")


@dataclass(frozen=True, slots=True)
class ObjectUrl:
    """The URL of a place in an object store. All keys below it begin with its prefix.

    - `bucket`: the bucket, or the container of Azure.
    - `prefix`: without a slash at its ends; may be empty.
    """

    scheme: str
    bucket: str
    prefix: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        path = f"/{quote(self.prefix)}" if self.prefix else ""
        options = f"?{urlencode(self.options, safe=':/')}" if self.options else ""
        return f"{self.scheme}://{self.bucket}{path}{options}"

    def child(self, name: str) -> ObjectUrl:
        """Return the URL of a place below this one."""
        return replace(self, prefix=f"{self.prefix}/{name}" if self.prefix else name)


def is_object_url(text: str) -> bool:
    """Return whether a setting names an object store, and not a folder."""
    scheme, separator, _ = text.partition("://")
    return bool(separator) and scheme in OPTIONS


def folder_of(text: str) -> Path:
    """Return the absolute folder that a plain path or a file:// URL names."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return Path(text).expanduser().absolute()
    if scheme == _FOLDER_SCHEME and rest.startswith("/"):
        return Path(unquote(rest))
    raise SettingError(f"{text!r} is not a folder; write its path, or file:///path")


def parse_object_url(text: str, setting: str = "storage") -> ObjectUrl:
    """Return the parsed URL. Raise SettingError for one that no object store can have.

    `setting`: the name of the setting, for the error.
    """
    parts = urlsplit(text)
    if parts.scheme not in OPTIONS:
        known = ", ".join(f"{scheme}://" for scheme in (*OPTIONS, _FOLDER_SCHEME) if scheme != "memory")
        raise SettingError(f"{setting}: {parts.scheme}:// is not supported; use {known} or the path of a folder")
    if parts.username is not None or parts.password is not None:
        raise SettingError(
            f"{setting}: the {parts.scheme}:// URL contains a user or password; leave them out and set the "
            "provider's environment variables"
        )
    if not parts.netloc:
        raise SettingError(f"{setting}: {text!r} names no bucket; write {parts.scheme}://BUCKET/PREFIX")
    prefix = unquote(parts.path).strip("/")
    wrong_part = bool(prefix) and any(part in ("", ".", "..") for part in prefix.split("/"))
    if parts.fragment or wrong_part or not _PREFIX.fullmatch(prefix):
        raise SettingError(f"{setting}: {text!r} has a prefix that object stores do not have")
    return ObjectUrl(parts.scheme, parts.netloc, prefix, _options(parts.scheme, parts.query, setting))


def _options(scheme: str, query: str, setting: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in options.items():
        if name not in OPTIONS[scheme]:
            similar = get_close_matches(name, OPTIONS[scheme], n=1)
            listed = ", ".join(OPTIONS[scheme]) or "none"
            hint = f"did you mean {similar[0]}?" if similar else f"it may have {listed}"
            raise SettingError(f"{setting}: {scheme}:// has no option {name!r}; {hint}")
        if not value:
            raise SettingError(f"{setting}: the option {name!r} of {scheme}:// is empty")
    return options
