"""Tests of which objects are garbage: a table of cases, and random interleavings of workers and a collector."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thriftune.loop.garbage import CheckpointName, WantedCheckpoints, garbage

EARLIER, DRIVE, LATER = "0000000a", "0000000b", "0000000c"


def wanted(*names: str, attempts: int = 2, running: bool = False, newest: str = "") -> WantedCheckpoints:
    return WantedCheckpoints(7, frozenset(names), DRIVE, frozenset({EARLIER}), attempts, running, newest)


def name(attempt: int, number: int, drive: str = DRIVE) -> str:
    return f"{attempt}-{drive}/{number:06}"


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("2-3fa9c1d2/000004", CheckpointName(2, "3fa9c1d2", 4)),
        ("2-3fa9c1d2/1000000", CheckpointName(2, "3fa9c1d2", 1_000_000)),
        ("2-3fa9c1d2", None),
        ("two-3fa9c1d2/000004", None),
        ("2-3fa9c1d2/000004/x", None),
        ("", None),
    ],
)
def test_names_are_parsed(text: str, parsed: CheckpointName | None) -> None:
    assert CheckpointName.parse(text) == parsed


OLD, KEPT, NEW = name(1, 1), name(1, 2), name(1, 3)


@pytest.mark.parametrize(
    ("keys", "what", "parts", "manifests", "garbage_parts"),
    [
        # Nothing is kept, and no attempt runs.
        ([f"{OLD}.json", f"{OLD}/a"], wanted(), {}, [f"{OLD}.json"], [f"{OLD}/a"]),
        # A kept checkpoint needs a part of an older one, whose manifest goes.
        (
            [f"{OLD}.json", f"{OLD}/a", f"{OLD}/b", f"{KEPT}.json", f"{KEPT}/c"],
            wanted(KEPT),
            {KEPT: {f"{OLD}/a", f"{KEPT}/c"}},
            [f"{OLD}.json"],
            [f"{OLD}/b"],
        ),
        # An upload that a crash has cut short.
        ([f"{KEPT}.json", f"{KEPT}/c", f"{NEW}/d"], wanted(KEPT), {KEPT: {f"{KEPT}/c"}}, [], [f"{NEW}/d"]),
        # The running attempt has created more than the log knows.
        (
            [f"{name(2, 1)}.json", f"{name(2, 2)}.json", f"{name(2, 2)}/x", f"{name(2, 3)}/y", f"{OLD}/a"],
            wanted(name(2, 1), running=True, newest=name(2, 1)),
            {name(2, 1): set()},
            [],
            [f"{OLD}/a"],
        ),
        # The log knows no checkpoint of the running attempt.
        ([f"{name(2, 1)}.json", f"{name(2, 1)}/x"], wanted(KEPT, running=True), {KEPT: set()}, [], []),
        # An attempt that this drive has started since.
        ([f"{name(3, 1)}.json", f"{name(3, 1)}/x"], wanted(KEPT), {KEPT: set()}, [], []),
        # The same attempt of an earlier drive, which was believed dead, goes on uploading.
        (
            [f"{name(3, 1, EARLIER)}.json", f"{name(3, 1, EARLIER)}/x"],
            wanted(KEPT),
            {KEPT: set()},
            [f"{name(3, 1, EARLIER)}.json"],
            [f"{name(3, 1, EARLIER)}/x"],
        ),
        # A drive that the log does not know has taken the study over.
        ([f"{name(1, 1, LATER)}.json", f"{name(1, 1, LATER)}/x"], wanted(KEPT), {KEPT: set()}, [], []),
        # A kept checkpoint is damaged: its own parts stay, and those of others go.
        ([f"{KEPT}.json", f"{KEPT}/c", f"{OLD}/a"], wanted(KEPT), {KEPT: None}, [], [f"{OLD}/a"]),
        # The manifest of a kept checkpoint was deleted: its parts are of no use.
        ([f"{KEPT}/c"], wanted(KEPT), {}, [], [f"{KEPT}/c"]),
        # The running attempt may reuse parts that the missing manifest of its last checkpoint named.
        (
            [f"{OLD}.json", f"{OLD}/a", f"{name(2, 1)}/x"],
            wanted(name(2, 1), running=True, newest=name(2, 1)),
            {},
            [f"{OLD}.json"],
            [],
        ),
        # Names that no attempt has given.
        (["notes.txt", "1-x/000001/a", "y.json"], wanted(), {}, ["y.json"], ["notes.txt", "1-x/000001/a"]),
    ],
)
def test_what_is_garbage(
    keys: list[str],
    what: WantedCheckpoints,
    parts: dict[str, set[str] | None],
    manifests: list[str],
    garbage_parts: list[str],
) -> None:
    assert garbage(keys, what, parts) == (manifests, garbage_parts)


# --- workers and a collector at the same time -------------------------------------------------------------


@dataclass
class Attempt:
    """A live worker: it uploads parts, then manifests. It may be believed dead, and go on."""

    attempt: int
    reusable: set[str]  # the parts that its next checkpoint may reuse
    number: int = 1
    uploaded: list[str] = field(default_factory=list)  # the parts of the checkpoint in progress


@dataclass
class Trial:
    """A trial's objects, its log, and a collector that works from old listings."""

    objects: dict[str, frozenset[str]] = field(default_factory=dict)  # by key; of a manifest, the parts it names
    log: list[str] = field(default_factory=list)  # the names of saved checkpoints
    attempts: int = 0
    live: Attempt | None = None
    zombies: list[Attempt] = field(default_factory=list)
    given: frozenset[str] = frozenset()

    def wanted(self) -> WantedCheckpoints:
        kept = frozenset(self.log[-2:])
        if self.live is None:
            return wanted(*kept, attempts=self.attempts)
        own = [each for each in self.log if each.startswith(f"{self.attempts}-")]
        newest = own[-1] if own else ""
        return wanted(*kept, *self.given, attempts=self.attempts, running=True, newest=newest)

    def start(self, choice: int) -> None:
        """Start an attempt. It restores one of the checkpoints that it was given, or none."""
        self.attempts += 1
        self.given = frozenset(self.log[-2:])
        restored = sorted(self.given)[choice % len(self.given)] if self.given else ""
        self.live = Attempt(self.attempts, set(self.objects[f"{restored}.json"]) if restored else set())

    def upload(self, worker: Attempt) -> None:
        part = f"{name(worker.attempt, worker.number)}/{len(worker.uploaded)}"
        self.objects[part] = frozenset()
        worker.uploaded.append(part)

    def finish(self, worker: Attempt, reused: int) -> str:
        """Create the manifest. It names what was uploaded, and some of the parts that may be reused."""
        parts = frozenset([*worker.uploaded, *sorted(worker.reusable)[:reused]])
        done = name(worker.attempt, worker.number)
        self.objects[f"{done}.json"] = parts
        worker.reusable, worker.uploaded, worker.number = set(parts), [], worker.number + 1
        return done

    def check(self) -> None:
        """Check that every checkpoint that may be restored, or be the base of the next one, has all its parts."""
        needed = {*self.log[-2:]}
        if self.live is not None:
            needed |= self.given
            assert self.live.reusable <= self.objects.keys()
            assert set(self.live.uploaded) <= self.objects.keys()
        for each in needed:
            assert self.objects[f"{each}.json"] <= self.objects.keys(), each


