"""Tests that machines fetch the code of a study once, whole, and from nobody else."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import thriftune
from thriftune.common.wheel_files import write_wheel_file
from thriftune.engines import node_cache
from thriftune.engines.code_archive import EXECUTABLE, FILE, LINK, Entry, content_hash, pack
from thriftune.engines.project_code import archive_key, unpack
from thriftune.errors import SettingError
from thriftune.object_store.opening import open_objects

ENTRIES = {
    "train.py": Entry(FILE, b"print(1)"),
    "tools/run": Entry(EXECUTABLE, b"#!/bin/sh\necho run\n"),
    "tools/train": Entry(LINK, b"../train.py"),
    "data": Entry(LINK, b"tools"),
}
EMPTY = {
    "folder": "",
    "paths": [],
    "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    "thriftune": thriftune.__version__,
    "versions": {},
    "wheels": [],
}
MANY = {f"folder{number % 7}/{number}.py": Entry(FILE, b"%d" % number) for number in range(2000)}


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a folder of objects; the cache is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(node_cache, "_used_locks", {})
    (tmp_path / "objects").mkdir()
    return f"file://{tmp_path}/objects"


def upload(url: str, entries: dict[str, Entry] = ENTRIES, **more: Any) -> dict[str, Any]:
    """Upload an archive, and return its description."""
    name = content_hash(entries)
    open_objects(url).put(archive_key(name), pack(entries))
    return {**EMPTY, "hash": name, **more}


def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache/thriftune/code"


def folders(tmp_path: Path) -> list[Path]:
    """Return what is in the cache besides locks."""
    return [path for path in sorted(cache(tmp_path).iterdir()) if path.suffix not in (".lock", ".used")]


def test_unpacks_files_links_and_modes(url: str, tmp_path: Path) -> None:
    root, working_folder, paths, packages, installed, remarks = unpack(
        url, upload(url, folder="runs/here", paths=["tools", ""])
    )
    assert root.parent == cache(tmp_path)
    assert (root / "train.py").read_text() == "print(1)"
    assert subprocess.run([root / "tools/run"], capture_output=True, check=True).stdout == b"run\n"
    assert not os.access(root / "train.py", os.X_OK) or os.geteuid() == 0
    assert (root / "data/train").resolve() == root / "train.py"
    assert working_folder == root / "runs/here"
    assert working_folder.is_dir()
    assert paths == [str(root / "tools"), str(root)]
    assert root.stat().st_mode & 0o777 == 0o700
    assert (packages, installed, remarks) == ([], "", [])


def test_fetches_once(url: str, tmp_path: Path) -> None:
    archive = upload(url)
    first = unpack(url, archive)
    (tmp_path / "objects").rename(tmp_path / "gone")
    assert unpack(url, archive) == first
    node_cache._used_locks.clear()  # as another process
    assert unpack(url, archive) == first


def test_fetches_again_what_was_removed_by_hand(url: str, tmp_path: Path) -> None:
    archive = upload(url)
    root = unpack(url, archive).root
    root.rename(tmp_path / "gone")
    assert (unpack(url, archive).root / "train.py").exists()


def test_a_process_that_uses_the_code_keeps_nobody_waiting(url: str, tmp_path: Path) -> None:
    archive = upload(url)
    unpack(url, archive).root.rename(tmp_path / "removed by hand")
    assert start(url, archive).communicate(timeout=60)[0].strip() == "3"


def test_says_that_the_archive_is_missing(url: str) -> None:
    archive = upload(url)
    open_objects(url).delete([archive_key(archive["hash"])])
    with pytest.raises(
        SettingError, match=rf"code/{archive['hash']}\.zip below .*does not exist; .*start the study"
    ):
        unpack(url, archive)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is not a complete zip file"),
        (pack(ENTRIES)[:-5], "is not a complete zip file"),
        (pack({**ENTRIES, "train.py": Entry(FILE, b"print(2)")}), "is not what was uploaded"),
        (pack({"train.py": ENTRIES["train.py"]}), "is not what was uploaded"),
    ],
)
def test_refuses_a_damaged_archive(url: str, tmp_path: Path, data: bytes, why: str) -> None:
    archive = upload(url)
    open_objects(url).put(archive_key(archive["hash"]), data)
    with pytest.raises(SettingError, match=f"{why}.*; delete this object"):
        unpack(url, archive)
    assert folders(tmp_path) == []
    upload(url)
    assert unpack(url, archive).root.is_dir()


def test_refuses_another_python_or_thriftune(url: str) -> None:
    with pytest.raises(
        SettingError, match=r"has Python 3\.\d+, and the study was started with Python 2\.7; .*install"
    ):
        unpack(url, upload(url, python="2.7"))
    with pytest.raises(
        SettingError, match=r"has thriftune .*, and the study was started with 9\.9; install the same"
    ):
        unpack(url, upload(url, thriftune="9.9"))


def test_tells_which_packages_differ(url: str) -> None:
    here = {"numpy": importlib.metadata.version("numpy")}
    assert unpack(url, upload(url, versions=here)).remarks == []
    assert unpack(url, upload(url, versions={**here, "no-such-package": "1", "pytest": "0"})).remarks == [
        "a machine has other packages than the one that started the study: no-such-package is missing there and "
        f"1 here, pytest is {pytest.__version__} there and 0 here"
    ]
    many = {f"missing{number}": "1" for number in range(9)}
    (remark,) = unpack(url, upload(url, versions=many)).remarks
    assert remark.endswith("missing4 is missing there and 1 here, and 4 others differ")


def upload_wheel(url: str, tmp_path: Path) -> str:
    """Upload a wheel with the module `sent`; return its key."""
    path = tmp_path / "sent-1-py3-none-any.whl"
    write_wheel_file(
        path, "sent-1.dist-info", [("sent.py", b"value = 7"), ("sent-1.dist-info/METADATA", b"Name: sent")]
    )
    key = f"wheels/{hashlib.sha256(path.read_bytes()).hexdigest()}/{path.name}"
    open_objects(url).put(key, path.read_bytes())
    return key


def test_local_packages_can_be_imported(url: str, tmp_path: Path) -> None:
    folders = unpack(url, upload(url, wheels=[upload_wheel(url, tmp_path)], paths=[""]))
    (package,) = folders.packages
    assert folders.paths == [str(folders.root), package]
    code = "import sys; sys.path[:0] = sys.argv[1:]; import sent; print(sent.value)"
    process = subprocess.run([sys.executable, "-c", code, *folders.paths], capture_output=True, check=True)
    assert process.stdout == b"7\n"


def test_refuses_a_missing_or_damaged_package(url: str, tmp_path: Path) -> None:
    key = upload_wheel(url, tmp_path)
    open_objects(url).put(key, b"other")
    with pytest.raises(SettingError, match=rf"the package {key} below .* is not what was uploaded; delete this"):
        unpack(url, upload(url, wheels=[key]))
    open_objects(url).delete([key])
    with pytest.raises(SettingError, match=rf"the package {key} below .* does not exist; delete this object"):
        unpack(url, upload(url, wheels=[key]))
    with pytest.raises(SettingError, match="is not the key of a wheel"):
        unpack(url, upload(url, wheels=["wheels/../x.whl"]))
    key = f"wheels/{hashlib.sha256(b'other').hexdigest()}/a.whl"
    open_objects(url).put(key, b"other")
    with pytest.raises(SettingError, match=r"is not a complete zip file .*; install it on the machines"):
        unpack(url, upload(url, wheels=[key]))


@pytest.mark.parametrize("name", ["", "../../x", "a" * 63, "A" * 64, "/etc"])
def test_refuses_other_names(url: str, name: str) -> None:
    with pytest.raises(SettingError, match="is not the hash of an archive"):
        unpack(url, {**EMPTY, "hash": name})


@pytest.mark.parametrize("path", ["/etc", "..", "a/../.."])
def test_refuses_folders_outside_of_the_project(url: str, path: str) -> None:
    with pytest.raises(SettingError, match="is not a folder of the project"):
        unpack(url, upload(url, folder=path))
    with pytest.raises(SettingError, match="is not a folder of the project"):
        unpack(url, upload(url, paths=[path]))


def test_refuses_a_cache_that_others_can_write(url: str, tmp_path: Path) -> None:
    archive = upload(url)
    unpack(url, archive)
    cache(tmp_path).chmod(0o777)
    with pytest.raises(SettingError, match=r"code is not a folder that only you can write.*THRIFTUNE_CACHE"):
        unpack(url, archive)


def test_refuses_a_cache_that_is_a_link(url: str, tmp_path: Path) -> None:
    (tmp_path / "cache/thriftune").mkdir(parents=True, mode=0o700)
    (tmp_path / "cache/thriftune/code").symlink_to(tmp_path / "objects")
    with pytest.raises(SettingError, match="is not a folder that only you can write"):
        unpack(url, upload(url))


def test_uses_the_temporary_folder_without_a_home(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    root = unpack(url, upload(url)).root
    assert root.parent == tmp_path / f"temporary/thriftune-cache-{os.geteuid()}/code"


_UNPACK = """
import json, sys
from thriftune.engines import project_code
archive = json.loads(sys.argv[2])
root = project_code.unpack(sys.argv[1], archive).root
print(len([path for path in root.rglob("*") if path.is_file()]), flush=True)
"""

_UNPACK_AND_STOP = """
import os, pathlib, signal
written, write_bytes = [], pathlib.Path.write_bytes
def write(path, data):
    if ".unfinished-" in str(path) and len(written) == 1000:
        print("writing", flush=True)
        signal.pause()
    written.append(path)
    return write_bytes(path, data)
