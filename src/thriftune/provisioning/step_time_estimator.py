"""The estimation of a trial's seconds per step on a machine type.

SpotTune calls it M and also updates it as trials run. On a type that the trial has used, its own steps are
averaged. On another type, its step takes as long as on the types that it has used, scaled by how much faster that
type was for other trials. The model is log(seconds) = a - b, where a belongs to the trial and b, the log of the
speed, to the type. It is fitted alternately for trials and types. A type that no trial has used has its stated
speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from heapq import nlargest

from thriftune.planning.machine_types import MachineType
from thriftune.state.history import History
from thriftune.state.reports import timed_steps_of_attempt
from thriftune.state.trial_record import PastAttempt, TrialRecord

_SWEEPS = 5  # alternations of the fit
_MAX_FITTED_TRIALS = 256  # the latest trials, from which speeds are fitted
_PRIOR_TRIALS = 1.0  # the weight of a type's stated speed, as a number of trials


class StepTimeEstimator:
    """A cache of step times, updated as the history grows.

    Machine types are identified by their names.
    """

    def __init__(self, machine_types: Iterable[MachineType], seconds_per_step: float) -> None:
        self._stated_log_speed = {each.name: math.log(each.speed) for each in machine_types}
        self._stated_log_seconds = math.log(seconds_per_step)
        self._history: History | None = None
        self._reset()

    def _reset(self) -> None:
        self._entries = -1  # entries of the history that are counted
        # Caches by trial id, cleared at every new entry: estimated and measured seconds per step, by type.
        self._estimates: dict[int, dict[str, float]] = {}
        self._measured: dict[int, dict[str, float]] = {}
        self._counted_ended = 0  # ended trials that are counted
        self._counted_attempts: dict[int, int] = {}  # trial -> past attempts that are counted
        self._sums: dict[tuple[int, str], tuple[float, int]] = {}  # (trial, type) -> seconds and steps
        self._log_seconds: dict[int, dict[str, float]] = {}  # trial -> type -> log of its seconds per step
        # Type -> sum and count of `_log_seconds` of the trials that have used only this type.
        self._single_type_sums = dict.fromkeys(self._stated_log_speed, (0.0, 0))
        self._multi_type_trials: set[int] = set()
        self._type_of: dict[str, str] = {}  # machine -> type
        self._counted_machines = 0  # past machines that are in `_type_of`
        self._log_speed = dict(self._stated_log_speed)
        self._slowness = {name: math.exp(-speed) for name, speed in self._log_speed.items()}
        self._mean_log_seconds = self._stated_log_seconds  # of all trials, on a machine of speed 1
        self._needs_fit = False

    def seconds(self, trial: TrialRecord | None, type_name: str, history: History) -> float:
        """Return the expected seconds per step of a trial on a machine type.

        A trial of None stands for a new one.
        """
        if self._entries != history.entries or self._history is not history:
            self._update(history)
        trial_id = -1 if trial is None else trial.id
        estimates = self._estimates.get(trial_id)
        if estimates is None:
            estimates = self._estimates[trial_id] = self._estimate(trial, history)
        return estimates[type_name]

    def _estimate(self, trial: TrialRecord | None, history: History) -> dict[str, float]:
        """Return the seconds per step of a trial by type."""
        measured = {} if trial is None else self._measured_seconds(trial, history)
        logs = [math.log(seconds) + self._log_speed[name] for name, seconds in measured.items()]
        at_speed_1 = math.exp(math.fsum(logs) / len(logs) if logs else self._mean_log_seconds)
        return {name: at_speed_1 * slowness for name, slowness in self._slowness.items()} | measured

    def is_timed(self, trial: TrialRecord, history: History) -> bool:
        """Return whether any step of this trial has been timed."""
        self._update(history)
        return bool(self._measured_seconds(trial, history))

    def _measured_seconds(self, trial: TrialRecord, history: History) -> dict[str, float]:
        """Return the measured seconds per step by type, with those of the running attempt."""
        if trial.id not in self._measured:
            self._measured[trial.id] = self._measure(trial, history)
        return self._measured[trial.id]

    def _measure(self, trial: TrialRecord, history: History) -> dict[str, float]:
        sums = {
            name: self._sums[trial.id, name] for name in self._stated_log_speed if (trial.id, name) in self._sums
        }
        machine = history.machines.get(trial.machine or "")
        if machine is not None and machine.offer in self._stated_log_speed:
            steps, seconds = timed_steps_of_attempt(trial)
            if steps:
                before = sums.get(machine.offer, (0.0, 0))
                sums[machine.offer] = before[0] + seconds, before[1] + steps
        return {name: seconds / steps for name, (seconds, steps) in sums.items() if seconds > 0.0}

    def _update(self, history: History) -> None:
        if self._history is not history:
            self._reset()
            self._history = history
        if self._entries == history.entries:
            return
        self._entries = history.entries
        self._estimates.clear()
        self._measured.clear()
        for trial in history.ended[self._counted_ended :]:
            self._count_attempts(trial, history)
        self._counted_ended = len(history.ended)
        for trial_id in (*history.waiting, *history.running):
            self._count_attempts(history.trials[trial_id], history)
        if self._needs_fit:
            self._fit()

    def _count_attempts(self, trial: TrialRecord, history: History) -> None:
        counted = self._counted_attempts.get(trial.id, 0)
        if counted < len(trial.past_attempts):
            for attempt in trial.past_attempts[counted:]:
                self._count_attempt(trial, attempt, history)
            self._counted_attempts[trial.id] = len(trial.past_attempts)

    def _count_attempt(self, trial: TrialRecord, attempt: PastAttempt, history: History) -> None:
        """Add the timed steps of a past attempt to the sums."""
        steps, seconds = attempt.timed_steps, attempt.timed_seconds
        machine = next(iter(attempt.workers), "")
        type_name = self._type_of.get(machine) or self._find_type(machine, history)
        if not steps or type_name not in self._stated_log_speed:
            return
        before = self._sums.get((trial.id, type_name), (0.0, 0))
        seconds, steps = before[0] + seconds, before[1] + steps
        self._sums[trial.id, type_name] = seconds, steps
        if seconds > 0.0:
            logs = self._log_seconds.setdefault(trial.id, {})
            self._add_single_type(logs, -1)
            logs[type_name] = math.log(seconds / steps)
            self._add_single_type(logs, 1)
            if len(logs) > 1:
                self._multi_type_trials.add(trial.id)
            self._needs_fit = True

    def _add_single_type(self, logs: Mapping[str, float], sign: int) -> None:
        """Add a trial to `_single_type_sums` if it has used a single type.

        `logs` are the logs of its seconds per step by type. A `sign` of -1 removes the trial.
        """
        if len(logs) == 1:
            ((name, log),) = logs.items()
            total, count = self._single_type_sums[name]
            self._single_type_sums[name] = total + sign * log, count + sign

    def _find_type(self, machine_id: str, history: History) -> str:
        for machine in (*history.fleet.past[self._counted_machines :], *history.machines.values()):
            self._type_of[machine.id] = machine.offer
        self._counted_machines = len(history.fleet.past)
        return self._type_of.get(machine_id, "")

    def _fit(self) -> None:
        """Fit the speeds to the measured times.

        The fit starts from the stated speeds, so that the same history gives the same speeds.
        """
        self._needs_fit = False
        log_speed = dict(self._stated_log_speed)
        for _ in range(_SWEEPS):
            observed: dict[str, list[float]] = {}
            # A trial that has used a single type tells nothing about its speed.
            for trial in nlargest(_MAX_FITTED_TRIALS, self._multi_type_trials):
                at_speed_1 = self._log_seconds_at_speed_1(trial, log_speed)
                for name, log in self._log_seconds[trial].items():
                    observed.setdefault(name, []).append(at_speed_1 - log)
            for name, speeds in observed.items():
                prior = _PRIOR_TRIALS * self._stated_log_speed[name]
                log_speed[name] = (math.fsum(speeds) + prior) / (len(speeds) + _PRIOR_TRIALS)
        self._log_speed = log_speed
        self._slowness = {name: math.exp(-speed) for name, speed in log_speed.items()}
        logs = [self._log_seconds_at_speed_1(trial, log_speed) for trial in self._multi_type_trials]
        logs += [total + count * log_speed[name] for name, (total, count) in self._single_type_sums.items()]
        self._mean_log_seconds = math.fsum(logs) / len(self._log_seconds)

    def _log_seconds_at_speed_1(self, trial: int, log_speed: Mapping[str, float]) -> float:
        """Return the log of the trial's seconds per step on a machine of speed 1."""
        logs = self._log_seconds[trial]
        return math.fsum(log + log_speed[name] for name, log in logs.items()) / len(logs)
