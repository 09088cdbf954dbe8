"""Tests that the packages of a study's code are found, and that local ones are sent as wheels."""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support.projects import editable, empty_site, install, source, write
from thriftune.engines.code_archive import FILE, Entry
from thriftune.errors import SettingError
from thriftune.launch.package_needs import needed_packages
from thriftune.launch.packages import imported_modules, modules_left_behind, notebook_modules


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return empty_site(tmp_path, monkeypatch)


def test_finds_the_modules_that_files_import() -> None:
    lines = [
        b"import a, b.c as d",
        b"if x:",
        b"    from e.f import (",
        b"        g)",
        b"\timport h; i",
        b"from . import j",
        b"from .k import l",
        b"important = 1",
        b"# import m",
    ]
    text = b"\n".join(lines)
    entries = {
        "a.py": Entry(FILE, text),
        "b.txt": Entry(FILE, b"import n"),
        "c.py": Entry(FILE, b"from o import p"),
    }
    assert imported_modules(entries) - {""} == {"a", "b", "e", "h", "o"}


def test_finds_the_versions_of_installed_packages(tmp_path: Path) -> None:
    found = needed_packages({"numpy", "yaml", "thriftune", "os", "not installed", ""}, tmp_path, [])
    assert found.versions == {"numpy": version("numpy"), "pyyaml": version("PyYAML")}
    assert found.local == []


def test_finds_local_packages_and_what_they_need(site: Path, tmp_path: Path) -> None:
    install(
        site, "first", {"url": "https://x/y.git", "vcs_info": {}}, ("second>=1", "numpy", 'six; extra == "all"')
    )
    install(site, "second", editable(source(tmp_path / "code", "second")), ("first", "missing-package[x]"))
    install(site, "unused", {"url": "file:///x", "dir_info": {}})
    install(site, "indexed", None)
    found = needed_packages({"first", "indexed"}, tmp_path / "project", [])
    assert [package.name for package in found.local] == ["first", "second"]
    assert found.versions == {"indexed": "1.5", "numpy": version("numpy")}


def test_a_package_that_is_too_large_must_be_installed(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "first", {"url": "https://x/first-1.5-py3-none-any.whl", "archive_info": {}})
    record = site / "first-1.5.dist-info/RECORD"
    record.write_text(record.read_text() + "first/large.so,,100000001\n")
    found = needed_packages({"first"}, tmp_path / "project", [])
    assert (found.versions, found.local) == ({"first": "1.5"}, [])


