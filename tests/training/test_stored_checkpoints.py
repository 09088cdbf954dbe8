"""Tests of reading checkpoints from an object store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.memory_objects import MemoryObjects, store_checkpoint
from thriftune.errors import CheckpointError
from thriftune.object_store.protocol import ObjectMissing, StoreUnavailable
from thriftune.training import content_hash as content_hash_module
from thriftune.training.checkpoint_objects import Manifest, StoredFile, decode, encode, manifest_key, part_key
from thriftune.training.content_hash import content_hash, file_hash
from thriftune.training.stored_checkpoints import StoredCheckpoints

NAME = "2-3fa9c1d2/000001"
FILES = {"model": b"0123456789", "deep/er/empty": b"", "one": b"abcd"}


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


def stored(objects: MemoryObjects) -> StoredCheckpoints:
    return StoredCheckpoints(objects, 7, part_bytes=4)


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_names_are_those_of_the_trials_manifests(objects: MemoryObjects) -> None:
    for name in (NAME, "1-00000000/000002", "10-3fa9c1d2/000001"):
        store_checkpoint(objects, name, FILES)
    store_checkpoint(objects, "1-00000000/000009", FILES, trial=70)
    assert stored(objects).names() == ["1-00000000/000002", "10-3fa9c1d2/000001", NAME]


def test_a_fetched_checkpoint_has_the_files_that_were_stored(objects: MemoryObjects, tmp_path: Path) -> None:
    store_checkpoint(objects, NAME, FILES)
    checkpoints = stored(objects)
    checkpoints.fetch(checkpoints.manifest(NAME), tmp_path / "new" / "state")
    assert files_in(tmp_path / "new") == {f"state/{name}": data for name, data in FILES.items()}


def test_an_empty_folder_is_fetched(objects: MemoryObjects, tmp_path: Path) -> None:
    manifest = store_checkpoint(objects, NAME, {"a/b/": b"", "c": b"c"})
    stored(objects).fetch(manifest, tmp_path / "state")
    assert (tmp_path / "state/a/b").is_dir()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (None, "model: part .* is missing"),
        (b"012", "model: part .* has 3 bytes instead of 4"),
        (b"0124", "model: the hash of part .* differs"),
    ],
)
def test_a_damaged_part_leaves_no_folder(
    objects: MemoryObjects, tmp_path: Path, damage: bytes | None, message: str
) -> None:
    manifest = store_checkpoint(objects, NAME, FILES)
    key = part_key(7, manifest.files["model"].parts[0])
    if damage is None:
        objects.delete([key])
    else:
        objects.data[key] = damage
    with pytest.raises(CheckpointError, match=message):
        stored(objects).fetch(manifest, tmp_path / "state")
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_with_too_few_parts_is_refused(objects: MemoryObjects, tmp_path: Path) -> None:
    manifest = store_checkpoint(objects, NAME, FILES)
    short = replace(manifest, files={"model": StoredFile(10, manifest.files["model"].parts[:2])})
    with pytest.raises(CheckpointError, match="model has 2 parts instead of 3"):
        stored(objects).fetch(short, tmp_path / "state")


def test_an_unreachable_store_is_no_damage(objects: MemoryObjects, tmp_path: Path) -> None:
    manifest = store_checkpoint(objects, NAME, FILES)

    def fail(method: str, key: str) -> None:
        raise StoreUnavailable("down")

    objects.before = fail
    with pytest.raises(StoreUnavailable):
        stored(objects).fetch(manifest, tmp_path / "state")


def test_a_missing_manifest_is_missing(objects: MemoryObjects) -> None:
    with pytest.raises(ObjectMissing):
        stored(objects).manifest(NAME)


@pytest.mark.parametrize("cut", [0, 1, 40])
def test_a_cut_manifest_is_damaged(objects: MemoryObjects, cut: int) -> None:
    store_checkpoint(objects, NAME, FILES)
    key = manifest_key(7, NAME)
    objects.data[key] = objects.data[key][: -cut or len(objects.data[key])][:-1]
    with pytest.raises(CheckpointError, match="its manifest is damaged"):
        stored(objects).manifest(NAME)


def test_a_manifest_of_another_checkpoint_is_refused(objects: MemoryObjects) -> None:
    manifest = store_checkpoint(objects, NAME, FILES)
    objects.data[manifest_key(7, "3-3fa9c1d2/000001")] = encode(manifest)
    with pytest.raises(CheckpointError, match="belongs to 2-3fa9c1d2/000001 of trial 7"):
        stored(objects).manifest("3-3fa9c1d2/000001")


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", ""])
def test_a_manifest_cannot_name_files_elsewhere(objects: MemoryObjects, name: str) -> None:
    objects.data[manifest_key(7, NAME)] = encode(Manifest(NAME, 7, 2, 1, False, 0.0, {name: StoredFile(0, ())}))
    with pytest.raises(CheckpointError, match="it names the file"):
        stored(objects).manifest(NAME)


@given(
    st.builds(
        Manifest,
        name=st.text(),
        trial=st.integers(0),
        attempt=st.integers(1),
        step=st.integers(0),
        partial=st.booleans(),
        saved_at=st.floats(allow_nan=False),
        files=st.dictionaries(
            st.text(st.characters()), st.builds(StoredFile, st.integers(0), st.lists(st.text()).map(tuple))
        ),
        reports=st.lists(st.text()).map(tuple),
        command_state=st.booleans(),
        first_step=st.sampled_from([None, 0, 1]),
    )
)
def test_a_manifest_survives_encoding(manifest: Manifest) -> None:
    assert replace(decode(encode(manifest)), reports=manifest.reports) == manifest


def test_hashes_have_128_bits() -> None:
    assert content_hash(b"") == "af1349b9f5f9a1a6a0404dea36dcc949"


@given(st.binary(max_size=3000), st.integers(0, 3000), st.integers(0, 3000), st.integers(1, 700))
def test_a_part_of_a_file_has_the_hash_of_its_data(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, offset: int, size: int, block: int
) -> None:
    path = tmp_path_factory.mktemp("hash") / "file"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content_hash_module, "_BLOCK_BYTES", block)
        if offset + size <= len(data):
            assert file_hash(path, offset, size) == content_hash(data[offset : offset + size])
        elif size:
            with pytest.raises(CheckpointError, match="has become shorter"):
                file_hash(path, offset, size)
