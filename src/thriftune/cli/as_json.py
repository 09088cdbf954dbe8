"""Studies, trials, reports and models as plain data, for JSON output."""

from __future__ import annotations

import time
from typing import Any

from thriftune.errors import NoBestTrial
from thriftune.launch.warm_start import taken
from thriftune.results.models import BestModel, find_best_model, find_model
from thriftune.results.trial_states import count_states, state_of
from thriftune.show import cost_and_limits
from thriftune.state.history import History
from thriftune.state.trial_record import Report, TrialRecord
from thriftune.store.protocol import Store
from thriftune.study.result import Result


def report_json(report: Report) -> dict[str, Any]:
    return {
        "step": report.step,
        "metrics": dict(report.metrics),
        "at": report.at,
        "attempt": report.attempt,
        "saved": report.saved,
    }


def trial_json(trial: TrialRecord, history: History, has_driver: bool) -> dict[str, Any]:
    """Return a trial without its reports.

    `feasible` is included only if the study has constraints. Times are in unix seconds.
    """
    model = find_model(trial, verify=False)
    return {
        "trial": trial.id,
        "state": str(state_of(trial, has_driver)),
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
        "checkpoint": model.where or None,
        "checkpoint_step": model.step,
        "cut_because": trial.end_reason,
        "created_at": trial.created_at,
        "started_at": trial.started_at,
        "ended_at": trial.ended_at,
        "seconds": cost_and_limits.machine_seconds(trial, has_driver, time.time()),
        "error_kind": trial.error_kind,
        "error": trial.error,
        "output": trial.output,
        "warnings": list(trial.warnings),
    }


def best_json(history: History, has_driver: bool) -> dict[str, Any] | None:
    try:
        return trial_json(history.best, history, has_driver)
    except NoBestTrial:
        return None


def model_json(model: BestModel) -> dict[str, Any]:
    """Return the best saved model of a study."""
    return {
        "trial": model.trial.id,
        "step": model.step,
        "value": model.value,
        "checkpoint": model.where,
    }


def front_json(history: History, has_driver: bool) -> list[dict[str, Any]]:
    return [trial_json(trial, history, has_driver) for trial in history.front]


def result_json(result: Result, store: Store) -> dict[str, Any]:
    """Return a study without its trials."""
    spec, history, cost, ledger = result.spec, result.history, result.cost, result.ledger
    driver = store.driver(spec.name)
    has_driver = driver is not None
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
        "counts": {str(state): count for state, count in count_states(history, has_driver).items()},
        "warnings": history.all_warnings,
        "best": best_json(history, has_driver),
        "best_model": None if model is None else model_json(model),
        "front": front_json(history, has_driver),
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
