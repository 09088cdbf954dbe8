"""What do programs get? Studies and trials as plain data."""

from __future__ import annotations

import time
from typing import Any

from thriftune.errors import NoBestTrial
from thriftune.launch.warm_start import taken
from thriftune.results.models import BestModel, find_best_model, find_model
from thriftune.results.result import Result
from thriftune.results.trial_states import count_states, state_of
from thriftune.show import describe as words
from thriftune.state.history import History
from thriftune.state.trial_record import Report, TrialRecord
from thriftune.store.protocol import Store


def report_json(report: Report) -> dict[str, Any]:
    return {
        "step": report.step,
        "metrics": dict(report.metrics),
        "at": report.at,
        "attempt": report.attempt,
        "saved": report.saved,
    }


def trial_json(trial: TrialRecord, history: History, driven: bool) -> dict[str, Any]:
    """A trial without its reports. Times are unix seconds. `feasible` is there where there are constraints."""
    found = find_model(trial, verify=False)
    return {
        "trial": trial.id,
        "state": str(state_of(trial, driven)),
        "finished": trial.finished,
        "converged": trial.converged,
        "ended_early": trial.ended_early,
        "value": trial.value,
        "value_step": history.value_step(trial),
        "values": trial.values,
        **({"feasible": history.feasible(trial)} if history.constraints else {}),
        "config": dict(trial.config),
        "origin": trial.origin,
        "attrs": dict(trial.attrs),
        "metrics": dict(trial.metrics),
        "step": trial.step,
        "attempts": trial.attempts,
        "failures": trial.failures,
        "losses": trial.losses,
        "resume_step": trial.resume_step,
        "checkpoint": None if found.folder is None else str(found.folder),
        "checkpoint_step": found.step,
        "cut_because": trial.end_reason,
        "created_at": trial.created_at,
        "started_at": trial.started_at,
        "ended_at": trial.ended_at,
        "seconds": words.seconds_of(trial, driven, time.time()),
        "error_kind": trial.error_kind,
        "error": trial.error,
        "output": trial.output,
        "warnings": list(trial.warnings),
    }


def best_json(history: History, driven: bool) -> dict[str, Any] | None:
    try:
        return trial_json(history.best, history, driven)
    except NoBestTrial:
        return None


def model_json(model: BestModel) -> dict[str, Any]:
    """The best saved model of a study."""
    return {
        "trial": model.trial.id,
        "step": model.step,
        "value": model.value,
        "checkpoint": str(model.checkpoint),
    }


def front_json(history: History, driven: bool) -> list[dict[str, Any]]:
    return [trial_json(trial, history, driven) for trial in history.front]


def result_json(result: Result, store: Store) -> dict[str, Any]:
    """A study without its trials."""
    spec, history, cost, ledger = result.spec, result.history, result.cost, result.ledger
    driver = store.driver(spec.name)
    driven = driver is not None
    if driver is not None:
        state = "running"
    elif spec.target.kind == "outside":
        state = "ask-tell"
    elif history.finish_reason:
        state = "finished"
    else:
        state = "stopped" if history.trials else "not started"
    model, _ = find_best_model(history, verify=False)
    return {
        "name": spec.name,
        "store": store.url,
        "state": state,
        "finished": history.finish_reason,
        "pid": driver.pid if driver else None,
        "host": driver.host if driver else None,
        "metric": spec.metric,
        "maximize": spec.maximize,
        "objectives": [{"metric": each.metric, "maximize": each.maximize} for each in spec.objectives],
        "constraints": [str(constraint) for constraint in spec.constraints],
        "searcher": spec.searcher,
        "searcher_options": dict(spec.searcher_options),
        "seed": spec.seed,
        "warm_start": [{"study": study, "trials": count} for study, count in taken(spec, history)],
        "runs": str(spec.target),
        "limits": {
            "trials": spec.trials,
            "max_steps": spec.max_steps,
            "deadline": spec.deadline_seconds,
            "deadline_at": spec.deadline_at,
            "budget": spec.budget_dollars,
            "target": spec.target_value,
            "patience": spec.patience,
            "stop_when_converged": spec.stop_when_converged,
            "max_trial_time": spec.max_trial_seconds,
        },
        "attrs": dict(history.attrs),
        "known": history.known_result_count,
        "counts": {str(state): count for state, count in count_states(history, driven).items()},
        "warnings": history.all_warnings,
        "best": best_json(history, driven),
        "best_model": None if model is None else model_json(model),
        "front": front_json(history, driven),
        "cost": {
            "seconds": cost.seconds,
            "dollars": cost.dollars,
            "offers": list(cost.offers),
            "estimate": cost.estimate,
            "prices_known": cost.prices_known,
            "joules": ledger.joules,
            "joules_estimated": ledger.joules_estimated,
        },
    }
