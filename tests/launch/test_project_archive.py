"""Tests that a project is packed as its trials need it, uploaded once, and refused if it cannot be sent."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from tests.engines.test_code_archive import ENTRIES
from tests.support.projects import git, write
from thriftune.engines import code_archive, project_code
from thriftune.engines.code_archive import EXECUTABLE, FILE, LINK, Entry
from thriftune.errors import SettingError
from thriftune.launch import project_archive
from thriftune.launch.project_archive import (
    ProjectArchive,
    pack_project,
    read_entries,
    script_folder,
    upload_project,
)
from thriftune.launch.project_files import Project, find_project
from thriftune.object_store.opening import open_objects
from thriftune.state.spec import Target

STORE = Path("/nowhere/studies.db")


def target_in(folder: Path, **more: Any) -> Target:
    """Return the target of a script in this folder, which was started there."""
    return replace(Target("pickled", folder=str(folder), paths=(str(folder),), project=str(folder)), **more)


def packed(target: Target, *patterns: str, store: Path = STORE) -> ProjectArchive:
    return pack_project(target, patterns or None, store, lambda text: pytest.fail(text))


def entries_of(archive: ProjectArchive) -> dict[str, Entry]:
    return code_archive.unpack(archive.data)


def test_packs_contents_modes_and_links(tmp_path: Path) -> None:
    write(tmp_path, "package/train.py", "run")
    (tmp_path / "run").chmod(0o751)
    (tmp_path / "package/link").symlink_to("../run")
    (tmp_path / "absolute").symlink_to(tmp_path / "package")
    (tmp_path / "chain").symlink_to("absolute/link")
    assert entries_of(packed(target_in(tmp_path))) == {
        "package/train.py": Entry(FILE, b"package/train.py"),
        "run": Entry(EXECUTABLE, b"run"),
        "package/link": Entry(LINK, b"../run"),
        "absolute": Entry(LINK, b"package"),
        "chain": Entry(LINK, b"run"),
    }


def test_dates_and_folders_do_not_change_the_archive(tmp_path: Path) -> None:
    first, second = (packed(target_in(write(tmp_path / name, "b", "a/c"))) for name in ("x", "y"))
    os.utime(tmp_path / "y/b", (0, 0))
    assert first.data == second.data == packed(target_in(tmp_path / "y")).data
    assert first.hash == second.hash == code_archive.content_hash(entries_of(first))
    assert (first.folder, first.paths) == ("", [""])
    (tmp_path / "y/b").chmod(0o755)
    assert packed(target_in(tmp_path / "y")).hash != first.hash


def test_packs_what_is_in_the_working_tree(tmp_path: Path) -> None:
    write(tmp_path, "train.py")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    (tmp_path / "train.py").write_text("changed")
    assert entries_of(packed(target_in(tmp_path)))["train.py"].content == b"changed"


@given(entries=ENTRIES)
def test_a_machine_gets_the_same_files(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[str, Entry]
) -> None:
    written = tmp_path_factory.mktemp("written") / "project"
    entries = {name: each for name, each in entries.items() if "\n" not in name and each.mode != LINK}
    project_code._write(written, entries)
    assert read_entries(Project(written, sorted(entries))) == entries


def test_paths_are_those_of_the_driver_in_their_order(tmp_path: Path) -> None:
    root = write(tmp_path / "project", "scripts/train.py", "src/package/a.py", "data/b.csv")
    (root / "venv").mkdir()
    (tmp_path / "link").symlink_to(root / "src")
    git(root, "init", "--quiet")
    paths = (
        str(root / "scripts"),
        "/usr/lib",
        str(tmp_path / "link"),
        str(root / "venv"),
        str(tmp_path),
        str(root),
    )
    target = Target("pickled", folder=str(root / "data"), paths=paths, project=str(root / "scripts"))
    archive = packed(target)
    assert (archive.paths, archive.folder) == (["scripts", "src", ""], "data")


def test_works_in_the_root_if_the_working_folder_is_elsewhere(tmp_path: Path) -> None:
    root = write(tmp_path / "project", "train.py")
    archive = packed(Target("pickled", folder=str(tmp_path), project=str(root), paths=(str(root),)))
    assert (archive.paths, archive.folder) == ([""], "")


def test_leaves_out_the_store(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "out/a.db", "out/a.db-wal", "out/a.db.files/s/trials/1/x", "out/b.txt")
    archive = packed(target_in(tmp_path), store=tmp_path / "out/a.db")
    assert list(entries_of(archive)) == ["out/b.txt", "train.py"]


def test_refuses_a_large_project_and_names_the_largest_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_archive, "MOST_BYTES", 2_000_000)
    write(tmp_path, "train.py")
    (tmp_path / "data").mkdir()
    for number in range(7):
        (tmp_path / f"data/{number}.npz").write_bytes(bytes(300_000 + number * 10_000))
    with pytest.raises(
        SettingError,
        match=r"files: the project in .* has 2\.31 MB in 8 files, and at most 2 MB can be sent .* the largest "
        r"files are data/6.npz \(0.36 MB\), data/5.npz \(0.35 MB\), .*data/2.npz \(0.32 MB\)\. Add what is not "
        r'code to \.gitignore, or leave it out with files=\["!data/6.npz"\]',
    ):
        packed(target_in(tmp_path))
    assert list(entries_of(packed(target_in(tmp_path), "!data"))) == ["train.py"]


def test_tells_the_size_of_a_large_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_archive, "_SHOWN_BYTES", 100_000)
    write(tmp_path, "train.py")
    (tmp_path / "random").write_bytes(os.urandom(200_000))
    said: list[str] = []
    pack_project(target_in(tmp_path), None, STORE, said.append)
    assert said == [f"the code of the study is 0.2 MB, in 2 files of {tmp_path}"]


@pytest.mark.parametrize("where", ["/etc/hostname", "../other", "/"])
def test_refuses_links_that_leave_the_project(tmp_path: Path, where: str) -> None:
    root = write(tmp_path / "project", "train.py")
    write(tmp_path, "other")
    (root / "link").symlink_to(where)
    with pytest.raises(SettingError, match=rf'symbolic link .*link leads to {where}.*files=\["!link"\]'):
        packed(target_in(root))
    assert list(entries_of(packed(target_in(root), "!link"))) == ["train.py"]


def test_refuses_names_that_are_not_utf_8(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.py")).write_text("")
    with pytest.raises(SettingError, match=r"the name b'\\xff.py' in .* is not UTF-8; rename"):
        packed(target_in(tmp_path))
    git(tmp_path, "init", "--quiet")
    with pytest.raises(SettingError, match=r"the name b'\\xff.py' in .* is not UTF-8; rename"):
        packed(target_in(tmp_path))


def test_refuses_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = find_project(write(tmp_path, "a", "b"))
    (tmp_path / "a").unlink()
    with pytest.raises(SettingError, match=r"a cannot be read \(No such file.*use files="):
        read_entries(project)
    (tmp_path / "a").mkdir()  # as root, any file can be read
    with pytest.raises(SettingError, match=r"a cannot be read \(Is a directory\)"):
        read_entries(project)


def test_a_study_file_names_files_that_are_sent(tmp_path: Path) -> None:
    root = write(
        tmp_path / "project", "study/train.py", "study/run.sh", "study/data.csv", "local.py", ".gitignore"
    )
    (root / ".gitignore").write_text("local.py\ndata.csv\n")
    git(root, "init", "--quiet")
    folder = str(root / "study")

    def check(**about: Any) -> list[str]:
        said: list[str] = []
        assert pack_project(Target(folder=folder, **about), None, STORE, said.append).folder == "study"
        return said

    assert check(kind="function", where="train.py:train") == []
    assert check(kind="function", where="package.module:train") == []
    assert check(kind="command", command=("python", "train.py", "--lr", "{lr}", "a\0b", "x" * 5000)) == []
    assert check(kind="command", command=("./run.sh", "--out", "new.json")) == []
    assert check(kind="command", command=("/usr/bin/env", "python")) == []
    with pytest.raises(
        SettingError, match=r"^function: \.\./local\.py is not sent to other machines: git ignores it"
    ):
        check(kind="function", where="../local.py:train")
    with pytest.raises(SettingError, match=r"^command: \.\./local\.py is not sent"):
        check(kind="command", command=("python", "../local.py"))
    with pytest.raises(
        SettingError, match=rf"^command: {folder}/train\.py is a path of this machine; write it rel"
    ):
        check(kind="command", command=("python", f"{folder}/train.py"))
    (said,) = check(kind="command", command=("python", "train.py", "data.csv"))
    assert said.startswith("command: data.csv is not sent to other machines: git ignores it")


def test_uploads_once(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/objects"
    (tmp_path / "objects").mkdir()
    archive = packed(target_in(write(tmp_path / "project", "train.py")))
    objects = open_objects(url)
    upload_project(objects, archive)
    (stored,) = objects.list_objects()
    assert stored.key == f"code/{archive.hash}.zip"
    upload_project(objects, replace(archive, data=b"other"))  # is not looked at
    assert objects.get(stored.key) == archive.data


_PRINT_FOLDER = "from thriftune.launch.project_archive import script_folder; print(script_folder())"


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [
        (["scripts/train.py"], "scripts"),
        (["-m", "package.sub.train"], "."),
        (["-m", "package"], "."),
        (["-c", _PRINT_FOLDER], "."),
        (["link.py"], "scripts"),
    ],
)
def test_finds_the_folder_of_the_script(tmp_path: Path, arguments: list[str], folder: str) -> None:
    for name in ("scripts/train.py", "package/sub/train.py", "package/__main__.py"):
        write(tmp_path, name)
        (tmp_path / name).write_text(_PRINT_FOLDER)
    (tmp_path / "link.py").symlink_to("scripts/train.py")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    process = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert Path(process.stdout.strip()) == (tmp_path / folder).resolve()


def test_the_folder_of_an_installed_program_is_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", pytest.__file__)
    assert script_folder() == str(tmp_path)
