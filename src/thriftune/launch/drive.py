"""How does a study get going? It is made or taken up in its store, driven on this machine, resumed by its name."""

from __future__ import annotations

import contextlib
import secrets
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from thriftune.clouds.local import cores
from thriftune.common.clock import WallClock
from thriftune.common.durations import Duration, seconds
from thriftune.engines import pickled
from thriftune.errors import (
    SettingError,
    StoreError,
    StudyChanged,
    StudyExists,
    StudyFailed,
    StudyInterrupted,
    StudyMismatch,
    StudyNotFound,
)
from thriftune.launch.fingerprint import changes, of_function, of_imported, of_target
from thriftune.launch.interruption import how_to_go_on, resume_line, stopping_now
from thriftune.launch.renaming import set_aside, settle
from thriftune.launch.runtime import venue
from thriftune.launch.warm_start import (
    KnownStudy,
    Source,
    check_not_itself,
    knowledge,
    name_of,
    place_and_name,
    remarks,
)
from thriftune.loop.callbacks import Callbacks
from thriftune.loop.completion import check_foresight
from thriftune.loop.conductor import Conductor
from thriftune.loop.driver import Driver, View, record
from thriftune.loop.failures import to_retry, why_stopped
from thriftune.provisioning.present_machines import PresentMachines
from thriftune.results.loading import load_history, load_spec
from thriftune.search import SEARCHERS
from thriftune.search.protocol import Searcher
from thriftune.settings.deadlines import Deadline, check_ahead, parse_deadline
from thriftune.settings.engine_options import Local, Ray, engine_of
from thriftune.show.ending import nothing_left_line
from thriftune.space.objectives import Names, join_with_and, parse_constraints, parse_objectives
from thriftune.space.space import Space
from thriftune.state.events import Event, Retry
from thriftune.state.history import History
from thriftune.state.spec import ChangePolicy, DiskFullPolicy, FailurePolicy, Spec, Target, ValuePolicy
from thriftune.state.trial_record import State
from thriftune.stopping import STOPPERS
from thriftune.stopping.checks import check_needs
from thriftune.stopping.protocol import Stopper
from thriftune.store.opening import open_store
from thriftune.store.protocol import Store
from thriftune.store.study_files import StudyFiles
from thriftune.system import System, system_of
from thriftune.training.command_line import shared_folder


def make_spec(
    space: Space | Mapping[str, Any],
    *,
    name: str,
    minimize: Names | None,
    maximize: Names | None,
    searcher: str | Searcher,
    stopping: str | Stopper,
    seed: int | None,
    target: Target,
    constraints: Names | None = None,
    trials: int | None = None,
    max_steps: int | None = None,
    deadline: Deadline | None = None,
    budget: float | None = None,
    timeout: Duration | None = None,
    retries: int = 1,
    workers: int | None = None,
    engine: str | Local | Ray | Mapping[str, Any] = "local",
    system: str | System | Mapping[str, Any] = "auto",
    storage: str | Path | None = None,
    keep: int = 2,
    disk_full: DiskFullPolicy = "stop",
    value: ValuePolicy = "auto",
    on_failure: FailurePolicy = "stop",
    target_value: float | None = None,
    patience: int | None = None,
    stop_when_converged: bool = False,
    max_trial_time: Duration | None = None,
    code: Mapping[str, str] | None = None,
) -> Spec:
    """The settings as a user gives them, checked and spelled out."""
    objectives = parse_objectives(minimize, maximize)
    if target.kind != "outside" and trials is None and deadline is None and budget is None:
        raise SettingError("give at least one limit: trials=, deadline= or budget=")
    if storage is not None and "://" in str(storage):
        raise SettingError(f"storage: {str(storage)!r} is no folder; only folders are supported so far")
    where = engine_of(engine)
    here = isinstance(where, Local)
    SEARCHERS.check(searcher)
    STOPPERS.check(stopping)
    searcher_name, searcher_options = SEARCHERS.name_and_options(searcher)
    rule, rule_options = STOPPERS.name_and_options(stopping)
    kind = STOPPERS.kind(stopping) if isinstance(stopping, str) else type(stopping)
    check_needs(kind, rule_options, max_steps, trials)
    by_when = parse_deadline(deadline)
    if stop_when_converged is True:
        check_foresight(SEARCHERS.kind(searcher) if isinstance(searcher, str) else searcher, searcher_name)
    return Spec(
        name=name,
        space=Space(space),
        objectives=objectives,
        constraints=parse_constraints(constraints),
        seed=secrets.randbits(32) if seed is None else seed,
        id=secrets.token_hex(8),
        searcher=searcher_name,
        searcher_options=searcher_options,
        stopping=rule,
        stopping_options=rule_options,
        target=target,
        trials=trials,
        max_steps=max_steps,
        deadline_seconds=by_when.seconds,
        deadline_at=by_when.at,
        budget_dollars=budget,
        timeout_seconds=seconds("timeout", timeout),
        retries=retries,
        workers=cores() if workers is None and here else workers,
        engine="local" if here else "ray",
        engine_options=where.options,
        system=_system(system, target, workers is None),
        storage="" if storage is None else str(Path(storage).expanduser().absolute()),
        keep=keep,
        disk_full=disk_full,
        value=value,
        on_failure=on_failure,
        target_value=target_value,
        patience=patience,
        stop_when_converged=stop_when_converged,
        max_trial_seconds=seconds("max_trial_time", max_trial_time),
        code=of_target(target) if code is None else code,
    )


