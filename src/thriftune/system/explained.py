"""What was decided, and by which measurements? Of each trial and of a whole study, read off its history.

Windows that hold an attempt's first step are told, but not compared: that step often takes longer. Nor are windows
compared that are of different kinds of machine. What would have been with nothing turned is an estimate: by the
trial's own windows with nothing turned, or, where it has none, by what the same setting has gained other trials.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from statistics import geometric_mean, stdev
from typing import NamedTuple

from thriftune.events import LOOK, Measured, Narrow, Turn
from thriftune.history import History
from thriftune.ledger import Ledger
from thriftune.system.estimate import Setting
from thriftune.system.joules import Joules
from thriftune.system.known_work import UNTURNED, key
from thriftune.trial import State, TrialRecord

Ratios = Mapping[tuple[str, str], float]
"""By kind of machine and setting, how long a step takes relative to one with nothing turned."""


class Pace(NamedTuple):
    """How long a step takes, over some windows. `spread`: by what part of it they differ; None: it is just one."""

    seconds_a_step: float
    windows: int
    spread: float | None


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
    - `gain`: how much less a step takes now than with nothing turned; `by_others`: they told, not its own windows.
    - `seconds`: that it has been on machines; `saved_seconds`: how many more it would have been with nothing
      turned, which is an estimate; None: nobody can tell.
    """

    trial: int
    setting: Setting
    found: str
    decisions: Sequence[Decided]
    windows: Sequence[Measured]
    counts: Counts
    paces: Sequence[tuple[Setting, Pace]]
    gain: float | None
    by_others: bool
    seconds: float
    saved_seconds: float | None
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
    narrowed: Sequence[Narrow]
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
    def base_windows(self) -> int:
        """With nothing turned: what that estimate rests on. Few of them, and it is a rough one."""
        return sum(story.unturned.windows for story in self.trials if story.unturned is not None)

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
    measured = [trial for trial in history.trials if trial.windows or trial.turns]
    ratios = _ratios(measured)
    stories = [_story(trial, ratios, joules[trial.id], now) for trial in measured]
    narrowed = tuple(history.narrowed.values())
    return Explained(stories, narrowed, Joules(ledger.joules, ledger.estimated_joules))


def _story(trial: TrialRecord, ratios: Ratios, joules: Iterable[Joules], now: float) -> TrialStory:
    windows = [window.measured for window in trial.windows]
    paces = _paces([window for window in windows if window.kind == windows[-1].kind])
    gain, by_others = _gain(trial.setting, paces, ratios, windows[-1].kind if windows else "")
    decisions, counts = _decisions(trial, windows)
    seconds = trial.seconds
    if trial.state is State.RUNNING and trial.started_at is not None:
        seconds += max(0.0, now - trial.started_at)
    totals = zip(*joules, strict=True)
    return TrialStory(
        trial.id,
        trial.setting,
        _found([turn for _, turn in trial.turns]),
        decisions,
        windows,
        counts,
        [(json.loads(setting), pace) for setting, pace in paces.items()],
        gain,
        by_others,
        seconds,
        _saved(windows, ratios),
        Joules(*(fsum(each) for each in totals)),
    )


# --- decisions --------------------------------------------------------------------------------------------


def _decisions(trial: TrialRecord, windows: Sequence[Measured]) -> tuple[list[Decided], Counts]:
    starts = _starts(trial.turns, windows)
    untouched, looks, kept = (starts[0] if starts else len(windows)), 0, 0
    found = []
    for number, ((begin, turn), start) in enumerate(zip(trial.turns, starts, strict=True)):
        end = starts[number + 1] if number + 1 < len(starts) else len(windows)
        since = max((other for other in starts if other < start), default=0)
        if turn.by == LOOK:
            looks += end - start
        else:
            kept += end - start
        before = _pace([window for window in windows[since:start] if window.setting == windows[start - 1].setting])
        after = _pace([window for window in windows[start:end] if window.setting == turn.setting])
        step = _step(trial, begin, turn)
        found.append(Decided(step, turn.setting, turn.why, turn.by == LOOK, before, after, start))
    return found, Counts(untouched, looks, kept)


