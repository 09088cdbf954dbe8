"""Study: run trials yourself, with ask() and tell(). load(): look at any study."""

from __future__ import annotations

import contextlib
import datetime
import operator
import re
import secrets
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from thriftune.common.clock import WallClock
from thriftune.errors import NothingLeft, SettingError, StudyBusy
from thriftune.launch.open_study import open_study
from thriftune.launch.warm_start import KnownStudy, Source, remarks, same_store
from thriftune.loop.conductor import Conductor
from thriftune.loop.driver import record
from thriftune.provisioning.present_machines import PresentMachines
from thriftune.results.loading import catch_up, load_spec, new_history
from thriftune.results.trial_states import existing_trials
from thriftune.search import SEARCHERS
from thriftune.search.protocol import Searcher
from thriftune.settings.known_results import known_result, metrics_of_result
from thriftune.settings.make_spec import make_spec
from thriftune.settings.table import Settings
from thriftune.space.objectives import Names
from thriftune.space.space import Space
from thriftune.state import events as ev
from thriftune.state.attributes import checked_attribute
from thriftune.state.enqueued import checked_configs
from thriftune.state.history import History
from thriftune.state.spec import Spec, Target
from thriftune.state.summary import summarize
from thriftune.state.trial_record import State, TrialRecord
from thriftune.store.opening import open_store
from thriftune.store.protocol import Store
from thriftune.study.result import Result
from thriftune.study.views import StudyViews

_LOCK_TIMEOUT_SECONDS = 60.0
"""Wait this long for other processes that ask and tell. Each suggestion may take them part of a second."""

_LOCK_RETRY_SECONDS = 0.002

WarmStart: TypeAlias = "Study | Result | str"


def warn_of_other_seed(spec: Spec, given: int | None, stacklevel: int = 3) -> None:
    """Warn if the user gives an existing study another seed than its own."""
    if given is not None and given != spec.seed:
        message = f"seed: study {spec.name!r} began with {spec.seed} and goes on with it, not with {given}"
        warnings.warn(message, stacklevel=stacklevel)


