"""Print what lifetimes mean for jobs as tables and charts, or as JSON: failures, run times and checkpoints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from thriftune.cli.market_numbers import format_hours, format_share
from thriftune.cli.screen import chart, open_console, section, table
from thriftune.market import lifetime, summary
from thriftune.market.checkpoint_schedule import Schedule, young_daly_hours
from thriftune.market.reuse import ReuseTable

_MAX_SEGMENTS = 10
_NEVER_SLOWDOWN = 1000.0
"""A job that is expected to take this multiple of its own hours is shown as "never" done."""

_NEVER = "never"


def jobs_json(
    kind: str,
    zone: str | None,
    model: lifetime.Phases,
    frontier: ReuseTable,
    jobs: Sequence[summary.JobFigures],
    checkpoints: Sequence[summary.CheckpointFigures],
    checkpoint_hours: float,
    restart_hours: float,
) -> dict[str, Any]:
    """Return the figures of jobs on a machine type as JSON fields."""
    return {
        "type": kind,
        "zone": zone,
        "checkpoint_hours": checkpoint_hours,
        "restart_hours": restart_hours,
        "mean_hours": model.mean(),
        "starts": [asdict(job) for job in jobs],
        "frontier": {
            "ages": frontier.ages.tolist(),
            "up_to": frontier.up_to.tolist(),
            "longest": frontier.longest.tolist(),
        },
        "checkpoints": [
            {
                "job_hours": each.job_hours,
                "without_hours": each.without,
                "young_daly": {"segments": each.young_daly.segments, "hours": each.young_daly.expected_hours},
                "best": {"segments": each.best.segments, "hours": each.best.expected_hours},
            }
            for each in checkpoints
        ],
    }


def show_jobs(
    name: str,
    model: lifetime.Phases,
    frontier: ReuseTable,
    jobs: Sequence[summary.JobFigures],
    checkpoints: Sequence[summary.CheckpointFigures],
    checkpoint_hours: float,
    restart_hours: float,
) -> None:
    """Print the run times of jobs without and with checkpoints.

    Also print which jobs a machine of some age should run.
    """
    console = open_console()
    mean = model.mean()
    lifetime_text = "are hardly ever lost" if math.isinf(mean) else f"live {format_hours(mean)} h on average"
    console.print(f"{name}: by the default fit, machines {lifetime_text}", markup=False)
    section(console, f"without checkpoints, {60 * restart_hours:g} min to get a new machine")
    rows = [_job_cells(job) for job in jobs]
    table(console, ("job", "machine's age", "fails", "expected time", "better"), rows, left=0)
    section(console, "longest job, in hours, for which to keep a machine, by its age in hours")
    curve = list(zip(frontier.ages.tolist(), frontier.up_to.tolist(), strict=True))
    chart(console, curve, stairs=False, log=False)
    if (frontier.longest > frontier.up_to + 1e-6).any():
        note = "At some ages, keeping the machine is better for longer jobs too: see the picture, or --json."
        console.print(note, style="dim")
    section(console, f"with checkpoints of {60 * checkpoint_hours:g} min, on a new machine: expected time")
    interval = young_daly_hours(checkpoint_hours, mean)
    even = f"Young-Daly, every {format_hours(interval)} h" if 0.0 < interval < math.inf else "Young-Daly"
    cells = [
        (
            f"{each.job_hours:g} h",
            _expected_time(each.without, each.job_hours),
            _expected_time(each.young_daly.expected_hours, each.job_hours),
            _expected_time(each.best.expected_hours, each.job_hours),
            _segments(each.best, checkpoint_hours, float(frontier.ages[-1])),
        )
        for each in checkpoints
    ]
    table(console, ("job", "without", even, "best", "hours between best checkpoints"), cells, left=0)


def _job_cells(job: summary.JobFigures) -> tuple[str, ...]:
    """Return a row of the table: a job on a machine of some age.

    Only the row for a new machine names the job.
    """
    expected = _expected_time(job.expected_hours, job.job_hours)
    fails = format_share(job.failure_probability)
    if not job.age:
        return f"{job.job_hours:g} h", "new", fails, expected, ""
    choice = "keep it" if job.keep else "take a new one"
    return "", f"{job.age:g} h", fails, expected, "needs checkpoints" if expected == _NEVER else choice


def _segments(schedule: Schedule, checkpoint_hours: float, oldest: float) -> str:
    """Return the hours between checkpoints as text.

    Checkpoints beyond `oldest`, the highest age of a machine in hours, are left out.
    """
    starts = np.cumsum([0.0, *schedule.segments[:-1]]) + checkpoint_hours * np.arange(len(schedule.segments))
    segments = [f"{each:.3g}" for each, age in zip(schedule.segments, starts, strict=True) if age < oldest]
    more = len(segments) - _MAX_SEGMENTS
    return " ".join(segments[:_MAX_SEGMENTS]) + (f" and {more} more" if more > 0 else "")


def _expected_time(hours: float, job_hours: float) -> str:
    return f"{format_hours(hours)} h" if hours < _NEVER_SLOWDOWN * job_hours else _NEVER
