"""The summary of a study that its store keeps, so that listing studies need not replay their logs."""

from __future__ import annotations

import contextlib
from typing import Any

from thriftune.errors import NoBestTrial
from thriftune.state.history import History


def summarize(history: History, now: float) -> dict[str, Any]:
    """What a list of studies shows of one, so that listing need not replay it. `entries`: how far it goes."""
    several = len(history.objectives) > 1
    found = None
    if not several:
        with contextlib.suppress(NoBestTrial):
            best = history.best
            found = {
                "trial": best.id,
                "value": best.value,
                "config": dict(best.config),
                "finished": best.finished,
                "step": history.step_of_values(best),
            }
    front = history.front if several else []
    return {
        "entries": history.entries,
        "counts": {str(state): count for state, count in history.counts.items() if count},
        "best": found,
        "front_size": len(front) if several else None,
        "front_step": history.step_of_values(front[0]) if front and not front[0].finished else None,
        "seconds": history.driven_seconds(now),
        "dollars": history.dollars(now),
        "finished": history.finish_reason,
    }
