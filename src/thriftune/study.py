"""What does a user hold? tune() to have trials run, Study to run them oneself, load() to look at any."""

from __future__ import annotations

import contextlib
import datetime
import inspect
import re
import secrets
import shutil
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from thriftune import events as ev
from thriftune.clock import WallClock
from thriftune.clouds.local import LocalCloud, cores
from thriftune.conductor import Conductor
from thriftune.driver import Driver, View, summarize
from thriftune.engines import pickled
from thriftune.engines.local import LocalEngine
from thriftune.errors import (
    SettingError,
    StoreError,
    StudyBusy,
    StudyExists,
    StudyInterrupted,
    StudyMismatch,
    ThriftuneError,
)
from thriftune.history import History
from thriftune.parameters import Parameter
from thriftune.planning import PresentMachines
from thriftune.progress import make_view
from thriftune.result import Result
from thriftune.search import Searcher, named
from thriftune.space import Space
from thriftune.spec import DiskFullPolicy, Spec, Target, seconds
from thriftune.store import Store, open_store
from thriftune.trial import State, Trial, TrialRecord, numbers

_PATIENCE_SECONDS = 10.0

Duration = float | str | datetime.timedelta


def tune(
    train: Callable[[Trial], object],
    space: Space | Mapping[str, Parameter],
    *,
    minimize: str | None = None,
    maximize: str | None = None,
    trials: int | None = None,
    max_steps: int | None = None,
    deadline: Duration | None = None,
    budget: float | None = None,
    timeout: Duration | None = None,
    retries: int = 1,
    workers: int | None = None,
    searcher: str | Searcher = "random",
    seed: int | None = None,
    name: str | None = None,
    store: str | Path | Store | None = None,
    storage: str | Path | None = None,
    keep: int = 2,
    disk_full: DiskFullPolicy = "stop",
    progress: bool | None = None,
) -> Result:
    """Runs trials of `train` on this machine until a limit is reached, and returns what came of it.

    Limits are totals over the life of the study: called again with the same `name` and `store`, it does what is
    left, and returns at once if nothing is. Give at least one of `trials`, `deadline` and `budget`.

    - `minimize` or `maximize`: the metric that trials report and that decides.
    - `max_steps`: how many steps trial.steps() gives.
    - `deadline`: how long the study may run in all ("20m", 90, a timedelta); `budget`: dollars, at the price of
      the smallest rented machine with as many cores as this one.
    - `timeout`: how long one attempt of a trial may take before it is taken to hang and killed.
    - `retries`: how many failed attempts a trial may have beyond the first. Lost machines do not count.
    - `workers`: trials at a time; one a core unless said otherwise.
    - `store`: where the study is recorded (a path); `storage`: a folder for checkpoints, beside it by default.
    - `keep`: checkpoints kept of a trial. `disk_full`: "stop" the study (it can be resumed) or "go_on".
    - `progress`: show it; by default where standard error is a terminal.
    """
    if not callable(train):
        raise SettingError(f"train: {train!r} is no function; it should take a trial and report its metrics")
    spec = make_spec(
        space,
        name=name or _made_up_name(getattr(train, "__name__", "study")),
        minimize=minimize,
        maximize=maximize,
        searcher=searcher,
        seed=seed,
        trials=trials,
        max_steps=max_steps,
        deadline=deadline,
        budget=budget,
        timeout=timeout,
        retries=retries,
        workers=workers,
        storage=storage,
        keep=keep,
        disk_full=disk_full,
        target=Target("pickled"),
    )
    with _opened(store) as opened:
        spec = enter(opened, spec)
        return drive(opened, spec, searcher, make_view(spec, progress), train)


