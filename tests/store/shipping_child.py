"""Drivers that tests kill and pause: `python -m tests.store.shipping_child URL NAME TAG [LIFETIME]`.

Each takes the study over, and appends reports with its tag until it ends. It prints "safe NUMBER" when the object
store has all entries up to that number, "driving" at the start, "busy" if the study has a driver, and "lost" if
another takes over.

LIFETIME is for how many seconds a heartbeat counts; 0 takes the study from a driver that lives.
"""

from __future__ import annotations

import sys
import time

from tests.store.conformance import report
from thriftune.errors import StoreConflict, StudyBusy
from thriftune.store import heartbeat, shipper
from thriftune.store.object_url_store import ObjectUrlStore
from thriftune.store.opening import open_store


def say(what: object) -> None:
    print(what, flush=True)


def drive(url: str, name: str, tag: float) -> None:
    with open_store(url) as store:
        assert isinstance(store, ObjectUrlStore)
        with store.drive(name):
            ships = store.shipper(name)
            number = store.length(name)
            say("driving")
            for turn in range(100_000):
                batch = [report(number + each, loss=tag) for each in (1, 2, 3)]
                store.append(name, number, list(batch), {"entries": number + 3})
                number += 3
                if turn % 4 == 0:
                    ships.wait_until_shipped()
                    say(f"safe {number}")
                ships.raise_if_lost()
                time.sleep(0.01)


def main() -> None:
    url, name, tag, *more = sys.argv[1:]
    shipper.SHIP_SECONDS = 0.02
    heartbeat.HEARTBEAT_SECONDS = 1.0
    if more:
        heartbeat.LIFETIME_SECONDS = float(more[0])
    try:
        drive(url, name, float(tag))
    except StudyBusy as error:
        say(f"busy {error}")
    except StoreConflict as error:
        say(f"lost {error}")


if __name__ == "__main__":
    main()
