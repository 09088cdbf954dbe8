"""`thriftune list`: every study of a store, from the summaries that drivers keep."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import click

from thriftune.cli.common import existing_store, json_option, print_json, store_option
from thriftune.errors import SettingError, StoreConflict, StoreError, StudyBusy, StudyDamaged, StudyNotFound
from thriftune.objectives import objectives_of
from thriftune.printed import unfinished_at
from thriftune.store import Listed, Store

_HEADER = ("NAME", "STATE", "TRIALS", "BEST", "CREATED")

_UNKNOWN = (
    "finished", "pid", "host", "trials", "limit", "max_steps", "metric", "maximize", "objectives", "constraints",
    "best", "front_size", "front_step", "seconds", "dollars",
)  # fmt: skip
"""The fields of a row that are unknown for a damaged study."""


@click.command("list")
@store_option
@json_option
def list_command(store: str | None, as_json: bool) -> None:
    """All studies, the newest first."""
    try:
        opened = existing_store(store)
    except StudyNotFound as none:
        if as_json:
            print_json([])
        else:
            click.echo(str(none), err=True)
        return
    with opened:
        rows = [_row_or_damage(opened, listed) for listed in opened.studies()]
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


def _row_or_damage(store: Store, listed: Listed) -> dict[str, Any]:
    """Return the study's row; that of a damaged study says what is wrong with it, and little else."""
    damage = listed.damage
    if not damage:
        try:
            row = _row(store, listed)
            _cells(row)  # fails here rather than later
            return row
        except StudyDamaged as error:
            damage = error.what
        except (ArithmeticError, AttributeError, LookupError, SettingError, TypeError, ValueError) as error:
            damage = f"its settings cannot be read ({type(error).__name__}: {error})"
    return dict.fromkeys(_UNKNOWN) | {
        "name": listed.name,
        "state": "damaged",
        "damage": damage,
        "counts": {},
        "created_at": listed.created_at,
    }


def _row(store: Store, listed: Listed) -> dict[str, Any]:
    """Return the study as a dict, for a line of the table or for JSON."""
    spec, summary, driver = listed.spec, listed.summary, listed.driver
    objectives = objectives_of(spec)
    if driver is None and not (_is_sound(summary) and summary.get("entries", 0) == listed.entries):
        summary = _fold(store, listed)
    counts: dict[str, int] = dict(summary.get("counts", {}))
    if driver is None and spec["target"]["kind"] != "outside" and (cut_off := counts.pop("RUNNING", 0)):
        counts["WAITING"] = counts.get("WAITING", 0) + cut_off  # nothing runs without its driver
    return {
        "name": listed.name,
        "state": _state(listed, summary),
        "damage": None,
        "finished": summary.get("finished"),
        "pid": driver.pid if driver else None,
        "host": driver.host if driver else None,
        "counts": counts,
        "trials": sum(counts.values()),
        "limit": spec["trials"],
        "max_steps": spec.get("max_steps"),
        "metric": objectives[0].metric,
        "maximize": objectives[0].maximize,
        "objectives": [{"metric": each.metric, "maximize": each.maximize} for each in objectives],
        "constraints": spec.get("constraints", []),
        "best": summary.get("best"),
        "front_size": summary.get("front_size"),
        "front_step": summary.get("front_step"),
        "seconds": summary.get("seconds", 0.0),
        "dollars": summary.get("dollars", 0.0),
        "created_at": listed.created_at,
    }


def _state(listed: Listed, summary: dict[str, Any]) -> str:
    if listed.spec["target"]["kind"] == "outside":
        return "ask-tell"
    if listed.driver is not None:
        return "running"
    if summary.get("finished"):
        return "finished"
    return "stopped" if summary.get("counts") else "not started"


def _is_sound(summary: dict[str, Any]) -> bool:
    """Return whether a summary has the form in which summarize() writes it, as far as it is used here."""
    counts, best = summary.get("counts", {}), summary.get("best")
    if not isinstance(counts, dict) or not all(isinstance(count, int) for count in counts.values()):
        return False
    return best is None or (isinstance(best, dict) and isinstance(best.get("value"), int | float))


def _fold(store: Store, listed: Listed) -> dict[str, Any]:
    """Return the summary of a study whose driver was killed before it could write one, and store it."""
    from thriftune.driver import summarize
    from thriftune.stored import load_history, load_spec

    history = load_history(store, load_spec(store, listed.name))
    summary = summarize(history, history.last_at)
    with contextlib.suppress(StudyBusy, StoreConflict, StoreError), store.drive(listed.name):
        store.append(listed.name, history.entries, [], summary)
    return summary


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    created = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["created_at"]))
    if row["damage"]:
        return (row["name"], row["state"], "-", "-", created)
    state = f"running ({row['pid']})" if row["state"] == "running" else row["state"]
    counts: dict[str, int] = row["counts"]
    over = ("COMPLETED", "STOPPED", "FAILED", *(("PAUSED",) if row["finished"] else ()))
    ended = sum(counts.get(name, 0) for name in over)
    trials = f"{ended} of {row['limit']}" if row["limit"] else str(ended)
    if failed := counts.get("FAILED", 0):
        trials += f" ({failed} failed)"
    return (row["name"], state, trials, _best(row), created)


def _best(row: dict[str, Any]) -> str:
    """Return the best value, or the size of the front. An old summary does not say whether these had finished."""
    found, step = "-", None
    if best := row["best"]:
        found = f"{row['metric']} {best['value']:.6g}"
        step = None if best.get("finished", True) else best["step"]
    elif row["front_size"]:
        found, step = f"front of {row['front_size']}", row["front_step"]
    return found if step is None else f"{found} ({unfinished_at(step, row['max_steps'])})"


def _print_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