def make_spec(
    space: Space | Mapping[str, Parameter],
    *,
    name: str,
    minimize: str | None,
    maximize: str | None,
    searcher: str | Searcher,
    seed: int | None,
    target: Target,
    trials: int | None = None,
    max_steps: int | None = None,
    deadline: Duration | None = None,
    budget: float | None = None,
    timeout: Duration | None = None,
    retries: int = 1,
    workers: int | None = None,
    storage: str | Path | None = None,
    keep: int = 2,
    disk_full: DiskFullPolicy = "stop",
) -> Spec:
    """The settings as a user gives them, checked and spelled out."""
    if (minimize is None) == (maximize is None):
        raise SettingError("give either minimize= or maximize=, the name of the metric that decides")
    if target.kind != "outside" and trials is None and deadline is None and budget is None:
        raise SettingError("give at least one limit: trials=, deadline= or budget=")
    if storage is not None and "://" in str(storage):
        raise SettingError(f"storage: {str(storage)!r} is no folder; only folders are supported so far")
    if isinstance(searcher, str):
        named(searcher)
    return Spec(
        name=name,
        space=Space(space),
        metric=minimize if minimize is not None else maximize or "",
        maximize=maximize is not None,
        seed=secrets.randbits(32) if seed is None else seed,
        searcher=searcher if isinstance(searcher, str) else type(searcher).__name__,
        target=target,
        trials=trials,
        max_steps=max_steps,
        deadline_seconds=seconds("deadline", deadline),
        budget_dollars=budget,
        timeout_seconds=seconds("timeout", timeout),
        retries=retries,
        workers=cores() if workers is None else workers,
        storage="" if storage is None else str(Path(storage).expanduser().absolute()),
        keep=keep,
        disk_full=disk_full,
    )


# --- driving ----------------------------------------------------------------------------------------------


def enter(store: Store, asked: Spec) -> Spec:
    """Makes the study in the store, or takes up the one there is, with the limits now asked for.

    These are not written yet: another process may be driving the study by those it has.
    """
    asked = replace(asked, storage=_storage(asked, store))
    try:
        store.create(asked.name, asked.to_json(), WallClock().now())
        return asked
    except StudyExists:
        there = Spec.from_json(store.spec(asked.name))
    if differences := there.difference(asked):
        raise StudyMismatch(
            f"study {asked.name!r} is there already and asks another question: {'; '.join(differences)}. "
            "Give this one another name, or delete that one"
        )
    return there.with_limits_of(asked)


def drive(
    store: Store,
    spec: Spec,
    searcher: str | Searcher,
    view: View,
    train: Callable[[Trial], object] | None = None,
) -> Result:
    """Runs what is left of the study, on this machine. `train` is kept with it, to be resumed by name."""
    with store.drive(spec.name):
        history = read_history(store, spec)
        conductor = Conductor(
            spec, history, named(searcher) if isinstance(searcher, str) else searcher, PresentMachines()
        )
        clock = WallClock()
        if conductor.nothing_left(clock.now()):
            return Result(spec, history)
        folder = Path(spec.storage)
        if train is not None:
            spec = replace(spec, target=_keep_function(folder, train, searcher))
        store.update_spec(spec.name, spec.to_json())
        engine = LocalEngine(folder / "run", spec.workers, asdict(spec.target))
        with view:
            halted = Driver(store, conductor, engine, LocalCloud(spec.workers), clock, view).run()
    if halted is None:
        return Result(spec, history)
    done = sum(history.counts[state] for state in State if state.ended)
    how = f"{done} trials have ended. To go on: thriftune resume {spec.name} --store {store.url}"
    if history.disk_full:
        raise StoreError(f"{history.disk_full} The study has stopped; {how}")
    raise StudyInterrupted(f"stopped by {halted}; {how}")


def resume(name: str, store: Store, view: View) -> Result:
    """Goes on with a study by its name alone."""
    spec = Spec.from_json(store.spec(name))
    target = spec.target
    if target.kind == "outside":
        raise SettingError(f"study {name!r} runs in its user's own code, by ask and tell; it cannot be resumed")
    if target.kind != "pickled":
        return drive(store, spec, make_searcher(spec.searcher, spec.searcher_options), view)
    sys.path += [path for path in target.paths if path not in sys.path]
    try:
        searcher = pickled.load(target.where)["searcher"]
    except SettingError:
        raise
    except Exception as error:
        raise SettingError(
            f"the training function of study {name!r}, kept in {target.where}, cannot be loaded here "
            f"({type(error).__name__}: {error}); run the script that began the study again instead"
        ) from error
    return drive(store, spec, searcher, view)


