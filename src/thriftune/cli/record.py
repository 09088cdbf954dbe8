"""`thriftune record`: a study's learning curves and step times as one small file, to be replayed anywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from thriftune.cli.common import existing_store, store_option
from thriftune.common.formatting import plural
from thriftune.errors import SettingError

# What is heavy is imported when the command runs: `thriftune --help` needs none of it.


@click.command("record")
@click.argument("name")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", required=True, help="An npz file."
)
@click.option("--steady", is_flag=True, help="Every step takes as long as the quickest tenth of its trial's.")
@click.option(
    "--profile",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Of the study: its step times by cores go in.",
)
@store_option
def record_command(name: str, output: Path, steady: bool, profile: Path | None, store: str | None) -> None:
    """Keep the trials that came to their end as one small file.

    In it are their configurations, the values of all objectives and constrained metrics at each step, and the
    seconds that each step took; `thriftune simulate --table FILE` replays it. --steady is for trials that were
    timed while others used the machine.
    """
    from thriftune.planning.profile import Profile
    from thriftune.replay import recordings
    from thriftune.study.ask_tell import load

    _check_output(output)
    by_cores = {} if profile is None else Profile.read(profile).seconds_per_step
    with existing_store(store) as opened:
        recording, left_out = recordings.recording_from_result(load(name, opened).result)
    if left_out:
        click.echo(f"trials of {name} that did not come to their end, and are left out: {left_out}", err=True)
    recording = replace(recording, seconds_by_cores=by_cores)
    recordings.write(recordings.with_steady_steps(recording) if steady else recording, output)
    reports = sum(len(curve.steps) for _, curve in recording.rows)
    size = f"{output.stat().st_size / 1000:.1f} kB"
    click.echo(f"{plural(len(recording.rows), 'trial')}, {plural(reports, 'report')}: {size} in {output}")


def _check_output(path: Path) -> None:
    from thriftune.replay.recordings import is_recording

    if not path.parent.is_dir():
        raise SettingError(f"--output: there is no folder {path.parent}; make it first")
    if path.exists() and not is_recording(path):
        raise SettingError(f"--output: {path} is no recording; so it is not overwritten, give another file")
