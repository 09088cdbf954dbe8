"""What if another policy had rented the machines? The same study on the same cloud, under each, several times."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from thriftune.common.checks import check_number
from thriftune.errors import SettingError
from thriftune.provisioning.policies import POLICIES, policy
from thriftune.provisioning.workload import Workload
from thriftune.replay.cloud_simulation import Replayed, replay
from thriftune.replay.oracle import Oracle
from thriftune.replay.simulated_cloud import SimulatedCloud
from thriftune.replay.simulation import Curves
from thriftune.replay.traces import Trace, read_trace
from thriftune.search.protocol import Searcher
from thriftune.settings.machine_tables import job_of
from thriftune.state.spec import Spec
from thriftune.stopping import STOPPERS
from thriftune.stopping.protocol import Stopper

_APART_SECONDS = 1e6  # between the starts on a cloud without an end
_BEFORE_END_SECONDS = 600.0
_TIMES_THE_WORK, _SHORTEST_SECONDS = 20.0, 86_400.0
_LEAST_DOLLARS = 1e-9


@dataclass(frozen=True)
class Asked:
    """A study as it is replayed: made anew each time, for searchers and rules remember."""

    spec: Spec
    curves: Callable[[], Curves]
    searcher: Callable[[], Searcher]
    stopper: Callable[[], Stopper | None]


class Checkpoints:
    """What it takes to write one and to go on from it: so many seconds in any case (None: none are written), and
    those of the state's way to the storage and back."""

    def __init__(
        self,
        save_seconds: float | None = 0.0,
        restart_seconds: float = 0.0,
        state_gb: float = 0.0,
        gb_per_second: float = 1.0,
    ) -> None:
        check_number("state_gb", state_gb)
        check_number("gb_per_second", gb_per_second, above_zero=True)
        for name, value in (("save_seconds", save_seconds or 0.0), ("restart_seconds", restart_seconds)):
            check_number(name, value)
        way = state_gb / gb_per_second
        self.save_seconds = None if save_seconds is None else save_seconds + way
        self.restart_seconds = restart_seconds + way


@dataclass(frozen=True)
class Outcome:
    """Of one policy, once. `oracle_dollars`: no policy could have done it for less."""

    replayed: Replayed
    deadline_met: bool
    oracle_dollars: float


@dataclass(frozen=True)
class Compared:
    """Of one policy, over all starts and seeds: means."""

    policy: str
    outcomes: Sequence[Outcome]

    @property
    def cost(self) -> float:
        return fmean(each.replayed.dollars for each in self.outcomes)

    @property
    def cost_spread(self) -> float:
        """The standard deviation."""
        return stdev(each.replayed.dollars for each in self.outcomes) if len(self.outcomes) > 1 else 0.0

    @property
    def duration(self) -> float:
        return fmean(each.replayed.seconds for each in self.outcomes)

    @property
    def steps_lost(self) -> float:
        return fmean(each.replayed.steps_lost for each in self.outcomes)

    @property
    def finished(self) -> float:
        """The share of the times that all trials came to their end, before the record of the cloud did."""
        return fmean(each.replayed.whole for each in self.outcomes)

    @property
    def deadline_met(self) -> float:
        """The share of the times."""
        return fmean(each.deadline_met for each in self.outcomes)

    @property
    def oracle_ratio(self) -> float | None:
        """What was paid, over the least; None where that is nothing, as where nearly all can be had for free."""
        least = math.fsum(each.oracle_dollars for each in self.outcomes)
        paid = math.fsum(each.replayed.dollars for each in self.outcomes)
        return paid / least if least > _LEAST_DOLLARS * len(self.outcomes) else None

    def to_json(self) -> dict[str, Any]:
        names = (
            "policy",
            "cost",
            "cost_spread",
            "duration",
            "steps_lost",
            "finished",
            "deadline_met",
            "oracle_ratio",
        )
        return {**{name: getattr(self, name) for name in names}, "times": len(self.outcomes)}