def _system(given: str | System | Mapping[str, Any], target: Target, narrows: bool) -> Mapping[str, Any] | None:
    found = system_of(given)
    if found is None or target.kind == "outside":
        return None
    if target.kind == "command":
        if given != "auto":
            raise SettingError("system: the process of a command is its own; it is for training functions only")
        return None
    return {**found.written, "narrows": narrows}


def enter(
    store: Store,
    asked: Spec,
    sources: Sequence[Source] = (),
    told: Sequence[Event] = (),
    *,
    fresh: bool = False,
    on_change: ChangePolicy = "stop",
    say: Callable[[str], object] = warnings.warn,
) -> Spec:
    """Makes the study in the store, or takes up the one there is, with the limits now asked for.

    These are not written yet: another process may be driving the study by those it has. What the sources of a warm
    start know, and what the user has told beforehand, are written as the study is made, all at once; a study that
    is there already has no need of the former, and is given the latter by drive().

    - `fresh`: give the study that is there another name, and make a new one.
    - `on_change`: what to do if the code of its trials has changed since; see check_code().
    - `say`: called with what the user should know.
    """
    asked = replace(asked, warm_start=tuple(dict.fromkeys(map(name_of, sources))))
    there = _find(store, asked.name)
    starts_over = fresh and there is not None
    if starts_over:
        there = None
    check_not_itself(sources, asked.name, there.id if there else None)
    now = WallClock().now()
    if there is None or asked.deadline_at != there.deadline_at:  # one that was kept to may be asked for again
        check_ahead(asked, now)
    if there is None:
        known = knowledge([_read_source(source, store) for source in sources], asked, now)
        history = asked.new_history()
        begins_with = [event for event in (*known, *told) if history.apply(event)]
        if starts_over:  # now that nothing is left to refuse
            say(f"study {asked.name!r} starts over; the one before is kept as {set_aside(store, asked.name)!r}")
        try:
            store.create(asked.name, asked.to_json(), now, begins_with)
            return asked
        except StudyExists:  # somebody else was quicker
            there = load_spec(store, asked.name)
    differences = there.difference(asked)
    if asked.storage and asked.storage != there.storage and StudyFiles.of(there, store).has_trials:
        differences.append(f"storage: was {there.storage or store.folder}, is now {asked.storage}")
    if differences:
        learn = ""
        if not asked.warm_start and (asked.metric, asked.maximize) == (there.metric, there.maximize):
            learn = f', with warm_start="{there.name}" if it is to learn from that one'
        raise StudyMismatch(
            f"study {asked.name!r} is there already and asks another question: {'; '.join(differences)}. "
            f"Give this one another name{learn}, or start over with fresh=True (--fresh), which keeps that one"
        )
    check_code(store, there, asked, on_change, say)
    return there.with_limits_of(asked)


def check_code(
    store: Store, there: Spec, asked: Spec, on_change: ChangePolicy, say: Callable[[str], object]
) -> None:
    """Say what has changed in the code, or the data, of a study that has values already.

    Raises StudyChanged for changed code, unless `on_change` is "go_on".
    """
    found = changes(there.code, asked.code)
    code = [*found.code, *there.changes_of_meaning(asked)]
    if not code and not found.data:
        return
    history = load_history(store, there)
    count = sum(history.trials[number].value is not None for number in history.created_ids)
    if not count:
        return
    values = "1 trial has a value" if count == 1 else f"{count} trials have values"
    if code and on_change == "stop":
        raise StudyChanged(
            f"study {there.name!r}: {values} from before a change: {'; '.join(code)}. Choose one: fresh=True "
            f"(--fresh) starts over and keeps the old study under another name; another name with "
            f"warm_start={there.name!r} (--warm-start) learns from it; on_change='go_on' (--on-change go_on) goes "
            "on, and compares old values with new ones"
        )
    say(f"study {there.name!r}: {values} from before a change: {'; '.join([*code, *found.data])}")


