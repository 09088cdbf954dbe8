"""Explain how each trial of a study used its machine: the decisions, and the measurements they rest on.

The gain of a setting is an estimate, by the same regression that decisions rest on, and has an error. It rests on
the trial's own windows. If none of these has no knob applied, it rests on what the setting gained other trials.
Windows on different kinds of machine are not compared.
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

from thriftune.results.attempt_energy import Joules
from thriftune.results.cost_ledger import Ledger
from thriftune.state.events import PROBE, LimitTrialsPerMachine, SetKnobs, UsageMeasured
from thriftune.state.history import History
from thriftune.state.trial_record import State, TrialRecord, UsageWindow
from thriftune.system.estimate import (
    NO_EVIDENCE,
    Effect,
    Estimate,
    Evidence,
    WindowCost,
    evidence,
    machine_kind,
    window_costs,
)
from thriftune.system.knob_settings import NOTHING_APPLIED, KnobSetting, key

TrialEstimates = Mapping[tuple[int, str], Estimate]
"""Keys are a trial and a kind of machine."""

SettingEffects = Mapping[tuple[str, str], Effect]
"""Keys are a kind of machine and a setting's key; effects are on the time of a step, relative to no knob."""


class Pace(NamedTuple):
    """The mean time of a step over some windows.

    - `spread`: the standard deviation between the windows, relative to the mean; None for a single window.
    - `cold`: all of the windows hold an attempt's first step, which often takes longer; otherwise none does.
    """

    seconds_a_step: float
    windows: int
    spread: float | None
    cold: bool = False


class KnobDecision(NamedTuple):
    """A decision about a trial, and what was measured before and after it.

    - `step`: the last step before the decision.
    - `is_probe`: the setting was only tried.
    - `before`: windows under the decision before it; `after`: windows under this one. None: there are none.
    - `from_window`: the number of the first window under it, from 0; the number of windows if there is none.
    """

    step: int
    setting: KnobSetting
    why: str
    is_probe: bool
    before: Pace | None
    after: Pace | None
    from_window: int


class WindowCounts(NamedTuple):
    """The numbers of windows before any decision, under probes, and under settings that were used."""

    undecided: int
    probes: int
    used: int


@dataclass(frozen=True, slots=True)
class TrialUsage:
    """A trial's use of its machine.

    - `setting`: its last setting; `basis`: what the last decision rests on.
    - `paces`: the pace under each setting on its last kind of machine, in the order of their first windows.
    - `gain`: by which part a step takes less now than without knobs, with its standard error `gain_error`;
      `by_others`: other trials have shown it, not its own windows.
    - `seconds`: its time on machines.
    - `saved_seconds`: an estimate of how much longer it would have taken without knobs, with its standard error
      `saved_error`; None if it is unknown.
    """

    trial: int
    setting: KnobSetting
    basis: str
    decisions: Sequence[KnobDecision]
    windows: Sequence[UsageMeasured]
    counts: WindowCounts
    paces: Sequence[tuple[KnobSetting, Pace]]
    gain: float | None
    gain_error: float | None
    by_others: bool
    seconds: float
    saved_seconds: float | None
    saved_error: float
    joules: Joules

    @property
    def steps(self) -> int:
        """Return how many steps were measured."""
        return sum(window.steps for window in self.windows)

    @property
    def pace_without_knobs(self) -> Pace | None:
        return self.pace({})

    @property
    def pace_now(self) -> Pace | None:
        return self.pace(self.setting)

    def pace(self, setting: KnobSetting) -> Pace | None:
        return next((pace for known, pace in self.paces if known == setting), None)

    @property
    def seconds_without_knobs(self) -> float | None:
        """Return an estimate of the time that the trial would have taken without knobs."""
        return None if self.saved_seconds is None else self.seconds + self.saved_seconds


