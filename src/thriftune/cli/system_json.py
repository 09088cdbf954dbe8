"""Return how trials used their machines as plain data, for `thriftune show --system --json`."""

from __future__ import annotations

from typing import Any

from thriftune.results.heat_map import heat_map
from thriftune.results.system_decisions import KnobDecision, Pace, StudyUsage, TrialUsage, WindowCounts
from thriftune.state.events import UsageMeasured
from thriftune.state.spec import Spec
from thriftune.state.trial_record import TrialRecord
from thriftune.study.result import Result


def why_nothing(spec: Spec, began: bool) -> str:
    """Return a sentence that tells why nothing was measured.

    `began` tells whether any trial has run.
    """
    if spec.target.kind == "command":
        why = "its trials run a command, and that is a process of its own"
    elif spec.target.kind == "outside":
        why = "it trains in its user's own code"
    elif spec.system is None:
        why = 'it has system = "off", or is older than that'
    elif not began:
        why = "nothing has run yet"
    else:
        why = "trials that take less than half a second are not measured"
    return f"nothing was measured: {why}"


def study_json(result: Result, explained: StudyUsage) -> dict[str, Any]:
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
        "trials": [_usage_json(usage) for usage in explained.trials],
    }


def profile_json(result: Result, trial: TrialRecord, usage: TrialUsage | None) -> dict[str, Any]:
    if usage is None:
        return {"trial": trial.id, "nothing": why_nothing(result.spec, trial.attempts > 0)}
    heat = heat_map(result.history, usage.trial, [decision.from_window for decision in usage.decisions])
    return {
        **_usage_json(usage),
        "nothing": None,
        "profile": [_window_json(window) for window in usage.windows],
        "ranges": {row.name: {"low": row.low, "high": row.high, "unit": row.unit} for row in heat.rows},
    }


def _counts_json(counts: WindowCounts) -> dict[str, int]:
    return {
        "untouched_windows": counts.undecided,
        "look_windows": counts.probes,
        "kept_windows": counts.used,
    }


def _usage_json(usage: TrialUsage) -> dict[str, Any]:
    return {
        "trial": usage.trial,
        "setting": dict(usage.setting),
        "found": usage.basis or None,
        "steps": usage.steps,
        "windows": len(usage.windows),
        **_counts_json(usage.counts),
        "unturned": _pace_json(usage.pace_without_knobs),
        "now": _pace_json(usage.pace_now),
        "gain": usage.gain,
        "gain_error": usage.gain_error,
        "by_others": usage.by_others,
        "seconds": usage.seconds,
        "unturned_seconds": usage.seconds_without_knobs,
        "saved_seconds": usage.saved_seconds,
        "saved_error": usage.saved_error,
        "joules": usage.joules.total,
        "joules_estimated": usage.joules.estimated > 0.0,
        "settings": [{"setting": dict(setting), **(_pace_json(pace) or {})} for setting, pace in usage.paces],
        "decisions": [_decision_json(decision) for decision in usage.decisions],
    }


def _decision_json(decision: KnobDecision) -> dict[str, Any]:
    return {
        "step": decision.step,
        "setting": dict(decision.setting),
        "why": decision.why,
        "looks": decision.is_probe,
        "before": _pace_json(decision.before),
        "after": _pace_json(decision.after),
        "from_window": decision.from_window,
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
