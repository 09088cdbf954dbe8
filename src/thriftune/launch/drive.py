"""Drive a study in this process until it is done or stopped, and resume a study by its name."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thriftune.common.clock import WallClock
from thriftune.common.command_hints import how_to_resume, resume_hint
from thriftune.errors import SettingError, StoreError, StudyFailed, StudyInterrupted
from thriftune.launch.changed_code import check_code
from thriftune.launch.fingerprint import of_target
from thriftune.launch.object_storage import open_checkpoints
from thriftune.launch.renaming import settle
from thriftune.launch.runtime import Runtime, open_runtime
from thriftune.launch.send_code import send_code
from thriftune.launch.shipping import fetch_function, shipping
from thriftune.launch.stored_function import load_function, store_function, with_current_imports
from thriftune.launch.study_data import check_data, with_data_versions_if_found
from thriftune.launch.warm_start import remarks
from thriftune.loop.callbacks import Callbacks
from thriftune.loop.conductor import Conductor
from thriftune.loop.driver import Driver, View, record
from thriftune.loop.failures import to_retry, why_stopped
from thriftune.loop.limits import limit_reached, nothing_left
from thriftune.loop.signals import stopping_now
from thriftune.results.loading import load_history, load_spec
from thriftune.search import SEARCHERS
from thriftune.search.protocol import Searcher
from thriftune.settings.make_spec import stored_system, with_limits
from thriftune.show.ending import nothing_left_line
from thriftune.state.events import Event, Retry
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.stored_settings import ChangePolicy
from thriftune.state.trial_record import State
from thriftune.stopping import STOPPERS
from thriftune.stopping.protocol import Stopper
from thriftune.store.protocol import Store
from thriftune.store.study_files import storage_of
from thriftune.system.removed import notes as removed_system_settings
from thriftune.training.command_line import shared_folder

if TYPE_CHECKING:
    from thriftune.system.tuner import SystemTuner


def drive(
    store: Store,
    spec: Spec,
    view: View,
    *,
    searcher: Searcher | None = None,
    stopper: Stopper | None = None,
    system: Mapping[str, Any] | None = None,
    function: bytes | None = None,
    initial_events: Sequence[Event] = (),
    retry_failed: bool = False,
    on_change: ChangePolicy = "stop",
    remark: Callable[[], str] = str,
    callbacks: Callbacks | None = None,
) -> tuple[Spec, History]:
    """Run what is left of the study, driven by this process. Return its spec and its history.

    - `searcher`, `stopper`, `system`: a user's own objects, which the spec only names.
    - `function`: these and a script's training function, pickled. They are stored with the study, so that it can
      be resumed by its name. Without it, a study of a script uses the stored ones.
    - `initial_events`: what the user has given; those that are new are recorded.
    - `retry_failed`: run failed trials again. A study that was stopped by failures always retries them.
    - `remark`: called if something is left to run; returns what to tell the user first.
    - `callbacks`: functions that this process calls; they are not stored.
    """
    with stopping_now(spec.name, store.url), store.drive(spec.name), shipping(store, spec, view.say) as shipper:
        files = settle(store, spec)
        history = load_history(store, spec)
        spec_with_folder = replace(spec, storage=str(files.folder))
        clock = WallClock()
        record(store, history, spec.name, initial_events)
        now = clock.now()
        if (retry_failed or history.failed_alike) and not limit_reached(spec_with_folder, history, now):
            record(store, history, spec.name, [Retry(now, trial) for trial in to_retry(history.trials)])
        if _nothing_left(spec_with_folder, history, stopper, clock.now()):
            view.note(nothing_left_line(spec, history))
            return spec, history
        spec = check_data(spec)
        spec_with_folder = replace(spec_with_folder, code=spec.code)
        if spec.target.kind == "pickled" and function is None:
            if shipper is not None:
                fetch_function(shipper, files)
            stored = load_function(spec, files)
            # Old studies stored the searcher's name.
            searcher = stored["searcher"] if not isinstance(stored["searcher"], str) else None
            stopper, system = stored.get("stopper"), stored.get("system")
            spec = with_current_imports(store, spec, stored["train"], on_change, view.say)
        searcher = searcher or SEARCHERS.make(spec.searcher, spec.searcher_options)
        stopper = stopper or _stopping_rule(spec)
        drive_id = secrets.token_hex(4)
        checkpoints = None
        if files.objects:
            checkpoints = open_checkpoints(files.objects, spec, drive_id, shipper)
        files.claim()
        if message := remark():
            view.note(message)
        if function is not None:
            spec = store_function(spec, files, function)
        store.update_spec(spec.name, spec.to_json())
        if shipper is not None:
            shipper.ship_files(files.folder)
        target = asdict(spec.target) | {"measured": spec.system is not None}
        if spec.engine != "local" and files.objects:
            storage = storage_of(spec, store)
            target["archive"] = send_code(
                spec.target, spec.files, storage, files.objects, Path(store.url), view.say
            )
        if spec.target.kind == "pickled":
            target["where"] = str(files.function)
        with view, open_runtime(spec_with_folder, files, history, target, view.note) as runtime:
            tuner = _make_tuner(spec, runtime, system, view)
            conductor = Conductor(runtime.spec, history, searcher, runtime.provisioner, stopper, tuner)
            if not history.trials:
                _show_first_remarks(spec, history, view)
            halted = Driver(
                store,
                conductor,
                runtime.engine,
                runtime.cloud,
                clock,
                view,
                callbacks,
                drive=drive_id,
                checkpoints=checkpoints,
                shipping=shipper,
            ).run()
            for line in history.unread.sentences() if halted is None else ():
                view.say(line)
    _raise_if_stopped(store, spec, history, halted)
    if callbacks is not None and callbacks.on_study_end is not None:
        callbacks.on_study_end(spec, history)
    return spec, history


def resume(
    name: str,
    store: Store,
    view: View,
    limits: Mapping[str, Any] | None = None,
    *,
    retry_failed: bool = False,
    on_change: ChangePolicy = "stop",
) -> tuple[Spec, History]:
    """Resume a study by its name. `limits`: new ones, as with_limits() takes them; the others stay."""
    spec = load_spec(store, name)
    if spec.target.kind == "outside":
        raise SettingError(f"study {name!r} runs in its user's own code, by ask and tell; it cannot be resumed")
    spec = with_limits(spec, limits or {})
    on_change = "go_on" if retry_failed else on_change  # failed trials are retried after a change of the code
    if code := of_target(spec.target) or (spec.code if spec.data else {}):
        now = with_data_versions_if_found(replace(spec, code=code))
        check_code(store, spec, now, on_change, view.say)
        spec = now
    return drive(store, spec, view, retry_failed=retry_failed, on_change=on_change)


def _nothing_left(spec: Spec, history: History, stopper: Stopper | None, now: float) -> bool:
    """Return whether a drive would have nothing to do, without loading code that is stored with the study.

    A user's own stopping rule would have to be loaded. It matters only if trials are paused.
    """
    if stopper is None and spec.judged and spec.stopping not in STOPPERS:
        if history.counts[State.PAUSED]:
            return False
        stopper = STOPPERS.make("none", {})
    return nothing_left(spec, history, stopper or _stopping_rule(spec), now)


def _stopping_rule(spec: Spec) -> Stopper:
    return STOPPERS.make(*(spec.stopping, spec.stopping_options) if spec.judged else ("none", {}))


def _make_tuner(spec: Spec, runtime: Runtime, system: Mapping[str, Any] | None, view: View) -> SystemTuner | None:
    """Return what tunes trials to their machine; None if they are not to be measured."""
    if spec.system is None:
        return None
    if runtime.cores_per_slot is None:
        if spec.system != stored_system("auto", spec.target):
            view.say("system: trials with several workers are not tuned")
        return None
    for note in removed_system_settings(spec.system, system or {}):
        view.say(note)
    from thriftune.system.setup import make_tuner  # late: it imports numpy

    return make_tuner(spec, runtime.cores_per_slot, system or {})


def _show_first_remarks(spec: Spec, history: History, view: View) -> None:
    """Say what a user should know before the study's first trial."""
    for line, notable in remarks(spec, history):
        (view.say if notable else view.note)(line)
    target = spec.target
    several = target.kind == "command" and spec.workers != 1
    if several and (message := shared_folder(target.command, spec.space, target.folder)):
        view.note(message)


def _raise_if_stopped(store: Store, spec: Spec, history: History, halted: str | None) -> None:
    """Raise the error that tells why a study stopped before it was done, and how to resume it."""
    if history.failed_alike:
        again = "Fix the cause and run the script again."
        if spec.target.kind != "pickled":
            again = (
                "Fix the cause and run the study file again. If you did not change the study file, "
                f"`{resume_hint(spec.name, store.url)}` does the same."
            )
        raise StudyFailed(f"study {spec.name!r} has stopped: {why_stopped(history, again)}")
    if halted is None:
        return
    done = sum(history.counts[state] for state in State if state.ended)
    how = f"{done} trials have ended. {how_to_resume(spec.name, store.url)}".rstrip()
    if history.disk_full:
        raise StoreError(f"{history.disk_full} The study has stopped; {how}")
    raise StudyInterrupted(f"stopped by {halted}; {how}")
