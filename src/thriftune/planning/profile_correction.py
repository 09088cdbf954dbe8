"""How long do steps really take? The profile and the machines' speeds, as trials have shown so far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from statistics import stdev
from typing import NamedTuple

from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.profile import Profile
from thriftune.state.history import History
from thriftune.state.trial_record import PastAttempt


class _Stint(NamedTuple):
    """One attempt: what its steps took, and what they would have by what was promised."""

    trial: int
    cloud: str
    workers: int
    took: float
    promised: float


def correct_profile(
    history: History, until: float, profile: Profile, clouds: Sequence[CloudProfile]
) -> tuple[Profile, list[CloudProfile]]:
    """What was promised, corrected by all attempts that were over at that moment.

    A step takes as much longer, on a kind of machine and with a number of workers, as it did there; where it has
    not been yet, as much longer as elsewhere. `std` is how much trials were seen to differ, once there are two.
    """
    stints = list(_stints(history, until, profile, {cloud.name: cloud for cloud in clouds}))
    if not stints:
        return profile, list(clouds)
    slow = _ratios(stints, [""] * len(stints))[""]
    by_workers = _ratios(stints, [stint.workers for stint in stints])
    by_cloud = _ratios(stints, [stint.cloud for stint in stints])
    seconds = {n: each * by_workers.get(n, slow) for n, each in profile.seconds_per_step.items()}
    there = [stint._replace(promised=stint.promised * by_cloud[stint.cloud]) for stint in stints]
    trials = list(_ratios(there, [stint.trial for stint in stints]).values())
    variation = stdev(trials) if len(trials) > 1 else profile.variation
    faster = [replace(cloud, speed=cloud.speed * slow / by_cloud.get(cloud.name, slow)) for cloud in clouds]
    return replace(profile, seconds_per_step=seconds, std=variation * seconds[1]), faster


def _stints(history: History, until: float, profile: Profile, clouds: dict[str, CloudProfile]) -> Iterator[_Stint]:
    lives = (*history.fleet.past, *history.machines.values())
    offers = {machine.id: machine.offer for machine in lives}
    for trial in history.trials:
        for stay in trial.past_attempts:
            cloud = clouds.get(offers.get(next(iter(stay.workers)), ""))
            workers = sum(stay.workers.values())
            if stay.ended_at > until or cloud is None or workers > profile.most_workers:
                continue
            steps, took = _timed(stay, profile)
            if steps and took > 0.0:
                promised = steps * profile.seconds(workers) / cloud.speed
                yield _Stint(trial.id, cloud.name, workers, took, promised)


def _timed(stay: PastAttempt, profile: Profile) -> tuple[int, float]:
    """Steps of an attempt, and what they took: between its reports, if there are several; else from its start,
    which is known to take time where a trial is taken up again. The last of them was saved, if it was kept."""
    saving = profile.checkpoint if stay.resumable_step == stay.last_step else 0.0
    if stay.timed_steps:
        return stay.timed_steps, stay.timed_seconds - saving
    if stay.resumable_step < stay.last_step:  # it was cut in the middle of something
        return 0, 0.0
    start = profile.startup if stay.first_step else 0.0
    return stay.last_step - stay.first_step, stay.ended_at - stay.started_at - saving - start


def _ratios(stints: Sequence[_Stint], by: Sequence[Hashable]) -> dict[Hashable, float]:
    """How many times as long as promised steps took, by what they have in common."""
    took: defaultdict[Hashable, float] = defaultdict(float)
    promised: defaultdict[Hashable, float] = defaultdict(float)
    for stint, key in zip(stints, by, strict=True):
        took[key] += stint.took
        promised[key] += stint.promised
    return {key: took[key] / promised[key] for key in took}
