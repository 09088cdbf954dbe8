"""What does a user hold? tune() to have trials run, Study to run them oneself, load() to look at any."""

from __future__ import annotations

import contextlib
import datetime
import functools
import inspect
import operator
import re
import secrets
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, get_args

from thriftune.common.callables import one_argument_problem
from thriftune.common.clock import WallClock
from thriftune.common.durations import Duration
from thriftune.engines import pickled, pickled_size
from thriftune.errors import NothingLeft, SettingError, StudyBusy
from thriftune.launch.drive import drive, enter, make_spec
from thriftune.launch.fingerprint import of_function
from thriftune.launch.interruption import short_if_uncaught
from thriftune.launch.warm_start import KnownStudy, Source, remarks, same_store
from thriftune.loop.callbacks import Callbacks, OnReport, OnStudyEnd, OnTrialEnd
from thriftune.loop.conductor import Conductor
from thriftune.loop.driver import record
from thriftune.provisioning.present_machines import PresentMachines
from thriftune.results.loading import catch_up, load_spec, new_history
from thriftune.results.result import Result
from thriftune.results.views import StudyViews
from thriftune.search import SEARCHERS
from thriftune.search.protocol import Searcher
from thriftune.settings.deadlines import Deadline
from thriftune.settings.engine_options import Local, Ray
from thriftune.settings.initial_events import told_before
from thriftune.settings.known_results import known_result, told_metrics
from thriftune.show.progress import make_view
from thriftune.space.objectives import Names
from thriftune.space.space import Space
from thriftune.state import events as ev
from thriftune.state.attributes import checked_attribute
from thriftune.state.enqueued import checked_configs
from thriftune.state.history import History
from thriftune.state.spec import ChangePolicy, DiskFullPolicy, FailurePolicy, Spec, Target, ValuePolicy
from thriftune.state.summary import summarize
from thriftune.state.trial_record import State, TrialRecord
from thriftune.stopping import STOPPERS
from thriftune.stopping.protocol import Stopper
from thriftune.store.opening import open_store, use_store
from thriftune.store.protocol import Store
from thriftune.system import System
from thriftune.training.trial import Trial

_PATIENCE_SECONDS = 60.0  # each suggestion of a busy study may take a good part of a second

WarmStart: TypeAlias = "Study | Result | str"