def _with_kept_code(
    store: Store, spec: Spec, train: Any, on_change: ChangePolicy, say: Callable[[str], object]
) -> Spec:
    """Return the settings with the code that a kept function imports today, checked as by check_code().

    The function itself is as it was, whatever its script says now.
    """
    imported = of_imported(train)
    now = replace(spec, code={**spec.code, **imported})
    check_code(store, spec, now, on_change, say)
    of_script = {key: digest for key, digest in of_function(train).items() if key not in imported}
    if found := changes(spec.code, of_script).code:
        say(
            f"study {spec.name!r} goes on with its function as it was, although in its script "
            f"{join_with_and(found)}; run the script instead to use that"
        )
    return now


def _find(store: Store, name: str) -> Spec | None:
    try:
        return load_spec(store, name)
    except StudyNotFound:
        return None


def _read_source(source: Source, store: Store) -> KnownStudy:
    if isinstance(source, KnownStudy):
        return source
    place, name = place_and_name(source)
    try:
        with open_store(place, create=False) if place else contextlib.nullcontext(store) as opened:
            spec = load_spec(opened, name)
            return KnownStudy(spec, load_history(opened, spec))
    except StudyNotFound as error:
        raise StudyNotFound(f"warm_start: {error} (PATH:NAME is one in another store)") from None


def drive(
    store: Store,
    spec: Spec,
    view: View,
    *,
    searcher: Searcher | None = None,
    stopper: Stopper | None = None,
    system: Mapping[str, Any] | None = None,
    function: bytes | None = None,
    told: Sequence[Event] = (),
    retry_failed: bool = False,
    on_change: ChangePolicy = "stop",
    remark: Callable[[], str] = str,
    callbacks: Callbacks | None = None,
) -> tuple[Spec, History]:
    """Run what is left of the study, driven by this process.

    `searcher`, `stopper` and `system`: a user's own, which the spec cannot tell how to make. `function`: these and
    a script's training function, pickled, to be kept with the study so that it can be resumed by its name. Without
    it, a study of a script goes on with those that are kept with it. `told`: by the user before this drive; it is
    recorded as far as it is new. `retry_failed`: run failed trials again; done also without it after their
    failures stopped the study. `remark`: called if there is something left to run; returns what to tell the user
    first. `callbacks`: what this process is to call meanwhile; they are not kept.
    """
    with stopping_now(spec.name, store.url), store.drive(spec.name):
        files = settle(store, spec)
        history = load_history(store, spec)
        here = replace(spec, storage=str(files.folder))
        clock = WallClock()
        record(store, history, spec.name, told)
        now = clock.now()
        if (retry_failed or history.failed_alike) and not _looker(here, history, stopper).limit_reached(now):
            record(store, history, spec.name, [Retry(now, trial) for trial in to_retry(history.trials)])
        if _nothing_left(here, history, stopper, clock.now()):
            view.note(nothing_left_line(spec, history))
            return spec, history
        if spec.target.kind == "pickled" and function is None:
            kept = _load_kept(spec, files)
            searcher = kept["searcher"] if not isinstance(kept["searcher"], str) else None  # a name, in older ones
            stopper, system = kept.get("stopper"), kept.get("system")
            spec = _with_kept_code(store, spec, kept["train"], on_change, view.say)
        searcher = searcher or SEARCHERS.make(spec.searcher, spec.searcher_options)
        stopper = stopper or _named_stopper(spec)
        files.claim()
        if said := remark():
            view.note(said)
        if function is not None:
            pickled.write(files.function, function)
            pickled.check_owner(files.function)
            paths = tuple(str(Path(entry or ".").absolute()) for entry in sys.path)
            spec = replace(spec, target=Target("pickled", folder=str(Path.cwd()), paths=paths))
        store.update_spec(spec.name, spec.to_json())
        target = asdict(spec.target) | {"meter": None if spec.system is None else spec.system["meter"]}
        if spec.target.kind == "pickled":
            target["where"] = str(files.function)
        with view, venue(here, files, history, target, view.note) as at:
            tuner = None
            if spec.system is not None and at.cores_a_slot is not None:
                from thriftune.system.setup import make_tuner, remember  # needs numpy, and more

                tuner = make_tuner(spec, store, at.cores_a_slot, system or {})
            elif spec.system is not None and spec.system != _system("auto", spec.target, spec.system["narrows"]):
                view.say("system: trials with several workers, and plans for a deadline, are left alone")
            conductor = Conductor(at.spec, history, searcher, at.provisioner, stopper, tuner)
            if not history.trials:
                for line, notable in remarks(spec, history):
                    (view.say if notable else view.note)(line)
                shares = spec.target.kind == "command" and spec.workers != 1
                if shares and (said := shared_folder(spec.target.command, spec.space, spec.target.folder)):
                    view.note(said)
            halted = Driver(store, conductor, at.engine, at.cloud, clock, view, callbacks).run()
            for line in history.unread.sentences() if halted is None else ():
                view.say(line)
            if tuner is not None and (problem := remember(tuner, history, spec, store)) is not None:
                view.note(problem)
    if history.failed_alike:
        again = "run the script again"
        if spec.target.kind != "pickled":
            again = f"run the study file again (if it is unchanged: {resume_line(spec.name, store.url)})"
        raise StudyFailed(f"study {spec.name!r} has stopped: {why_stopped(history, again)}")
    if halted is None:
        if callbacks is not None and callbacks.on_study_end is not None:
            callbacks.on_study_end(spec, history)
        return spec, history
    done = sum(history.counts[state] for state in State if state.ended)
    how = f"{done} trials have ended. {how_to_go_on(spec.name, store.url)}".rstrip()
    if history.disk_full:
        raise StoreError(f"{history.disk_full} The study has stopped; {how}")
    raise StudyInterrupted(f"stopped by {halted}; {how}")


