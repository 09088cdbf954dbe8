"""What does a study on a cluster do about its deadline? It measures a step, makes a plan, and says what and why.

What was measured is kept with the study, so that a study that is resumed goes on by the same plan.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from thriftune.clouds.ray.cluster import Cluster
from thriftune.common.formatting import format_dollars, format_seconds, plural
from thriftune.errors import SettingError
from thriftune.launch.profiling import measure, powers_of_two
from thriftune.launch.ray_profiling import OnCluster
from thriftune.planning.choosing import plan
from thriftune.planning.cloud_profile import CloudProfile, with_default_waits
from thriftune.planning.job import JobSpec
from thriftune.planning.plan import Plan
from thriftune.planning.profile import Profile
from thriftune.planning.timing import StepTimes
from thriftune.settings.engine_options import Ray
from thriftune.state.spec import Spec

_MEASURED_SHARE = 0.1
"""Of the deadline, at most, goes into measuring; but not less than a few seconds for each number of workers."""

_LEAST_SECONDS, _MOST_SECONDS = 5.0, 30.0

_LIMIT_SHARE = 0.5
"""Of the deadline, after which nothing more is measured: a training function may take long to start."""

Say = Callable[[str], object]


def planned(
    spec: Spec,
    where: Ray,
    cluster: Cluster,
    kinds: Sequence[CloudProfile],
    target: Mapping[str, Any],
    folder: Path,
    say: Say,
) -> Plan:
    """The plan for this study; SettingError where there can be none, which says why. Its deadline is shorter by
    what was spent on measuring."""
    from thriftune.settings.machine_tables import job_of

    assert spec.deadline_seconds is not None
    job, notes = job_of(spec)
    kept = folder / "measured.json"
    began = time.monotonic()
    if kept.exists():
        found = json.loads(kept.read_text())
        profile, spent = Profile.from_json(found["profile"]), found["seconds"]
    else:
        profile = _measured(spec, job, where, cluster, kinds, target, folder, say)
        spent = time.monotonic() - began
        unfinished = kept.with_suffix(".unfinished")
        unfinished.write_text(json.dumps({"profile": profile.to_json(), "seconds": spent}))
        unfinished.replace(kept)
    kinds = with_default_waits(kinds, profile.queue, profile.init)
    left = spec.deadline_seconds - spent
    if left <= 0:
        raise SettingError(
            f"deadline: {format_seconds(spec.deadline_seconds)} was not enough to measure a step, which took "
            f"{format_seconds(spent)}; give more"
        )
    chosen = plan(job, profile, kinds, deadline=left)
    for line in [*notes, *told(chosen, profile, kinds)]:
        say(line)
    return chosen


def _measured(
    spec: Spec,
    job: JobSpec,
    where: Ray,
    cluster: Cluster,
    kinds: Sequence[CloudProfile],
    target: Mapping[str, Any],
    folder: Path,
    say: Say,
) -> Profile:
    assert spec.deadline_seconds is not None
    numbers = powers_of_two(max(kind.slots for kind in kinds))
    seconds = _MEASURED_SHARE * spec.deadline_seconds / len(numbers)
    bench = OnCluster(cluster, where, spec.name, target, folder, say)
    say(f"a plan for the deadline of {format_seconds(spec.deadline_seconds)} needs to know how long a step takes")
    ends_at = time.monotonic() + _LIMIT_SHARE * spec.deadline_seconds
    with bench.opened(kinds, max(numbers), ends_at):
        seconds = min(_MOST_SECONDS, max(_LEAST_SECONDS, seconds))
        runs = replace(spec, target=replace(spec.target, where=target["where"]))
        found = measure(runs, numbers, seconds, 1, say, bench, ends_at)
    for remark in remarks(found, job):
        say(remark)
    return bench.with_waits(found.profile)


def remarks(found: StepTimes, job: JobSpec) -> list[str]:
    """What a plan that is made of this does not know."""
    unsaved = all(trial.saves == "none" for row in found.rows for trial in row.trials)
    if not (unsaved and any(job.begins)):
        return list(found.remarks)
    way_out = "have trials save, with report(..., save=...)"
    anew = f"one that goes on after a stage, or is moved, begins anew, which the plan does not count: {way_out}"
    return [*found.remarks, f"no trial that was measured saved its state: {anew}"]


def told(chosen: Plan, profile: Profile, kinds: Sequence[CloudProfile]) -> list[str]:
    """What was decided and why, in sentences."""
    pace = ", ".join(
        f"{each:.3g} s with {plural(workers, 'worker')}" for workers, each in profile.seconds_per_step.items()
    )
    start, save = profile.startup, profile.checkpoint
    lines = [
        f"measured: a step takes {pace}; to start a trial {start:.2g} s, to save it {save:.2g} s; a node "
        f"comes after {profile.queue:.2g} s, and its workers begin {profile.init:.2g} s later"
    ]
    for number, stage in enumerate(chosen.stages, 1):
        each = f" of {plural(stage.workers, 'worker')}" if stage.workers > 1 else ""
        at_a_time = "all at once" if stage.at_a_time == stage.trials else f"{stage.at_a_time} at a time"
        which = plural(stage.trials, "trial") + each + (f", {at_a_time}" if stage.trials > 1 else "")
        lines.append(
            f"stage {number}: {which}, to step {stage.begins + stage.steps}, on {stage.machines} {stage.offer}: "
            f"about {format_seconds(stage.seconds)}, {format_dollars(stage.dollars)}"
        )
    whole = f"plan: {format_seconds(chosen.duration)}, {format_dollars(chosen.cost)}; both are estimates"
    return [*lines, whole + _against_static(chosen, profile, kinds)]


def _against_static(chosen: Plan, profile: Profile, kinds: Sequence[CloudProfile]) -> str:
    try:
        fixed = plan(chosen.model.spec, profile, kinds, deadline=chosen.deadline, planner="static")
    except SettingError:
        return ". No fixed number of machines would make the deadline"
    saved = 1.0 - chosen.cost / fixed.cost if fixed.cost else 0.0
    if saved < 0.005:
        return ". The same machines from beginning to end would cost as much"
    cost = format_dollars(fixed.cost)
    return f". The same machines from beginning to end would cost {cost}, so {saved:.0%} is saved"