def make_searcher(name: str, options: Mapping[str, Any]) -> Searcher:
    """The searcher of that name, with options as a study file gives them."""
    kind = type(named(name))
    try:
        return kind(**options)
    except TypeError:
        known = ", ".join(inspect.signature(kind).parameters) or "none"
        raise SettingError(f"searcher: {name} does not take {', '.join(options)}; its options: {known}") from None


def read_history(store: Store, spec: Spec) -> History:
    history = History(spec.space, spec.metric, spec.maximize, spec.seed)
    return history.replay(store.read(spec.name))


def _keep_function(folder: Path, train: Callable[[Trial], object], searcher: str | Searcher) -> Target:
    """For the workers, and for `thriftune resume`."""
    path = folder / "function.pickle"
    name = getattr(train, "__name__", type(train).__name__)
    pickled.keep(path, name, {"train": train, "searcher": searcher})
    paths = tuple(str(Path(entry or ".").absolute()) for entry in sys.path)
    return Target("pickled", where=str(path), folder=str(Path.cwd()), paths=paths)


def _storage(spec: Spec, store: Store) -> str:
    """Each study has a folder of its own: in the given one, else beside the store."""
    home = Path(spec.storage) if spec.storage else store.folder
    if home is None:
        home = Path(tempfile.mkdtemp(prefix="thriftune-"))
        weakref.finalize(store, shutil.rmtree, home, ignore_errors=True)  # it lives as long as the store in memory
    return str(home / spec.name)


def _made_up_name(stem: str) -> str:
    stem = re.sub(r"[^A-Za-z0-9._-]+", "", stem) or "study"
    return f"{stem}-{datetime.datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


@contextlib.contextmanager
def _opened(store: str | Path | Store | None) -> Iterator[Store]:
    """A store given as an object stays open; one opened here is closed."""
    if store is None or isinstance(store, (str, Path)):
        with open_store(store) as opened:
            yield opened
    else:
        yield store


# --- ask and tell -----------------------------------------------------------------------------------------


