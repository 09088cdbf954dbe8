"""`thriftune profile`: how long a step of the training function takes, by its number of workers."""

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

# What is heavy is imported when the command runs: `thriftune --help` needs none of it.


def _numbers(ctx: click.Context, option: click.Parameter, given: str | None) -> tuple[int, ...] | None:  # noqa: ARG001
    try:
        return None if given is None else tuple(int(each) for each in given.split(","))
    except ValueError:
        raise click.BadParameter(f"{given!r} must be whole numbers with commas between, such as 1,2,4") from None


@click.command("profile")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--seconds", type=float, default=20.0, show_default=True, help="For each number of workers, about.")
@click.option(
    "--workers",
    callback=_numbers,
    metavar="1,2,4",
    help="Default: powers of two up to the cores here, or on a cluster, to what one node has room for.",
)
@click.option("--repeats", type=int, default=2, show_default=True, help="Trials that share them, turn about.")
@click.option("--limit", metavar="TIME", help="All of it shall take no longer, such as 5m; less is measured then.")
@click.option("--engine", metavar="NAME", help="Where to measure, local or ray; instead of the file's.")
@click.option("--function", default="train", show_default=True, metavar="NAME", help="Of a Python FILE.")
@click.option("--minimize", default="loss", show_default=True, metavar="NAME", help="What a Python FILE reports.")
@click.option("--max-steps", type=int, default=1000, show_default=True, metavar="N", help="Of a Python FILE.")
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="FILE", help="Default: study.profile.json of study.toml."
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
    """Measure how long a step takes, with 1, 2, 4, ... workers.

    Runs trials of one configuration of the study that FILE describes, and writes a profile to make plans with. No
    study is recorded. On this machine a worker is a core; with the engine ray it is what a worker of the study
    gets of the cluster, and how long a node takes to come is measured, too.

    FILE may also be a Python file with a function train(trial) and a space = {...}.
    """
    from thriftune.common.durations import seconds as seconds_of
    from thriftune.planning.profile import profile_path

    began = time.monotonic()
    allowed = seconds_of("limit", limit)
    if allowed is not None and not allowed > 0:
        raise SettingError(f"--limit: {limit} must be above zero")
    if file.suffix == ".py":
        from thriftune.settings.script_file import read_script

        spec, next_line = read_script(file, function, minimize, max_steps, engine or "local"), "STUDY.toml"
        more = " --machine NAME --deadline TIME"
    else:
        from thriftune.settings.study_file import read_study_file

        study = read_study_file(file, {} if engine is None else {"engine": engine})
        spec, next_line = study.spec, shlex.quote(str(file))
        more = "" if study.cloud or spec.engine_options.get("machines") else " --machine NAME --deadline TIME"
    where = profile_path(file) if output is None else output
    _check_output(where)
    with _interruptible():
        found = _measured(spec, workers, seconds, repeats, math.inf if allowed is None else began + allowed)
    found.profile.write(where)
    if as_json:
        print_json({"file": str(where), **_as_json(found)})
    else:
        _show(found, where, f"thriftune plan {next_line} --profile {shlex.quote(str(where))}{more}")


def _measured(
    spec: Spec, workers: tuple[int, ...] | None, seconds: float, repeats: int, ends_at: float
) -> StepTimes:
    from thriftune.launch.profiling import measure
    from thriftune.settings.engine_options import Ray, engine_of

    def say(line: str) -> None:
        click.echo(line, err=True)

    where = engine_of({"name": spec.engine, **spec.engine_options})
    if not isinstance(where, Ray):
        return measure(spec, workers, seconds, repeats, say, ends_at=ends_at)
    from thriftune.launch.ray_profiling import measure_on_cluster

    return measure_on_cluster(spec, where, workers, seconds, repeats, say, ends_at)


def _check_output(path: Path) -> None:
    """Before the minutes that measuring takes."""
    from thriftune.planning.profile import Profile

    if not path.parent.is_dir():
        raise SettingError(f"--output: there is no folder {path.parent}; make it first")
    if path.exists():
        try:
            Profile.read(path)
        except SettingError as error:
            raise SettingError(f"--output: {error}; so it is not overwritten, give another file") from None


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """By Ctrl-C, also where a shell had it ignored in the background, and by SIGTERM: so that no folder is
    left behind."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(found: StepTimes, where: Path, next_line: str) -> None:
    from rich.text import Text

    from thriftune.cli.screen import facts_table, open_console, table
    from thriftune.show.describe import config_line

    console = open_console()
    profile = found.profile
    alone = profile.seconds_per_step[1]
    columns = ("workers", "steps measured", "seconds a step", "times as fast as with 1")
    rows = [
        (str(row.workers), str(row.steps), _seconds(row.seconds_per_step), f"{alone / row.seconds_per_step:.2f}")
        for row in found.rows
    ]
    table(console, columns, rows, left=0)
    console.print()
    facts = facts_table()
    facts.add_row("configuration", Text(config_line(found.config)))
    facts.add_row("startup", f"{_seconds(profile.startup)} s")
    facts.add_row("checkpoint", f"{_seconds(profile.checkpoint)} s")
    facts.add_row("from trial to trial", f"{_seconds(profile.std)} s a step (standard deviation)")
    if profile.queue:
        facts.add_row("a node comes", f"{_seconds(profile.queue)} s after it is asked for")
    for remark in found.remarks:
        facts.add_row("note", remark)
    facts.add_row("written to", Text(str(where)))
    facts.add_row("next", Text(next_line))
    console.print(facts)


def _seconds(value: float) -> str:
    return f"{value:.3g}"


def _as_json(found: StepTimes) -> dict[str, Any]:
    alone = found.profile.seconds_per_step[1]
    rows = [
        {
            "workers": row.workers,
            "steps": row.steps,
            "seconds_per_step": row.seconds_per_step,
            "times_as_fast": alone / row.seconds_per_step,
            "trials": [asdict(trial) for trial in row.trials],
        }
        for row in found.rows
    ]
    return {
        "profile": found.profile.to_json(),
        "config": dict(found.config),
        "measurements": rows,
        "remarks": found.remarks,
    }