def _nothing_left(spec: Spec, history: History, stopper: Stopper | None, now: float) -> bool:
    """Return whether a drive would have nothing to do. Loads no code that is kept with the study.

    A user's own rule is kept there; it has a say only about trials that are paused.
    """
    if stopper is None and spec.judged and spec.stopping not in STOPPERS:
        if history.counts[State.PAUSED]:
            return False
        stopper = STOPPERS.make("none", {})
    return _looker(spec, history, stopper or _named_stopper(spec)).nothing_left(now)


def _looker(spec: Spec, history: History, stopper: Stopper | None) -> Conductor:
    """Return a conductor that is asked how the study stands, and decides nothing."""
    return Conductor(spec, history, SEARCHERS.make("random", {}), PresentMachines(), stopper)


def _named_stopper(spec: Spec) -> Stopper:
    return STOPPERS.make(*(spec.stopping, spec.stopping_options) if spec.judged else ("none", {}))


def _load_kept(spec: Spec, files: StudyFiles) -> dict[str, Any]:
    """Unpickle what is kept with a study of a script. Workers need it too: that it can be loaded is seen here."""
    pickled.check_owner(files.function)
    sys.path += [path for path in spec.target.paths if path not in sys.path]
    arguments = sys.argv
    try:
        pickled.set_arguments(files.function)
        return pickled.load(files.function)
    except SettingError:
        raise
    except Exception as error:
        raise SettingError(
            f"the training function of study {spec.name!r}, kept in {files.function}, cannot be loaded here "
            f"({type(error).__name__}: {error}); run the script that began the study again instead"
        ) from error
    finally:
        sys.argv = arguments


def resume(
    name: str,
    store: Store,
    view: View,
    limits: Mapping[str, Any] | None = None,
    *,
    retry_failed: bool = False,
    on_change: ChangePolicy = "stop",
) -> tuple[Spec, History]:
    """Go on with a study by its name alone. `limits`: as with_limits() takes them; the others stay."""
    spec = load_spec(store, name)
    if spec.target.kind == "outside":
        raise SettingError(f"study {name!r} runs in its user's own code, by ask and tell; it cannot be resumed")
    spec = with_limits(spec, limits or {})
    on_change = "go_on" if retry_failed else on_change  # who asks for that has changed something
    if code := of_target(spec.target):
        now = replace(spec, code=code)
        check_code(store, spec, now, on_change, view.say)
        spec = now
    return drive(store, spec, view, retry_failed=retry_failed, on_change=on_change)


def with_limits(spec: Spec, limits: Mapping[str, Any]) -> Spec:
    """Return the spec with other limits, totals as tune() takes them: trials, deadline, budget and workers."""
    given = {"budget_dollars" if name == "budget" else name: value for name, value in limits.items()}
    if "deadline" in given:
        by_when = parse_deadline(given.pop("deadline"))
        given |= {"deadline_seconds": by_when.seconds, "deadline_at": by_when.at}
    if "workers" in given and spec.system is not None:
        given["system"] = {**spec.system, "narrows": False}  # the number is the user's own
    return replace(spec, **given)
