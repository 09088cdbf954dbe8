"""Say why a store refuses something. All stores say it in the same words."""

from __future__ import annotations

import time
from collections.abc import Iterable

from thriftune.common.command_hints import stop_hint
from thriftune.store.protocol import DriverInfo


def not_found(name: str, where: str, others: Iterable[str]) -> str:
    """Return the message for a study that a store does not have. `others`: the names of those that it has."""
    from difflib import get_close_matches  # imported here because only this error needs it

    similar = get_close_matches(name, list(others))
    hint = f"; did you mean {' or '.join(map(repr, similar))}?" if similar else ""
    return f"there is no study {name!r} in {where}{hint}"


def exists(name: str, where: str) -> str:
    """Return the message for a new study whose name is taken."""
    return f"study {name!r} is already in {where}; resume it, delete it, or take another name"


def new_name_exists(name: str, where: str) -> str:
    """Return the message for a study that shall be renamed to a name that is taken."""
    return f"study {name!r} is already in {where}; take another name"


def conflict(name: str, where: str, entries: int, known: int) -> str:
    """Return the message for a driver that does not know all entries. `known`: how many it knows."""
    return (
        f"study {name!r} has {entries} entries in {where}, but its driver knows "
        f"of {known}: another driver wrote to it. Nothing was written; load the study again"
    )


def busy(name: str, url: str, driver: DriverInfo) -> str:
    """Return the message for a study that has a driver already."""
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(driver.since))
    return (
        f"study {name!r} is being run by process {driver.pid} on {driver.host} since {since}; "
        f"wait for it to end, or stop it: {stop_hint(name, url)}"
    )
