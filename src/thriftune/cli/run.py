"""`thriftune run` and `thriftune resume`: run the trials of a study in this process."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import click

from thriftune.cli.as_json import result_json
from thriftune.cli.common import existing_store, json_option, print_json, store_location, store_option
from thriftune.cli.settings_options import given_settings, resume_options, run_options
from thriftune.common.command_hints import show_hint
from thriftune.common.text import last_line
from thriftune.errors import NoBestTrial
from thriftune.launch.drive import drive, resume
from thriftune.launch.open_study import open_study
from thriftune.launch.warm_start import same_store
from thriftune.results.loading import load_spec
from thriftune.results.trial_states import counts_line
from thriftune.settings.make_spec import with_limits
from thriftune.settings.study_file import read_study_file
from thriftune.settings.study_paths import absolute_path, absolute_source
from thriftune.show.describe import better_model_line, config_items, config_line, trial_label, values_line
from thriftune.show.progress import make_view
from thriftune.state.spec import Spec
from thriftune.state.stored_settings import ChangePolicy
from thriftune.state.trial_record import State
from thriftune.store.opening import open_store
from thriftune.store.protocol import Store
from thriftune.study.result import Result

_MAX_FRONT = 10

quiet_option = click.option("--quiet", is_flag=True, help="Show neither progress nor the result, only problems.")


@click.command("run")
@click.argument("file", type=click.Path(path_type=Path))
@store_option
@click.option(
    "--warm-start",
    multiple=True,
    metavar="NAME",
    help="A source: a study to learn from; PATH:NAME in another store.",
)
@json_option
@quiet_option
@run_options
def run_command(
    file: Path,
    store: str | None,
    warm_start: tuple[str, ...],
    retry_failed: bool,
    fresh: bool,
    on_change: ChangePolicy,
    as_json: bool,
    quiet: bool,
    **settings: Any,
) -> None:
    """Run the study that FILE describes, or the rest of it.

    Limits are totals. Run again with the same name and store, a study continues: one with 100 trials of which 60
    are done runs 40 more. Options replace the settings in FILE.
    """
    overrides = given_settings(settings)
    if warm_start:
        overrides["warm_start"] = [absolute_source(Path.cwd(), source) for source in warm_start]
    if "storage" in overrides:
        overrides["storage"] = absolute_path(Path.cwd(), overrides["storage"])
    study = read_study_file(file, overrides)
    path = store_location(store)
    with open_store(path if path is not None else study.store, create=not same_store(study.warm_start)) as opened:
        on_change = "go_on" if retry_failed else on_change  # users retry after they changed something
        spec = open_study(
            opened,
            study.spec,
            study.warm_start,
            study.initial_events,
            fresh=fresh,
            on_change=on_change,
            say=_say,
        )
        if study.seed is not None and study.seed != spec.seed:
            click.echo(
                f"seed: study {spec.name!r} began with {spec.seed} and goes on with it, not with {study.seed}",
                err=True,
            )
        _enter_folder(spec)
        view = make_view(spec, False if quiet else None)
        outcome = drive(opened, spec, view, initial_events=study.initial_events, retry_failed=retry_failed)
        _print_result(Result(*outcome), opened, as_json, quiet)


@click.command("resume")
@click.argument("name")
@store_option
@json_option
@quiet_option
@resume_options
def resume_command(
    name: str,
    store: str | None,
    retry_failed: bool,
    on_change: ChangePolicy,
    as_json: bool,
    quiet: bool,
    **limits: Any,
) -> None:
    """Continue a study by its name, whatever stopped it.

    Options replace the limits of the study, even if it is finished. Limits are totals, as in run.
    """
    with existing_store(store) as opened:
        spec = load_spec(opened, name)
        given = given_settings(limits)
        view = make_view(with_limits(spec, given), False if quiet else None)
        _enter_folder(spec)
        result = Result(*resume(name, opened, view, given, retry_failed=retry_failed, on_change=on_change))
        _print_result(result, opened, as_json, quiet)


def _say(message: str) -> None:
    click.echo(message, err=True)


def _enter_folder(spec: Spec) -> None:
    """Change to the folder of the study file or script.

    Its trials expect to run there.
    """
    with contextlib.suppress(OSError):  # the folder may no longer exist, and trials may not need it
        os.chdir(spec.target.folder or ".")


def _print_result(result: Result, store: Store, as_json: bool, quiet: bool) -> None:
    """Print the result as text or JSON.

    Raises NoBestTrial if no trial has a value that meets the constraints.
    """
    if as_json:
        print_json(result_json(result, store))
    elif not quiet:
        _show(result, store)
    if not result.front:
        raise NoBestTrial(result.history.why_infeasible() or f"no best trial: {_why_no_value(result, store)}")


def _why_no_value(result: Result, store: Store) -> str:
    """Return the trials by state, and the error of the first failed trial."""
    counts = counts_line(result.history, has_driver=False)
    failed = [trial for trial in result.trials if trial.state is State.FAILED]
    if not failed:
        return counts
    if len(failed) == len(result.trials):
        why = result.history.why_no_best()
    else:
        why = f"{counts}, the first with: {last_line(failed[0].error)}"
    command = show_hint(result.name, store.url, failed[0].id)
    return why + (f"; see it with: {command}" if command else "")


def _show_front(result: Result) -> None:
    label = "front"
    for trial in result.front[:_MAX_FRONT]:
        values = f"{values_line(trial, result.history)} ({trial_label(trial, result.history)})"
        click.echo(f"{label:<8}{values} {config_line(trial.config)}")
        label = ""
    if (more := len(result.front) - _MAX_FRONT) > 0:
        click.echo(f"        and {more} more")


def _show(result: Result, store: Store) -> None:
    click.echo(f"study {result.name}: {result.finished or 'nothing left to do'}")
    click.echo(f"trials  {counts_line(result.history, has_driver=False)}")
    if not result.front:
        click.echo(f"best    {result.history.why_infeasible() or f'none: {result.history.why_no_best()}'}")
    elif len(result.spec.objectives) > 1:
        _show_front(result)
    else:
        click.echo(
            f"best    {values_line(result.best, result.history)} ({trial_label(result.best, result.history)})"
        )
        for name, value in config_items(result.best.config):
            click.echo(f"        {name} = {value}")
        if model := better_model_line(result.history):
            click.echo(f"model   {model}")
    click.echo(f"cost    {result.cost}")
    if command := show_hint(result.name, store.url):
        click.echo(f"more    {command}", err=True)