def tune(
    train: Callable[[Trial], object],
    space: Space | Mapping[str, Any],
    *,
    minimize: Names | None = None,
    maximize: Names | None = None,
    constraints: Names | None = None,
    trials: int | None = None,
    max_steps: int | None = None,
    deadline: Deadline | None = None,
    budget: float | None = None,
    timeout: Duration | None = None,
    retries: int = 1,
    workers: int | None = None,
    engine: str | Local | Ray = "local",
    system: str | System = "auto",
    searcher: str | Searcher = "bayes",
    stopping: str | Stopper = "auto",
    warm_start: WarmStart | Sequence[WarmStart] | None = None,
    enqueue: Sequence[ev.Config] | None = None,
    known: Sequence[tuple[ev.Config, float | Mapping[str, float] | None]] | None = None,
    attrs: Mapping[str, Any] | None = None,
    seed: int | None = None,
    name: str | None = None,
    store: str | Path | Store | None = None,
    storage: str | Path | None = None,
    keep: int = 2,
    disk_full: DiskFullPolicy = "stop",
    value: ValuePolicy = "auto",
    target: float | None = None,
    patience: int | None = None,
    stop_when_converged: bool = False,
    max_trial_time: Duration | None = None,
    on_failure: FailurePolicy = "stop",
    retry_failed: bool = False,
    fresh: bool = False,
    on_change: ChangePolicy = "stop",
    progress: bool | None = None,
    on_report: OnReport | None = None,
    on_trial_end: OnTrialEnd | None = None,
    on_study_end: Callable[[Result], object] | None = None,
) -> Result:
    """Runs trials of `train` until a limit is reached, here or on a cluster, and returns what came of it.

    Limits are totals over the life of the study: called again with the same `name` and `store`, it does what is
    left, and returns at once if nothing is. Give at least one of `trials`, `deadline` and `budget`.

    - `minimize`, `maximize`: the metric that trials report and that decides, or a list of several; see `front`.
    - `constraints`: what else a trial must meet to be the best or on the front, such as ["latency_ms <= 10"].
    - `max_steps`: how many steps trial.steps() gives.
    - `deadline`: how long the study may run in all ("20m", 90, a timedelta), or by when it shall be done
      ("2026-11-20 09:00", a datetime); `budget`: dollars, at the price of the smallest rented machine with as many
      cores as this one.
    - `target`: end the study when a trial's value reaches it. `patience`: make no more trials after this many
      without a better value. `stop_when_converged`: make none when the searcher expects no improvement worth one.
    - `max_trial_time`: how long a trial may take in all; then it ends and counts with the value it has.
    - `timeout`: how long one attempt of a trial may take before it is taken to hang and killed.
    - `retries`: how many failed attempts a trial may have beyond the first. Lost machines do not count.
    - `workers`: trials at a time; one a core unless said otherwise, and on a cluster as many as find room.
    - `engine`: where trials run: "local", "ray", or `tt.Ray(...)` with what each of them gets of a cluster.
    - `system`: how each trial uses its machine is measured while it trains, and made better between its steps:
      "auto", "off", or `tt.System(...)` with what may be done.
    - `stopping`: which trials are given up on before their last step: the name of a rule, or one with options such
      as `tt.stopping.ASHA(eta=4)`; "none" gives up on none, "auto" needs `max_steps`, and neither several
      objectives nor constraints.
    - `warm_start`: past studies to learn from, whatever their spaces: a Study, a Result, the name of one in the
      same store, or a list of such. What they know is copied when the study is made.
    - `enqueue`: configurations to try before any other, such as [{"lr": 0.1}]. Parameters that one leaves open are
      drawn at random. They count among `trials`; one that was enqueued or tried before is not tried again.
    - `known`: results from elsewhere to learn from, such as [({"lr": 0.1}, 0.93)]: pairs of a configuration and
      its value, a dict of metrics, or None if it failed. They count in no limit; each is taken once.
    - `attrs`: what to note down with the study, by name; any JSON.
    - `store`: where the study is recorded (a path); `storage`: a folder for checkpoints, beside it by default.
    - `on_failure`: "stop" the study when its first three trials all fail with the same error, or "go_on".
    - `retry_failed`: run the trials again that have failed for good, as when what failed is mended.
    - `fresh`: start over; a study of that name that is there is kept under another name.
    - `on_change`: "stop" if the code of `train` has changed since trials got their values, or "go_on".
    - `value`: which of its values counts for a trial, and which checkpoint is its model: "best" or "last" over its
      steps; "auto" is the best with one objective and no constraints, else the last.
    - `keep`: the newest checkpoints kept of a trial, besides that of its best saved step.
    - `disk_full`: "stop" the study (it can be resumed) or "go_on".
    - `progress`: False shows only problems; by default a picture in a terminal, elsewhere a line now and then.
    - `on_report(trial, report)`, `on_trial_end(trial)`, `on_study_end(result)`: functions that this process calls
      as such things happen, after they were recorded. An error in one stops the study, which can be resumed.
    """
    callbacks = Callbacks(on_report, on_trial_end, _of_result(on_study_end))
    for setting, value_given in (("retry_failed", retry_failed), ("fresh", fresh)):
        if not isinstance(value_given, bool):
            raise SettingError(f"{setting}: {value_given!r} must be True or False")
    if on_change not in get_args(ChangePolicy):
        raise SettingError(f"on_change: {on_change!r} must be 'stop' or 'go_on'")
    _check_function(train)
    sources = _sources(warm_start)
    spec = make_spec(
        space,
        name=_made_up_name(getattr(train, "__name__", "study")) if name is None else name,
        minimize=minimize,
        maximize=maximize,
        constraints=constraints,
        searcher=searcher,
        stopping=stopping,
        seed=seed,
        trials=trials,
        max_steps=max_steps,
        deadline=deadline,
        budget=budget,
        timeout=timeout,
        retries=retries,
        workers=workers,
        engine=engine,
        system=system,
        storage=storage,
        keep=keep,
        disk_full=disk_full,
        value=value,
        target_value=target,
        patience=patience,
        stop_when_converged=stop_when_converged,
        max_trial_time=max_trial_time,
        on_failure=on_failure,
        target=Target("pickled"),
        code=of_function(train),
    )
    told = told_before(spec, WallClock().now(), enqueue=enqueue, known=known, attrs=attrs)
    # Before the study is made: one whose function cannot be sent shall leave nothing behind.
    name_of_train = getattr(train, "__name__", type(train).__name__)
    own_searcher = None if isinstance(searcher, str) else searcher
    # The rules that come with thriftune are made anew: one that was used before holds a whole history.
    own_rule = None if isinstance(stopping, str) or spec.stopping in STOPPERS else stopping
    own_system = system.own if isinstance(system, System) else {}
    own: dict[str, Any] = {"searcher": own_searcher, "stopper": own_rule, "system": own_system}
    function = pickled.dump(name_of_train, {"train": train, **own})
    with short_if_uncaught(), use_store(store, create=not same_store(sources)) as opened:
        on_change = "go_on" if retry_failed else on_change  # who asks for that has changed something
        said: list[str] = []
        spec = enter(opened, spec, sources, told, fresh=fresh, on_change=on_change, say=said.append)
        for message in said:
            warnings.warn(message, stacklevel=2)
        _say_seed(spec, seed)
        view = make_view(spec, progress)
        own |= {"function": function, "callbacks": callbacks}
        own["remark"] = functools.partial(pickled_size.size_warning, train, len(function))
        return Result(*drive(opened, spec, view, **own, told=told, retry_failed=retry_failed))


