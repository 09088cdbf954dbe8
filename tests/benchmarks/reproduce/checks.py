"""Checks of reproductions that the tests of several papers share."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.reproduce import Reproduction, Section


def section(reproduction: Reproduction, name: str) -> Section:
    """Return the section with this name."""
    return next(each for each in reproduction.sections if each.name == name)


def entries_from_json(reproduction: Reproduction) -> list[dict[str, Any]]:
    """Return the entries of all sections, written as strict JSON and read again."""
    entries = [asdict(one) for each in reproduction.sections for one in each.entries]
    return list(json.loads(json.dumps(entries, allow_nan=False)))


def check_pictures(reproduction: Reproduction, folder: Path) -> None:
    """Draw all sections into the folder, and check that each gives a picture."""
    pytest.importorskip("matplotlib")
    for each in reproduction.sections:
        assert each.draw is not None
        each.draw(folder / f"{each.name}.png")
    assert len(list(folder.glob("*.png"))) == len(reproduction.sections)
    assert all(path.stat().st_size > 10_000 for path in folder.iterdir())
