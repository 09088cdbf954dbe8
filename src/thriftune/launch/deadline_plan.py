"""Make the plan with which a study on a cluster meets its deadline, from measured step times.

The measurements are stored with the study, so that a resumed study follows the same plan.
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
from thriftune.planning.cloud_profile import CloudProfile, with_default_waits
from thriftune.planning.job import JobSpec
from thriftune.planning.plan import Plan
from thriftune.planning.plan_finder import plan
from thriftune.planning.profile import Profile
from thriftune.planning.study_job import job_of_study
from thriftune.planning.timing import StepTimes
from thriftune.settings.engine_options import Ray
from thriftune.state.spec import Spec

_MEASURED_SHARE = 0.1
"""Spend at most this share of the deadline on measuring, within the following bounds."""

_LEAST_SECONDS, _MOST_SECONDS = 5.0, 30.0
"""Measure each number of workers for at least and at most this long."""

_LIMIT_SHARE = 0.5
"""End measuring after this share of the deadline, as a training function may take long to start."""

Say = Callable[[str], object]


def deadline_plan(
    spec: Spec,
    where: Ray,
    cluster: Cluster,
    kinds: Sequence[CloudProfile],
    target: Mapping[str, Any],
    folder: Path,
    say: Say,
    *,
    on_nodes: bool = False,
) -> Plan:
    """Return the plan for this study. Its deadline is shorter by the time spent on measuring.

    Raise SettingError if no plan meets the deadline.

    - `folder`: the study's folder.
    - `on_nodes`: the nodes do not see it; see OnCluster.
    """
    assert spec.deadline_seconds is not None
    job, notes = job_of_study(spec)
    stored = folder / "measured.json"
    began = time.monotonic()
    if stored.exists():
        measured = json.loads(stored.read_text())
        profile, spent = Profile.from_json(measured["profile"]), measured["seconds"]
    else:
        profile = _measure_profile(spec, job, where, cluster, kinds, target, folder, say, on_nodes)
        spent = time.monotonic() - began
        unfinished = stored.with_suffix(".unfinished")
        unfinished.write_text(json.dumps({"profile": profile.to_json(), "seconds": spent}))
        unfinished.replace(stored)
    kinds = with_default_waits(kinds, profile.queue, profile.init)
    left = spec.deadline_seconds - spent
    if left <= 0:
        raise SettingError(
            f"deadline: {format_seconds(spec.deadline_seconds)} was too short to measure a step, which took "
            f"{format_seconds(spent)}; give a longer deadline"
        )
    chosen = plan(job, profile, kinds, deadline=left)
    for line in [*notes, *explanation(chosen, profile, kinds)]:
        say(line)
    return chosen


def _measure_profile(
    spec: Spec,
    job: JobSpec,
    where: Ray,
    cluster: Cluster,
    kinds: Sequence[CloudProfile],
    target: Mapping[str, Any],
    folder: Path,
    say: Say,
    on_nodes: bool,
) -> Profile:
    """Measure how long a step takes with each number of workers that a machine has room for."""
    assert spec.deadline_seconds is not None
    numbers = powers_of_two(max(kind.slots for kind in kinds))
    seconds = _MEASURED_SHARE * spec.deadline_seconds / len(numbers)
    bench = OnCluster(cluster, where, spec.name, target, folder, say, on_nodes=on_nodes)
    say(f"a plan for the deadline of {format_seconds(spec.deadline_seconds)} needs to know how long a step takes")
    ends_at = time.monotonic() + _LIMIT_SHARE * spec.deadline_seconds
    with bench.opened(kinds, max(numbers), ends_at):
        seconds = min(_MOST_SECONDS, max(_LEAST_SECONDS, seconds))
        runs = replace(spec, target=replace(spec.target, where=target["where"]))
        step_times = measure(runs, numbers, seconds, 1, say, bench, ends_at)
    for remark in remarks(step_times, job):
        say(remark)
    return bench.with_waits(step_times.profile)


def remarks(step_times: StepTimes, job: JobSpec) -> list[str]:
    """Return what a plan made from these step times does not account for."""
    unsaved = all(trial.saves == "none" for row in step_times.rows for trial in row.trials)
    if not (unsaved and any(job.begins)):
        return list(step_times.remarks)
    unsaved_remark = (
        "no measured trial saved a checkpoint: a trial that continues in a later stage, or is moved, begins again "
        "at step 1, and the plan does not count this: save checkpoints, with report(..., save=...)"
    )
    return [*step_times.remarks, unsaved_remark]


def explanation(chosen: Plan, profile: Profile, kinds: Sequence[CloudProfile]) -> list[str]:
    """Return what was measured and what was decided, in sentences."""
    pace = ", ".join(
        f"{each:.3g} s with {plural(workers, 'worker')}" for workers, each in profile.seconds_per_step.items()
    )
    start, save = profile.startup, profile.checkpoint
    lines = [
        f"measured: a step takes {pace}; a trial starts in {start:.2g} s and saves in {save:.2g} s; a node is "
        f"ready after {profile.queue:.2g} s, and its workers {profile.init:.2g} s later"
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
    """Return a sentence that compares the plan with the cheapest fixed number of machines."""
    try:
        fixed = plan(chosen.model.spec, profile, kinds, deadline=chosen.deadline, planner="static")
    except SettingError:
        return ". No fixed number of machines would meet the deadline"
    saved = 1.0 - chosen.cost / fixed.cost if fixed.cost else 0.0
    if saved < 0.005:
        return ". A fixed number of machines would cost as much"
    cost = format_dollars(fixed.cost)
    return f". A fixed number of machines would cost {cost}, so the plan saves {saved:.0%}"
