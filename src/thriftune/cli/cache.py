"""`thriftune cache`: the datasets that were fetched to this machine."""

from __future__ import annotations

import click

from thriftune.cli.common import json_option, print_json
from thriftune.common.formatting import format_bytes, format_time, plural
from thriftune.training.data_folder import CachedDataset, DataFolder


@click.command("cache")
@click.option("--clear", is_flag=True, help="Remove all datasets that no live trial uses.")
@json_option
def cache_command(clear: bool, as_json: bool) -> None:
    """List the datasets that this machine has fetched for trials, the least recently used first."""
    folder = DataFolder()
    entries = folder.entries()
    removed = [each for each in entries if clear and folder.remove(each.key)]
    if as_json:
        print_json({"folder": str(folder.path), "datasets": [_row(each, each in removed) for each in entries]})
        return
    if not entries:
        click.echo(f"no datasets in {folder.path}")
        return
    for each in entries:
        note = "" if not clear else "  removed" if each in removed else "  in use"
        click.echo(f"{format_bytes(each.size):>10}  {format_time(each.used_at)}  {each.url}{note}")
    total = format_bytes(sum(each.size for each in entries if each not in removed))
    left = plural(len(entries) - len(removed), "dataset")
    click.echo(f"{total:>10}  {left} in {folder.path}, which may hold up to {format_bytes(folder.capacity())}")


def _row(dataset: CachedDataset, removed: bool) -> dict[str, object]:
    return {"url": dataset.url, "bytes": dataset.size, "used_at": dataset.used_at, "removed": removed}