class Study:
    """A study whose trials the user runs: ask for a configuration, tell what came of it.

    Without a name it lives in memory; with one it is kept in the store, and any number of processes may ask and
    tell at the same time. Also what load() gives of any study, to look at.
    """

    def __init__(
        self,
        space: Space | Mapping[str, Parameter],
        *,
        minimize: str | None = None,
        maximize: str | None = None,
        searcher: str | Searcher = "random",
        seed: int | None = None,
        name: str | None = None,
        store: str | Path | Store | None = None,
    ) -> None:
        spec = make_spec(
            space,
            name=name or _made_up_name("study"),
            minimize=minimize,
            maximize=maximize,
            searcher=searcher,
            seed=seed,
            target=Target("outside"),
            retries=0,
        )
        opened = _as_store(":memory:" if name is None and store is None else store, create=True)
        spec = enter(opened, spec)
        opened.update_spec(spec.name, spec.to_json())
        self._set_up(opened, spec, searcher)

    @classmethod
    def load(cls, name: str, store: str | Path | Store | None = None) -> Study:
        """Any past or running study, by its name."""
        study = cls.__new__(cls)
        opened = _as_store(store, create=False)
        spec = Spec.from_json(opened.spec(name))
        study._set_up(opened, spec, spec.searcher)
        return study

    def _set_up(self, store: Store, spec: Spec, searcher: str | Searcher) -> None:
        self._store = store
        self._spec = spec
        self._searcher = searcher
        self._clock = WallClock()
        self._lock = threading.RLock()
        self._history: History | None = None

    # --- looking

    @property
    def name(self) -> str:
        return self._spec.name

    @property
    def space(self) -> Space:
        return self._spec.space

    @property
    def spec(self) -> Spec:
        return self._spec

    @property
    def history(self) -> History:
        """What is known now: read anew as far as the log has grown."""
        with self._lock:
            if self._history is None:
                self._history = History(self._spec.space, self._spec.metric, self._spec.maximize, self._spec.seed)
            return self._history.replay(self._store.read(self.name, after=self._history.entries))

    @property
    def trials(self) -> Sequence[TrialRecord]:
        return tuple(self.history.trials)

    @property
    def best(self) -> TrialRecord:
        """The trial with the best value; NoBestTrial if none has any."""
        return self.history.best

    @property
    def result(self) -> Result:
        return Result(self._spec, self.history)

    # --- asking and telling

    def ask(self) -> TrialRecord:
        """A trial to run, suggested in view of all others, those still running included."""
        with self._writing() as turn:
            log = turn([ev.Asked(self._clock.now())])
            created = next((entry.trial for entry in log if isinstance(entry, ev.Create)), None)
            if created is None:
                raise ThriftuneError(f"{self._spec.searcher} has nothing left to suggest for study {self.name!r}")
            return self._known.trials[created]

    def tell(
        self,
        trial: TrialRecord | int,
        value: float | Mapping[str, float] | None = None,
        *,
        failed: str | None = None,
    ) -> None:
        """What came of a trial: its value, all its metrics, or why it failed."""
        if (value is None) == (failed is None):
            raise SettingError("tell: give either a value (or a dict of metrics) or failed='why'")
        with self._writing() as turn:
            record = self._open_trial(trial)
            now = self._clock.now()
            if failed is not None:
                turn([ev.Failed(now, record.id, record.attempts, "told", str(failed))])
                return
            metrics = numbers(value if isinstance(value, Mapping) else {self._spec.metric: value})
            if self._spec.metric not in metrics:
                raise SettingError(f"tell: {self._spec.metric!r} is missing; there is {', '.join(metrics)}")
            took = now - (record.started_at or now)
            turn(
                [
                    ev.Reported(now, record.id, record.attempts, record.last_number + 1, record.step + 1, metrics),
                    ev.Ended(now, record.id, record.attempts, took),
                ]
            )

    @property
    def _known(self) -> History:
        assert self._history is not None
        return self._history

    def _open_trial(self, trial: TrialRecord | int) -> TrialRecord:
        number = trial if isinstance(trial, int) else trial.id
        trials = self._known.trials
        if not 0 <= number < len(trials):
            raise SettingError(f"tell: study {self.name!r} has no trial {number}; it has {len(trials)}")
        record = trials[number]
        if record.state is not State.RUNNING:
            raise SettingError(f"tell: trial {number} is {record.state}; only a running one can be told")
        return record

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Callable[[list[ev.Event]], list[ev.Event]]]:
        """Be the one driver for a moment; what is handed out takes events in and records what comes of them."""
        with self._lock, self._turn_to_drive():
            history = self.history
            if self._spec.target.kind != "outside":
                raise SettingError(f"study {self.name!r} runs {self._spec.target}; ask and tell are not for it")
            searcher = named(self._searcher) if isinstance(self._searcher, str) else self._searcher
            self._searcher = searcher
            conductor = Conductor(self._spec, history, searcher, PresentMachines())

            def turn(events: list[ev.Event]) -> list[ev.Event]:
                before, now = history.entries, self._clock.now()
                log = conductor.handle(events, now)
                self._store.append(self.name, before, log, summarize(history, now))
                self._store.sync()
                return log

            try:
                yield turn
            except BaseException:
                self._history = None  # it may hold what was not recorded
                raise

    @contextlib.contextmanager
    def _turn_to_drive(self) -> Iterator[None]:
        """Others ask and tell too: each drives for a millisecond, so a busy study is worth a little patience."""
        patience = time.monotonic() + _PATIENCE_SECONDS
        with contextlib.ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(self._store.drive(self.name))
                    break
                except StudyBusy:
                    if time.monotonic() > patience:
                        raise
                    time.sleep(0.002)
            yield

    def __repr__(self) -> str:
        return f"<Study {self.name}: {len(self.history.trials)} trials>"


def load(name: str, store: str | Path | Store | None = None) -> Study:
    """Any past or running study, by its name."""
    return Study.load(name, store)


def _as_store(store: str | Path | Store | None, *, create: bool) -> Store:
    return open_store(store, create=create) if store is None or isinstance(store, (str, Path)) else store
