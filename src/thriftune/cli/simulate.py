"""`thriftune simulate`: replay a study under another stopping rule, or on rented machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from thriftune.cli.common import existing_store, json_option, plot_option, print_json, store_option
from thriftune.common.durations import seconds as duration
from thriftune.common.formatting import format_seconds
from thriftune.errors import SettingError
from thriftune.loop.limits import SEARCHER_EXHAUSTED
from thriftune.replay.curve_tables import read_table
from thriftune.replay.recordings import Recording, recording_from_result
from thriftune.replay.simulation import simulate
from thriftune.results.trial_states import count_states, counts_line
from thriftune.show.describe import values_and_progress
from thriftune.space.objectives import parse_objectives
from thriftune.study.ask_tell import load
from thriftune.study.result import Result

# Modules that only rented machines need are imported when they are needed.


@click.command("simulate")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--from", "study", metavar="STUDY", help="The study whose trials are replayed.")
@click.option(
    "--table",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A table of learning curves: a recording, CSV, Parquet or npz.",
)
@click.option("--minimize", metavar="METRIC", help="The objective of the table.")
@click.option("--maximize", metavar="METRIC", help="The objective of the table.")
@click.option(
    "--stopping", metavar="RULE", help="The stopping rule.  [default: auto, none with --cloud, or as FILE says]"
)
@click.option(
    "--searcher", metavar="NAME", help="The searcher.  [default: the recorded configurations in their order]"
)
@click.option(
    "--workers", type=int, metavar="N", help="The number of trials at a time.  [default: 1, or as FILE says]"
)
@click.option("--trials", type=int, metavar="N", help="The largest number of trials.")
@click.option("--deadline", metavar="TIME", help="The deadline in virtual time, such as 20m or 1h30m.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--cloud",
    type=click.Path(path_type=Path),
    metavar="TRACE",
    help="Rent machines from this record of prices, lifetimes or availability.",
)
@click.option(
    "--policy",
    default="thrifty,on_demand",
    show_default=True,
    metavar="A,B",
    help="The policies that rent machines.",
)
@click.option(
    "--seeds", type=int, default=3, show_default=True, metavar="N", help="The number of runs of each policy."
)
@click.option(
    "--slower",
    type=float,
    default=1.0,
    show_default=True,
    metavar="X",
    help="Multiply the time of each step by this.",
)
@click.option(
    "--restart",
    metavar="TIME",
    help="Time to restore a trial on another machine.  [default: 30s, or as FILE's profile says]",
)
@click.option(
    "--save",
    metavar="TIME",
    help="Time to write a checkpoint, or 'never'.  [default: 10s, or as FILE's profile says]",
)
@click.option(
    "--state",
    type=float,
    default=0.0,
    metavar="GB",
    help="The size of a checkpoint, if its transfer takes time too.",
)
@click.option(
    "--bandwidth",
    type=float,
    default=0.25,
    show_default=True,
    metavar="GB",
    help="GB a second to the storage and back.",
)
@store_option
@plot_option
@json_option
def simulate_command(
    file: Path | None,
    study: str | None,
    table: Path | None,
    minimize: str | None,
    maximize: str | None,
    stopping: str | None,
    searcher: str | None,
    workers: int | None,
    trials: int | None,
    deadline: str | None,
    seed: int,
    cloud: Path | None,
    policy: str,
    seeds: int,
    slower: float,
    restart: str | None,
    save: str | None,
    state: float,
    bandwidth: float,
    store: str | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Simulate a study by replaying learning curves.

    The replay runs on a virtual clock, with any stopping rule and number of workers.

    The simulator uses the conductor and the stopping rules of real studies. The output also shows what it takes to
    run all trials to their end.

    With --cloud, each --policy rents machines from a recorded cloud, and a table shows its cost beside a lower
    bound. `thriftune run` does not use these policies yet.

    FILE is the study file of a study that was not run. Its profile gives the step times, and its [cloud] gives the
    machines unless you give --cloud.
    """
    if sum(each is not None for each in (file, study, table)) != 1:
        raise SettingError("give one of FILE, --from STUDY and --table FILE")
    if study is not None and (minimize or maximize):
        raise SettingError("--minimize and --maximize are for a --table; a study has its own objectives")
    if cloud is None and file is None:
        _check_no_cloud_options()
    if file is not None and (minimize or maximize):
        raise SettingError("--minimize and --maximize are for a --table; FILE has its own objectives")
    settings: dict[str, Any] = {
        "searcher": searcher, "trials": trials, "deadline": deadline, "seed": seed, "slower": slower,
    }  # fmt: skip
    source: Any
    if file is not None:
        from thriftune.replay.synthetic_curves import read_synthetic_study

        source, cloud_of_file, of_study = read_synthetic_study(file, rented_elsewhere=cloud is not None)
        settings |= {name: value for name, value in of_study.items() if settings.get(name) is None}
        rented: Any = cloud_of_file if cloud is None else cloud
    else:
        source, rented = _recorded(study, table, minimize, maximize, store), cloud
    if stopping is not None:
        settings["stopping"] = stopping
    if workers is not None or "workers" not in settings:
        settings["workers"] = 1 if workers is None else workers
    if rented is not None:
        from thriftune.cli.policy_comparison import show_policies

        settings |= {"state_gb": state, "gb_per_second": bandwidth}
        if restart is not None:
            settings["restart_seconds"] = duration("restart", restart)
        if save is not None:
            settings["save_seconds"] = None if save == "never" else duration("save", save)
        show_policies(source, rented, policy.split(","), seeds, settings, plot, as_json=as_json)
    else:
        _show_rule(source, settings, as_json=as_json)


