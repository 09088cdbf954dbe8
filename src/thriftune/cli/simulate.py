"""`thriftune simulate`: what would have come of a study under another rule, or on rented machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from thriftune.cli.common import existing_store, json_option, plot_option, print_json, store_option
from thriftune.common.durations import seconds as duration
from thriftune.common.formatting import format_seconds
from thriftune.errors import SettingError
from thriftune.replay.curve_tables import read_table
from thriftune.replay.recordings import Recording, recording_from_result
from thriftune.replay.simulation import simulate
from thriftune.results.result import Result
from thriftune.results.trial_states import count_states, counts_line
from thriftune.show.describe import values_and_progress
from thriftune.space.objectives import parse_objectives
from thriftune.study.ask_tell import load

# What is only needed on rented machines is imported when it is.


@click.command("simulate")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--from", "study", metavar="STUDY", help="Whose trials are replayed.")
@click.option(
    "--table", type=click.Path(path_type=Path), metavar="FILE", help="Of curves: a recording, CSV, Parquet, npz."
)
@click.option("--minimize", metavar="METRIC", help="Of a table.")
@click.option("--maximize", metavar="METRIC", help="Of a table.")
@click.option(
    "--stopping", metavar="RULE", help="Who is given up on. Default: auto, none with --cloud, or as FILE says."
)
@click.option("--searcher", metavar="NAME", help="Default: the recorded configurations in their order.")
@click.option("--workers", type=int, metavar="N", help="How many trials at a time. Default: 1, or as FILE says.")
@click.option("--trials", type=int, metavar="N", help="How many at most.")
@click.option("--deadline", metavar="TIME", help="How long at most, in virtual time, such as 20m or 1h30m.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--cloud",
    type=click.Path(path_type=Path),
    metavar="TRACE",
    help="Rent machines of it: a record of prices, lifetimes or availability.",
)
@click.option("--policy", default="thrifty,on_demand", show_default=True, metavar="A,B", help="Who rents them.")
@click.option("--seeds", type=int, default=3, show_default=True, metavar="N", help="How many times, each.")
@click.option(
    "--slower", type=float, default=1.0, show_default=True, metavar="X", help="Steps take so much longer."
)
@click.option(
    "--restart", metavar="TIME", help="To take a trial up elsewhere. Default: 30s, or as FILE's profile says."
)
@click.option(
    "--save",
    metavar="TIME",
    help="To write a checkpoint, or never. Default: 10s, or as FILE's profile says.",
)
@click.option("--state", type=float, default=0.0, metavar="GB", help="Its size, if that takes time, too.")
@click.option(
    "--bandwidth",
    type=float,
    default=0.25,
    show_default=True,
    metavar="GB",
    help="A second, to the storage and back.",
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
    """Replay learning curves on a virtual clock, under any rule, with any number of workers.

    The conductor and the rule are those of a real study. The table also shows what running all trials to their
    end takes. With --cloud, each --policy rents machines from a recorded cloud: the table shows what it would have
    paid, and a lower bound. These policies exist in the simulator only. FILE, a study file, stands for a study
    that was not run: its profile gives the step times, and its [cloud] is rented from, unless --cloud is given.
    """
    if sum(given is not None for given in (file, study, table)) != 1:
        raise SettingError("give one of FILE, --from STUDY and --table FILE")
    if study is not None and (minimize or maximize):
        raise SettingError("--minimize and --maximize are for a --table; a study has its own objectives")
    if cloud is None and file is None:
        _check_nothing_rented()
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
        from thriftune.cli.what_if import show_policies

        settings |= {"state_gb": state, "gb_per_second": bandwidth}
        if restart is not None:
            settings["restart_seconds"] = duration("restart", restart)
        if save is not None:
            settings["save_seconds"] = None if save == "never" else duration("save", save)
        show_policies(source, rented, policy.split(","), seeds, settings, plot, as_json=as_json)
    else:
        _show_rule(source, settings, as_json=as_json)


def _check_nothing_rented() -> None:
    """Options that would do nothing are a mistake."""
    context = click.get_current_context()
    for name in ("policy", "seeds", "restart", "save", "state", "bandwidth", "plot"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise SettingError(f"--{name}: is about rented machines; give a --cloud to rent them from")


def _recorded(
    study: str | None, table: Path | None, minimize: str | None, maximize: str | None, store: str | None
) -> Recording:
    if study is None:
        assert table is not None
        return read_table(table, parse_objectives(minimize, maximize) if minimize or maximize else ())
    with existing_store(store) as opened:
        source, left_out = recording_from_result(load(study, opened).result)
    if left_out:
        click.echo(f"{left_out} trials of {study} did not come to their end, and are left out", err=True)
    return source


def _show_rule(source: Recording, settings: dict[str, Any], *, as_json: bool) -> None:
    rule, workers = settings.get("stopping", "auto"), settings["workers"]
    result, whole = (simulate(source, **{**settings, "stopping": each}) for each in (rule, "none"))
    if as_json:
        print_json({"stopping": rule, **_numbers(result), "without_stopping": _numbers(whole)})
        return
    click.echo(f"{rule}, {workers} at a time: {result.finished}")
    click.echo(f"trials  {counts_line(result.history, driven=False)}")
    click.echo(f"best    {_best(result)}; without stopping {_best(whole)}")
    click.echo(f"steps   {_steps(result)}; without stopping {_steps(whole)}")
    click.echo(f"time    {format_seconds(result.seconds)}; without stopping {format_seconds(whole.seconds)}")


def _steps(result: Result) -> int:
    return sum(len(trial.reports) for trial in result.trials)


def _best(result: Result) -> str:
    if not result.front:
        return "none"
    return values_and_progress(result.front[0], result.history)


def _numbers(result: Result) -> dict[str, object]:
    best = result.front[0] if result.front else None
    step = None if best is None else result.history.step_of_values(best)
    return {
        "finished": result.finished,
        "trials": len(result.trials),
        "counts": {str(state): count for state, count in count_states(result.history, driven=False).items()},
        "best": None
        if best is None
        else {"value": best.value, "config": dict(best.config), "finished": best.finished, "step": step},
        "steps": _steps(result),
        "seconds": result.seconds,
    }