_WORK = ["start", "upload", "finish", "record", "die", "vanish", "zombie"]
_COLLECT = ["snapshot", "list", "delete"]
ACTIONS = st.lists(
    st.tuples(st.sampled_from([*_WORK, "upload", "finish", "record", *_COLLECT]), st.integers(0, 3)),
    min_size=10,
    max_size=60,
)


@settings(max_examples=400, deadline=None)
@given(ACTIONS)
def test_nothing_that_is_needed_is_ever_deleted(actions: list[tuple[str, int]]) -> None:
    """The log may lag behind the workers, and the collector behind the log and the listing."""
    trial = Trial()
    unrecorded: list[str] = []
    snapshot, deleting = trial.wanted(), list[str]()
    for action, number in actions:
        live = trial.live
        match action:
            case "start" if live is None:
                trial.start(number)
            case "upload" if live is not None:
                trial.upload(live)
            case "finish" if live is not None:
                unrecorded.append(trial.finish(live, number))
            case "record" if unrecorded:
                trial.log.append(unrecorded.pop(0))
            case "die" if live is not None:  # what its manifests know is recorded first
                trial.log += unrecorded
                unrecorded, trial.live = [], None
            case "vanish" if live is not None:  # the store did not answer in time, and the worker goes on
                unrecorded, trial.live = [], None
                trial.zombies.append(live)
            case "zombie" if trial.zombies:
                zombie = trial.zombies[number % len(trial.zombies)]
                trial.upload(zombie)
                trial.finish(zombie, number)
            case "snapshot":
                snapshot = trial.wanted()
            case "list":  # of an old snapshot, and nothing is deleted before the next step
                manifests = {each: trial.objects.get(f"{each}.json") for each in snapshot.names}
                read = {each: parts for each, parts in manifests.items() if parts is not None}
                found = garbage(trial.objects, snapshot, read)
                deleting = [*found.manifests, *found.parts]
            case "delete":
                for key in deleting:
                    trial.objects.pop(key, None)
                deleting = []
            case _:
                pass
        trial.check()


def test_everything_else_is_collected_in_the_end() -> None:
    trial = Trial()
    for _ in range(3):
        trial.start(0)
        assert trial.live is not None
        for reused in (0, 1, 2):
            trial.upload(trial.live)
            trial.log.append(trial.finish(trial.live, reused))
        trial.upload(trial.live)  # not finished
        trial.live = None
    what = trial.wanted()
    found = garbage(trial.objects, what, {each: trial.objects[f"{each}.json"] for each in what.names})
    left = trial.objects.keys() - set(found.manifests) - set(found.parts)
    assert {key for key in left if key.endswith(".json")} == {f"{each}.json" for each in trial.log[-2:]}
    named = set().union(*(trial.objects[f"{each}.json"] for each in trial.log[-2:]))
    assert {key for key in left if not key.endswith(".json")} == named
