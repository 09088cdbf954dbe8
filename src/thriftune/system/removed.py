"""Errors for names that version 0.2.0 has removed.

Logs and settings of older studies can still be loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thriftune.errors import SettingError

KNOBS = ("cores", "nice", "precision", "memory_limit", "gpu_power")
"""The names of the removed knobs."""

SETTINGS: Mapping[str, tuple[Any, ...]] = {
    "probing": ("bandit",),
    "similarity": ("nearest",),
    "meter": ([], ()),
    "remember": (True, False),
}
"""The removed settings. A stored study with one of these values needs no note, because it behaves as before."""

NAMES = ("Cores", "GpuPower", "KMeans", "Match", "MemoryLimit", "Nearest", "Nice", "Precision", "Similarity")
"""The names that were removed from the module thriftune.system."""


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise SettingError if a study file's table names a removed setting."""
    for name in SETTINGS:
        if name in settings:
            raise SettingError(f"system: {name} was removed in 0.2.0; delete it")


def knob_error(name: str) -> str:
    return f"system: the knob {name!r} was removed in 0.2.0; delete it, or write a knob of your own"


def notes(settings: Mapping[str, Any], own: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each removed knob or setting of a stored study.

    `own`: System.own, the user's own knobs.
    """
    own_knobs = {knob.name for knob in own.get("knobs", ())}
    knobs = [name for name in settings["knobs"] if name in KNOBS and name not in own_knobs]
    removed = [f"the knob {name!r}" for name in knobs]
    removed += [
        f"{name} {settings[name]!r}"
        for name, usual in SETTINGS.items()
        if name in settings and settings[name] not in usual
    ]
    return [f"system: {each} was removed in 0.2.0; the study goes on without it" for each in removed]
