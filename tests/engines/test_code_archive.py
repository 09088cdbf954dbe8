"""Tests of the archives of projects: round trips, determinism, and archives that must be refused."""

from __future__ import annotations

import io
import random
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thriftune.engines import code_archive
from thriftune.engines.code_archive import (
    EXECUTABLE,
    FILE,
    LINK,
    ArchiveError,
    Entry,
    content_hash,
    pack,
    unpack,
    unpack_wheel,
)

_PART = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda part: part not in (".", "..")
)
_PATH = st.lists(_PART, min_size=1, max_size=4).map("/".join)
_ENTRY = st.builds(Entry, st.sampled_from([FILE, EXECUTABLE]), st.binary(max_size=40)) | st.builds(
    lambda target: Entry(LINK, target.encode()), _PATH
)


def _without_conflicts(entries: dict[str, Entry]) -> dict[str, Entry]:
    """Return the entries that are not below another one."""
    return {
        name: entry
        for name, entry in entries.items()
        if not any(name.startswith(f"{other}/") for other in entries)
    }


ENTRIES = st.dictionaries(_PATH, _ENTRY, max_size=8).map(_without_conflicts)


@given(ENTRIES)
def test_returns_what_was_packed(entries: dict[str, Entry]) -> None:
    assert unpack(pack(entries)) == entries


@given(ENTRIES, st.randoms())
def test_the_order_of_files_does_not_matter(entries: dict[str, Entry], randomness: random.Random) -> None:
    names = list(entries)
    randomness.shuffle(names)
    shuffled = {name: entries[name] for name in names}
    assert pack(shuffled) == pack(entries)
    assert content_hash(shuffled) == content_hash(entries)


@given(ENTRIES, ENTRIES)
def test_only_equal_entries_have_equal_hashes(entries: dict[str, Entry], others: dict[str, Entry]) -> None:
    assert (content_hash(entries) == content_hash(others)) == (entries == others)


def test_the_hash_never_changes() -> None:
    entries = {"train.py": Entry(FILE, b"print(1)"), "run": Entry(EXECUTABLE, b""), "link": Entry(LINK, b"run")}
    assert content_hash(entries) == "d9fec592290a391270711e4dda5c391d3de40c2128a973d949ccdf11e0815e30"


def test_other_programs_unpack_it(tmp_path: Path) -> None:
    path = tmp_path / "code.zip"
    path.write_bytes(pack({"a/b.py": Entry(FILE, b"print(1)"), "run": Entry(EXECUTABLE, b"#!/bin/sh")}))
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(path), str(tmp_path / "out")], check=True)
    assert (tmp_path / "out/a/b.py").read_bytes() == b"print(1)"
    if unzip := shutil.which("unzip"):
        subprocess.run([unzip, "-q", str(path), "-d", str(tmp_path / "other")], check=True)
        assert (tmp_path / "other/run").stat().st_mode & 0o777 == 0o755


def test_unpacks_what_other_programs_pack(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b.py").write_text("print(1)")
    subprocess.run([sys.executable, "-m", "zipfile", "-c", "out.zip", "a/b.py"], cwd=tmp_path, check=True)
    entries = unpack((tmp_path / "out.zip").read_bytes())
    assert {name: entry.content for name, entry in entries.items()} == {"b.py": b"print(1)"}


@given(st.binary(max_size=200))
def test_refuses_other_data(data: bytes) -> None:
    with pytest.raises(ArchiveError):
        unpack(data)


@given(st.data())
def test_damaged_archives_are_refused_or_differ(data: st.DataObject) -> None:
    whole = pack({"a.py": Entry(FILE, b"x" * 50), "b/c.py": Entry(EXECUTABLE, b"y")})
    wrong = bytearray(whole)
    position = data.draw(st.integers(0, len(whole) - 1))
    wrong[position] ^= data.draw(st.integers(1, 255))
    try:
        entries = unpack(bytes(wrong))
    except ArchiveError:
        return
    for name, entry in entries.items():  # whatever it is, it can be written without harm
        assert ".." not in name.split("/")
        assert entry.mode in (FILE, EXECUTABLE, LINK)


@given(st.integers(0, 300))
def test_an_incomplete_archive_is_refused(length: int) -> None:
    whole = pack({"a.py": Entry(FILE, b"x" * 50), "b/c.py": Entry(EXECUTABLE, b"y")})
    with pytest.raises(ArchiveError, match="complete zip file"):
        unpack(whole[: min(length, len(whole) - 1)])


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "a/../../b", "a//b", "./a", "", "..", "a/..", "a\0b"])
def test_refuses_paths_outside_of_the_folder(name: str) -> None:
    with pytest.raises(ArchiveError):
        unpack(_zip({name: (FILE, b"")}))
    with pytest.raises(ArchiveError):
        pack({name: Entry(FILE, b"")})


