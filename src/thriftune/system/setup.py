"""Who decides how the trials of this study use their machines, and by what it knows?"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from thriftune.common.threads import THREAD_VARIABLES
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.store.protocol import Store
from thriftune.system.knobs import BUILT_IN, Knob
from thriftune.system.known_work import KnownWork
from thriftune.system.similarity import SIMILARITIES
from thriftune.system.tuner import Room, SystemTuner

_FILE = ".known-work.jsonl"
"""In the store's folder; no study can have such a name."""


def known_work(store: Store) -> KnownWork:
    """Of all studies of a store."""
    return KnownWork(store.folder / _FILE)


def make_tuner(spec: Spec, store: Store, cores_a_slot: float, own: Mapping[str, Any]) -> SystemTuner:
    """`own`: a user's own knobs and similarity, which the spec has only by their names."""
    assert spec.system is not None
    settings = spec.system
    own_knobs: dict[str, Knob] = {knob.name: knob for knob in own.get("knobs", ())}
    variables = {**os.environ, **spec.engine_options.get("variables", {})}
    # A user who has said how many threads there shall be has the last word.
    says_threads = any(name in variables for name in THREAD_VARIABLES)
    names = [name for name in settings["knobs"] if not (name == "threads" and says_threads)]
    knobs = [own_knobs[name] if name in own_knobs else BUILT_IN[name]() for name in names]
    similarity = own.get("similarity") or SIMILARITIES.make(settings["similarity"], {})
    known: Callable[[str], Any] = cache(known_work(store).read) if _is_remembered(spec) else lambda _: ()
    return SystemTuner(
        knobs,
        settings["options"],
        Room(cores_a_slot),
        known,
        similarity,
        trials=spec.trials,
        aim=settings["aim"],
        every=settings["probing"] == "grid",
        may_narrow=settings["narrows"],
    )


def remember(tuner: SystemTuner, history: History, spec: Spec, store: Store) -> str | None:
    """Keeps what the study has learned for those to come, also with drivers that were killed before they could.
    Why that could not be done, if so."""
    if not _is_remembered(spec):
        return None
    for kind, works in tuner.works(history).items():
        if (problem := known_work(store).add(kind, works)) is not None:
            return problem
    return None


def _is_remembered(spec: Spec) -> bool:
    """What is kept are seconds: of energy or dollars it says nothing."""
    return spec.system is not None and bool(spec.system["remember"]) and spec.system["aim"] == "time"
