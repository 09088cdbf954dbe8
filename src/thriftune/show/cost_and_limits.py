"""Texts about a study's time, cost and limits."""

from __future__ import annotations

from thriftune.common.formatting import (
    format_dollars,
    format_seconds,
    format_time,
    plural,
)
from thriftune.results.cost_ledger import SPOT_PRICE_UNKNOWN
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.trial_record import State, TrialRecord


def machine_seconds(trial: TrialRecord, has_driver: bool, now: float) -> float:
    """Return the seconds that the trial has spent on machines.

    The running attempt is included.
    """
    if not has_driver or trial.state is not State.RUNNING or trial.started_at is None:
        return trial.seconds
    return trial.seconds + max(0.0, now - trial.started_at)


def cost_line(history: History, now: float) -> str:
    """Return the study's dollars until `now`, and what they are based on.

    The dollars are an estimate unless providers have billed every machine. The user's own machine counts with the
    list price of a similar machine; a rented machine counts with its list price.
    """
    dollars, fleet = format_dollars(history.dollars(now)), history.fleet
    offers = ", ".join(fleet.offers())
    if not offers:
        return format_dollars(0)
    if fleet.all_billed:
        return f"{dollars} ({offers})"
    if all(machine.id == ev.THIS_MACHINE for machine in (*fleet.past, *fleet.present.values())):
        return f"{dollars} if rented ({offers} on demand)"
    unknown = "" if fleet.prices_known else f"; {SPOT_PRICE_UNKNOWN}"
    return f"{dollars} (estimate from list prices: {offers}{unknown})"


def time_line(history: History, spec: Spec, now: float) -> str:
    """Return how long the study has run, and the time until its deadline."""
    spent = history.driven_seconds(now)
    if spec.deadline_at is not None:
        left = format_seconds(max(0.0, spec.deadline_at - now))
        return f"{format_seconds(spent)}, until {format_time(spec.deadline_at)}, {left} left"
    if spec.deadline_seconds is None:
        return format_seconds(spent)
    left = format_seconds(max(0.0, spec.deadline_seconds - spent))
    return f"{format_seconds(spent)} of {format_seconds(spec.deadline_seconds)}, {left} left"


def limit_texts(spec: Spec) -> list[str]:
    """Return the limits of a study.

    An example is ["100 trials", "until 2026-11-20 09:00 CET"].
    """
    texts = [
        plural(spec.trials, "trial") if spec.trials else "",
        format_seconds(spec.deadline_seconds) if spec.deadline_seconds else "",
        f"until {format_time(spec.deadline_at)}" if spec.deadline_at else "",
        format_dollars(spec.budget_dollars) if spec.budget_dollars else "",
    ]
    return [text for text in texts if text]


def early_end_texts(spec: Spec) -> list[str]:
    """Return what may end a study before its limits.

    An example is ["target 0.95", "patience 20"].
    """
    texts = [
        "" if spec.target_value is None else f"target {spec.target_value:g}",
        "" if spec.patience is None else f"patience {spec.patience}",
        "convergence" if spec.stop_when_converged else "",
    ]
    return [text for text in texts if text]
