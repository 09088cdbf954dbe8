"""Keys: which are refused, how they become paths, and that any other key survives a real server."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from thriftune.object_store.keys import check_key, decode_local, encode_local, listing_of
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import ObjectStore, ObjectStoreError

_characters = st.one_of(
    st.sampled_from("aZ09 %#+&=?;:@,~!*'()[]{}<>|^`\"$\\.-_"),
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")),
)
_parts = st.text(_characters, min_size=1, max_size=60).filter(
    lambda part: part not in (".", "..") and "/" not in part and len(part.encode()) <= 200
)
keys = st.lists(_parts, min_size=1, max_size=4).map("/".join)
"""Any key that all object stores can have."""


@given(keys)
def test_valid_keys_are_accepted(key: str) -> None:
    check_key(key)


@pytest.mark.parametrize("key", ["", "/", "a/", "/a", "a//b", ".", "a/..", "a\tb", "a\x7f"])
def test_wrong_keys_are_refused(key: str) -> None:
    with pytest.raises(ObjectStoreError, match="is no key of an object"):
        check_key(key)


@given(keys)
@example("a%23#")
@example("a#1")
def test_the_path_below_a_folder_is_decoded_to_the_key(key: str) -> None:
    path = encode_local(key)
    assert decode_local(path) == key
    assert "#" not in path


@given(st.sets(keys, max_size=8), keys, st.integers(0, 12))
def test_a_listing_finds_all_keys_of_a_prefix(found: set[str], other: str, length: int) -> None:
    prefix = min(found | {other})[:length]
    folder, offset = listing_of(prefix)
    for key in found:
        if key.startswith(prefix):
            assert not folder or key.startswith(f"{folder}/")
            assert key > offset


def _round_trip(objects: ObjectStore, key: str, tmp_path: Path) -> None:
    data = secrets.token_bytes(8)
    folder = secrets.token_hex(4)  # keys that continue another one's path cannot be files of one folder
    key = f"{folder}/{key}"
    assert objects.create(key, data)
    assert objects.get(key) == data
    assert [each.key for each in objects.list_objects(f"{folder}/")] == [key]
    info = objects.info(key)
    assert info is not None
    assert (info.key, info.size) == (key, len(data))
    first = key.split("/")[1]
    assert objects.list_folders(f"{folder}/") == ([first] if key.count("/") > 1 else [])
    objects.delete([key])
    assert objects.info(key) is None


@settings(max_examples=30, suppress_health_check=[*HealthCheck])
@given(key=keys)
def test_any_key_survives_a_folder(tmp_path: Path, key: str) -> None:
    _round_trip(open_objects(str(tmp_path / "objects")), key, tmp_path)


@settings(max_examples=30, suppress_health_check=[*HealthCheck])
@given(key=keys)
def test_any_key_survives_a_server(moto_url: str, tmp_path: Path, key: str) -> None:
    assume(len(key.encode()) <= 900)  # S3 permits 1,024 bytes
    _round_trip(open_objects(moto_url), key, tmp_path)


@settings(max_examples=30, suppress_health_check=[*HealthCheck])
@given(found=st.sets(keys, min_size=1, max_size=6), data=st.data())
def test_lists_are_like_those_of_a_dictionary(moto_url: str, found: set[str], data: st.DataObject) -> None:
    base, _, options = moto_url.partition("?")
    objects = open_objects(f"{base}/{secrets.token_hex(6)}?{options}")
    for key in found:
        objects.put(key, b"")
    some = data.draw(st.sampled_from(sorted(found)))
    prefix = some[: data.draw(st.integers(0, len(some)))]
    after = data.draw(st.one_of(st.just(""), st.sampled_from(sorted(found)), keys))
    expected = sorted(key for key in found if key.startswith(prefix) and key > after)
    assert [each.key for each in objects.list_objects(prefix, after=after)] == expected
