"""The correction of a profile and of machine speeds by measured step times."""

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


class _TimedAttempt(NamedTuple):
    """The measured and predicted seconds of the steps of one attempt."""

    trial: int
    cloud: str
    workers: int
    seconds: float
    predicted: float


def correct_profile(
    history: History, until: float, profile: Profile, clouds: Sequence[CloudProfile]
) -> tuple[Profile, list[CloudProfile]]:
    """Correct the profile and the speeds by all attempts that ended by `until`.

    The seconds per step for a number of workers, and the speed of a machine type, are scaled by how much longer
    steps took with it than predicted. Numbers of workers and machine types that no attempt has used yet are scaled
    by the ratio over all attempts. `std` becomes the observed deviation between trials, if there are at least two.
    """
    attempts = list(_timed_attempts(history, until, profile, {cloud.name: cloud for cloud in clouds}))
    if not attempts:
        return profile, list(clouds)
    overall = _ratios(attempts, [""] * len(attempts))[""]
    by_workers = _ratios(attempts, [attempt.workers for attempt in attempts])
    by_cloud = _ratios(attempts, [attempt.cloud for attempt in attempts])
    seconds = {n: each * by_workers.get(n, overall) for n, each in profile.seconds_per_step.items()}
    same_speed = [attempt._replace(predicted=attempt.predicted * by_cloud[attempt.cloud]) for attempt in attempts]
    by_trial = list(_ratios(same_speed, [attempt.trial for attempt in attempts]).values())
    variation = stdev(by_trial) if len(by_trial) > 1 else profile.variation
    corrected = [
        replace(cloud, speed=cloud.speed * overall / by_cloud.get(cloud.name, overall)) for cloud in clouds
    ]
    return replace(profile, seconds_per_step=seconds, std=variation * seconds[1]), corrected


def _timed_attempts(
    history: History, until: float, profile: Profile, clouds: dict[str, CloudProfile]
) -> Iterator[_TimedAttempt]:
    machines = (*history.fleet.past, *history.machines.values())
    offers = {machine.id: machine.offer for machine in machines}
    for trial in history.trials:
        for attempt in trial.past_attempts:
            cloud = clouds.get(offers.get(next(iter(attempt.workers)), ""))
            workers = sum(attempt.workers.values())
            if attempt.ended_at > until or cloud is None or workers > profile.most_workers:
                continue
            steps, seconds = _step_seconds(attempt, profile)
            if steps and seconds > 0.0:
                predicted = steps * profile.seconds(workers) / cloud.speed
                yield _TimedAttempt(trial.id, cloud.name, workers, seconds, predicted)


def _step_seconds(attempt: PastAttempt, profile: Profile) -> tuple[int, float]:
    """Return the number of timed steps of an attempt, and their seconds.

    The seconds are without saves and startup. If the attempt has several reports, the time between them is used.
    Otherwise the time of the whole attempt is used, less the profile's `startup` if the attempt resumed from a
    checkpoint. If its last step was not saved, it may have ended within a later step, so no step counts as timed.
    """
    saving = profile.checkpoint if attempt.resumable_step == attempt.last_step else 0.0
    if attempt.timed_steps:
        return attempt.timed_steps, attempt.timed_seconds - saving
    if attempt.resumable_step < attempt.last_step:
        return 0, 0.0
    startup = profile.startup if attempt.first_step else 0.0
    return attempt.last_step - attempt.first_step, attempt.ended_at - attempt.started_at - saving - startup


def _ratios(attempts: Sequence[_TimedAttempt], keys: Sequence[Hashable]) -> dict[Hashable, float]:
    """Return the ratio of measured to predicted seconds, by key."""
    measured: defaultdict[Hashable, float] = defaultdict(float)
    predicted: defaultdict[Hashable, float] = defaultdict(float)
    for attempt, key in zip(attempts, keys, strict=True):
        measured[key] += attempt.seconds
        predicted[key] += attempt.predicted
    return {key: measured[key] / predicted[key] for key in measured}
