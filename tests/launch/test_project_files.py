"""Tests that the files of a project are found, in git repositories and outside of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.projects import git, write
from thriftune.common.file_patterns import check_patterns
from thriftune.errors import SettingError
from thriftune.launch import project_files
from thriftune.launch.project_files import find_project


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with one file of each kind."""
    root = write(
        tmp_path / "repo", "tracked.py", "src/package/module.py", ".gitignore", ".github/ci.yml", "deleted.py"
    )
    (root / ".gitignore").write_text("*.ckpt\nscratch/\n")
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "first")
    (root / "deleted.py").unlink()
    write(root, "untracked.py", "model.ckpt", ".env", "__pycache__/a.pyc", "env/lib/a.py", "env/pyvenv.cfg")
    return root


TRACKED = [".github/ci.yml", ".gitignore", "src/package/module.py", "tracked.py"]


def test_git_lists_tracked_and_unignored_files(repository: Path) -> None:
    project = find_project(repository / "src/package")
    assert project.root == repository
    assert project.files == [*TRACKED, "untracked.py"]


def test_a_folder_that_git_ignores_is_a_project_of_its_own(repository: Path) -> None:
    write(repository, "scratch/train.py")
    project = find_project(repository / "scratch")
    assert (project.root, project.files) == (repository / "scratch", ["train.py"])


def test_the_variables_of_a_git_hook_are_ignored(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere")
    assert "tracked.py" in find_project(repository).files


def test_includes_submodules_and_repositories_within(repository: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", "module.py")
    git(other, "init", "--quiet")
    git(other, "add", ".")
    git(other, "commit", "--quiet", "-m", "first")
    git(repository, "submodule", "add", "--quiet", str(other), "libs/other")
    git(repository, "clone", "--quiet", str(other), "clone")
    write(repository, "libs/other/untracked.py")
    added = {*find_project(repository).files} - {*TRACKED, "untracked.py", ".gitmodules"}
    assert added == {"libs/other/module.py", "libs/other/untracked.py", "clone/module.py"}


def test_a_submodule_that_is_not_checked_out_is_empty(repository: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", "module.py")
    git(other, "init", "--quiet")
    git(other, "add", ".")
    git(other, "commit", "--quiet", "-m", "first")
    git(repository, "submodule", "add", "--quiet", str(other), "other")
    git(repository, "commit", "--quiet", "-m", "second")
    git(tmp_path, "clone", "--quiet", str(repository), "copy")
    assert "tracked.py" in find_project(tmp_path / "copy").files
    assert not [name for name in find_project(tmp_path / "copy").files if name.startswith("other")]


def test_a_worktree_is_a_repository(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "tree"))
    assert "tracked.py" in find_project(tmp_path / "tree").files


def test_says_that_git_is_needed(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SettingError, match=r"git repository, and git cannot be run \(No such file.*files=\["):
        find_project(repository)
    assert find_project(repository, ["src"]).files == ["src/package/module.py"]


def test_says_why_git_fails(tmp_path: Path) -> None:
    (write(tmp_path, "a.py") / ".git").write_text("gitdir: /nowhere")
    with pytest.raises(SettingError, match=r"git cannot list the files in .*nowhere; or name the files"):
        find_project(tmp_path)


def test_outside_of_git_a_project_is_the_folder(tmp_path: Path) -> None:
    wanted = ["a.py", "data/b.csv", "package/__init__.py"]
    left_out = [
        ".env",
        ".cache/a",
        "__pycache__/a.py",
        "node_modules/a.js",
        "venv/pyvenv.cfg",
        "venv/a.py",
        "c.pyc",
    ]
    project = find_project(write(tmp_path / "project", *wanted, *left_out))
    assert (project.root, project.files) == (tmp_path / "project", wanted)


def test_lists_links_and_no_sockets(tmp_path: Path) -> None:
    write(tmp_path, "folder/a.py")
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "broken").symlink_to("nothing")
    os.mkfifo(tmp_path / "pipe")
    assert find_project(tmp_path).files == ["broken", "folder/a.py", "link"]
    assert find_project(tmp_path, ["*"]).files == ["broken", "folder/a.py", "link"]


def test_a_folder_behind_a_link_is_the_folder(tmp_path: Path) -> None:
    write(tmp_path / "real", "a.py")
    (tmp_path / "link").symlink_to("real")
    assert find_project(tmp_path / "link").root == tmp_path / "real"


@pytest.mark.parametrize("in_git", [False, True])
def test_refuses_a_folder_with_too_many_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_git: bool
) -> None:
    write(tmp_path, "a", "b", "c")
    if in_git:
        git(tmp_path, "init", "--quiet")
    monkeypatch.setattr(project_files, "MOST_FILES", 2)
    with pytest.raises(SettingError, match=r"than 2 files|has 3 files, and at most 2"):
        find_project(tmp_path)


@pytest.mark.parametrize(
    ("patterns", "files"),
    [
        (["tracked.py"], ["tracked.py"]),
        (["src"], ["src/package/module.py"]),
        (["src/", "*.py"], ["src/package/module.py", "tracked.py", "untracked.py"]),
        (["**/*.py"], ["src/package/module.py", "tracked.py", "untracked.py"]),
        (["model.ckpt"], ["model.ckpt"]),  # although git ignores it
        ([".env"], [".env"]),
        (["*", "!src"], ["model.ckpt", "tracked.py", "untracked.py"]),
        (["!src", "!**/ci.yml"], [".gitignore", "tracked.py", "untracked.py"]),
        (["!no such file"], [*TRACKED, "untracked.py"]),
        ([], [*TRACKED, "untracked.py"]),
    ],
)
def test_patterns_name_the_files(repository: Path, patterns: list[str], files: list[str]) -> None:
    check_patterns("files", patterns)
    assert list(find_project(repository / "src", patterns).files) == files


def test_a_pattern_must_name_something(repository: Path) -> None:
    with pytest.raises(SettingError, match=r"files: 'sorce' names no file in .*repo; correct it"):
        find_project(repository, ["src", "sorce"])
    with pytest.raises(SettingError, match=r"names no file"):
        find_project(repository, [".git"])


@pytest.mark.parametrize(
    "patterns", ["src", [1], ["/etc"], ["../a"], [""], ["!"], ["a/../.."], ["~/a"], ["**.py"], [None], 3]
)
def test_refuses_what_is_no_pattern(patterns: object) -> None:
    with pytest.raises(SettingError, match=r"^files: "):
        check_patterns("files", patterns)
