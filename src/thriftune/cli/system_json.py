"""What do programs get of how trials use their machines? The same as people, as plain data."""

from __future__ import annotations

from typing import Any

from thriftune.results.result import Result
from thriftune.results.system_decisions import Counts, Explained, Pace, TrialStory
from thriftune.state.events import UsageMeasured
from thriftune.state.spec import Spec
from thriftune.state.trial_record import TrialRecord
from thriftune.system.heat_map import heat_map


def why_nothing(spec: Spec, began: bool) -> str:
    """That nothing was measured, and why that may be."""
    if spec.target.kind == "command":
        why = "its trials run a command, and that is a process of its own"
    elif spec.target.kind == "outside":
        why = "it trains in its user's own code"
    elif spec.system is None:
        why = 'it has system = "off", or is older than that'
    elif not began:
        why = "nothing has run yet"
    else:
        why = (
            "a trial that takes less than half a second is left alone, and so is the next one in its worker, "
            "however long"
        )
    return f"nothing was measured: {why}"


def study_json(result: Result, explained: Explained) -> dict[str, Any]:
    joules = explained.joules
    began = any(trial.attempts for trial in result.trials)
    return {
        "study": result.name,
        "system": result.spec.system,
        "nothing": None if explained.trials else why_nothing(result.spec, began),
        "steps": explained.steps,
        "windows": explained.windows,
        **_counts_json(explained.counts),
        "saved_seconds": explained.saved_seconds,
        "saved_error": explained.saved_error,
        "compared": len(explained.compared),
        "narrowed": [
            {"at": each.at, "slots": each.slots, "at_a_time": each.at_a_time, "why": each.why}
            for each in explained.trial_limits
        ],
        "kinds": list(explained.kinds),
        "meters": list(explained.meters),
        "joules": joules.total,
        "joules_estimated": joules.estimated > 0.0,
        "trials": [_story_json(story) for story in explained.trials],
    }


def profile_json(result: Result, trial: TrialRecord, story: TrialStory | None) -> dict[str, Any]:
    if story is None:
        return {"trial": trial.id, "nothing": why_nothing(result.spec, trial.attempts > 0)}
    found = heat_map(result.history, story.trial, [decided.from_window for decided in story.decisions])
    return {
        **_story_json(story),
        "nothing": None,
        "profile": [_window_json(window) for window in story.windows],
        "ranges": {row.name: {"low": row.low, "high": row.high, "unit": row.unit} for row in found.rows},
    }


def _counts_json(counts: Counts) -> dict[str, int]:
    return {
        "untouched_windows": counts.untouched,
        "look_windows": counts.looks,
        "kept_windows": counts.kept,
    }


def _story_json(story: TrialStory) -> dict[str, Any]:
    return {
        "trial": story.trial,
        "setting": dict(story.setting),
        "found": story.found or None,
        "steps": story.steps,
        "windows": len(story.windows),
        **_counts_json(story.counts),
        "unturned": _pace_json(story.unturned),
        "now": _pace_json(story.now),
        "gain": story.gain,
        "gain_error": story.gain_error,
        "by_others": story.by_others,
        "seconds": story.seconds,
        "unturned_seconds": story.unturned_seconds,
        "saved_seconds": story.saved_seconds,
        "saved_error": story.saved_error,
        "joules": story.joules.total,
        "joules_estimated": story.joules.estimated > 0.0,
        "settings": [{"setting": dict(setting), **(_pace_json(pace) or {})} for setting, pace in story.paces],
        "decisions": [
            {
                "step": decided.step,
                "setting": dict(decided.setting),
                "why": decided.why,
                "looks": decided.looks,
                "before": _pace_json(decided.before),
                "after": _pace_json(decided.after),
                "from_window": decided.from_window,
            }
            for decided in story.decisions
        ],
    }


def _pace_json(pace: Pace | None) -> dict[str, Any] | None:
    return None if pace is None else pace._asdict()


def _window_json(window: UsageMeasured) -> dict[str, Any]:
    return {
        "at": window.at,
        "attempt": window.attempt,
        "step": window.step,
        "steps": window.steps,
        "seconds": window.seconds,
        "setting": dict(window.setting),
        "cold": window.cold,
        "counters": dict(window.counters),
        "kind": window.kind,
        "joules": window.joules,
        "meter": window.meter,
    }
