"""How long does a step of this trial take on that kind of machine? From what was seen, online (SpotTune's M).

A trial that ran on a kind is known there. Else its step takes as long as elsewhere, but for how much faster that
kind was for others: log seconds = trial - kind, fitted by turns. What nobody has seen goes by the kind's guess.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from heapq import nlargest

from thriftune.planning.machine_types import MachineType
from thriftune.state.history import History
from thriftune.state.reports import timed_steps_of_attempt
from thriftune.state.trial_record import PastAttempt, TrialRecord

_SWEEPS = 5
_LATEST = 256  # trials, by which it is told how fast kinds are
_DOUBT = 1.0  # kinds: how many trials of others weigh as much as the kind's own guess


class StepTimeEstimator:
    """A cache of what the history tells, brought up to date as it grows."""

    def __init__(self, kinds: Iterable[MachineType], seconds_per_step: float) -> None:
        self._guess = {kind.name: math.log(kind.speed) for kind in kinds}
        self._usual = math.log(seconds_per_step)
        self._of: History | None = None
        self._forget()

    def _forget(self) -> None:
        self._entries = -1  # how much of the history is in
        self._told: dict[int, dict[str, float]] = {}  # answers by trial and kind, as long as nothing happens
        self._timed: dict[int, dict[str, float]] = {}
        self._ended = 0  # how many of the trials that have ended are in
        self._stays: dict[int, int] = {}  # trial -> how many of its stays are in
        self._seen: dict[tuple[int, str], tuple[float, int]] = {}  # seconds and steps, by trial and kind
        self._logs: dict[int, dict[str, float]] = {}  # of the seconds of a step, by trial and kind
        self._alone = dict.fromkeys(self._guess, (0.0, 0))  # the sum and the number of those who were nowhere else
        self._several: set[int] = set()  # trials that were on several kinds
        self._offers: dict[str, str] = {}  # machine -> kind
        self._past = 0  # how many of the machines that are gone are in it
        self._speed = dict(self._guess)  # log
        self._pace = {kind: math.exp(-speed) for kind, speed in self._speed.items()}
        self._mean = self._usual
        self._stale = False

    def seconds(self, trial: TrialRecord | None, kind: str, history: History) -> float:
        """Of a step. None: of a trial that is yet to be made."""
        if self._entries != history.entries or self._of is not history:
            self._refresh(history)
        trial_id = -1 if trial is None else trial.id
        told = self._told.get(trial_id)
        if told is None:
            told = self._told[trial_id] = self._tell(trial, history)
        return told[kind]

    def _tell(self, trial: TrialRecord | None, history: History) -> dict[str, float]:
        """By kind."""
        seen = {} if trial is None else self._own(trial, history)
        logs = [math.log(each) + self._speed[other] for other, each in seen.items()]
        base = math.exp(math.fsum(logs) / len(logs) if logs else self._mean)
        return {kind: base * pace for kind, pace in self._pace.items()} | seen

    def known(self, trial: TrialRecord, history: History) -> bool:
        """Whether this trial has been timed anywhere."""
        self._refresh(history)
        return bool(self._own(trial, history))

    def _own(self, trial: TrialRecord, history: History) -> dict[str, float]:
        """Seconds of its steps, by the kinds that it has been on, the one it runs on now included."""
        if trial.id not in self._timed:
            self._timed[trial.id] = self._time(trial, history)
        return self._timed[trial.id]

    def _time(self, trial: TrialRecord, history: History) -> dict[str, float]:
        sums = {kind: self._seen[trial.id, kind] for kind in self._guess if (trial.id, kind) in self._seen}
        machine = history.machines.get(trial.machine or "")
        if machine is not None and machine.offer in self._guess:
            steps, seconds = timed_steps_of_attempt(trial)
            if steps:
                before = sums.get(machine.offer, (0.0, 0))
                sums[machine.offer] = before[0] + seconds, before[1] + steps
        return {kind: seconds / steps for kind, (seconds, steps) in sums.items() if seconds > 0.0}

    def _refresh(self, history: History) -> None:
        if self._of is not history:
            self._forget()
            self._of = history
        if self._entries == history.entries:
            return
        self._entries = history.entries
        self._told.clear()
        self._timed.clear()
        for trial in history.ended[self._ended :]:
            self._take_in(trial, history)
        self._ended = len(history.ended)
        for trial_id in (*history.waiting, *history.running):
            self._take_in(history.trials[trial_id], history)
        if self._stale:
            self._fit()

    def _take_in(self, trial: TrialRecord, history: History) -> None:
        done = self._stays.get(trial.id, 0)
        if done < len(trial.past_attempts):
            for stay in trial.past_attempts[done:]:
                self._add(trial, stay, history)
            self._stays[trial.id] = len(trial.past_attempts)

    def _add(self, trial: TrialRecord, stay: PastAttempt, history: History) -> None:
        steps, seconds = stay.timed_steps, stay.timed_seconds
        machine = next(iter(stay.workers), "")
        offer = self._offers.get(machine) or self._offer(machine, history)
        if not steps or offer not in self._guess:
            return
        before = self._seen.get((trial.id, offer), (0.0, 0))
        seconds, steps = before[0] + seconds, before[1] + steps
        self._seen[trial.id, offer] = seconds, steps
        if seconds > 0.0:
            logs = self._logs.setdefault(trial.id, {})
            self._count_alone(logs, -1)
            logs[offer] = math.log(seconds / steps)
            self._count_alone(logs, 1)
            if len(logs) > 1:
                self._several.add(trial.id)
            self._stale = True

    def _count_alone(self, logs: Mapping[str, float], times: int) -> None:
        if len(logs) == 1:
            ((kind, log),) = logs.items()
            total, number = self._alone[kind]
            self._alone[kind] = total + times * log, number + times

    def _offer(self, machine: str, history: History) -> str:
        for each in (*history.fleet.past[self._past :], *history.machines.values()):
            self._offers[each.id] = each.offer
        self._past = len(history.fleet.past)
        return self._offers.get(machine, "")

    def _fit(self) -> None:
        """Always from the guesses, so that it is the same for whoever reads the history later."""
        self._stale = False
        speed = dict(self._guess)
        for _ in range(_SWEEPS):
            faster: dict[str, list[float]] = {}
            for trial in nlargest(_LATEST, self._several):  # who was nowhere else tells nothing of a kind
                base = self._base(trial, speed)
                for kind, log in self._logs[trial].items():
                    faster.setdefault(kind, []).append(base - log)
            for kind, each in faster.items():
                speed[kind] = (math.fsum(each) + _DOUBT * self._guess[kind]) / (len(each) + _DOUBT)
        self._speed = speed
        self._pace = {kind: math.exp(-each) for kind, each in speed.items()}
        bases = [self._base(trial, speed) for trial in self._several]
        bases += [total + number * speed[kind] for kind, (total, number) in self._alone.items()]
        self._mean = math.fsum(bases) / len(self._logs)

    def _base(self, trial: int, speed: Mapping[str, float]) -> float:
        """The logarithm of its seconds on a machine of speed 1."""
        logs = self._logs[trial]
        return math.fsum(log + speed[kind] for kind, log in logs.items()) / len(logs)
