"""`thriftune simulate`: what would have come of a study under another rule."""

from __future__ import annotations

from pathlib import Path

import click

from thriftune.cli.common import existing_store, json_option, print_json, store_option
from thriftune.curve_tables import read_table
from thriftune.errors import SettingError
from thriftune.objectives import parse_objectives
from thriftune.recordings import of_result
from thriftune.result import Result, format_seconds
from thriftune.simulation import simulate
from thriftune.study import load
from thriftune.words import counts, counts_line, values_line


@click.command("simulate")
@click.option("--from", "study", metavar="STUDY", help="Whose trials are replayed.")
@click.option(
    "--table", type=click.Path(path_type=Path), metavar="FILE", help="Of curves: a recording, CSV, Parquet, npz."
)
@click.option("--minimize", metavar="METRIC", help="Of a table.")
@click.option("--maximize", metavar="METRIC", help="Of a table.")
@click.option("--stopping", default="auto", show_default=True, metavar="RULE", help="Who is given up on.")
@click.option("--searcher", metavar="NAME", help="Default: the recorded configurations in their order.")
@click.option("--workers", type=int, default=1, show_default=True, metavar="N", help="How many trials at a time.")
@click.option("--trials", type=int, metavar="N", help="How many at most.")
@click.option("--deadline", metavar="TIME", help="How long at most, in virtual time, such as 20m or 1h30m.")
@click.option("--seed", type=int, default=0, show_default=True)
@store_option
@json_option
def simulate_command(
    study: str | None,
    table: Path | None,
    minimize: str | None,
    maximize: str | None,
    stopping: str,
    searcher: str | None,
    workers: int,
    trials: int | None,
    deadline: str | None,
    seed: int,
    store: str | None,
    as_json: bool,
) -> None:
    """Replay learning curves on a virtual clock, under any rule, with any number of workers.

    The same decisions as in a real run, in a moment; beside it stands what running all trials to their end takes.
    """
    if (study is None) == (table is None):
        raise SettingError("give either --from STUDY or --table FILE")
    if study is not None and (minimize or maximize):
        raise SettingError("--minimize and --maximize are for a --table; a study has its own objectives")
    if study is not None:
        with existing_store(store) as opened:
            source, left_out = of_result(load(study, opened).result)
        if left_out:
            click.echo(f"{left_out} trials of {study} did not come to their end, and are left out", err=True)
    else:
        assert table is not None
        source = read_table(table, parse_objectives(minimize, maximize) if minimize or maximize else ())
    result, whole = (
        simulate(
            source, stopping=rule, searcher=searcher, workers=workers, trials=trials, deadline=deadline, seed=seed
        )
        for rule in (stopping, "none")
    )
    if as_json:
        print_json({"stopping": stopping, **_numbers(result), "without_stopping": _numbers(whole)})
        return
    click.echo(f"{stopping}, {workers} at a time: {result.finished}")
    click.echo(f"trials  {counts_line(counts(result.history, driven=False))}")
    click.echo(f"best    {_best(result)}; without stopping {_best(whole)}")
    click.echo(f"steps   {_steps(result)}; without stopping {_steps(whole)}")
    click.echo(f"time    {format_seconds(result.seconds)}; without stopping {format_seconds(whole.seconds)}")


def _steps(result: Result) -> int:
    return sum(len(trial.reports) for trial in result.trials)


def _best(result: Result) -> str:
    if not result.front:
        return "none"
    return values_line(result.front[0], result.history)


def _numbers(result: Result) -> dict[str, object]:
    best = result.front[0] if result.front else None
    return {
        "finished": result.finished,
        "trials": len(result.trials),
        "counts": {str(state): count for state, count in counts(result.history, driven=False).items()},
        "best": None if best is None else {"value": best.value, "config": dict(best.config)},
        "steps": _steps(result),
        "seconds": result.seconds,
    }
