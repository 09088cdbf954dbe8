"""The layout of the repository: tests mirror the source, and files name paths that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = sorted(path.name for path in (ROOT / "src/thriftune").iterdir() if (path / "__init__.py").exists())


def test_the_makefile_names_tests_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    listed = [path for group in re.findall(r"addprefix tests/,([^)]*)\)", makefile) for path in group.split()]
    assert len(listed) > 20
    assert [path for path in listed if not (ROOT / "tests" / path).exists()] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_has_tests_of_the_same_name(package: str) -> None:
    assert list((ROOT / "tests" / package).rglob("test_*.py"))


def test_the_map_of_the_code_lists_every_package() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert [package for package in PACKAGES if f"| `{package}/`" not in contributing] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/concepts.md"])
def test_pages_for_contributors_name_modules_that_exist(page: str) -> None:
    modules = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", (ROOT / page).read_text()))
    homes = [ROOT, ROOT / "src/thriftune", *(ROOT / "src/thriftune" / package for package in PACKAGES)]
    assert [module for module in modules if not any((home / module).exists() for home in homes)] == []