def _starts(turns: Sequence[tuple[int, Turn]], windows: Sequence[Measured]) -> list[int]:
    """The first window with each decision's setting: one that had begun before has another still. A decision that
    never came into force begins and ends with the next."""
    starts: list[int] = []
    end, next_start = len(windows), len(windows)
    for begin, turn in reversed(turns):
        next_start = next((i for i in range(begin, end) if windows[i].setting == turn.setting), next_start)
        end = begin
        starts.append(next_start)
    return starts[::-1]


def _step(trial: TrialRecord, begin: int, turn: Turn) -> int:
    """The last that was done when it was decided: of a window that has just come, the report comes after it."""
    told = [(report.at, report.step) for report in trial.reports if report.at <= turn.at]
    seen = [(window.at, window.step) for window, _ in trial.windows[max(0, begin - 1) : begin]]
    return max([*told, *seen], default=(0.0, 0))[1]


def _found(turns: Sequence[Turn]) -> str:
    """What the last decision rests on."""
    return turns[-1].by if turns else ""


# --- comparisons ------------------------------------------------------------------------------------------


def _pace(windows: Sequence[Measured]) -> Pace | None:
    warm = [window for window in windows if not window.cold]
    if not warm:
        return None
    mean = fsum(window.seconds for window in warm) / sum(window.steps for window in warm)
    if len(warm) == 1 or not mean:
        return Pace(mean, len(warm), None)
    return Pace(mean, len(warm), stdev(window.seconds / window.steps for window in warm) / mean)


def _paces(windows: Sequence[Measured]) -> dict[str, Pace]:
    by_setting: dict[str, list[Measured]] = defaultdict(list)
    for window in windows:
        by_setting[key(window.setting)].append(window)
    return {setting: pace for setting, each in by_setting.items() if (pace := _pace(each)) is not None}


def _by_kind(windows: Sequence[Measured]) -> dict[str, dict[str, Pace]]:
    of_kind: dict[str, list[Measured]] = defaultdict(list)
    for window in windows:
        of_kind[window.kind].append(window)
    return {kind: _paces(each) for kind, each in of_kind.items()}


def _ratios(trials: Sequence[TrialRecord]) -> Ratios:
    """By the trials that have measured both."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for trial in trials:
        for kind, paces in _by_kind([window.measured for window in trial.windows]).items():
            base = paces.get(UNTURNED)
            for setting, pace in paces.items():
                if base is not None and base.seconds_a_step and pace.seconds_a_step:
                    found[kind, setting].append(pace.seconds_a_step / base.seconds_a_step)
    return {of: geometric_mean(each) for of, each in found.items()}


def _gain(setting: Setting, paces: Mapping[str, Pace], ratios: Ratios, kind: str) -> tuple[float | None, bool]:
    """And whether others told it."""
    now, base = paces.get(key(setting)), paces.get(UNTURNED)
    if not setting or now is None:
        return None, False
    if base is not None and base.seconds_a_step:
        return 1.0 - now.seconds_a_step / base.seconds_a_step, False
    ratio = ratios.get((kind, key(setting)))
    return (None, False) if ratio is None else (1.0 - ratio, True)


def _saved(windows: Sequence[Measured], ratios: Ratios) -> float | None:
    """How many seconds more they would have taken with nothing turned. None: there is nothing to compare with."""
    turned = [window for window in windows if window.setting]
    if not turned:
        return 0.0
    paces = _by_kind(windows)
    saved = []
    for window in turned:
        base = paces[window.kind].get(UNTURNED)
        ratio = ratios.get((window.kind, key(window.setting)))
        if base is not None and not window.cold:
            saved.append(window.steps * base.seconds_a_step - window.seconds)
        elif ratio is not None and not window.cold:
            saved.append(window.seconds / ratio - window.seconds)
    return fsum(saved) if saved else None


def _names(given: Iterable[str]) -> tuple[str, ...]:
    """Each once."""
    return tuple(dict.fromkeys(name for name in given if name))
