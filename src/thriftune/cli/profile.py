"""`thriftune profile`: measure how long a step of training takes, by the number of workers."""

from __future__ import annotations

import contextlib
import math
import shlex
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from thriftune.cli.common import json_option, print_json
from thriftune.errors import SettingError

if TYPE_CHECKING:
    from thriftune.planning.timing import StepTimes
    from thriftune.state.spec import Spec

# Slow imports are inside the command, so that `thriftune profile --help` starts fast.


def _numbers(ctx: click.Context, option: click.Parameter, text: str | None) -> tuple[int, ...] | None:  # noqa: ARG001
    """Return the numbers of an option such as 1,2,4."""
    try:
        return None if text is None else tuple(int(each) for each in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} must be whole numbers separated by commas, such as 1,2,4") from None


@click.command("profile")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--seconds",
    type=float,
    default=20.0,
    show_default=True,
    help="How long to measure each number of workers, about.",
)
@click.option(
    "--workers",
    callback=_numbers,
    metavar="1,2,4",
    help="The numbers of workers to measure.  [default: powers of two, up to the cores of this machine or to the "
    "workers that fit on one node of a cluster]",
)
@click.option(
    "--repeats", type=int, default=2, show_default=True, help="Trials among which these seconds are divided."
)
@click.option("--limit", metavar="TIME", help="The most time that all measurements may take, such as 5m.")
@click.option("--engine", metavar="NAME", help="Where to measure: local or ray.  [default: as FILE says]")
@click.option(
    "--function",
    default="train",
    show_default=True,
    metavar="NAME",
    help="The training function in a Python FILE.",
)
@click.option(
    "--minimize", default="loss", show_default=True, metavar="NAME", help="The metric that a Python FILE reports."
)
@click.option(
    "--max-steps",
    type=int,
    default=1000,
    show_default=True,
    metavar="N",
    help="The steps of a trial of a Python FILE.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file to write.  [default: study.profile.json for study.toml]",
)
@json_option
def profile_command(
    file: Path,
    seconds: float,
    workers: tuple[int, ...] | None,
    repeats: int,
    limit: str | None,
    engine: str | None,
    function: str,
    minimize: str,
    max_steps: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Measure how long a step takes with 1, 2, 4, ... workers.

    This command runs trials with one configuration of the study that FILE describes, and writes a profile for
    `thriftune plan`. It records no study. On this machine, a worker is a core. With the engine ray, a worker has
    the resources of one of the study's workers, and the command also measures how long a new node takes to start.

    FILE may also be a Python file with a function train(trial) and a space = {...}.
    """
    from thriftune.common.durations import seconds as seconds_of
    from thriftune.planning.profile import profile_path

    began = time.monotonic()
    limit_seconds = seconds_of("limit", limit)
    if limit_seconds is not None and not limit_seconds > 0:
        raise SettingError(f"--limit: {limit} must be above zero")
    if file.suffix == ".py":
        from thriftune.settings.script_file import read_script

        spec, study_file = read_script(file, function, minimize, max_steps, engine or "local"), "STUDY.toml"
        plan_options = " --machine NAME --deadline TIME"
    else:
        from thriftune.settings.study_file import read_study_file

        study = read_study_file(file, {} if engine is None else {"engine": engine})
        spec, study_file = study.spec, shlex.quote(str(file))
        has_machines = study.cloud or spec.engine_options.get("machines")
        plan_options = "" if has_machines else " --machine NAME --deadline TIME"
    path = profile_path(file) if output is None else output
    _check_output(path)
    with _interruptible():
        ends_at = math.inf if limit_seconds is None else began + limit_seconds
        times = _measure(spec, workers, seconds, repeats, ends_at)
    times.profile.write(path)
    if as_json:
        print_json({"file": str(path), **_as_json(times)})
    else:
        _show(times, path, f"thriftune plan {study_file} --profile {shlex.quote(str(path))}{plan_options}")


def _measure(
    spec: Spec, workers: tuple[int, ...] | None, seconds: float, repeats: int, ends_at: float
) -> StepTimes:
    """Measure the step times with the spec's engine.

    The measurement ends at `ends_at` of the monotonic clock at the latest.
    """
    from thriftune.launch.profiling import measure
    from thriftune.settings.engine_options import Ray, engine_of

    def say(line: str) -> None:
        click.echo(line, err=True)

    options = engine_of({"name": spec.engine, **spec.engine_options})
    if not isinstance(options, Ray):
        return measure(spec, workers, seconds, repeats, say, ends_at=ends_at)
    from thriftune.launch.ray_profiling import measure_on_cluster

    return measure_on_cluster(spec, options, workers, seconds, repeats, say, ends_at)


def _check_output(path: Path) -> None:
    """Raise SettingError if the profile cannot be written to this file.

    This is checked before the slow measurement.
    """
    from thriftune.planning.profile import Profile

    if not path.parent.is_dir():
        raise SettingError(f"--output: the folder {path.parent} does not exist; create it first")
    if path.exists():
        try:
            Profile.read(path)
        except SettingError as error:
            raise SettingError(
                f"--output: {error}; it is not a profile, so it is not overwritten; choose another file"
            ) from None


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGINT and SIGTERM.

    The exception lets the program remove its temporary folders. A shell may start a background command with SIGINT
    ignored; here SIGINT works then, too.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _show(times: StepTimes, path: Path, plan_command: str) -> None:
    from rich.text import Text

    from thriftune.cli.screen import facts_table, open_console, table
    from thriftune.show.describe import config_line

    console = open_console()
    profile = times.profile
    seconds_alone = profile.seconds_per_step[1]
    columns = ("workers", "steps measured", "seconds a step", "speed-up over 1 worker")
    rows = [
        (
            str(row.workers),
            str(row.steps),
            _seconds(row.seconds_per_step),
            f"{seconds_alone / row.seconds_per_step:.2f}",
        )
        for row in times.rows
    ]
    table(console, columns, rows, left=0)
    console.print()
    facts = facts_table()
    facts.add_row("configuration", Text(config_line(times.config)))
    facts.add_row("startup", f"{_seconds(profile.startup)} s")
    facts.add_row("checkpoint", f"{_seconds(profile.checkpoint)} s")
    facts.add_row("spread", f"{_seconds(profile.std)} s a step (standard deviation between trials)")
    if profile.queue:
        facts.add_row("new node", f"{_seconds(profile.queue)} s after its request")
    for remark in times.remarks:
        facts.add_row("note", remark)
    facts.add_row("written to", Text(str(path)))
    facts.add_row("next", Text(plan_command))
    console.print(facts)


def _seconds(value: float) -> str:
    return f"{value:.3g}"


def _as_json(times: StepTimes) -> dict[str, Any]:
    seconds_alone = times.profile.seconds_per_step[1]
    rows = [
        {
            "workers": row.workers,
            "steps": row.steps,
            "seconds_per_step": row.seconds_per_step,
            "times_as_fast": seconds_alone / row.seconds_per_step,
            "trials": [asdict(trial) for trial in row.trials],
        }
        for row in times.rows
    ]
    return {
        "profile": times.profile.to_json(),
        "config": dict(times.config),
        "measurements": rows,
        "remarks": times.remarks,
    }
