"""Create the tuner of a study."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from thriftune.common.threads_per_trial import THREAD_VARIABLES
from thriftune.state.spec import Spec
from thriftune.system.knobs import BUILT_IN, Knob
from thriftune.system.tuner import CoreShares, SystemTuner


def make_tuner(spec: Spec, cores_per_slot: float, own: Mapping[str, Any]) -> SystemTuner:
    """Return the study's tuner.

    - `cores_per_slot`: the cores of a machine divided by its slots.
    - `own`: System.own, the user's own knobs. The spec has only their names.

    A study of an older version may name knobs that were removed. They are left out.
    """
    assert spec.system is not None
    settings = spec.system
    own_knobs: dict[str, Knob] = {knob.name: knob for knob in own.get("knobs", ())}
    variables = {**os.environ, **spec.engine_options.get("variables", {})}
    user_sets_threads = any(name in variables for name in THREAD_VARIABLES)
    knobs = [
        own_knobs[name] if name in own_knobs else BUILT_IN[name]()
        for name in settings["knobs"]
        if (name in own_knobs or name in BUILT_IN) and not (name == "threads" and user_sets_threads)
    ]
    cores = CoreShares(cores_per_slot)
    return SystemTuner(knobs, settings["options"], cores, trials=spec.trials, aim=settings["aim"])
