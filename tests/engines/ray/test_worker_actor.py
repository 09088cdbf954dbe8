"""Tests an actor's class in this process, with a folder of its own node: its orders, answers and output."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines.conformance import TARGET
from thriftune.engines import pickled
from thriftune.engines.ray.node_files import ActorName
from thriftune.engines.ray.worker_actor import LEAVE, Answer, WorkerActor
from thriftune.state.events import Ended, Failed, Reported
from thriftune.store.output_files import OutputPiece
from thriftune.training.run import Run
from thriftune.training.trial import Trial

Make = Callable[..., WorkerActor]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Return a function that makes an open actor. Its node's temporary folder is that of the test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    folder = Path.cwd()
    actors: list[WorkerActor] = []

    def make_actor(target: dict[str, Any] = TARGET, function: bytes | None = None) -> WorkerActor:
        actor = WorkerActor(ActorName("study", f"1-{len(actors)}"), target, {}, [], function)
        actors.append(actor)
        actor.open()
        return actor

    yield make_actor
    for actor in actors:
        actor._engine.close()
    os.chdir(folder)


def start(number: int, trial: int, do: str, rank: int = 0, **config: Any) -> tuple[int, str, tuple[Any, ...]]:
    """Return an order to start an attempt."""
    run = Run(trial, 1, {"do": do, **config}, 0, ("loss",), 3, 7, "/a folder/of the driver", 2, rank=rank)
    return number, "start", (run, {})


def next_answers(actor: WorkerActor, received: int, orders: list[Any]) -> list[Answer]:
    """Return the answers until the end of an attempt. `received`: the number of earlier answers."""
    answers = [actor.next_events(received, orders)]
    while not any(isinstance(event, (Ended, Failed)) for event in answers[-1].events):
        answers.append(actor.next_events(received + len(answers), []))
    return answers


def output_of(answers: list[Answer]) -> list[OutputPiece]:
    return [piece for answer in answers for piece in answer.output]


def test_the_output_of_an_attempt_comes_before_its_end(make: Make) -> None:
    actor = make()
    answers = next_answers(actor, 0, [start(1, 7, "raise_error", rank=2)])
    assert output_of(answers) == [OutputPiece(7, 1, 2, 0, b"about to raise\n")]
    more = next_answers(make(), 0, [start(1, 8, "print_much")])
    pieces = output_of(more)
    assert sum(len(piece.data) for piece in pieces) <= 4 << 20  # the files hold 3 MiB; some of it was sent before
    assert pieces[0].begins == 0
    assert pieces[-1].begins + len(pieces[-1].data) == 100 * 10**6 + len(b"the last of it\n")
    assert pieces[-1].data.endswith(b"the last of it\n")


def test_an_answer_that_was_not_received_is_repeated(make: Make) -> None:
    actor = make()
    order = start(1, 7, "count")
    first = actor.next_events(0, [order])
    assert actor.next_events(0, [order]) is first
    answers = [first, *next_answers(actor, 1, [order])] if not _ended(first) else [first]
    events = [event for answer in answers for event in answer.events]
    assert [type(event) for event in events] == [Reported] * 3 + [Ended]


def _ended(answer: Answer) -> bool:
    return isinstance(answer.events[-1], Ended)


def test_orders_are_executed_by_their_numbers(make: Make) -> None:
    """An order may overtake the start of its attempt, because another thread of the actor takes it."""
    actor = make()
    actor.give_order((2, "request_end", (7, 1)))
    answers = next_answers(actor, 0, [start(1, 7, "count", pause=0.05)])
    end = answers[-1].events[-1]
    assert isinstance(end, Ended)
    assert end.cut


def test_a_pickled_function_is_loaded_from_the_actors_own_copy(make: Make, tmp_path: Path) -> None:
    def train(trial: Trial) -> float:
        return float(trial["x"])

    function = pickled.dump("train", {"train": train})
    target = {"kind": "pickled", "where": "/a folder/of the driver/function.pickle", "folder": "/a folder"}
    actor = make(target, function)
    (copy,) = tmp_path.glob("thriftune-*/study/1-0/function.pickle")
    assert copy.stat().st_mode & 0o777 == 0o600
    answers = next_answers(actor, 0, [start(1, 7, "", x=3)])
    (report,) = [event for answer in answers for event in answer.events if isinstance(event, Reported)]
    assert report.metrics == {"loss": 3.0}


def test_an_actor_that_leaves_removes_its_folder(make: Make, tmp_path: Path) -> None:
    actor, other = make(), make()
    number = len(next_answers(actor, 0, [start(1, 7, "train", x=1)]))
    actor.give_order((2, LEAVE, ()))
    assert actor.next_events(number, []) == Answer([], [], True)
    assert actor.next_events(number, []) == Answer([], [], True)
    assert [path.name for path in tmp_path.glob("thriftune-*/study/*")] == ["1-1"]
    other.next_events(0, [(1, LEAVE, ())])
    assert list(tmp_path.glob("thriftune-*/*")) == []


def test_the_folder_of_an_attempt_is_on_the_node(make: Make, tmp_path: Path) -> None:
    """Only the files of the last attempt are kept."""
    actor = make()
    answers = next_answers(actor, 0, [start(1, 7, "train", x=1)])
    number = len(answers)
    (witness,) = tmp_path.glob("thriftune-*/study/1-0/trials/7-1/steps_done")
    assert witness.read_text() == "1 1\n1 2\n1 3\n"
    next_answers(actor, number, [start(2, 8, "train", x=2)])
    assert not witness.exists()
    assert list(tmp_path.glob("thriftune-*/study/1-0/trials/8-1/steps_done"))
