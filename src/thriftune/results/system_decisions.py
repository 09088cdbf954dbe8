"""What was decided, and by which measurements? Of each trial and of a whole study, read off its history.

What a setting has gained is an estimate, the same one that decisions rest on, and has an error: by the trial's own
windows, or, where none of them has nothing turned, by what the same setting has gained other trials. Windows on
different kinds of machine are not compared.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from statistics import stdev
from typing import NamedTuple

from thriftune.results.ledger import Ledger
from thriftune.state.events import PROBE, LimitTrialsPerMachine, SetKnobs, UsageMeasured
from thriftune.state.history import History
from thriftune.state.trial_record import State, TrialRecord, UsageWindow
from thriftune.system.estimate import NO_EVIDENCE, Cost, Effect, Estimate, Evidence, Setting, evidence
from thriftune.system.joules import Joules
from thriftune.system.known_work import UNTURNED, key
from thriftune.system.windows import costs_of, kind_of

Estimates = Mapping[tuple[int, str], Estimate]
"""By trial and kind of machine."""

Effects = Mapping[tuple[str, str], Effect]
"""By kind of machine and setting, of how long a step takes, relative to one with nothing turned."""


class Pace(NamedTuple):
    """How long a step takes, over some windows. `spread`: by what part of it they differ; None: it is just one.
    `cold`: each of them holds an attempt's first step, which often takes longer; else none does."""

    seconds_a_step: float
    windows: int
    spread: float | None
    cold: bool = False


class Decided(NamedTuple):
    """One decision about a trial, after which step it came, and what was measured before it and after.

    - `before`: since the decision that was in force until then; `after`: until the next. None: nothing to compare.
    - `from_window`: the number of the first window with it, from 0; so many as there are, if none has it.
    """

    step: int
    setting: Setting
    why: str
    looks: bool
    before: Pace | None
    after: Pace | None
    from_window: int


class Counts(NamedTuple):
    """Of windows: before anything was turned, of settings that were looked at, and of those that were kept."""

    untouched: int
    looks: int
    kept: int


@dataclass(frozen=True, slots=True)
class TrialStory:
    """How a trial used its machine.

    - `setting`: as it was last turned; `found`: how that was come upon.
    - `paces`: of each setting on the machine where it was last, in the order in which they were measured first.
    - `gain`: how much less a step takes now than with nothing turned, and `gain_error`, how far that may be off;
      `by_others`: they told, not its own windows.
    - `seconds`: that it has been on machines; `saved_seconds`: how many more it would have been with nothing
      turned, which is an estimate (and `saved_error`, how far that may be off); None: nobody can tell.
    """

    trial: int
    setting: Setting
    found: str
    decisions: Sequence[Decided]
    windows: Sequence[UsageMeasured]
    counts: Counts
    paces: Sequence[tuple[Setting, Pace]]
    gain: float | None
    gain_error: float | None
    by_others: bool
    seconds: float
    saved_seconds: float | None
    saved_error: float
    joules: Joules

    @property
    def steps(self) -> int:
        """That were measured."""
        return sum(window.steps for window in self.windows)

    @property
    def unturned(self) -> Pace | None:
        return self.pace({})

    @property
    def now(self) -> Pace | None:
        return self.pace(self.setting)

    def pace(self, setting: Setting) -> Pace | None:
        return next((pace for known, pace in self.paces if known == setting), None)

    @property
    def unturned_seconds(self) -> float | None:
        """An estimate of what it would have taken with nothing turned."""
        return None if self.saved_seconds is None else self.seconds + self.saved_seconds