def test_a_package_of_the_project_is_not_sent_twice(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = source(tmp_path / "project/libs/second", "second")
    install(site, "second", editable(folder))
    monkeypatch.syspath_prepend(str(folder / "src"))
    assert needed_packages({"second"}, tmp_path / "project", ["", "libs/second/src"]).local == []
    assert needed_packages({"second"}, tmp_path / "project", ["libs/second"]).local == []
    assert needed_packages({"second"}, tmp_path / "project", [""]).local != []
    assert needed_packages({"second"}, tmp_path / "other", ["libs/second/src"]).local != []


def test_finds_editable_packages_whose_metadata_do_not_name_modules(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = source(tmp_path / "code", "second")
    install(site, "distribution_name", editable(folder))
    assert needed_packages({"second"}, tmp_path / "project", []).local == []
    monkeypatch.syspath_prepend(str(folder / "src"))
    (package,) = needed_packages({"second", "os", "__main__", "a b"}, tmp_path / "project", []).local
    assert package.name == "distribution_name"


def test_finds_modules_that_machines_will_not_have(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = source(tmp_path / "code", "in_package")
    install(site, "in_package", editable(folder))
    for place in ("project", "elsewhere"):
        write(tmp_path / place, f"in_{place}.py", f"ignored_{place}.py")
        for path in (tmp_path / place).iterdir():
            path.write_text("")
        monkeypatch.syspath_prepend(str(tmp_path / place))
    monkeypatch.syspath_prepend(str(folder / "src"))
    before = modules_left_behind(tmp_path / "project", ["in_project.py"])
    names = ["in_project", "in_elsewhere", "in_package", "ignored_project"]
    try:
        for name in names:
            importlib.import_module(name)
        left = modules_left_behind(tmp_path / "project", ["in_project.py"])
    finally:
        for name in names:
            sys.modules.pop(name, None)
    assert left == {
        **before,
        "in_elsewhere": tmp_path / "elsewhere/in_elsewhere.py",
        "ignored_project": tmp_path / "project/ignored_project.py",
    }


def test_refuses_damaged_metadata(site: Path, tmp_path: Path) -> None:
    install(site, "first", {"url": "file:///x", "dir_info": {}})
    (site / "first-1.5.dist-info/direct_url.json").write_text("{")
    with pytest.raises(SettingError, match="metadata of the installed package first are damaged"):
        needed_packages({"first"}, tmp_path, [])


def metadata(site: Path, name: str, *lines: str) -> None:
    """Replace the metadata of an installed package."""
    (site / f"{name}-1.5.dist-info/METADATA").write_text("\n".join(lines))


def test_pins_all_that_packages_of_an_index_need(site: Path, tmp_path: Path) -> None:
    install(site, "first", None, ("second[x]>=1", "thriftune", "ray", "missing", "not valid!"))
    install(site, "second", None, ("first", 'third; extra == "x"', 'fourth; extra == "y"', 'os2; os_name == "nt"'))
    install(site, "third", None)
    install(site, "fourth", None)
    found = needed_packages({"first"}, tmp_path, [])
    assert found.versions == {"first": "1.5"}
    assert list(found.pinned) == ["first", "second", "third"]
    assert [found.pinned[name].version for name in found.pinned] == ["1.5"] * 3
    assert found.pinned["first"].requires == ["second[x]>=1"]
    assert found.pinned["second"].requires == ["first", 'third; extra == "x"', 'os2; os_name == "nt"']
    assert (found.pinned["second"].extras, found.pinned["second"].modules) == (["x"], ["second"])
    assert {package.source for package in found.pinned.values()} == {""}


def test_extras_that_are_found_late_are_followed(site: Path, tmp_path: Path) -> None:
    install(site, "first", None, ("second", "third"))
    install(site, "second", None, ('fourth; extra == "x"', 'fifth; extra == "y"'))
    install(site, "third", None, ("second[x,y]",))
    install(site, "fourth", None, ("second",))
    install(site, "fifth", None)
    assert sorted(needed_packages({"first"}, tmp_path, []).pinned) == [
        "fifth",
        "first",
        "fourth",
        "second",
        "third",
    ]


def test_local_packages_that_others_need_are_sent_and_not_pinned(site: Path, tmp_path: Path) -> None:
    install(site, "first", None, ("second",))
    install(site, "second", {"url": "https://x/y.git", "vcs_info": {}}, ("third", 'fourth; os_name == "nt"'))
    install(site, "third", None)
    install(site, "fourth", None)
    found = needed_packages({"first"}, tmp_path, [])
    assert [package.name for package in found.local] == ["second"]
    assert found.versions == {"first": "1.5", "third": "1.5"}
    assert found.pinned["first"].requires == []
    assert list(found.pinned) == ["first", "fourth", "third"]


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        (
            {"url": "https://x/first.whl", "archive_info": {"hashes": {"sha256": "a"}}},
            "https://x/first.whl#sha256=a",
        ),
        ({"url": "https://x/first.whl", "archive_info": {}}, "https://x/first.whl"),
        ({"url": "file:///gone/first.whl", "archive_info": {}}, None),
        ({"url": "https://x/y.git", "vcs_info": {}}, None),
    ],
)
def test_a_package_that_is_too_large_has_its_own_source(
    site: Path, tmp_path: Path, origin: dict[str, object], source: str | None
) -> None:
    install(site, "first", origin)
    record = site / "first-1.5.dist-info/RECORD"
    record.write_text(record.read_text() + "first/large.so,,100000001\n")
    assert needed_packages({"first"}, tmp_path, []).pinned["first"].source == source


def test_packages_of_conda_are_not_local(site: Path, tmp_path: Path) -> None:
    install(site, "first", {"url": "file:///home/conda/feedstock_root/first/work", "dir_info": {}})
    assert [package.name for package in needed_packages({"first"}, tmp_path, []).local] == ["first"]
    (site / "first-1.5.dist-info/INSTALLER").write_text("conda\n")
    found = needed_packages({"first"}, tmp_path, [])
    assert (found.local, found.pinned["first"].source) == ([], "")


@pytest.mark.parametrize("version", [(), ("Version: 1.5 --index-url https://x",)])
def test_refuses_a_package_whose_version_is_not_known(
    site: Path, tmp_path: Path, version: tuple[str, ...]
) -> None:
    install(site, "first", None)
    metadata(site, "first", "Name: first", *version)
    with pytest.raises(SettingError, match="metadata of the installed package first do not tell its version"):
        needed_packages({"first"}, tmp_path, [])


def test_modules_that_only_tests_import_do_not_count() -> None:
    names = [
        "a.py",
        "tests/b.py",
        "lib/test/c.py",
        "test_d.py",
        "e_test.py",
        "conftest.py",
        "docs/f.py",
        "latest.py",
    ]
    entries = {name: Entry(FILE, b"import in_" + Path(name).stem.encode()) for name in names}
    assert imported_modules(entries) == {"in_a", "in_latest"}
    assert len(imported_modules(entries, "tests/gpu")) == len(names)


def test_finds_the_modules_that_the_cells_of_a_notebook_import(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"sys", "pytest"} <= notebook_modules()
    monkeypatch.setattr(
        sys.modules["__main__"], "In", ["", "import a\nx = 1", "def f():\n    from b import c"], False
    )
    assert notebook_modules() == {"a", "b"}
