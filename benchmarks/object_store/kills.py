"""Kill the drivers and workers of studies in an object store; count what is lost, wrong, repeated or left over.

The studies are in rclone's S3 server on loopback. Their trials save states of some megabytes at each step and in
the middle of some, and write down what they report, save and restore. SIGKILL goes to workers right after they
have saved, to drivers while they ship their log, and to all processes of a machine. After some kills of drivers or
machines, the local disk is lost, too, and another machine resumes the study. Machines are folders here.

Some drivers are paused until another machine has taken their study over, and then go on. Two machines resume a
study at the same moment at moto's server, which honours create-only writes.
"""

from __future__ import annotations

import argparse
import os
import random
from dataclasses import replace

from benchmarks.common import Row, main, say, scratch
from benchmarks.object_store.kills_account import Count
from benchmarks.object_store.study_under_kills import Sizes, StudyUnderKills
from tests.support.object_servers import ACCESS_KEY, SECRET_KEY, Servers, new_moto_url, new_rclone_url
from thriftune.common.user_cache import FOLDER_VARIABLE

KILLS = {"worker": 67, "driver": 34, "driver and disk": 33, "driver and workers": 33, "machine": 33}
"""SIGKILLs by kind."""

PAUSES = 10
RACES = 4

KILLS_PER_STUDY = 8

FULL = Sizes(trials=8, steps=10, step_seconds=0.2, state_bytes=4_000_000, lifetime_seconds=3.0)
QUICK = replace(FULL, trials=2, steps=8, state_bytes=400_000, lifetime_seconds=1.0)


def measure(options: argparse.Namespace) -> list[Row]:
    rng, count = random.Random(options.seed), Count()
    kinds = ["worker", "machine"] if options.quick else plan(rng)
    sizes = QUICK if options.quick else FULL
    with scratch() as folder:
        before = dict(os.environ)
        os.environ |= {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        os.environ[FOLDER_VARIABLE] = str(folder / "cache")
        servers = Servers(folder)
        try:
            for first in range(0, len(kinds), KILLS_PER_STUDY):
                study = StudyUnderKills(folder / f"study{first}", new_rclone_url(servers), sizes, rng, count)
                study.run(kinds[first : first + KILLS_PER_STUDY])
                say(f"{count.studies} studies, {count}")
            for race in range(0 if options.quick else RACES):
                StudyUnderKills(folder / f"race{race}", new_moto_url(servers), sizes, rng, count).run(["race"])
        finally:
            servers.stop()
            os.environ.clear()
            os.environ |= before
    return rows(count, judged=not options.quick)


def plan(rng: random.Random) -> list[str]:
    """Return the kinds of all kills and pauses, in random order."""
    kinds = [kind for kind, number in KILLS.items() for _ in range(number)] + ["pause"] * PAUSES
    rng.shuffle(kinds)
    return kinds


def rows(count: Count, *, judged: bool) -> list[Row]:
    """Return the rows: first what was done, then what must be 0."""
    kills = ", ".join(f"{number} {kind}" for kind, number in sorted(count.kills.items()) if kind in KILLS)
    done = sum(number for kind, number in count.kills.items() if kind in KILLS)
    data = vars(count) | {"kills": dict(count.kills)}

    def bar(what: str, number: int, of: str) -> Row:
        return Row(what, f"{number} {of}", bar="0", met=number == 0 if judged else None)

    return [
        Row("SIGKILLs", f"{done} in {count.studies} studies: {kills}", data=data),
        Row(
            "kills that came in the middle",
            f"{count.cut_uploads} of an upload, {count.cut_shipments} of a shipment",
        ),
        Row(
            "studies taken over by another machine",
            f"{count.disks} after the loss of a disk, {count.takeovers} from a paused driver; "
            f"{count.races} by one of two at once",
        ),
        bar("torn or wrong states restored", count.wrong, f"of {count.restored:,} ({count.saved:,} saved)"),
        bar("reports lost", count.lost, f"of {count.reports - count.unknown:,} ({count.held:,} held at a kill)"),
        Row("reports that only the lost disk had", f"{count.unknown:,} of {count.reports:,}"),
        bar("reports recorded twice", count.doubled, f"of {count.reports:,}"),
        bar("steps of finished trials without a report", count.gaps, "steps"),
        bar("finished trials that ran again", count.run_again, "attempts"),
        bar("attempts that began before a complete checkpoint", count.repeated, f"of {count.restored:,}"),
        bar("studies that do not finish", count.unfinished, f"of {count.studies}"),
        bar("drivers that went on after a takeover", count.not_stopped, f"of {count.takeovers + count.races}"),
        bar("objects that garbage collection forgot", count.forgotten, "objects"),
        bar("objects that it deleted wrongly", count.missing, "objects"),
        bar("objects that were left when studies were deleted", count.undeleted, "objects"),
        Row("objects that the server lists, and neither returns nor deletes", f"{count.stuck} objects"),
    ]


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=27, help="of the moments and the order of kills")


if __name__ == "__main__":
    raise SystemExit(main(measure, further=_add_options))