@dataclass(frozen=True, slots=True)
class Explained:
    """`trials`: those that were measured or had something turned. Sums are of these, but `joules` of the study."""

    trials: Sequence[TrialStory]
    trial_limits: Sequence[LimitTrialsPerMachine]
    joules: Joules

    @property
    def windows(self) -> int:
        return sum(len(story.windows) for story in self.trials)

    @property
    def steps(self) -> int:
        return sum(story.steps for story in self.trials)

    @property
    def counts(self) -> Counts:
        each = [story.counts for story in self.trials]
        return Counts(sum(c.untouched for c in each), sum(c.looks for c in each), sum(c.kept for c in each))

    @property
    def compared(self) -> Sequence[TrialStory]:
        """Those of which can be told what was saved."""
        return [story for story in self.trials if story.saved_seconds is not None]

    @property
    def saved_seconds(self) -> float:
        """An estimate."""
        return fsum(story.saved_seconds or 0.0 for story in self.trials)

    @property
    def saved_error(self) -> float:
        return math.hypot(*(story.saved_error for story in self.trials))

    @property
    def kinds(self) -> Sequence[str]:
        """Of machines and counters."""
        return _names(window.kind for story in self.trials for window in story.windows)

    @property
    def meters(self) -> Sequence[str]:
        return _names(window.meter for story in self.trials for window in story.windows)


def explain(history: History, now: float) -> Explained:
    """As it stands at `now`."""
    ledger = Ledger.of(history, now)
    joules: dict[int, list[Joules]] = defaultdict(list)
    for row in ledger.rows:
        for work in row.work:
            joules[work.trial].append(work.joules)
    measured = [trial for trial in history.trials if trial.windows or trial.knob_changes]
    estimates = _estimates(measured)
    by_others = _by_others(estimates)
    stories = [_story(trial, estimates, by_others, joules[trial.id], now) for trial in measured]
    trial_limits = tuple(history.trial_limits.values())
    return Explained(stories, trial_limits, Joules(ledger.joules, ledger.estimated_joules))


def _story(
    trial: TrialRecord, estimates: Estimates, by_others: Effects, joules: Iterable[Joules], now: float
) -> TrialStory:
    windows = [window.usage for window in trial.windows]
    kind = kind_of(trial)
    paces = _paces([window for window in windows if window.kind == kind])
    effect, told = None, False
    if trial.knob_setting and any(window.setting == trial.knob_setting for window in windows):
        effect, told = _effect(estimates.get((trial.id, kind)), by_others, kind, trial.knob_setting)
    decisions, counts = _decisions(trial, windows)
    seconds = trial.seconds
    if trial.state is State.RUNNING and trial.started_at is not None:
        seconds += max(0.0, now - trial.started_at)
    totals = zip(*joules, strict=True)
    return TrialStory(
        trial.id,
        trial.knob_setting,
        trial.knob_changes[-1][1].by if trial.knob_changes else "",
        decisions,
        windows,
        counts,
        [(json.loads(setting), pace) for setting, pace in paces.items()],
        None if effect is None else 1.0 - math.exp(effect.log_ratio),
        None if effect is None else math.exp(effect.log_ratio) * effect.error,
        told,
        seconds,
        *_saved(trial, estimates, by_others),
        Joules(*(fsum(each) for each in totals)),
    )


# --- decisions --------------------------------------------------------------------------------------------


def _decisions(trial: TrialRecord, windows: Sequence[UsageMeasured]) -> tuple[list[Decided], Counts]:
    starts = _starts(trial.knob_changes, windows)
    untouched, looks, kept = (starts[0] if starts else len(windows)), 0, 0
    found = []
    for number, ((begin, turn), start) in enumerate(zip(trial.knob_changes, starts, strict=True)):
        end = starts[number + 1] if number + 1 < len(starts) else len(windows)
        since = max((other for other in starts if other < start), default=0)
        if turn.by == PROBE:
            looks += end - start
        else:
            kept += end - start
        before = _pace([window for window in windows[since:start] if window.setting == windows[start - 1].setting])
        after = _pace([window for window in windows[start:end] if window.setting == turn.setting])
        step = _step(trial, begin, turn)
        found.append(Decided(step, turn.setting, turn.why, turn.by == PROBE, before, after, start))
    return found, Counts(untouched, looks, kept)


def _starts(turns: Sequence[tuple[int, SetKnobs]], windows: Sequence[UsageMeasured]) -> list[int]:
    """The first window with each decision's setting: one that had begun before has another still. A decision that
    never came into force begins and ends with the next."""
    starts: list[int] = []
    end, next_start = len(windows), len(windows)
    for begin, turn in reversed(turns):
        next_start = next((i for i in range(begin, end) if windows[i].setting == turn.setting), next_start)
        end = begin
        starts.append(next_start)
    return starts[::-1]


