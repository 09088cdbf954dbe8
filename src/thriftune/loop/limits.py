"""Tell which limits of a study are reached, when the next one may be, and whether more trials may be made."""

from __future__ import annotations

import math
from collections.abc import Iterator

from thriftune.loop.completion import Completion
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.stopping.protocol import Stopper

SEARCHER_EXHAUSTED = "the searcher has nothing left to suggest"
"""The finish reason of a study whose searcher is exhausted, for example after the last point of a grid."""


class Limits:
    """The limits of a study: its deadline, budget, target and number of trials."""

    def __init__(self, spec: Spec, history: History) -> None:
        self._spec = spec
        self._history = history
        self.completion = Completion(spec, history)

    @property
    def may_be_reached_at_any_report(self) -> bool:
        """Whether a report, or the time that has passed, may end a trial or the study."""
        spec = self._spec
        seconds = (spec.timeout_seconds, spec.deadline_seconds, spec.deadline_at, spec.max_trial_seconds)
        return any(limit is not None for limit in (*seconds, spec.budget_dollars, spec.target_value))

    @property
    def target_name(self) -> str:
        """The target as reasons name it: "target 0.9"."""
        return f"target {self._spec.target_value:g}"

    def reached(self, now: float, driven_until: float) -> str | None:
        """Return the name of a limit on time or money that is reached, or of the target; None if none is.

        `driven_until`: the latest time that counts as driven. After a driver was killed, this is the time of the
        last event that it recorded.
        """
        spec, history = self._spec, self._history
        if self.completion.reached:
            return self.target_name
        if spec.deadline_at is not None and now >= spec.deadline_at:
            return "deadline"
        if spec.deadline_seconds is not None and history.driven_seconds(driven_until) >= spec.deadline_seconds:
            return "deadline"
        if spec.budget_dollars is not None and history.dollars(driven_until) >= spec.budget_dollars:
            return "budget"
        return None

    def due_times(self, now: float) -> Iterator[float]:
        """Yield when deadline and budget will be reached, all later than `now`.

        Call it only while neither is reached.
        """
        spec, history = self._spec, self._history
        later = math.nextafter(now, math.inf)  # the clock may be too coarse for the difference
        if spec.deadline_at is not None:
            yield max(later, spec.deadline_at)
        if spec.deadline_seconds is not None:
            yield max(later, now + spec.deadline_seconds - history.driven_seconds(now))
        if spec.budget_dollars is not None:  # summing over all machines is slow, so only with a budget
            dollars_per_second = sum(machine.price_per_hour for machine in history.machines.values()) / 3600
            if dollars_per_second > 0:
                yield max(later, now + (spec.budget_dollars - history.dollars(now)) / dollars_per_second)

    @property
    def has_all_trials(self) -> bool:
        """Whether the study has made as many trials as it may."""
        trials = self._spec.trials
        return trials is not None and len(self._history.created_ids) >= trials

    def allow_trial(self, *, searcher_exhausted: bool = False) -> bool:
        """Return whether another trial may be made."""
        if self.has_all_trials:
            return False
        return bool(self._history.queue) or not (searcher_exhausted or self.completion.why_no_more)

    def all_tried(self, stopper: Stopper | None, *, searcher_exhausted: bool = False) -> bool:
        """Return whether no further trial may be made and the stopping rule promotes none that is paused."""
        if self.allow_trial(searcher_exhausted=searcher_exhausted):
            return False
        return stopper is None or stopper.promote(self._history, more=False) is None


def limit_reached(spec: Spec, history: History, now: float) -> bool:
    """Return whether a limit on time or money, or the target, keeps a stopped study from running trials."""
    return Limits(spec, history).reached(now, history.last_at) is not None


def nothing_left(spec: Spec, history: History, stopper: Stopper | None, now: float) -> bool:
    """Return whether a driver would have nothing to do. Called before a study is driven."""
    if history.running:  # under a driver that was killed: reports may have to be recovered
        return False
    limits = Limits(spec, history)
    if limits.reached(now, history.last_at) is not None:
        return True
    return not history.waiting and limits.all_tried(stopper)