@dataclass(frozen=True, slots=True)
class StudyUsage:
    """The use of machines by the trials of a study.

    `trials` are those with windows or decisions. Sums are over these; only `joules` is over the whole study.
    `trial_limits` has decisions of versions before 0.2.0, which ran fewer trials at a time.
    """

    trials: Sequence[TrialUsage]
    trial_limits: Sequence[LimitTrialsPerMachine]
    joules: Joules

    @property
    def windows(self) -> int:
        return sum(len(usage.windows) for usage in self.trials)

    @property
    def steps(self) -> int:
        return sum(usage.steps for usage in self.trials)

    @property
    def counts(self) -> WindowCounts:
        counts = [usage.counts for usage in self.trials]
        return WindowCounts(
            sum(each.undecided for each in counts),
            sum(each.probes for each in counts),
            sum(each.used for each in counts),
        )

    @property
    def compared(self) -> Sequence[TrialUsage]:
        """Return the trials with an estimate of what they saved."""
        return [usage for usage in self.trials if usage.saved_seconds is not None]

    @property
    def saved_seconds(self) -> float:
        """Return an estimate of what the trials saved together."""
        return fsum(usage.saved_seconds or 0.0 for usage in self.trials)

    @property
    def saved_error(self) -> float:
        return math.hypot(*(usage.saved_error for usage in self.trials))

    @property
    def kinds(self) -> Sequence[str]:
        """Return the kinds of machine."""
        return _unique(window.kind for usage in self.trials for window in usage.windows)

    @property
    def meters(self) -> Sequence[str]:
        return _unique(window.meter for usage in self.trials for window in usage.windows)


def explain(history: History, now: float) -> StudyUsage:
    """Explain how a study's trials have used their machines until `now`."""
    ledger = Ledger.of(history, now)
    joules: dict[int, list[Joules]] = defaultdict(list)
    for row in ledger.rows:
        for work in row.work:
            joules[work.trial].append(work.joules)
    measured = [trial for trial in history.trials if trial.windows or trial.knob_changes]
    estimates = _estimates(measured)
    by_others = _by_others(estimates)
    usages = [_trial_usage(trial, estimates, by_others, joules[trial.id], now) for trial in measured]
    trial_limits = tuple(history.trial_limits.values())
    return StudyUsage(usages, trial_limits, Joules(ledger.joules, ledger.estimated_joules))


def _trial_usage(
    trial: TrialRecord, estimates: TrialEstimates, by_others: SettingEffects, joules: Iterable[Joules], now: float
) -> TrialUsage:
    windows = [window.usage for window in trial.windows]
    kind = machine_kind(trial)
    paces = _paces([window for window in windows if window.kind == kind])
    effect, is_by_others = None, False
    if trial.knob_setting and any(window.setting == trial.knob_setting for window in windows):
        effect, is_by_others = _effect(estimates.get((trial.id, kind)), by_others, kind, trial.knob_setting)
    decisions, counts = _decisions(trial, windows)
    seconds = trial.seconds
    if trial.state is State.RUNNING and trial.started_at is not None:
        seconds += max(0.0, now - trial.started_at)
    totals = zip(*joules, strict=True)
    return TrialUsage(
        trial.id,
        trial.knob_setting,
        trial.knob_changes[-1][1].by if trial.knob_changes else "",
        decisions,
        windows,
        counts,
        [(json.loads(setting), pace) for setting, pace in paces.items()],
        None if effect is None else 1.0 - math.exp(effect.log_ratio),
        None if effect is None else math.exp(effect.log_ratio) * effect.error,
        is_by_others,
        seconds,
        *_saved(trial, estimates, by_others),
        Joules(*(fsum(each) for each in totals)),
    )


# --- decisions --------------------------------------------------------------------------------------------


def _decisions(trial: TrialRecord, windows: Sequence[UsageMeasured]) -> tuple[list[KnobDecision], WindowCounts]:
    starts = _first_windows(trial.knob_changes, windows)
    undecided, probes, used = (starts[0] if starts else len(windows)), 0, 0
    decisions = []
    for number, ((begin, change), start) in enumerate(zip(trial.knob_changes, starts, strict=True)):
        end = starts[number + 1] if number + 1 < len(starts) else len(windows)
        since = max((other for other in starts if other < start), default=0)
        is_probe = change.by == PROBE
        if is_probe:
            probes += end - start
        else:
            used += end - start
        before = _pace([window for window in windows[since:start] if window.setting == windows[start - 1].setting])
        after = _pace([window for window in windows[start:end] if window.setting == change.setting])
        step = _last_step(trial, begin, change)
        decisions.append(KnobDecision(step, change.setting, change.why, is_probe, before, after, start))
    return decisions, WindowCounts(undecided, probes, used)


