"""The ledger of a study: what each machine cost, and what work that bought.

The ledger is computed from the history, of a simulated study as of a real one. A row covers one life of one
machine, from its arrival to its end. A simulated cloud bills its machines, and the rows add up to its charge.
Without a bill, a row is an estimate and is marked as one: from the list price and the billing rules of a rented
machine's provider, or from the rent of a machine like the user's own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any, NamedTuple

from thriftune.results.attempt_energy import Joules, joules_of, usual_watts
from thriftune.state.events import THIS_MACHINE
from thriftune.state.fleet import Machine
from thriftune.state.history import History
from thriftune.state.reports import last_step_of_attempt
from thriftune.state.trial_record import PastAttempt, State, TrialRecord

SPOT_PRICE_UNKNOWN = "spot price unknown, on-demand price counted"

_SECONDS_PER_HOUR = 3600.0

_ROW_KEYS = (
    "machine",
    "offer",
    "since",
    "until",
    "seconds",
    "price_per_hour",
    "on_demand_per_hour",
    "dollars",
    "refunded",
    "data",
    "steps_done",
    "steps_lost",
    "joules",
    "estimated_joules",
    "lost_dollars",
    "revoked_dollars",
    "taken_away",
    "estimated",
    "price_known",
)

_SUM_KEYS = (
    "dollars",
    "estimated_dollars",
    "refunded",
    "data",
    "seconds",
    "on_demand_dollars",
    "steps_done",
    "steps_lost",
    "joules",
    "joules_estimated",
    "estimated_joules",
    "lost_dollars",
    "lost_share",
    "revoked_dollars",
    "revoked_share",
)


class AttemptWork(NamedTuple):
    """The work of one attempt on one machine.

    If the attempt's workers were on several machines, this is the share of the workers on this machine.
    """

    trial: int
    attempt: int
    workers: int
    since: float  # unix seconds
    until: float  # unix seconds
    steps_done: float
    steps_lost: float  # the part of steps_done that is not in a checkpoint and must be repeated
    revoked: bool  # True if the attempt ended with the preemption of any of its machines
    joules: Joules = Joules()

    @property
    def worker_seconds(self) -> float:
        return self.workers * (self.until - self.since)

    @property
    def lost_worker_seconds(self) -> float:
        """Return the time of the lost steps, if all steps took equally long.

        An attempt that was preempted before its first step was done has lost all of its time.
        """
        share = self.steps_lost / self.steps_done if self.steps_done else float(self.revoked)
        return self.worker_seconds * share


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One life of one machine; `dollars` is `price_per_hour * seconds / 3600 - refunded + data`.

    - `since`, `end`: unix seconds; `end` is the time of the ledger for a machine that is still present.
    - `slots`: 0 for a machine that never became ready.
    - `price_per_hour`: the mean over the machine's life, before refunds. A provider's minimum charge makes it high
      for a short life.
    - `on_demand_per_hour`: the price of the same machine type on demand; None if it is not known.
    - `dollars`: the amount to be paid, with `data` and without `refunded`.
    - `data`: dollars for data transfer.
    - `estimated`: True if the provider has sent no bill, so that the dollars are computed from a list price.
    - `price_known`: False for a spot machine that counts at an on-demand price because its spot price is not
      known.
    """

    machine: str
    offer: str
    since: float
    end: float
    is_present: bool
    slots: int
    price_per_hour: float
    on_demand_per_hour: float | None
    dollars: float
    refunded: float
    data: float
    taken_away: bool
    """True if the machine was preempted. The name must not change, because the JSON output has it."""
    estimated: bool
    work: Sequence[AttemptWork]
    """The work of all attempts on this machine, in order of start."""
    price_known: bool = True

    @property
    def until(self) -> float | None:
        """Return when the machine ended; None if it is still present."""
        return None if self.is_present else self.end

    @property
    def seconds(self) -> float:
        return self.end - self.since

    @property
    def steps_done(self) -> float:
        return fsum(work.steps_done for work in self.work)

    @property
    def steps_lost(self) -> float:
        """Return how many of the steps were or must be repeated, whatever the reason."""
        return fsum(work.steps_lost for work in self.work)

    @property
    def joules(self) -> float:
        """Return the energy that trials used here; the energy of an idle machine is not known."""
        return fsum(work.joules.total for work in self.work)

    @property
    def estimated_joules(self) -> float:
        """Return the part of the energy that no meter measured."""
        return fsum(work.joules.estimated for work in self.work)

    @property
    def lost_dollars(self) -> float:
        """Return what was paid for the machine's time that went into lost work."""
        return (self.dollars - self.data) * self._time_share(self.work)

    @property
    def revoked_dollars(self) -> float:
        """Return the part of lost_dollars that preemptions caused."""
        return (self.dollars - self.data) * self._time_share(work for work in self.work if work.revoked)

    @property
    def on_demand_dollars(self) -> float:
        """Estimate what the same work would cost on demand, billed by the second."""
        price = self.price_per_hour if self.on_demand_per_hour is None else self.on_demand_per_hour
        useful_share = 1.0 - self._time_share(work for work in self.work if work.revoked)
        return self.seconds * useful_share * price / _SECONDS_PER_HOUR + self.data

    def _time_share(self, lost: Iterable[AttemptWork]) -> float:
        """Return the share of the trials' time on this machine that these attempts lost.

        It is 1 for a machine that was preempted before it was ready.
        """
        used = fsum(work.worker_seconds for work in self.work)
        if not used:
            return float(self.taken_away and not self.slots)
        return fsum(work.lost_worker_seconds for work in lost) / used

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON; times are unix seconds."""
        return {key: getattr(self, key) for key in _ROW_KEYS}


@dataclass(frozen=True, slots=True)
class Ledger:
    """All machines of a study, in order of arrival, and their sums. Sums are rounded once, at the end."""

    rows: Sequence[LedgerRow]

    @classmethod
    def of(cls, history: History, now: float) -> Ledger:
        """Return the ledger of a study at `now` (unix seconds), until which running attempts count."""
        lives = [*history.fleet.past, *history.fleet.present.values()]
        lives.sort(key=lambda machine: (machine.started_at, machine.id))
        lives_by_id: dict[str, list[Machine]] = defaultdict(list)
        for machine in lives:
            lives_by_id[machine.id].append(machine)
        work_by_life: dict[int, list[AttemptWork]] = defaultdict(list)  # keyed by id() of the machine's life
        watts = usual_watts(history.trials)
        for trial in history.trials:
            attempts = list(_attempts(trial, now))
            for attempt, joules in zip(attempts, joules_of(trial, attempts, watts), strict=True):
                machines = {name: _life_at(lives_by_id[name], attempt.started_at) for name in attempt.workers}
                for name, work in _work_by_machine(trial.id, attempt, joules, machines.values()):
                    work_by_life[id(machines[name])].append(work)
        return cls(tuple(_row(machine, work_by_life[id(machine)], now) for machine in lives))

    @property
    def is_own_machine(self) -> bool:
        """Return whether the study ran only on this machine, which nobody bills; each drive has a row then."""
        return all(row.machine == THIS_MACHINE for row in self.rows)

    @property
    def dollars(self) -> float:
        """Return the amount to be paid."""
        return fsum(row.dollars for row in self.rows)

    @property
    def estimated_dollars(self) -> float:
        """Return the part of the dollars that no provider has billed."""
        return fsum(row.dollars for row in self.rows if row.estimated)

    @property
    def refunded(self) -> float:
        return fsum(row.refunded for row in self.rows)

    @property
    def data(self) -> float:
        return fsum(row.data for row in self.rows)

    @property
    def seconds(self) -> float:
        return fsum(row.seconds for row in self.rows)

    @property
    def steps_done(self) -> float:
        return fsum(row.steps_done for row in self.rows)

    @property
    def steps_lost(self) -> float:
        return fsum(row.steps_lost for row in self.rows)

    @property
    def joules(self) -> float:
        """Return the energy that all attempts used."""
        return fsum(row.joules for row in self.rows)

    @property
    def estimated_joules(self) -> float:
        """Return the part of the energy that no meter measured."""
        return fsum(row.estimated_joules for row in self.rows)

    @property
    def joules_estimated(self) -> bool:
        """Return whether any of the energy is estimated."""
        return self.estimated_joules > 0.0

    @property
    def lost_dollars(self) -> float:
        """Return what was paid for lost work, whatever the reason."""
        return fsum(row.lost_dollars for row in self.rows)

    @property
    def lost_share(self) -> float:
        return self._share(self.lost_dollars)

    @property
    def revoked_dollars(self) -> float:
        """Return the part of lost_dollars that preemptions caused."""
        return fsum(row.revoked_dollars for row in self.rows)

    @property
    def revoked_share(self) -> float:
        return self._share(self.revoked_dollars)

    @property
    def on_demand_dollars(self) -> float:
        """Estimate what the same work would cost on on-demand machines."""
        return fsum(row.on_demand_dollars for row in self.rows)

    def _share(self, dollars: float) -> float:
        """Return these dollars as a share of the amount to be paid."""
        paid = self.dollars
        return dollars / paid if paid else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the sums and the rows, under "machines", as JSON."""
        return {**{key: getattr(self, key) for key in _SUM_KEYS}, "machines": [row.to_json() for row in self.rows]}