def _check_no_cloud_options() -> None:
    """Raise SettingError if an option was given that has no effect without a cloud."""
    context = click.get_current_context()
    for name in ("policy", "seeds", "restart", "save", "state", "bandwidth", "plot"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise SettingError(f"--{name}: only applies to rented machines; add --cloud TRACE")


def _recorded(
    study: str | None, table: Path | None, minimize: str | None, maximize: str | None, store: str | None
) -> Recording:
    if study is None:
        assert table is not None
        return read_table(table, parse_objectives(minimize, maximize) if minimize or maximize else ())
    with existing_store(store) as opened:
        source, left_out = recording_from_result(load(study, opened).result)
    for sentence in left_out.sentences():
        click.echo(sentence, err=True)
    return source


def _show_rule(source: Recording, settings: dict[str, Any], *, as_json: bool) -> None:
    rule, workers = settings.get("stopping", "auto"), settings["workers"]
    result, unstopped = (simulate(source, **{**settings, "stopping": each}) for each in (rule, "none"))
    if as_json:
        print_json({"stopping": rule, **_figures(result), "without_stopping": _figures(unstopped)})
        return
    all_replayed = settings.get("searcher") is None and result.finished == SEARCHER_EXHAUSTED
    why = "all recorded configurations were replayed" if all_replayed else result.finished
    click.echo(f"{rule}, {workers} at a time: {why}")
    click.echo(f"trials  {counts_line(result.history, has_driver=False)}")
    click.echo(f"best    {_best(result)}; without stopping {_best(unstopped)}")
    click.echo(f"steps   {_steps(result)}; without stopping {_steps(unstopped)}")
    click.echo(f"time    {format_seconds(result.seconds)}; without stopping {format_seconds(unstopped.seconds)}")


def _steps(result: Result) -> int:
    return sum(len(trial.reports) for trial in result.trials)


def _best(result: Result) -> str:
    if not result.front:
        return "none"
    return values_and_progress(result.front[0], result.history)


def _figures(result: Result) -> dict[str, object]:
    best = result.front[0] if result.front else None
    step = None if best is None else result.history.step_of_values(best)
    return {
        "finished": result.finished,
        "trials": len(result.trials),
        "counts": {str(state): count for state, count in count_states(result.history, has_driver=False).items()},
        "best": None
        if best is None
        else {"value": best.value, "config": dict(best.config), "finished": best.finished, "step": step},
        "steps": _steps(result),
        "seconds": result.seconds,
    }