pathlib.Path.write_bytes = write
"""


def start(url: str, archive: dict[str, Any], code: str = _UNPACK) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, url, json.dumps(archive)], stdout=subprocess.PIPE, text=True
    )


def test_several_processes_unpack_at_the_same_time(url: str, tmp_path: Path) -> None:
    archive = upload(url, MANY)
    processes = [start(url, archive) for _ in range(6)]
    assert [process.communicate(timeout=60)[0].strip() for process in processes] == ["2000"] * 6
    assert [path.name for path in folders(tmp_path)] == [archive["hash"]]


def test_a_kill_in_the_middle_leaves_nothing_that_is_used(url: str, tmp_path: Path) -> None:
    archive = upload(url, MANY)
    killed = start(url, archive, _UNPACK_AND_STOP + _UNPACK)
    waiting = None
    try:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "writing\n"
        waiting = start(url, archive)
        assert not (cache(tmp_path) / archive["hash"]).exists()
        killed.send_signal(signal.SIGKILL)
        assert waiting.communicate(timeout=60)[0].strip() == "2000"
    finally:
        for process in filter(None, (killed, waiting)):
            process.kill()
            process.communicate()
    assert [path.name for path in folders(tmp_path)] == [archive["hash"]]


def test_removes_code_that_nobody_has_used_for_long(url: str, tmp_path: Path) -> None:
    others = [upload(url, {f"{number}.py": Entry(FILE, b"")}) for number in range(3)]
    for archive in others:
        unpack(url, archive)
    unused, in_use, _ = (cache(tmp_path) / archive["hash"] for archive in others)
    locks = node_cache._used_locks
    os.close(locks.pop(unused.with_suffix(".used")))  # as if its process had ended
    for folder in (unused, in_use):
        long_ago = time.time() - node_cache._UNUSED_SECONDS - 10
        os.utime(folder.with_suffix(".used"), (long_ago, long_ago))
    unpack(url, upload(url))
    assert not unused.exists()
    assert len(folders(tmp_path)) == 3
    assert (unpack(url, others[0]).root / "0.py").exists()


def test_holds_the_lock_of_code_in_use(url: str, tmp_path: Path) -> None:
    root = unpack(url, upload(url)).root
    with root.with_suffix(".used").open("r+") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