def _row(machine: Machine, work: Sequence[AttemptWork], now: float) -> LedgerRow:
    bill, seconds = machine.bill, machine.seconds(now)
    price = machine.price_per_hour
    if bill is not None and seconds:
        price = (bill.dollars - bill.data + bill.refunded) / seconds * _SECONDS_PER_HOUR
    return LedgerRow(
        machine=machine.id,
        offer=machine.offer,
        since=machine.started_at,
        end=machine.started_at + seconds if machine.ended_at is None else machine.ended_at,
        is_present=machine.ended_at is None,
        slots=machine.slots,
        price_per_hour=price,
        on_demand_per_hour=machine.on_demand_per_hour,
        dollars=machine.dollars(now),
        refunded=0.0 if bill is None else bill.refunded,
        data=0.0 if bill is None else bill.data,
        taken_away=machine.was_preempted,
        estimated=bill is None or bill.estimated,
        work=tuple(sorted(work, key=lambda each: (each.since, each.trial))),
        price_known=machine.price_known,
    )


def _attempts(trial: TrialRecord, now: float) -> Iterator[PastAttempt]:
    """Yield a trial's attempts; one that is running has ended at `now` and has lost no step."""
    for number, attempt in enumerate(trial.past_attempts, 1):
        # A paused trial has no step to repeat, unless it resumes later.
        is_paused = trial.state is State.PAUSED and number == len(trial.past_attempts)
        yield attempt._replace(resumable_step=attempt.last_step) if is_paused else attempt
    if trial.workers and trial.started_at is not None:
        start, last = trial.started_at, last_step_of_attempt(trial)
        yield PastAttempt(trial.attempts, trial.workers, start, max(start, now), trial.resumed_from, last, last)


def _life_at(lives: Sequence[Machine], time: float) -> Machine:
    """Return the life of a machine at a time; only this machine has several, one for each drive."""
    return next((machine for machine in reversed(lives) if machine.started_at <= time), lives[0])


def _work_by_machine(
    trial: int, attempt: PastAttempt, joules: Joules, machines: Iterable[Machine]
) -> Iterator[tuple[str, AttemptWork]]:
    """Yield each machine of an attempt with its share of the attempt's work, in proportion to its workers."""
    # No attempt outlives its machine. An attempt that ended at the same time as a machine ended because of it.
    revoked = any(
        each.was_preempted and each.ended_at is not None and attempt.ended_at >= each.ended_at for each in machines
    )
    done = max(0, attempt.last_step - attempt.first_step)
    total_workers = sum(attempt.workers.values())
    for name, workers in attempt.workers.items():
        share = workers / total_workers
        yield (
            name,
            AttemptWork(
                trial=trial,
                attempt=attempt.attempt,
                workers=workers,
                since=attempt.started_at,
                until=attempt.ended_at,
                steps_done=done * share,
                steps_lost=attempt.lost_steps * share,
                revoked=revoked,
                joules=Joules(joules.total * share, joules.estimated * share),
            ),
        )