def made_up_name(stem: str) -> str:
    """Return a unique name for a study without one: a stem, the time and a random part."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "", stem) or "study"
    return f"{stem}-{datetime.datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def sources_of(given: WarmStart | Sequence[WarmStart] | None) -> list[Source]:
    """Return the studies of a warm start as a list; raise SettingError for anything else."""
    if given is None:
        return []
    listed = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    for each in listed:
        if not isinstance(each, (Study, Result, str)):
            raise SettingError(
                f"warm_start: {each!r} is not a study; give a Study, a Result or a name, or a list of such"
            )
    return [each if isinstance(each, str) else KnownStudy(each.spec, each.history) for each in listed]


class Study(StudyViews):
    """A study whose trials you run: ask() for a configuration, and tell() its result.

    Without a name and a store, the study is kept in memory. Otherwise it is recorded in the store, and any number
    of processes may ask and tell at the same time. load() returns an object of this class for any study.
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
        sources = sources_of(warm_start)
        settings = Settings(
            name=name,
            minimize=minimize,
            maximize=maximize,
            constraints=constraints,
            searcher=searcher,
            stopping="none",
            seed=seed,
            retries=0,
        )
        spec = make_spec(space, settings, target=Target("outside"), name=made_up_name("study"))
        path = ":memory:" if name is None and store is None else store
        opened = _as_store(path, create=not same_store(sources))
        spec = open_study(opened, spec, sources)
        warn_of_other_seed(spec, seed)
        opened.update_spec(spec.name, spec.to_json())
        self._set_up(opened, spec, searcher)
        if spec.warm_start and not self.history.trials:
            for line, notable in remarks(spec, self.history):
                if notable:
                    warnings.warn(line, stacklevel=2)

    @classmethod
    def load(cls, name: str, store: str | Path | Store | None = None) -> Study:
        """Return a past or running study, by its name."""
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
        """The state of the study now. Reading it reads what was added to the log since."""
        with self._lock:
            if self._history is None:
                self._history = new_history(self._store, self._spec)
            return catch_up(self._history, self._store, self.name)

    @property
    def trials(self) -> Sequence[TrialRecord]:
        return tuple(self.history.trials)

    @property
    def best(self) -> TrialRecord:
        """The trial with the best value among those that meet all constraints.

        Only finished trials compete. Until one has finished, the trials at the furthest step compete, and
        `best.finished` is False. Raises NoBestTrial if no trial has a value, and with several objectives; see
        `front`.
        """
        return self.history.best

    @property
    def front(self) -> Sequence[TrialRecord]:
        """The Pareto front: the trials that meet all constraints and that no other trial dominates.

        They are sorted by the first objective, the best first. The same trials compete as for `best`. With a
        single objective, the front is all trials that have the best value.
        """
        return tuple(self.history.front)

    @property
    def result(self) -> Result:
        return Result(self._spec, self.history)

    # --- asking and telling

    def ask(self) -> TrialRecord:
        """Return a trial to run. The searcher takes all other trials into account, running ones included.

        Raise NothingLeft if there is none, as at the end of a grid.
        """
        with self._recording() as handle:
            log = handle([ev.TrialRequested(self._clock.now())])
            created = next((entry.trial for entry in log if isinstance(entry, ev.Create)), None)
            if created is None:
                raise NothingLeft(f"{self._spec.searcher} has nothing left to suggest for study {self.name!r}")
            return self._loaded.trials[created]

    def tell(
        self,
        trial: TrialRecord | int,
        value: float | Mapping[str, float] | None = None,
        *,
        failed: str | None = None,
    ) -> None:
        """Record the result of a trial: its metrics, or why it failed.

        A plain number is the value of the only metric that the study needs.
        """
        if (value is None) == (failed is None):
            raise SettingError("tell: give either a value (or a dict of metrics) or failed='why'")
        with self._recording() as handle:
            record = self._open_trial(trial)
            now = self._clock.now()
            if failed is not None:
                handle([ev.Failed(now, record.id, record.attempts, "told", str(failed))])
                return
            assert value is not None
            metrics = metrics_of_result(value, self._spec.needed_metrics, "tell")
            seconds = now - (record.started_at or now)
            number, step = record.last_report_number + 1, record.step + 1
            report = ev.Reported(now, record.id, record.attempts, number, step, metrics)
            handle([report, ev.Ended(now, record.id, record.attempts, seconds)])

    def enqueue(self, config: ev.Config) -> bool:
        """Have ask() return this configuration before any that the searcher suggests.

        Parameters that it omits are drawn at random. If the configuration was enqueued or tried before, as when a
        script is run again, return False and do nothing.
        """
        (checked,) = checked_configs(self.space, [config])
        with self._recording() as handle:
            return bool(handle([ev.Enqueued(self._clock.now(), checked)]))

    def add(
        self, config: ev.Config, value: float | Mapping[str, float] | None = None, *, failed: str | None = None
    ) -> bool:
        """Add a result from elsewhere: the metrics of a configuration, or why it failed.

        It becomes a trial with the origin "known". The searcher learns from it, and it can be the best. If the
        study has this result already, as when a script is run again, return False and do nothing.
        """
        with self._recording() as handle:
            event = known_result(self.space, self._spec.needed_metrics, self._clock.now(), config, value, failed)
            return bool(handle([event]))

    def set_attr(self, name: str, value: Any, trial: TrialRecord | int | None = None) -> None:
        """Attach a value to the study or to one of its trials: any JSON, at most 64 KiB.

        It replaces a value of the same name. Raise StudyBusy while another process runs the study.
        """
        plain = checked_attribute(name, value)
        with self._lock, self._lock_study():
            number = None if trial is None else self._trial_number(trial, "set_attr")
            event = ev.AttributeSet(self._clock.now(), name, plain, number)
            record(self._store, self.history, self.name, [event])

    @property
    def _loaded(self) -> History:
        """The history as it was read last. Used while this process holds the study's lock."""
        assert self._history is not None
        return self._history

    def _open_trial(self, trial: TrialRecord | int) -> TrialRecord:
        """Return the running trial of this study that was given; raise SettingError for any other."""
        number = self._trial_number(trial, "tell")
        record = self._loaded.trials[number]
        if isinstance(trial, TrialRecord) and trial.config != record.config:
            raise SettingError(
                f"tell: trial {number} of study {self.name!r} has another configuration than the trial "
                "given, which is from another study"
            )
        if record.state is not State.RUNNING:
            raise SettingError(f"tell: trial {number} is {record.state}; only a running trial takes a result")
        return record

    def _trial_number(self, trial: TrialRecord | int, who: str) -> int:
        """Return the id of a trial of this study. `who`: the method that it was given to, for errors."""
        given = trial.id if isinstance(trial, TrialRecord) else trial
        if isinstance(given, bool) or not hasattr(given, "__index__"):
            raise SettingError(
                f"{who}: {trial!r} is not a trial; give one that ask() returned, or its id, a number"
            )
        number = operator.index(given)
        if not 0 <= number < len(self.history.trials):
            raise SettingError(
                f"{who}: study {self.name!r} has no trial {number}; {existing_trials(self.history)}"
            )
        return number

    @contextlib.contextmanager
    def _recording(self) -> Iterator[Callable[[list[ev.Event]], list[ev.Event]]]:
        """Hold the study's lock, as a driver does. Yield a function that handles events and records decisions."""
        with self._lock, self._lock_study():
            history = self.history
            if self._spec.target.kind != "outside":
                raise SettingError(f"study {self.name!r} runs {self._spec.target}; it has no ask and tell")
            searcher = self._get_searcher()
            conductor = Conductor(self._spec, history, searcher, PresentMachines())

            def handle(events: list[ev.Event]) -> list[ev.Event]:
                before, now = history.entries, self._clock.now()
                log = conductor.handle(events, now)
                self._store.append(self.name, before, log, summarize(history, now))
                self._store.sync()
                return log

            try:
                yield handle
            except BaseException:
                self._history = None  # it may have events that were not recorded
                raise

    def _get_searcher(self) -> Searcher:
        """Return the searcher. Raise SettingError if it is a user's own one that was not given."""
        if self._searcher is None and self._spec.searcher not in SEARCHERS:
            raise SettingError(
                f"study {self.name!r} has a searcher of its user's own, {self._spec.searcher}, which is not "
                f"stored with it; open it with tt.Study(..., name={self.name!r}, searcher={self._spec.searcher}())"
            )
        if self._searcher is None or isinstance(self._searcher, str):
            self._searcher = SEARCHERS.make(self._spec.searcher, self._spec.searcher_options)
        return self._searcher

    @contextlib.contextmanager
    def _lock_study(self) -> Iterator[None]:
        """Hold the study's lock. Wait for other processes that ask and tell, as each holds it for milliseconds.

        Raise StudyBusy at once if another process runs the trials, as that takes long.
        """
        is_shared = self._spec.target.kind == "outside"
        give_up_at = time.monotonic() + (_LOCK_TIMEOUT_SECONDS if is_shared else 0.0)
        with contextlib.ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(self._store.drive(self.name))
                    break
                except StudyBusy:
                    if time.monotonic() > give_up_at:
                        raise
                    time.sleep(_LOCK_RETRY_SECONDS)
            yield

    def __repr__(self) -> str:
        return f"<Study {self.name}: {len(self.history.trials)} trials>"


def load(name: str, store: str | Path | Store | None = None) -> Study:
    """Return a past or running study, by its name."""
    return Study.load(name, store)


def _as_store(store: str | Path | Store | None, *, create: bool) -> Store:
    return open_store(store, create=create) if store is None or isinstance(store, (str, Path)) else store