def test_unpacks_a_wheel_as_an_installer_does() -> None:
    files = [
        "a/__init__.py",
        "a-1.dist-info/METADATA",
        "a-1.data/purelib/b.py",
        "a-1.data/scripts/run",
        "c.data/d",
    ]
    entries = unpack_wheel(_zip({name: (0, name.encode()) for name in [*files, "a/"]}))
    assert {name: entry.content.decode() for name, entry in entries.items()} == {
        "a/__init__.py": "a/__init__.py",
        "a-1.dist-info/METADATA": "a-1.dist-info/METADATA",
        "b.py": "a-1.data/purelib/b.py",
        "c.data/d": "c.data/d",
    }
    assert {entry.mode for entry in entries.values()} == {FILE}
    with pytest.raises(ArchiveError, match="not a path below a folder"):
        unpack_wheel(_zip({"a-1.data/purelib/../../b.py": (0, b"")}))


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("a", b"/etc"),
        ("a", b".."),
        ("a", b"../x"),
        ("a/b", b"../../x"),
        ("a", b"b/../.."),
        ("a", b"b/.."),  # b may be a link to the project's own folder
        ("a", b""),
        ("a", b"\xff"),
        ("a", b"b\0c"),
        ("a", b"b" * 5000),
    ],
)
def test_refuses_links_that_leave_the_project(name: str, target: bytes) -> None:
    with pytest.raises(ArchiveError, match="leaves the project"):
        unpack(_zip({name: (LINK, target)}))


@pytest.mark.parametrize(("name", "target"), [("a", b"b"), ("a/b", b"../c"), ("a/b/c", b"../.."), ("a", b"./b")])
def test_accepts_links_within_the_project(name: str, target: bytes) -> None:
    assert unpack(_zip({name: (LINK, target)})) == {name: Entry(LINK, target)}


@pytest.mark.parametrize("mode", [0, 0o040755, 0o020644, 0o104755, 0o100777])
def test_refuses_other_kinds_of_files(mode: int) -> None:
    with pytest.raises(ArchiveError, match="neither a file nor a link"):
        unpack(_zip({"a": (mode, b"")}))


@pytest.mark.parametrize("mode", [FILE, LINK])
def test_refuses_files_below_other_files_and_links(mode: int) -> None:
    with pytest.raises(ArchiveError, match="below something that is not a folder"):
        unpack(_zip({"a": (mode, b"b"), "a/c": (FILE, b"")}))


def test_refuses_two_files_of_one_name() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a", b"1")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a", b"2")
    with pytest.raises(ArchiveError, match="two files of one name"):
        unpack(stream.getvalue())


def test_refuses_what_would_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    data = _zip({"a": (FILE, bytes(1000)), "b": (FILE, b"")})
    monkeypatch.setattr(code_archive, "MOST_BYTES", 999)
    with pytest.raises(ArchiveError, match="2 files with 1000 bytes, which is too much"):
        unpack(data)
    monkeypatch.setattr(code_archive, "MOST_BYTES", 1000)
    assert len(unpack(data)) == 2
    monkeypatch.setattr(code_archive, "MOST_FILES", 1)
    with pytest.raises(ArchiveError, match="too much"):
        unpack(data)


def test_a_file_that_is_larger_than_it_says_is_refused() -> None:
    data = bytearray(_zip({"a": (FILE, bytes(100_000))}))
    for position in range(len(data) - 4):  # in both headers of the file
        if data[position : position + 4] == (100_000).to_bytes(4, "little"):
            data[position : position + 4] = (5).to_bytes(4, "little")
    with pytest.raises(ArchiveError, match="complete zip file"):
        unpack(bytes(data))


def test_refuses_formats_that_use_much_memory() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", b"1")
    with pytest.raises(ArchiveError, match="unknown format"):
        unpack(stream.getvalue())


def _zip(files: dict[str, tuple[int, bytes]]) -> bytes:
    """Return a zip file with these files, whatever their names and modes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (mode, content) in files.items():
            info = zipfile.ZipInfo("x")
            info.filename = name
            info.external_attr = mode << 16
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return stream.getvalue()
