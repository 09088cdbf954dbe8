"""Tests that what a machine lacks is found, and that what it has stays."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.projects import empty_site, install, write
from thriftune.engines.node_packages import Comparison, compare_packages
from thriftune.errors import SettingError


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The packages of the machine."""
    return empty_site(tmp_path, monkeypatch)


def pinned(*requires: str, version: str = "1.5", **more: Any) -> dict[str, Any]:
    return {"version": version, "source": "", "extras": [], "requires": requires, "modules": [], **more}


def compare(packages: dict[str, dict[str, Any]], *imported: str) -> Comparison:
    return compare_packages({name: packages[name]["version"] for name in imported}, packages)


def test_finds_what_missing_packages_need() -> None:
    packages = {"a": pinned("b>=1", "c"), "b": pinned("a", "d"), "c": pinned(), "d": pinned(), "e": pinned()}
    assert compare(packages, "a").missing == {name: f"{name}==1.5" for name in "abcd"}


def test_what_the_machine_has_stays_and_its_needs_are_not_installed(site: Path) -> None:
    install(site, "first", None)
    packages = {"first": pinned("cuda", version="2.0"), "cuda": pinned()}
    missing, remark = compare(packages, "first").missing, compare(packages, "first").remark
    assert (missing, remark) == (
        {},
        "a machine has other packages than the one that started the study: first is 1.5 there and 2.0 here",
    )


def test_a_version_that_a_missing_package_does_not_allow_is_remarked(site: Path) -> None:
    install(site, "first", None)
    packages = {"a": pinned("first>=2"), "b": pinned("first>1"), "first": pinned(version="2.0")}
    assert compare(packages, "b") == Comparison({"b": "b==1.5"}, "")
    assert compare(packages, "a").missing == {"a": "a==1.5"}
    assert compare(packages, "a").remark.endswith(": first is 1.5 there and 2.0 here")


def test_markers_and_extras_are_those_of_the_machine() -> None:
    needs = (
        f'b; sys_platform == "{sys.platform}"',
        'c; sys_platform == "other"',
        'd; extra == "x"',
        'e; extra == "y"',
    )
    packages = {"a": pinned(*needs, extras=["x"]), "c": pinned("f"), **{name: pinned() for name in "bdef"}}
    assert list(compare(packages, "a").missing) == ["a", "b", "d"]


def test_a_need_of_this_platform_alone_must_be_there(site: Path) -> None:
    packages = {"a": pinned('first; sys_platform != "other"')}
    with pytest.raises(SettingError, match="lacks the package first, which a needs there, but not on the machine"):
        compare(packages, "a")
    install(site, "first", None)
    assert list(compare(packages, "a").missing) == ["a"]


def test_a_package_of_another_name_with_the_same_modules_counts(site: Path) -> None:
    write(site, "first/__init__.py", "namespace/x.py")
    packages = {
        "first-cpu": pinned("b", modules=["first"]),
        "b": pinned(modules=["namespace"]),
        "c": pinned("first-cpu", modules=["first", "absent"]),
    }
    assert compare(packages, "first-cpu").missing == {}
    assert "first-cpu is missing there and 1.5 here" in compare(packages, "first-cpu").remark
    assert list(compare(packages, "c", "b").missing) == ["b", "c"]


def test_a_package_that_no_index_has_comes_from_its_url_or_must_be_there() -> None:
    packages = {"a": pinned(source="https://x/a-1.5-py3-none-any.whl#sha256=1")}
    assert compare(packages, "a").missing == {"a": "a @ https://x/a-1.5-py3-none-any.whl#sha256=1"}
    with pytest.raises(SettingError, match=r"lacks the package a 1\.5\. It cannot be installed .* too large"):
        compare({"a": pinned(source=None)}, "a")


def test_other_studies_descriptions_are_only_compared() -> None:
    compared = compare_packages({"no-such-package": "1"}, {})
    assert compared.missing == {}
    assert compared.remark.endswith("no-such-package is missing there and 1 here")
