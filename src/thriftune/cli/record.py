"""`thriftune record`: write a study's learning curves and step times to a small file, which can be replayed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from thriftune.cli.common import existing_store, store_option
from thriftune.common.formatting import plural
from thriftune.errors import SettingError

# Slow imports are inside the command, so that `thriftune record --help` starts fast.


@click.command("record")
@click.argument("name")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", required=True, help="The npz file to write."
)
@click.option("--steady", is_flag=True, help="Give each step the time of the fastest tenth of its trial's steps.")
@click.option(
    "--profile",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Add the step times by number of cores of this profile.",
)
@store_option
def record_command(name: str, output: Path, steady: bool, profile: Path | None, store: str | None) -> None:
    """Write the trials that completed, or failed after a report, to one small file.

    The file holds their configurations, the values of all objectives and constrained metrics at each step, and
    the seconds of each step. `thriftune simulate --table FILE` replays it. Use --steady for trials that ran while
    other programs used the machine.
    """
    from thriftune.planning.profile import Profile
    from thriftune.replay import recordings
    from thriftune.study.ask_tell import load

    _check_output(output)
    by_cores = {} if profile is None else Profile.read(profile).seconds_per_step
    with existing_store(store) as opened:
        recording, left_out = recordings.recording_from_result(load(name, opened).result)
    for sentence in left_out.sentences():
        click.echo(sentence, err=True)
    recording = replace(recording, seconds_by_cores=by_cores)
    recordings.write(recordings.with_steady_steps(recording) if steady else recording, output)
    reports = sum(len(curve.steps) for _, curve in recording.rows)
    size = f"{output.stat().st_size / 1000:.1f} kB"
    click.echo(f"{plural(len(recording.rows), 'trial')}, {plural(reports, 'report')}: {size} in {output}")


def _check_output(path: Path) -> None:
    """Raise SettingError if the recording cannot be written to this file."""
    from thriftune.replay.recordings import is_recording

    if not path.parent.is_dir():
        raise SettingError(f"--output: the folder {path.parent} does not exist; create it first")
    if path.exists() and not is_recording(path):
        raise SettingError(
            f"--output: {path} exists and is not a recording, so it is not overwritten; choose another file"
        )
