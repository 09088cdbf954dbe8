"""Summarize a study for its store.

The summary allows a list of studies to be shown without reading their logs.
"""

from __future__ import annotations

import contextlib
from typing import Any

from thriftune.errors import NoBestTrial
from thriftune.state.history import History


def summarize(history: History, now: float) -> dict[str, Any]:
    """Return the summary of a study, in the types of JSON.

    Its `entries` is the length of the log that it summarizes. `now`: unix seconds.
    """
    has_front = len(history.objectives) > 1
    best_trial = None
    if not has_front:
        with contextlib.suppress(NoBestTrial):
            best = history.best
            best_trial = {
                "trial": best.id,
                "value": best.value,
                "config": dict(best.config),
                "finished": best.finished,
                "step": history.step_of_values(best),
            }
    front = history.front if has_front else []
    return {
        "entries": history.entries,
        "counts": {str(state): count for state, count in history.counts.items() if count},
        "best": best_trial,
        "front_size": len(front) if has_front else None,
        "front_step": history.step_of_values(front[0]) if front and not front[0].finished else None,
        "seconds": history.driven_seconds(now),
        "dollars": history.dollars(now),
        "finished": history.finish_reason,
    }