def compare(
    asked: Asked,
    trace: Trace,
    policies: Sequence[str],
    terms: Workload,
    *,
    seeds: int = 3,
    speeds: Mapping[str, float] | None = None,
    told: Callable[[str], object] = lambda _: None,
) -> list[Compared]:
    """Each policy on the same machines, `seeds` times: each time at another start, with other lives drawn.

    A study that is late goes on to its end, so that what it costs can be compared, or to that of the trace.
    `told`: how it goes on.
    """
    if isinstance(policies, str) or not policies:
        raise SettingError(f"policies: {policies!r} must be a list of names, such as ['thrifty', 'on_demand']")
    for name in policies:
        POLICIES.check(name)
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise SettingError(f"seeds: {seeds!r} must be a whole number, at least 1")
    found: dict[str, list[Outcome]] = {name: [] for name in policies}
    for number, start in enumerate(_starts(trace, terms, seeds)):
        seed = asked.spec.seed + number
        fates, runs = trace.fates(seed), {}
        for name in policies:
            told(f"{name}, {number + 1} of {seeds}")
            cloud = SimulatedCloud(trace.kinds, fates, seed)
            its_terms = replace(terms, seed=seed)
            spec = replace(asked.spec, seed=seed, deadline_seconds=_end_of(trace, start, asked.spec, terms))
            machines = policy(name, trace.kinds, its_terms)
            given = spec, asked.curves(), asked.searcher(), asked.stopper()
            runs[name] = replay(cloud, machines, its_terms, *given, start=start, speeds=speeds)
        deadline = terms.deadline_seconds
        longest = max(run.seconds for run in runs.values())
        each = speeds or {kind.name: kind.speed for kind in trace.kinds}
        per_second = {name: 1.0 / speed for name, speed in each.items()}
        oracles: dict[float, Oracle] = {}
        for name, run in runs.items():
            # Who is in time is held against one who has to be; who is late, against one who may be as late.
            horizon = longest if deadline is None else max(deadline, run.seconds)
            if horizon not in oracles:
                oracles[horizon] = Oracle(trace.kinds, fates, start, min(start + horizon, trace.end))
            least = math.fsum(oracles[horizon].dollars(work, per_second) for work in run.work_seconds)
            met = run.whole and (deadline is None or run.seconds <= deadline * (1.0 + 1e-9))
            found[name].append(Outcome(run, met, least))
    return [Compared(name, outcomes) for name, outcomes in found.items()]


def on_cloud(
    asked: Asked,
    cloud: Trace | str | Path,
    policies: Sequence[str],
    seeds: int,
    checkpoints: Checkpoints,
    told: Callable[[str], object],
) -> list[Compared]:
    """`compare`, with what the study says of itself as its terms."""
    spec = asked.spec
    if spec.max_steps is None or spec.trials is None:
        raise SettingError("cloud: a policy must know how much there is to do; give max_steps= and trials=")
    rng = np.random.default_rng(0)
    curves, history = asked.curves(), spec.new_history()
    first = asked.searcher().suggest(history, rng)
    per_step = 1.0 if first is None else float(np.mean(curves(first).seconds))
    terms = Workload(
        at_a_time=spec.workers or 1,
        trials=spec.trials,
        deadline_seconds=spec.deadline_seconds,
        seconds_per_step=per_step,
        restart_seconds=checkpoints.restart_seconds,
        save_seconds=checkpoints.save_seconds or 0.0,
        saves=checkpoints.save_seconds is not None,
        job=job_of(spec)[0] if spec.stopping in STOPPERS else None,
    )
    if not isinstance(cloud, (Trace, str, Path)) or not str(cloud):
        raise SettingError(f"cloud: {cloud!r} must be a Trace, or the path of a record")
    trace = cloud if isinstance(cloud, Trace) else read_trace(Path(cloud))
    return compare(asked, trace, policies, terms, seeds=seeds, told=told)


def _end_of(trace: Trace, start: float, spec: Spec, terms: Workload) -> float:
    """Seconds after which a study is stopped: nobody knows how the trace goes on, or it will never be done."""
    rounds = -(-(spec.trials or 1) // terms.at_a_time)
    slowest = min(kind.speed for kind in trace.kinds)
    work = rounds * (spec.max_steps or 1) * terms.seconds_per_step / slowest
    longest = _TIMES_THE_WORK * max(work, terms.deadline_seconds or 0.0, _SHORTEST_SECONDS)
    return min(longest, trace.end - start - _BEFORE_END_SECONDS)


def _starts(trace: Trace, terms: Workload, count: int) -> list[float]:
    """Evenly over the trace, as far as the deadline leaves room."""
    if math.isinf(trace.end):
        return [trace.start + _APART_SECONDS * number for number in range(count)]
    room = trace.end - trace.start - 1.5 * (terms.deadline_seconds or 0.0) - 2.0 * _BEFORE_END_SECONDS
    if room < 0.0:
        raise SettingError(
            f"deadline: the trace has {(trace.end - trace.start) / 3600.0:.2g} h to begin and end in, which is "
            "too short; give a longer trace, or an earlier deadline"
        )
    if terms.deadline_seconds is None:
        room *= 0.5
    return np.linspace(trace.start, trace.start + room, count).tolist() if count > 1 else [trace.start]
