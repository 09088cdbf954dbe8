"""`thriftune list`: all studies of a store, from the summaries that their drivers write."""

from __future__ import annotations

import time
from typing import Any

import click

from thriftune.cli.common import existing_store, json_option, print_json, store_option
from thriftune.common.formatting import format_unfinished
from thriftune.errors import StudyDamaged, StudyNotFound
from thriftune.results.summaries import StudySummary, summaries

_HEADER = ("NAME", "STATE", "TRIALS", "BEST", "CREATED")


@click.command("list")
@store_option
@json_option
def list_command(store: str | None, as_json: bool) -> None:
    """List all studies, the newest first."""
    try:
        opened = existing_store(store)
    except StudyNotFound as error:
        if as_json:
            print_json([])
        else:
            click.echo(str(error), err=True)
        return
    with opened:
        rows = [_row(summary) for summary in summaries(opened)]
        url = opened.url
    if as_json:
        print_json(rows)
    elif rows:
        _print_table([_HEADER, *(_cells(row) for row in rows)])
        for row in rows:
            if row["damage"]:
                click.echo(f"damaged: {StudyDamaged(row['name'], url, row['damage'])}", err=True)
    else:
        click.echo(f"no studies in {url}", err=True)


def _row(summary: StudySummary) -> dict[str, Any]:
    """Return a study as a dict, for the table or for JSON.

    Most fields of a damaged study are None.
    """
    driver = summary.driver
    first = summary.objectives[0] if summary.objectives else None
    always_known = {
        "name": summary.name,
        "state": summary.state,
        "damage": summary.damage,
        "counts": dict(summary.counts),
        "created_at": summary.created_at,
    }
    details = {
        "finished": summary.finished,
        "pid": driver.pid if driver else None,
        "host": driver.host if driver else None,
        "trials": summary.trials,
        "limit": summary.limit,
        "max_steps": summary.max_steps,
        "metric": first.metric if first else None,
        "maximize": first.maximize if first else None,
        "objectives": [{"metric": each.metric, "maximize": each.maximize} for each in summary.objectives],
        "constraints": list(summary.constraints),
        "best": summary.best_trial,
        "front_size": summary.front_size,
        "front_step": summary.front_step,
        "seconds": summary.seconds,
        "dollars": summary.dollars,
    }
    return always_known | (details if summary.damage is None else dict.fromkeys(details))


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    created = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["created_at"]))
    if row["damage"]:
        return (row["name"], row["state"], "-", "-", created)
    state = f"running ({row['pid']})" if row["state"] == "running" else row["state"]
    counts: dict[str, int] = row["counts"]
    ended_states = ("COMPLETED", "STOPPED", "FAILED", *(("PAUSED",) if row["finished"] else ()))
    ended = sum(counts.get(name, 0) for name in ended_states)
    trials = f"{ended} of {row['limit']}" if row["limit"] else str(ended)
    if failed := counts.get("FAILED", 0):
        trials += f" ({failed} failed)"
    return (row["name"], state, trials, _best(row), created)


def _best(row: dict[str, Any]) -> str:
    """Return the best value, or the size of the front.

    The text includes the progress if the best trial has not finished. Summaries of old versions lack `finished`;
    their best trial counts as finished.
    """
    text, step = "-", None
    if best := row["best"]:
        text = f"{row['metric']} {best['value']:.6g}"
        step = None if best.get("finished", True) else best["step"]
    elif row["front_size"]:
        text, step = f"front of {row['front_size']}", row["front_step"]
    if step is None:
        return text
    return f"{text} ({format_unfinished(step, row['max_steps'], stopped=bool(row['finished']))})"


def _print_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