def _of_result(on_study_end: Callable[[Result], object] | None) -> OnStudyEnd | None:
    """Return the function as the loop calls it. What is no function is left for Callbacks to refuse."""
    if on_study_end is None or not callable(on_study_end):
        return on_study_end
    return lambda spec, history: on_study_end(Result(spec, history))


def _check_function(train: object) -> None:
    """What would fail in every trial is refused before there is a study."""
    if not callable(train):
        raise SettingError(f"train: {train!r} is no function; it should take a trial and report its metrics")
    function: Any = train
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", type(function).__name__)
    # Of an object that is called like a function, what counts is its class's __call__.
    kinds = [function] if isinstance(function, type) else [function, type(function).__call__]
    if any(map(inspect.iscoroutinefunction, kinds)):
        raise SettingError(f"train: {name} is an async function; give a plain one, which may use asyncio.run()")
    if any(inspect.isgeneratorfunction(kind) or inspect.isasyncgenfunction(kind) for kind in kinds):
        raise SettingError(
            f"train: {name} has a yield, so it is a generator; give a plain function that calls trial.report()"
        )
    if why := one_argument_problem(train):
        raise SettingError(f"train: {name}() {why}; it is called with one, the trial")


def _say_seed(spec: Spec, asked: int | None) -> None:
    if asked is not None and asked != spec.seed:
        said = f"seed: study {spec.name!r} began with {spec.seed} and goes on with it, not with {asked}"
        warnings.warn(said, stacklevel=3)


def _made_up_name(stem: str) -> str:
    stem = re.sub(r"[^A-Za-z0-9._-]+", "", stem) or "study"
    return f"{stem}-{datetime.datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _sources(given: WarmStart | Sequence[WarmStart] | None) -> list[Source]:
    if given is None:
        return []
    listed = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    for each in listed:
        if not isinstance(each, (Study, Result, str)):
            raise SettingError(
                f"warm_start: {each!r} is no study; give a Study, a Result or a name, or a list of such"
            )
    return [each if isinstance(each, str) else KnownStudy(each.spec, each.history) for each in listed]


# --- ask and tell -----------------------------------------------------------------------------------------


