"""Calls a user's functions as a study goes on: at every report, when a trial has ended, when the study has."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from thriftune.errors import SettingError
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.trial_record import Report, State, TrialRecord

OnReport = Callable[[TrialRecord, Report], object]
OnTrialEnd = Callable[[TrialRecord], object]
OnStudyEnd = Callable[[Spec, History], object]

_here = threading.local()  # `calling`: this thread is in a callback, so that its driver stands still
_ENDINGS = (ev.Ended, ev.Failed, ev.Killed, ev.Lost, ev.GiveUp)
_step = attrgetter("step")


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The user's functions. Called in the driver's process, after what they are told of was recorded."""

    on_report: OnReport | None = None
    on_trial_end: OnTrialEnd | None = None
    on_study_end: OnStudyEnd | None = None

    def __post_init__(self) -> None:
        for name in ("on_report", "on_trial_end", "on_study_end"):
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise SettingError(f"{name}: {function!r} is no function")

    @property
    def during(self) -> bool:
        """Return whether any of them is called while trials run."""
        return self.on_report is not None or self.on_trial_end is not None

    def tell(self, log: Iterable[ev.Event], ended: Sequence[TrialRecord], history: History) -> None:
        """Call the functions for the entries just recorded, in their order. `ended`: trials that ended by them."""
        _here.calling = True
        try:
            self._tell(log, ended, history)
        finally:
            _here.calling = False

    def _tell(self, log: Iterable[ev.Event], ended: Sequence[TrialRecord], history: History) -> None:
        left = {trial.id: trial for trial in ended}
        for entry in log:
            if type(entry) is ev.Reported:
                self._tell_report(history.trials[entry.trial], entry)
            elif isinstance(entry, _ENDINGS) and entry.trial in left:
                # A failed trial has ended when it was given up, and not before.
                failed = left[entry.trial].state is State.FAILED
                if not failed or type(entry) is ev.GiveUp:
                    self._tell_end(left.pop(entry.trial))
        for trial in left.values():  # with their machine, or with an earlier driver
            self._tell_end(trial)

    def _tell_end(self, trial: TrialRecord) -> None:
        if self.on_trial_end is not None:
            self.on_trial_end(trial)

    def _tell_report(self, trial: TrialRecord, entry: ev.Reported) -> None:
        if self.on_report is None:
            return
        place = bisect_left(trial.reports, entry.step, key=_step)
        self.on_report(trial, trial.reports[place])


def in_callback() -> bool:
    """Return whether this thread is in a callback: it cannot wait for the study, which goes on only afterwards."""
    return getattr(_here, "calling", False)
