"""`thriftune stop` and `thriftune delete`."""

from __future__ import annotations

import time

import click

from thriftune.cli.common import existing_store, store_option
from thriftune.errors import SettingError, StudyBusy, StudyDamaged
from thriftune.files import StudyFiles
from thriftune.store import Store
from thriftune.stored import load_spec

_LOOK_SECONDS = 0.1
_SAY_SECONDS = 5.0


@click.command("stop")
@click.argument("name")
@store_option
@click.option("--no-wait", is_flag=True, help="Ask it to stop, and do not wait until it has.")
def stop_command(name: str, store: str | None, no_wait: bool) -> None:
    """Have a running study stop cleanly, wherever it runs; it can be resumed."""
    with existing_store(store) as opened:
        if load_spec(opened, name).target.kind == "outside":
            raise SettingError(f"study {name!r} runs in its user's own code, by ask and tell; end that instead")
        driver = opened.driver(name)
        if driver is None:
            click.echo(f"study {name!r} is not running")
            return
        opened.request(name, "stop", time.time())
        if no_wait:
            click.echo(f"asked process {driver.pid} on {driver.host} to stop study {name!r}")
            return
        said_at = float("-inf")
        while (now := opened.driver(name)) is not None and now.since == driver.since:
            if time.monotonic() - said_at >= _SAY_SECONDS:
                said_at = time.monotonic()
                waits = f"waiting for process {driver.pid} on {driver.host}: each trial ends after its next step"
                click.echo(waits, err=True)
            time.sleep(_LOOK_SECONDS)
        click.echo(f"study {name!r} has stopped; to go on: thriftune resume {name} --store {opened.url}")


@click.command("delete")
@click.argument("name")
@store_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete_command(name: str, store: str | None, yes: bool) -> None:
    """Remove a study, its trials and their checkpoints, for good."""
    with existing_store(store) as opened:
        files = _files(opened, name)
        if (driver := opened.driver(name)) is not None:
            raise StudyBusy(
                f"study {name!r} is being run by process {driver.pid} on {driver.host}; "
                f"stop it first: thriftune stop {name} --store {opened.url}"
            )
        if not yes:
            click.confirm(f"delete study {name!r} with all its trials and their checkpoints?", abort=True)
        opened.delete(name)
        left = None if files is None else files.remove()
    message = f"study {name!r} is deleted"
    if files is None:
        message += f"; its settings were damaged, so its files stay, by default in {opened.folder / name}"
    elif left:
        message += f"; {left} has links or files of others and stays"
    click.echo(message)


def _files(store: Store, name: str) -> StudyFiles | None:
    """Return the files of the study; None if its settings are too damaged to know them."""
    try:
        return StudyFiles.of(load_spec(store, name), store)
    except StudyDamaged:
        return None
