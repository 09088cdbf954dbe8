"""Compares renting policies: replays one study on one cloud under each policy, several times."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from thriftune.common.checks import check_number, check_whole
from thriftune.errors import SettingError
from thriftune.planning.study_job import job_of_study
from thriftune.provisioning.policies import POLICIES, make_policy
from thriftune.provisioning.workload import StudyWorkload
from thriftune.replay.cloud_simulation import CloudReplay, replay
from thriftune.replay.oracle import Oracle
from thriftune.replay.simulated_cloud import SimulatedCloud
from thriftune.replay.simulation_loop import Curves
from thriftune.replay.traces import Trace, read_trace
from thriftune.search.protocol import Searcher
from thriftune.state.spec import Spec
from thriftune.stopping import STOPPERS
from thriftune.stopping.protocol import Stopper

_START_INTERVAL_SECONDS = 1e6
"""Between the starts of runs on a cloud whose record has no end: longer than most studies, so that runs differ."""

_END_MARGIN_SECONDS = 600.0
"""A run stops this long before the end of the record, so that nothing after the end is looked up."""

_LONGEST_RUN = 20.0
"""A run stops after this many times its work or its deadline: a policy that is so late may never complete."""

_SHORTEST_LIMIT_SECONDS = 86_400.0
"""`_LONGEST_RUN` applies to at least a day, for studies that are short beside the waits for machines."""

_DEADLINES_OF_ROOM = 1.5
"""The last start leaves this many times the deadline until the end of the record, so that late runs fit in."""

_SHARE_OF_STARTS = 0.5
"""Without a deadline, all starts are in this share of the record, so that runs have the rest to complete."""

_DEADLINE_TOLERANCE = 1e-9
"""A relative tolerance for rounding errors in the time of a run that ends at its deadline."""

_FREE_DOLLARS = 1e-9
"""A lower bound of at most this many dollars a run counts as nothing, and no ratio to it is given."""


@dataclass(frozen=True)
class ReplayedStudy:
    """A study to replay; each run gets a new searcher and stopping rule, since these have a state."""

    spec: Spec
    curves: Callable[[], Curves]
    searcher: Callable[[], Searcher]
    stopper: Callable[[], Stopper | None]


class CheckpointCosts:
    """The seconds to write a checkpoint and to resume from it, including the transfer of the state.

    - `save_seconds`: to write a checkpoint without the transfer; None if trials write no checkpoints.
    - `restart_seconds`: to resume a trial without the transfer.
    - `state_gb`, `gb_per_second`: the size of a checkpoint, and the bandwidth to and from the storage.
    """

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
        transfer_seconds = state_gb / gb_per_second
        self.save_seconds = None if save_seconds is None else save_seconds + transfer_seconds
        self.restart_seconds = restart_seconds + transfer_seconds


@dataclass(frozen=True)
class PolicyOutcome:
    """The outcome of one run under one policy. `oracle_dollars`: a lower bound of the cost under any policy."""

    replayed: CloudReplay
    deadline_met: bool
    oracle_dollars: float


@dataclass(frozen=True)
class PolicySummary:
    """The outcomes of one policy over all runs, and their means."""

    policy: str
    outcomes: Sequence[PolicyOutcome]

    @property
    def cost(self) -> float:
        return fmean(each.replayed.dollars for each in self.outcomes)

    @property
    def cost_spread(self) -> float:
        """The standard deviation of the cost; 0 for a single run."""
        return stdev(each.replayed.dollars for each in self.outcomes) if len(self.outcomes) > 1 else 0.0

    @property
    def duration(self) -> float:
        return fmean(each.replayed.seconds for each in self.outcomes)

    @property
    def steps_lost(self) -> float:
        return fmean(each.replayed.steps_lost for each in self.outcomes)

    @property
    def finished(self) -> float:
        """The share of runs that completed before the record of the cloud ended."""
        return fmean(each.replayed.completed for each in self.outcomes)

    @property
    def deadline_met(self) -> float:
        """The share of runs that met the deadline."""
        return fmean(each.deadline_met for each in self.outcomes)

    @property
    def oracle_ratio(self) -> float | None:
        """The cost over its lower bound; None if the bound is 0, as when nearly all machines are refunded."""
        bound = math.fsum(each.oracle_dollars for each in self.outcomes)
        paid = math.fsum(each.replayed.dollars for each in self.outcomes)
        return paid / bound if bound > _FREE_DOLLARS * len(self.outcomes) else None

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


def compare_policies(
    study: ReplayedStudy,
    trace: Trace,
    policies: Sequence[str],
    workload: StudyWorkload,
    *,
    seeds: int = 3,
    speeds: Mapping[str, float] | None = None,
    on_progress: Callable[[str], object] = lambda _: None,
) -> list[PolicySummary]:
    """Run the study under each policy on the same machines, `seeds` times with other starts and lifetimes.

    A study that misses its deadline runs on until it completes, so that its cost can be compared, or until the
    trace ends. `on_progress` is called before each run with its policy and number.
    """
    if isinstance(policies, str) or not policies:
        raise SettingError(f"policies: {policies!r} must be a list of names, such as ['thrifty', 'on_demand']")
    for name in policies:
        POLICIES.check(name)
    check_whole("seeds", seeds, 1)
    deadline = workload.deadline_seconds
    true_speeds = speeds or {kind.name: kind.speed for kind in trace.kinds}
    seconds_per_step = {name: 1.0 / speed for name, speed in true_speeds.items()}
    outcomes: dict[str, list[PolicyOutcome]] = {name: [] for name in policies}
    for number, start in enumerate(_starts(trace, workload, seeds)):
        seed = study.spec.seed + number
        preemptions = trace.preemptions(seed)
        seeded_workload = replace(workload, seed=seed)
        spec = replace(study.spec, seed=seed, deadline_seconds=_limit_seconds(trace, start, study.spec, workload))
        runs = {}
        for name in policies:
            on_progress(f"{name}, {number + 1} of {seeds}")
            runs[name] = replay(
                SimulatedCloud(trace.kinds, preemptions, seed),
                make_policy(name, trace.kinds, seeded_workload),
                seeded_workload,
                spec,
                study.curves(),
                study.searcher(),
                study.stopper(),
                start=start,
                speeds=speeds,
            )
        longest = max(run.seconds for run in runs.values())
        oracles: dict[float, Oracle] = {}
        for name, run in runs.items():
            # The bound of a run that met the deadline meets it, too; that of a late run may be as late as the run.
            horizon = longest if deadline is None else max(deadline, run.seconds)
            if horizon not in oracles:
                oracles[horizon] = Oracle(trace.kinds, preemptions, start, min(start + horizon, trace.end))
            bound = math.fsum(oracles[horizon].dollars(work, seconds_per_step) for work in run.work_seconds)
            in_time = deadline is None or run.seconds <= deadline * (1.0 + _DEADLINE_TOLERANCE)
            outcomes[name].append(PolicyOutcome(run, run.completed and in_time, bound))
    return [PolicySummary(name, each) for name, each in outcomes.items()]


def compare_on_cloud(
    study: ReplayedStudy,
    cloud: Trace | str | Path,
    policies: Sequence[str],
    seeds: int,
    checkpoints: CheckpointCosts,
    on_progress: Callable[[str], object],
) -> list[PolicySummary]:
    """Compare the policies with the workload that follows from the settings of the study."""
    spec = study.spec
    if spec.max_steps is None or spec.trials is None:
        raise SettingError("cloud: a policy needs the amount of work in advance; give max_steps= and trials=")
    rng = np.random.default_rng(0)
    curves, history = study.curves(), spec.new_history()
    first_config = study.searcher().suggest(history, rng)
    seconds_per_step = 1.0 if first_config is None else float(np.mean(curves(first_config).seconds))
    workload = StudyWorkload(
        at_a_time=spec.workers or 1,
        trials=spec.trials,
        deadline_seconds=spec.deadline_seconds,
        seconds_per_step=seconds_per_step,
        restart_seconds=checkpoints.restart_seconds,
        save_seconds=checkpoints.save_seconds or 0.0,
        saves=checkpoints.save_seconds is not None,
        job=job_of_study(spec)[0] if spec.stopping in STOPPERS else None,
    )
    if not isinstance(cloud, (Trace, str, Path)) or not str(cloud):
        raise SettingError(f"cloud: {cloud!r} must be a Trace, or the path of a record")
    trace = cloud if isinstance(cloud, Trace) else read_trace(Path(cloud))
    return compare_policies(study, trace, policies, workload, seeds=seeds, on_progress=on_progress)


def _limit_seconds(trace: Trace, start: float, spec: Spec, workload: StudyWorkload) -> float:
    """Return the seconds after which a run is stopped: the trace ends, or the study may never complete."""
    rounds = -(-(spec.trials or 1) // workload.at_a_time)
    lowest_speed = min(kind.speed for kind in trace.kinds)
    work_seconds = rounds * (spec.max_steps or 1) * workload.seconds_per_step / lowest_speed
    longest = _LONGEST_RUN * max(work_seconds, workload.deadline_seconds or 0.0, _SHORTEST_LIMIT_SECONDS)
    return min(longest, trace.end - start - _END_MARGIN_SECONDS)


def _starts(trace: Trace, workload: StudyWorkload, count: int) -> list[float]:
    """Return evenly spaced start times of the runs that leave time to complete before the trace ends."""
    if math.isinf(trace.end):
        return [trace.start + _START_INTERVAL_SECONDS * number for number in range(count)]
    reserved = _DEADLINES_OF_ROOM * (workload.deadline_seconds or 0.0)
    room = trace.end - trace.start - reserved - 2.0 * _END_MARGIN_SECONDS
    if room < 0.0:
        raise SettingError(
            f"deadline: the trace has {(trace.end - trace.start) / 3600.0:.2g} h for a run, which is too short; "
            "give a longer trace, or an earlier deadline"
        )
    if workload.deadline_seconds is None:
        room *= _SHARE_OF_STARTS
    return np.linspace(trace.start, trace.start + room, count).tolist() if count > 1 else [trace.start]
