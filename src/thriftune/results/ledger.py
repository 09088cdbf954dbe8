"""What did the machines cost, and what came of it? A study's ledger: a row for every life of every machine.

It is read off the history, of a simulated study as of a real one. A simulated cloud bills its machines, and the
rows add up to its charge. Otherwise a row is an estimate, and says so: of a rented machine from its list price and
its provider's rules, of a machine of one's own from what a like one rents for. Beside the dollars stand the joules
that trials took there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any, NamedTuple

from thriftune.state.events import THIS_MACHINE
from thriftune.state.fleet import Machine
from thriftune.state.history import History
from thriftune.state.reports import last_step_of_attempt
from thriftune.state.trial_record import PastAttempt, State, TrialRecord
from thriftune.system.joules import Joules, joules_of, usual_watts

SPOT_PRICE_UNKNOWN = "spot price unknown, on-demand price counted"

_HOUR = 3600.0


class Work(NamedTuple):
    """What one attempt did on one machine; if it had workers on several, this one's part of its steps.

    `revoked`: it ended when a provider took away one of its machines, this one or another.
    """

    trial: int
    attempt: int
    workers: int
    since: float
    until: float
    steps_done: float
    steps_lost: float  # of those, to be done again
    revoked: bool
    joules: Joules = Joules()

    @property
    def worker_seconds(self) -> float:
        return self.workers * (self.until - self.since)

    @property
    def lost_worker_seconds(self) -> float:
        """Those of the lost steps, if all of its steps took as long; of one that was taken away in its first step,
        all."""
        share = self.steps_lost / self.steps_done if self.steps_done else float(self.revoked)
        return self.worker_seconds * share


@dataclass(frozen=True, slots=True)
class Row:
    """One life of one machine. `price_per_hour * seconds / 3600 - refunded + data` is `dollars`.

    - `end`: when it was gone, or until when this tells; `there`: it was not gone by then.
    - `slots`: workers at a time; 0 of one that never got ready.
    - `price_per_hour`: the mean over its life, before anything was let off. The least that a provider bills makes
      it high for a short one.
    - `on_demand_per_hour`: of a like machine that is not taken away; None: not known.
    - `dollars`: to be paid, the `data` included; `refunded`: let off, and not in it.
    - `estimated`: its provider has sent no bill; the dollars come from a list price.
    - `price_known`: False for a spot machine whose price is not known; it is counted at an on-demand price.
    """

    machine: str
    offer: str
    since: float
    end: float
    there: bool
    slots: int
    price_per_hour: float
    on_demand_per_hour: float | None
    dollars: float
    refunded: float
    data: float
    taken_away: bool
    estimated: bool
    work: Sequence[Work]
    price_known: bool = True

    @property
    def until(self) -> float | None:
        return None if self.there else self.end

    @property
    def seconds(self) -> float:
        return self.end - self.since

    @property
    def steps_done(self) -> float:
        return fsum(work.steps_done for work in self.work)

    @property
    def steps_lost(self) -> float:
        """Of those done, how many had or have to be done again, for whatever reason."""
        return fsum(work.steps_lost for work in self.work)

    @property
    def joules(self) -> float:
        """That trials took here; what a machine takes that waits for one is not known."""
        return fsum(work.joules.total for work in self.work)

    @property
    def estimated_joules(self) -> float:
        """The part of them that no meter has told."""
        return fsum(work.joules.estimated for work in self.work)

    @property
    def lost_dollars(self) -> float:
        """What was paid, for its time, that went into work which was lost."""
        return (self.dollars - self.data) * self._part(self.work)

    @property
    def revoked_dollars(self) -> float:
        """The part of them that was lost since a provider took a machine away."""
        return (self.dollars - self.data) * self._part(work for work in self.work if work.revoked)

    @property
    def on_demand_dollars(self) -> float:
        """An estimate: what the same work costs on a machine that is not taken away, by the second."""
        price = self.price_per_hour if self.on_demand_per_hour is None else self.on_demand_per_hour
        kept = 1.0 - self._part(work for work in self.work if work.revoked)
        return self.seconds * kept * price / _HOUR + self.data

    def _part(self, lost: Iterable[Work]) -> float:
        """Of all time that trials had here, what these lost. All, of one that was taken before it was ready."""
        used = fsum(work.worker_seconds for work in self.work)
        if not used:
            return float(self.taken_away and not self.slots)
        return fsum(work.lost_worker_seconds for work in lost) / used

    def to_json(self) -> dict[str, Any]:
        """Times are unix seconds."""
        return {
            "machine": self.machine,
            "offer": self.offer,
            "since": self.since,
            "until": self.until,
            "seconds": self.seconds,
            "price_per_hour": self.price_per_hour,
            "on_demand_per_hour": self.on_demand_per_hour,
            "dollars": self.dollars,
            "refunded": self.refunded,
            "data": self.data,
            "steps_done": self.steps_done,
            "steps_lost": self.steps_lost,
            "joules": self.joules,
            "estimated_joules": self.estimated_joules,
            "lost_dollars": self.lost_dollars,
            "revoked_dollars": self.revoked_dollars,
            "taken_away": self.taken_away,
            "estimated": self.estimated,
            "price_known": self.price_known,
        }


@dataclass(frozen=True, slots=True)
class Ledger:
    """All machines of a study, by the time at which they came. Sums are rounded once, at the end."""

    rows: Sequence[Row]

    @classmethod
    def of(cls, history: History, now: float) -> Ledger:
        """As it stands at `now`: until then is what has not ended counted."""
        lives = [*history.fleet.past, *history.fleet.present.values()]
        lives.sort(key=lambda machine: (machine.started_at, machine.id))
        by_id: dict[str, list[Machine]] = defaultdict(list)
        for machine in lives:
            by_id[machine.id].append(machine)
        done: dict[int, list[Work]] = defaultdict(list)  # by the identity of the life
        watts = usual_watts(history.trials)
        for trial in history.trials:
            stays = list(_stays(trial, now))
            for stay, joules in zip(stays, joules_of(trial, stays, watts), strict=True):
                at = {name: _life(by_id[name], stay.started_at) for name in stay.workers}
                for name, work in _shared(trial.id, stay, joules, at.values()):
                    done[id(at[name])].append(work)
        return cls(tuple(_row(machine, done[id(machine)], now) for machine in lives))

    @property
    def own(self) -> bool:
        """It was all on this machine, a row for every drive, and nobody bills it."""
        return all(row.machine == THIS_MACHINE for row in self.rows)

    @property
    def dollars(self) -> float:
        """To be paid."""
        return fsum(row.dollars for row in self.rows)

    @property
    def estimated_dollars(self) -> float:
        """The part of them that no provider has billed."""
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
        """That trials took, over all their attempts."""
        return fsum(row.joules for row in self.rows)

    @property
    def estimated_joules(self) -> float:
        """The part of them that no meter has told."""
        return fsum(row.estimated_joules for row in self.rows)

    @property
    def joules_estimated(self) -> bool:
        """There is such a part."""
        return self.estimated_joules > 0.0

    @property
    def lost_dollars(self) -> float:
        """What was paid for work that was lost, for whatever reason."""
        return fsum(row.lost_dollars for row in self.rows)

    @property
    def lost_share(self) -> float:
        return self._share(self.lost_dollars)

    @property
    def revoked_dollars(self) -> float:
        """The part of them that was lost to revocations."""
        return fsum(row.revoked_dollars for row in self.rows)

    @property
    def revoked_share(self) -> float:
        return self._share(self.revoked_dollars)

    @property
    def on_demand_dollars(self) -> float:
        """An estimate: what the same work costs on machines that are not taken away."""
        return fsum(row.on_demand_dollars for row in self.rows)

    def _share(self, dollars: float) -> float:
        """Of what is to be paid."""
        paid = self.dollars
        return dollars / paid if paid else 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "dollars": self.dollars,
            "estimated_dollars": self.estimated_dollars,
            "refunded": self.refunded,
            "data": self.data,
            "seconds": self.seconds,
            "on_demand_dollars": self.on_demand_dollars,
            "steps_done": self.steps_done,
            "steps_lost": self.steps_lost,
            "joules": self.joules,
            "joules_estimated": self.joules_estimated,
            "estimated_joules": self.estimated_joules,
            "lost_dollars": self.lost_dollars,
            "lost_share": self.lost_share,
            "revoked_dollars": self.revoked_dollars,
            "revoked_share": self.revoked_share,
            "machines": [row.to_json() for row in self.rows],
        }


def _row(machine: Machine, work: Sequence[Work], now: float) -> Row:
    bill, seconds = machine.bill, machine.seconds(now)
    price = machine.price_per_hour
    if bill is not None and seconds:
        price = (bill.dollars - bill.data + bill.refunded) / seconds * _HOUR
    return Row(
        machine.id,
        machine.offer,
        machine.started_at,
        machine.started_at + seconds if machine.ended_at is None else machine.ended_at,
        machine.ended_at is None,
        machine.slots,
        price,
        machine.on_demand_per_hour,
        machine.dollars(now),
        0.0 if bill is None else bill.refunded,
        0.0 if bill is None else bill.data,
        machine.was_preempted,
        bill is None or bill.estimated,
        tuple(sorted(work, key=lambda each: (each.since, each.trial))),
        machine.price_known,
    )


def _stays(trial: TrialRecord, now: float) -> Iterator[PastAttempt]:
    """Its attempts on machines, that which runs now included: so far it has lost nothing."""
    for number, stay in enumerate(trial.past_attempts, 1):
        # What is set aside has nothing to do again, unless it is taken up once more.
        aside = trial.state is State.PAUSED and number == len(trial.past_attempts)
        yield stay._replace(resumable_step=stay.last_step) if aside else stay
    if trial.workers and trial.started_at is not None:
        since, last = trial.started_at, last_step_of_attempt(trial)
        yield PastAttempt(trial.attempts, trial.workers, since, max(since, now), trial.resumed_from, last, last)


def _life(lives: Sequence[Machine], at: float) -> Machine:
    """Which it was at that time. Only this machine has several: one a drive."""
    return next((machine for machine in reversed(lives) if machine.started_at <= at), lives[0])


def _shared(
    trial: int, stay: PastAttempt, joules: Joules, machines: Iterable[Machine]
) -> Iterator[tuple[str, Work]]:
    """An attempt's steps and joules, among the machines that its workers were on."""
    # Nothing stays longer than its machine: what ended with it ended because of it.
    revoked = any(
        each.was_preempted and each.ended_at is not None and stay.ended_at >= each.ended_at for each in machines
    )
    done, total = max(0, stay.last_step - stay.first_step), sum(stay.workers.values())
    for name, workers in stay.workers.items():
        part = workers / total
        steps = done * part, stay.lost_steps * part
        took = Joules(joules.total * part, joules.estimated * part)
        yield name, Work(trial, stay.attempt, workers, stay.started_at, stay.ended_at, *steps, revoked, took)