class Study(StudyViews):
    """A study whose trials the user runs: ask for a configuration, tell what came of it.

    Without a name and a store it lives in memory; else it is kept in the store, and any number of processes may
    ask and tell at the same time. Also what load() gives of any study, to look at.
    """

    def __init__(
        self,
        space: Space | Mapping[str, Any],
        *,
        minimize: Names | None = None,
        maximize: Names | None = None,
        constraints: Names | None = None,
        searcher: str | Searcher = "bayes",
        warm_start: WarmStart | Sequence[WarmStart] | None = None,
        seed: int | None = None,
        name: str | None = None,
        store: str | Path | Store | None = None,
    ) -> None:
        sources = _sources(warm_start)
        spec = make_spec(
            space,
            name=_made_up_name("study") if name is None else name,
            minimize=minimize,
            maximize=maximize,
            constraints=constraints,
            searcher=searcher,
            stopping="none",
            seed=seed,
            target=Target("outside"),
            retries=0,
        )
        where = ":memory:" if name is None and store is None else store
        opened = _as_store(where, create=not same_store(sources))
        spec = enter(opened, spec, sources)
        _say_seed(spec, seed)
        opened.update_spec(spec.name, spec.to_json())
        self._set_up(opened, spec, searcher)
        if spec.warm_start and not self.history.trials:
            for line, notable in remarks(spec, self.history):
                if notable:
                    warnings.warn(line, stacklevel=2)

    @classmethod
    def load(cls, name: str, store: str | Path | Store | None = None) -> Study:
        """Any past or running study, by its name."""
        study = cls.__new__(cls)
        opened = _as_store(store, create=False)
        spec = load_spec(opened, name)
        study._set_up(opened, spec, None)
        return study

    def _set_up(self, store: Store, spec: Spec, searcher: str | Searcher | None) -> None:
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
                self._history = new_history(self._store, self._spec)
            return catch_up(self._history, self._store, self.name)

    @property
    def trials(self) -> Sequence[TrialRecord]:
        return tuple(self.history.trials)

    @property
    def best(self) -> TrialRecord:
        """The trial whose configuration to use: the best value of those that meet all constraints.

        While any of them has finished, only finished trials compete. Until then those compete that have come
        furthest, and `best.finished` is False. Raises NoBestTrial if there is none, and with several objectives,
        which leave no single best: see `front`.
        """
        return self.history.best

    @property
    def front(self) -> Sequence[TrialRecord]:
        """The trials that meet all constraints and that no other dominates, the best by the first objective first.

        Those compete that compete for `best`. With a single objective, all trials that have the best value.
        """
        return tuple(self.history.front)

    @property
    def result(self) -> Result:
        return Result(self._spec, self.history)

    # --- asking and telling

    def ask(self) -> TrialRecord:
        """A trial to run, suggested in view of all others, those still running included.

        NothingLeft if there is none, as when a grid is used up.
        """
        with self._writing() as turn:
            log = turn([ev.TrialRequested(self._clock.now())])
            created = next((entry.trial for entry in log if isinstance(entry, ev.Create)), None)
            if created is None:
                raise NothingLeft(f"{self._spec.searcher} has nothing left to suggest for study {self.name!r}")
            return self._known.trials[created]

    def tell(
        self,
        trial: TrialRecord | int,
        value: float | Mapping[str, float] | None = None,
        *,
        failed: str | None = None,
    ) -> None:
        """What came of a trial: its metrics, or why it failed.

        A plain number is the metric, where the study needs no more than one.
        """
        if (value is None) == (failed is None):
            raise SettingError("tell: give either a value (or a dict of metrics) or failed='why'")
        with self._writing() as turn:
            record = self._open_trial(trial)
            now = self._clock.now()
            if failed is not None:
                turn([ev.Failed(now, record.id, record.attempts, "told", str(failed))])
                return
            assert value is not None
            metrics = told_metrics(value, self._spec.needed_metrics, "tell")
            took = now - (record.started_at or now)
            turn(
                [
                    ev.Reported(
                        now, record.id, record.attempts, record.last_report_number + 1, record.step + 1, metrics
                    ),
                    ev.Ended(now, record.id, record.attempts, took),
                ]
            )

    def enqueue(self, config: ev.Config) -> bool:
        """Have ask() return this configuration before any that the searcher suggests.

        Parameters that it leaves open are drawn at random. Returns False, and does nothing, if it was enqueued or
        tried before, as when a script is run again.
        """
        (checked,) = checked_configs(self.space, [config])
        with self._writing() as turn:
            return bool(turn([ev.Enqueued(self._clock.now(), checked)]))

    def add(
        self, config: ev.Config, value: float | Mapping[str, float] | None = None, *, failed: str | None = None
    ) -> bool:
        """Add a result that is known from elsewhere: the metrics of a configuration, or why it failed.

        The searcher learns from it, and it can be the best. It becomes a trial with the origin "known". Returns
        False, and does nothing, if the study has this result already, as when a script is run again.
        """
        with self._writing() as turn:
            event = known_result(self.space, self._spec.needed_metrics, self._clock.now(), config, value, failed)
            return bool(turn([event]))

    def set_attr(self, name: str, value: Any, trial: TrialRecord | int | None = None) -> None:
        """Attach a value to the study, or to one of its trials; any JSON, at most 64 KiB.

        One of the same name is replaced. Works on any study that no other process runs now.
        """
        plain = checked_attribute(name, value)
        with self._lock, self._turn_to_drive():
            number = None if trial is None else self._trial_number(trial, "set_attr")
            event = ev.AttributeSet(self._clock.now(), name, plain, number)
            record(self._store, self.history, self.name, [event])

    @property
    def _known(self) -> History:
        assert self._history is not None
        return self._history

    def _open_trial(self, trial: TrialRecord | int) -> TrialRecord:
        number = self._trial_number(trial, "tell")
        record = self._known.trials[number]
        if isinstance(trial, TrialRecord) and trial.config != record.config:
            raise SettingError(
                f"tell: trial {number} of study {self.name!r} has another configuration than the one given, "
                "which is another study's"
            )
        if record.state is not State.RUNNING:
            raise SettingError(f"tell: trial {number} is {record.state}; only a running one can be told")
        return record

    def _trial_number(self, trial: TrialRecord | int, who: str) -> int:
        """Return the id of a trial of this study; `who` was given it."""
        given = trial.id if isinstance(trial, TrialRecord) else trial
        if isinstance(given, bool) or not hasattr(given, "__index__"):
            raise SettingError(f"{who}: {trial!r} is no trial; give one that ask() returned, or its id, a number")
        number = operator.index(given)
        count = len(self.history.trials)
        if not 0 <= number < count:
            raise SettingError(f"{who}: study {self.name!r} has no trial {number}; it has {count}")
        return number

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Callable[[list[ev.Event]], list[ev.Event]]]:
        """Be the one driver for a moment; what is handed out takes events in and records what comes of them."""
        with self._lock, self._turn_to_drive():
            history = self.history
            if self._spec.target.kind != "outside":
                raise SettingError(f"study {self.name!r} runs {self._spec.target}; ask and tell are not for it")
            searcher = self._made_searcher()
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

    def _made_searcher(self) -> Searcher:
        if self._searcher is None and self._spec.searcher not in SEARCHERS:
            raise SettingError(
                f"study {self.name!r} has a searcher of its user's own, {self._spec.searcher}, which is not kept "
                f"with it; take it up with tt.Study(..., name={self.name!r}, searcher={self._spec.searcher}())"
            )
        if self._searcher is None or isinstance(self._searcher, str):
            self._searcher = SEARCHERS.make(self._spec.searcher, self._spec.searcher_options)
        return self._searcher

    @contextlib.contextmanager
    def _turn_to_drive(self) -> Iterator[None]:
        """Others ask and tell too: each drives for a millisecond, so a busy study is worth a little patience."""
        outside = self._spec.target.kind == "outside"  # else whoever drives it does so for long
        patience = time.monotonic() + (_PATIENCE_SECONDS if outside else 0.0)
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
