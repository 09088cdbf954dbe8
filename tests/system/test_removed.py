"""Names of what was removed: clear errors, and older studies that still load."""

from __future__ import annotations

from typing import Any

import pytest

import thriftune as tt
from thriftune.errors import SettingError
from thriftune.system import System, removed, system_of


@pytest.mark.parametrize("name", removed.SETTINGS)
def test_a_removed_setting_is_named(name: str) -> None:
    with pytest.raises(SettingError, match=f"system: {name} was removed in 0.2.0; delete it"):
        system_of({name: "any"})


@pytest.mark.parametrize("name", removed.KNOBS)
def test_a_removed_knob_is_named(name: str) -> None:
    with pytest.raises(SettingError, match=f"system: the knob '{name}' was removed in 0.2.0"):
        tt.System(knobs=[name])


@pytest.mark.parametrize("name", removed.NAMES)
def test_a_removed_class_is_named(name: str) -> None:
    with pytest.raises(AttributeError, match=f"{name} was removed in 0.2.0"):
        getattr(tt.system, name)
    with pytest.raises(AttributeError, match="Nothing does not exist"):
        _ = tt.system.Nothing


def test_the_stored_settings_of_an_older_study_are_read() -> None:
    old: dict[str, Any] = {
        **System().written,
        "probing": "bandit",
        "similarity": "nearest",
        "remember": True,
        "meter": [],
        "narrows": True,
    }
    assert removed.notes(old, {}) == []
    old |= {"knobs": ["memory", "nice"], "probing": "grid", "meter": ["watts"]}
    assert removed.notes(old, {}) == [
        "system: the knob 'nice' was removed in 0.2.0; the study goes on without it",
        "system: probing 'grid' was removed in 0.2.0; the study goes on without it",
        "system: meter ['watts'] was removed in 0.2.0; the study goes on without it",
    ]
