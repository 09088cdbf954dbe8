"""`thriftune stop`, `thriftune rename` and `thriftune delete`."""

from __future__ import annotations

import click

from thriftune.cli.common import existing_store, store_option
from thriftune.launch.manage import check_idle, delete_study, request_stop, wait_for_stop
from thriftune.launch.renaming import rename_study


@click.command("stop")
@click.argument("name")
@store_option
@click.option("--no-wait", is_flag=True, help="Ask it to stop, and do not wait until it has.")
def stop_command(name: str, store: str | None, no_wait: bool) -> None:
    """Have a running study stop cleanly, wherever it runs; it can be resumed."""
    with existing_store(store) as opened:
        driver = request_stop(opened, name)
        if driver is None:
            click.echo(f"study {name!r} is not running")
            return
        who = f"process {driver.pid} on {driver.host}"
        if no_wait:
            click.echo(f"asked {who} to stop study {name!r}")
            return
        waits = f"waiting for {who}: each trial ends after its next step"
        wait_for_stop(opened, name, driver, lambda: click.echo(waits, err=True))
        click.echo(f"study {name!r} has stopped; to go on: thriftune resume {name} --store {opened.url}")


@click.command("rename")
@click.argument("old")
@click.argument("new")
@store_option
def rename_command(old: str, new: str, store: str | None) -> None:
    """Give a study, and the folder of its files, another name."""
    with existing_store(store) as opened:
        rename_study(opened, old, new)
    click.echo(f"study {old!r} is now {new!r}")


@click.command("delete")
@click.argument("name")
@store_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete_command(name: str, store: str | None, yes: bool) -> None:
    """Remove a study, its trials and their checkpoints, for good."""
    with existing_store(store) as opened:
        check_idle(opened, name)
        if not yes:
            click.confirm(f"delete study {name!r} with all its trials and their checkpoints?", abort=True)
        stays = delete_study(opened, name)
    click.echo(f"study {name!r} is deleted" + (f"; {stays}" if stays else ""))
