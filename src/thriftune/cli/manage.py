"""`thriftune stop`, `thriftune rename` and `thriftune delete`."""

from __future__ import annotations

import click

from thriftune.cli.common import existing_store, store_option
from thriftune.common.command_hints import resume_hint
from thriftune.launch.manage import check_idle, delete_study, request_stop, wait_for_stop
from thriftune.launch.renaming import rename_study


@click.command("stop")
@click.argument("name")
@store_option
@click.option("--no-wait", is_flag=True, help="Request the stop, and do not wait until the study has stopped.")
def stop_command(name: str, store: str | None, no_wait: bool) -> None:
    """Stop a running study cleanly.

    The study may run on any machine. You can resume it.
    """
    with existing_store(store) as opened:
        driver = request_stop(opened, name)
        if driver is None:
            click.echo(f"study {name!r} is not running")
            return
        process = f"process {driver.pid} on {driver.host}"
        if no_wait:
            click.echo(f"requested that {process} stop study {name!r}")
            return
        message = f"waiting for {process}: each trial ends after its next step"
        wait_for_stop(opened, name, driver, lambda: click.echo(message, err=True))
        click.echo(f"study {name!r} has stopped; to resume: {resume_hint(name, opened.url)}")


@click.command("rename")
@click.argument("old")
@click.argument("new")
@store_option
def rename_command(old: str, new: str, store: str | None) -> None:
    """Rename a study and the folder of its files."""
    with existing_store(store) as opened:
        rename_study(opened, old, new)
    click.echo(f"study {old!r} is now {new!r}")


@click.command("delete")
@click.argument("name")
@store_option
@click.option("--yes", is_flag=True, help="Delete without confirmation.")
def delete_command(name: str, store: str | None, yes: bool) -> None:
    """Delete a study, its trials and their checkpoints for good."""
    with existing_store(store) as opened:
        check_idle(opened, name)
        if not yes:
            click.confirm(f"delete study {name!r} with all its trials and their checkpoints?", abort=True)
        remaining_files = delete_study(opened, name)
    click.echo(f"study {name!r} is deleted" + (f"; {remaining_files}" if remaining_files else ""))
