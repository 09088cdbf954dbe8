"""Texts about why a trial or a study waits."""

from __future__ import annotations

from collections import Counter

from thriftune.common.formatting import (
    format_resources,
    plural,
)
from thriftune.common.text import last_line
from thriftune.results.trial_states import state_of
from thriftune.settings.engine_options import Ray, engine_of
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.trial_record import State, TrialRecord


def wait_reason(trial: TrialRecord, history: History, spec: Spec, has_driver: bool) -> str | None:
    """Return what a waiting or paused trial waits for.

    An example is "waits for a free worker". Return None for a trial in another state, and for a paused trial of a
    finished study.
    """
    state = state_of(trial, has_driver)
    if state is State.PAUSED:
        return None if history.finish_reason else f"waits to be promoted by {spec.stopping}"
    if state is not State.WAITING:
        return None
    if not has_driver:
        reason = "for the study to be resumed"
    elif history.stop_requested_by or history.failed_alike or (history.disk_full and spec.disk_full == "stop"):
        reason = "for the study to be resumed: it is stopping"
    else:
        reason = _missing_resource(history, spec)
    notes = []
    if trial.failures_since_retry:
        notes.append(f"retry {trial.failures_since_retry} of {spec.retries} after {last_line(trial.error)}")
    elif trial.losses:
        notes.append("its worker was lost")
    if trial.attempts:
        restart = "starts from the beginning"
        if spec.target.kind == "command":
            restart = "starts its command again, which may have saved its own state"
        notes.append(f"goes on after step {trial.resume_step}" if trial.resume_step else restart)
    return "; ".join([f"waits {reason}", *notes])


def no_room_reason(history: History, spec: Spec) -> str:
    """Return what a study waits for when no machine has room for a trial.

    The text is empty if there is room. Only a study on a Ray cluster that runs no trial now can be without
    room.
    """
    engine = engine_of({"name": spec.engine, **spec.engine_options})
    if not isinstance(engine, Ray) or history.running or history.finish_reason or history.stop_requested_by:
        return ""
    slots = sum(machine.slots for machine in history.machines.values() if not machine.is_leaving)
    if slots >= engine.gang:
        return ""
    if history.fleet.renting:
        return f"waits for {_requested_machines(history)}"
    each = f"{format_resources(engine.worker)} each" if engine.gang > 1 else format_resources(engine.worker)
    room = f"the machines have room for {slots}" if slots else "no machine has room for one"
    return f"waits for {plural(engine.gang, 'worker')} of {each}: {room}"


def _missing_resource(history: History, spec: Spec) -> str:
    share = history.machine_share
    if history.fleet.renting:
        return f"for {_requested_machines(history)}"
    if not history.machines:
        return f"for a machine{_worker_resources(spec)}"
    if share is not None and share.workers is not None:
        workers = f"{plural(share.workers, 'worker')} {'is' if share.workers == 1 else 'are'}"
        return f"for a free worker: {workers} its share, because of {share.why}"
    if all(machine.is_leaving for machine in history.machines.values()):
        return "for another machine: the present ones are being preempted or released"
    return "for a free worker"


def _requested_machines(history: History) -> str:
    offers = Counter(rent.offer for rent in history.fleet.renting.values())
    return f"a machine: {', '.join(f'{count} {offer}' for offer, count in offers.items())} requested"


def _worker_resources(spec: Spec) -> str:
    engine = engine_of({"name": spec.engine, **spec.engine_options})
    return f" with {format_resources(engine.worker)}" if isinstance(engine, Ray) else ""