def _first_windows(changes: Sequence[tuple[int, SetKnobs]], windows: Sequence[UsageMeasured]) -> list[int]:
    """Return the number of the first window with each decision's setting.

    A window that was open when the decision was made has the setting before. A decision that never came into force
    gets the number of the next one.
    """
    starts: list[int] = []
    end, next_start = len(windows), len(windows)
    for begin, change in reversed(changes):
        next_start = next((i for i in range(begin, end) if windows[i].setting == change.setting), next_start)
        end = begin
        starts.append(next_start)
    return starts[::-1]


def _last_step(trial: TrialRecord, begin: int, change: SetKnobs) -> int:
    """Return the last step before a decision. `begin`: the number of windows then."""
    reported = [(report.at, report.step) for report in trial.reports if report.at <= change.at]
    # A window arrives before the report of its last step.
    measured = [(window.at, window.step) for window, _ in trial.windows[max(0, begin - 1) : begin]]
    return max([*reported, *measured], default=(0.0, 0))[1]


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


def _estimates(trials: Sequence[TrialRecord]) -> TrialEstimates:
    costs: dict[tuple[int, str], list[WindowCost]] = {}
    for trial in trials:
        of_kind: dict[str, list[UsageWindow]] = defaultdict(list)
        for window in trial.windows:
            of_kind[window.usage.kind].append(window)
        costs |= {(trial.id, kind): window_costs(each, _seconds_a_step) for kind, each in of_kind.items()}
    evidences = {of: evidence(each) for of, each in costs.items()}
    total: dict[str, Evidence] = {}
    for (_, kind), each in evidences.items():
        total[kind] = total.get(kind, NO_EVIDENCE).plus(each)
    return {of: Estimate(each, total[of[1]].minus(evidences[of])) for of, each in costs.items()}


def _seconds_a_step(measured: UsageMeasured) -> float:
    return measured.seconds / measured.steps


def _by_others(estimates: TrialEstimates) -> SettingEffects:
    """Return the mean effect of each setting over the trials that were measured with it and without knobs."""
    effects: dict[tuple[str, str], list[Effect]] = defaultdict(list)
    for (_, kind), estimate in estimates.items():
        for text in estimate.settings if estimate.windows({}) else ():
            effects[kind, text].append(estimate.effect(json.loads(text), {}))
    return {of: _mean(each) for of, each in effects.items() if of[1] != NOTHING_APPLIED}


def _mean(effects: Sequence[Effect]) -> Effect:
    weights = [effect.error**-2 for effect in effects]
    log_ratio = fsum(w * effect.log_ratio for w, effect in zip(weights, effects, strict=True)) / fsum(weights)
    return Effect(log_ratio, fsum(weights) ** -0.5)


def _effect(
    estimate: Estimate | None, by_others: SettingEffects, kind: str, setting: KnobSetting
) -> tuple[Effect | None, bool]:
    """Return a setting's effect, and whether other trials have shown it."""
    if estimate is not None and estimate.windows({}) and estimate.windows(setting):
        return estimate.effect(setting, {}), False
    effect = by_others.get((kind, key(setting)))
    return effect, effect is not None


def _saved(trial: TrialRecord, estimates: TrialEstimates, by_others: SettingEffects) -> tuple[float | None, float]:
    """Return how much longer the trial's windows would have taken without knobs, in seconds, and the error.

    The first value is None if there is nothing to compare with.
    """
    seconds_with_knobs: dict[tuple[str, str], float] = defaultdict(float)
    for window, _ in trial.windows:
        if window.setting:
            seconds_with_knobs[window.kind, key(window.setting)] += window.seconds
    saved, errors = [], []
    for (kind, text), seconds in seconds_with_knobs.items():
        effect, _ = _effect(estimates[trial.id, kind], by_others, kind, json.loads(text))
        if effect is not None:
            without_knobs = seconds * math.exp(-effect.log_ratio)
            saved.append(without_knobs - seconds)
            errors.append(without_knobs * effect.error)
    if seconds_with_knobs and not saved:
        return None, 0.0
    return fsum(saved), fsum(errors)


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    """Return each name once, without empty ones."""
    return tuple(dict.fromkeys(name for name in names if name))
