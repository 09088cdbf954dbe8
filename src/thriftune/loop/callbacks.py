"""Call the user's functions after every report, and after the end of a trial and of the study."""

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

_here = threading.local()  # `calling`: whether this thread runs a callback
_ENDINGS = (ev.Ended, ev.Failed, ev.Killed, ev.Lost, ev.GiveUp)
_step = attrgetter("step")


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The user's functions. The driver's process calls them after the events were recorded."""

    on_report: OnReport | None = None
    on_trial_end: OnTrialEnd | None = None
    on_study_end: OnStudyEnd | None = None

    def __post_init__(self) -> None:
        for name in ("on_report", "on_trial_end", "on_study_end"):
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise SettingError(f"{name}: {function!r} is not a function")

    @property
    def during(self) -> bool:
        """Whether any function is called while trials run."""
        return self.on_report is not None or self.on_trial_end is not None

    def call(self, log: Iterable[ev.Event], ended: Sequence[TrialRecord], history: History) -> None:
        """Call the functions for the events just recorded, in order. `ended`: the trials that they ended."""
        _here.calling = True
        try:
            self._call_all(log, ended, history)
        finally:
            _here.calling = False

    def _call_all(self, log: Iterable[ev.Event], ended: Sequence[TrialRecord], history: History) -> None:
        left = {trial.id: trial for trial in ended}
        for entry in log:
            if type(entry) is ev.Reported:
                self._call_report(history.trials[entry.trial], entry)
            elif isinstance(entry, _ENDINGS) and entry.trial in left:
                # A failed trial ends when it is given up.
                failed = left[entry.trial].state is State.FAILED
                if not failed or type(entry) is ev.GiveUp:
                    self._call_end(left.pop(entry.trial))
        for trial in left.values():  # ended by the loss of their machine or of an earlier driver
            self._call_end(trial)

    def _call_end(self, trial: TrialRecord) -> None:
        if self.on_trial_end is not None:
            self.on_trial_end(trial)

    def _call_report(self, trial: TrialRecord, entry: ev.Reported) -> None:
        if self.on_report is None:
            return
        place = bisect_left(trial.reports, entry.step, key=_step)
        self.on_report(trial, trial.reports[place])


def in_callback() -> bool:
    """Return whether this thread runs a callback. It must not wait for the study, which waits for the callback."""
    return getattr(_here, "calling", False)