def _step(trial: TrialRecord, begin: int, turn: SetKnobs) -> int:
    """The last that was done when it was decided: of a window that has just come, the report comes after it."""
    told = [(report.at, report.step) for report in trial.reports if report.at <= turn.at]
    seen = [(window.at, window.step) for window, _ in trial.windows[max(0, begin - 1) : begin]]
    return max([*told, *seen], default=(0.0, 0))[1]


# --- comparisons ------------------------------------------------------------------------------------------


def _pace(windows: Sequence[UsageMeasured]) -> Pace | None:
    if not windows:
        return None
    warm = [window for window in windows if not window.cold]
    cold, windows = not warm, warm or windows
    mean = fsum(window.seconds for window in windows) / sum(window.steps for window in windows)
    if len(windows) == 1 or not mean:
        return Pace(mean, len(windows), None, cold)
    return Pace(mean, len(windows), stdev(window.seconds / window.steps for window in windows) / mean, cold)


def _paces(windows: Sequence[UsageMeasured]) -> dict[str, Pace]:
    by_setting: dict[str, list[UsageMeasured]] = defaultdict(list)
    for window in windows:
        by_setting[key(window.setting)].append(window)
    return {setting: pace for setting, each in by_setting.items() if (pace := _pace(each)) is not None}


def _estimates(trials: Sequence[TrialRecord]) -> Estimates:
    costs: dict[tuple[int, str], list[Cost]] = {}
    for trial in trials:
        of_kind: dict[str, list[UsageWindow]] = defaultdict(list)
        for window in trial.windows:
            of_kind[window.usage.kind].append(window)
        costs |= {(trial.id, kind): costs_of(each, _seconds_a_step) for kind, each in of_kind.items()}
    told = {of: evidence(each) for of, each in costs.items()}
    total: dict[str, Evidence] = {}
    for (_, kind), each in told.items():
        total[kind] = total.get(kind, NO_EVIDENCE).plus(each)
    return {of: Estimate(each, total[of[1]].minus(told[of])) for of, each in costs.items()}


def _seconds_a_step(measured: UsageMeasured) -> float:
    return measured.seconds / measured.steps


def _by_others(estimates: Estimates) -> Effects:
    """By the trials that have measured both, each by how sure it is."""
    found: dict[tuple[str, str], list[Effect]] = defaultdict(list)
    for (_, kind), estimate in estimates.items():
        for text in estimate.settings if estimate.seen({}) else ():
            found[kind, text].append(estimate.effect(json.loads(text), {}))
    return {of: _mean(each) for of, each in found.items() if of[1] != UNTURNED}


def _mean(effects: Sequence[Effect]) -> Effect:
    weights = [effect.error**-2 for effect in effects]
    log_ratio = fsum(w * effect.log_ratio for w, effect in zip(weights, effects, strict=True)) / fsum(weights)
    return Effect(log_ratio, fsum(weights) ** -0.5)


def _effect(
    estimate: Estimate | None, by_others: Effects, kind: str, setting: Setting
) -> tuple[Effect | None, bool]:
    """And whether others told it."""
    if estimate is not None and estimate.seen({}) and estimate.seen(setting):
        return estimate.effect(setting, {}), False
    effect = by_others.get((kind, key(setting)))
    return effect, effect is not None


def _saved(trial: TrialRecord, estimates: Estimates, by_others: Effects) -> tuple[float | None, float]:
    """How many seconds more its windows would have taken with nothing turned, and how far that may be off. None:
    there is nothing to compare with."""
    turned: dict[tuple[str, str], float] = defaultdict(float)
    for window, _ in trial.windows:
        if window.setting:
            turned[window.kind, key(window.setting)] += window.seconds
    saved, errors = [], []
    for (kind, text), seconds in turned.items():
        effect, _ = _effect(estimates[trial.id, kind], by_others, kind, json.loads(text))
        if effect is not None:
            unturned = seconds * math.exp(-effect.log_ratio)
            saved.append(unturned - seconds)
            errors.append(unturned * effect.error)
    if turned and not saved:
        return None, 0.0
    return fsum(saved), fsum(errors)


def _names(given: Iterable[str]) -> tuple[str, ...]:
    """Each once."""
    return tuple(dict.fromkeys(name for name in given if name))
