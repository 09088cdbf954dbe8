"""Rules of keys, and how keys become paths."""

from __future__ import annotations

import re

from thriftune.object_store.protocol import ObjectStoreError

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_key(key: str) -> None:
    """Raise ObjectStoreError for a key that some object store cannot have."""
    if any(part in ("", ".", "..") for part in key.split("/")):
        raise ObjectStoreError(f"{key!r} is no key of an object: it contains an empty part, . or ..")
    if _CONTROL.search(key):
        raise ObjectStoreError(f"{key!r} is no key of an object: it contains a control character")


def listing_of(prefix: str) -> tuple[str, str]:
    """Return (folder, offset) with which all keys that begin with a prefix are listed, and perhaps more.

    Servers list only whole folders. `offset`: the listing begins with the first key greater than it.
    """
    folder, _, rest = prefix.rpartition("/")
    return folder, prefix[:-1] if rest else prefix


def encode_local(key: str) -> str:
    """Return the path of a key below a folder. obstore cannot write files whose names end in # and a number."""
    return key.replace("%", "%25").replace("#", "%23")


def decode_local(path: str) -> str:
    """Return the key that encode_local() has encoded."""
    return path.replace("%23", "#").replace("%25", "%")
