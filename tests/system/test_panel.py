"""Which knobs are turned now? What a panel says is in force must be so, whatever its knobs do."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import needs_torch
from tests.system.knob_conformance import apart
from thriftune.errors import SettingError
from thriftune.system.knobs import BUILT_IN, CannotTurn, Knob, Panel, Threads


class Dial(Knob):
    """Turns an entry of a dictionary. It cannot be 13; at 66 it breaks, having turned."""

    def __init__(self, name: str, machine: dict[str, Any], *, restarts: bool = False, again: bool = False) -> None:
        self.name, self.restarts, self.again = name, restarts, again
        self._machine = machine
        self.applied: list[Any] = []
        self.stuck = False

    def values(self, cores: int) -> Sequence[int]:
        return range(cores)

    def apply(self, value: Any) -> None:
        self.applied.append(value)
        if value == 13:
            raise CannotTurn("it is unlucky")
        self._machine[self.name] = value
        if value == 66:
            raise ZeroDivisionError("no such number")

    def restore(self) -> None:
        if self.stuck:
            raise OSError("it is stuck")
        self._machine.pop(self.name, None)


def test_it_turns_from_one_setting_to_the_next() -> None:
    machine: dict[str, Any] = {}
    panel = Panel([Dial("a", machine), Dial("b", machine)])
    assert panel.setting == {}
    assert panel.turn({"a": 1, "b": 2}) == []
    assert machine == panel.setting == {"a": 1, "b": 2}
    assert panel.turn({"b": 3}) == []
    assert machine == panel.setting == {"b": 3}
    assert panel.restore() == []
    assert (machine, panel.setting) == ({}, {})


def test_a_knob_that_cannot_be_put_back_is_in_force() -> None:
    """Else steps with it would pass for those with nothing turned."""
    machine: dict[str, Any] = {}
    dial = Dial("a", machine)
    panel = Panel([dial])
    panel.turn({"a": 1})
    dial.stuck = True
    assert panel.turn({}) == ["a: cannot be put back: OSError: it is stuck"]
    assert machine == panel.setting == {"a": 1}
    dial.stuck = False
    assert panel.turn({}) == []
    assert machine == panel.setting == {}


def test_entries_of_no_knob_are_taken_as_they_are() -> None:
    machine: dict[str, Any] = {}
    panel = Panel([Dial("a", machine)])
    panel.turn({"a": 1, "loaders": [2, "fork"]})
    assert panel.setting == {"a": 1, "loaders": [2, "fork"]}
    panel.turn({"a": 1})
    assert panel.setting == {"a": 1}


def test_an_unchanged_value_is_applied_again_only_where_the_knob_wants_it() -> None:
    once, often = Dial("once", {}), Dial("often", {}, again=True)
    panel = Panel([once, often])
    for _ in range(3):
        panel.turn({"once": 1, "often": 1})
    assert (once.applied, often.applied) == ([1], [1, 1, 1])


def test_what_cannot_be_turned_is_told_once_and_the_others_are_turned() -> None:
    machine: dict[str, Any] = {}
    dials = [Dial(name, machine) for name in "abc"]
    panel = Panel(dials)
    told = panel.turn({"a": 13, "b": 66, "c": 1})
    assert told == ["a: cannot be 13: it is unlucky", "b: cannot be 66: ZeroDivisionError: no such number"]
    assert machine == panel.setting == {"c": 1}
    for begins in (False, True):
        assert panel.turn({"a": 13, "b": 66, "c": 1}, begins=begins) == []
    panel.restore()
    assert panel.turn({"a": 13}, begins=True) == []
    assert dials[0].applied == [13] * 3  # once in each attempt: trying may be slow


def test_a_knob_that_cannot_go_on_goes_back() -> None:
    machine: dict[str, Any] = {}
    panel = Panel([Dial("a", machine)])
    for _ in range(2):  # the second time, it is known
        panel.turn({"a": 1})
        panel.turn({"a": 13})
        assert (machine, panel.setting) == ({}, {})


def test_one_that_cannot_be_put_back_is_told_and_does_not_keep_the_others() -> None:
    machine: dict[str, Any] = {}
    dials = [Dial(name, machine) for name in "abc"]
    panel = Panel(dials)
    panel.turn({"a": 1, "b": 1, "c": 1})
    dials[1].stuck = True
    told = ["b: cannot be put back: OSError: it is stuck"]
    assert panel.turn({}) == told
    assert panel.restore() == told, "once more, for the process is not as it was"
    assert (machine, panel.setting) == ({"b": 1}, {})
    dials[1].stuck = False
    assert panel.restore() == []
    assert machine == {}


class Exit(Dial):
    """Raises what it is turned to, and once more when it is put back."""

    def apply(self, value: Any) -> None:
        self._error = value
        raise value

    def restore(self) -> None:
        raise self._error


def test_one_that_exits_is_like_any_that_raises() -> None:
    panel = Panel([Exit("a", {})])
    told = panel.turn({"a": SystemExit("some\nlines")})
    assert told == [
        "a: cannot be some lines: SystemExit: some lines",
        "a: cannot be put back: SystemExit: some lines",
    ]
    assert panel.restore() == told[1:]


def test_an_interrupt_is_not_the_knobs() -> None:
    panel = Panel([Exit("a", {})])
    with pytest.raises(KeyboardInterrupt):
        panel.turn({"a": KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        panel.restore()


def test_a_knob_that_restarts_waits_for_an_attempt_to_begin() -> None:
    machine: dict[str, Any] = {}
    panel = Panel([Dial("a", machine, restarts=True), Dial("b", machine)])
    panel.turn({"a": 1, "b": 1})
    assert machine == panel.setting == {"b": 1}
    panel.turn({"a": 1, "b": 1}, begins=True)
    assert machine == panel.setting == {"a": 1, "b": 1}
    panel.turn({})
    assert machine == panel.setting == {"a": 1}
    panel.turn({"a": 2})
    assert machine == panel.setting == {"a": 1}
    panel.turn({}, begins=True)
    assert machine == panel.setting == {}


def test_two_knobs_of_one_name() -> None:
    with pytest.raises(SettingError, match="two have the name 'threads'"):
        Panel([Threads(), Threads()])


settings_ = st.dictionaries(st.sampled_from("abcd"), st.sampled_from([1, 2, 13, 66]))


@given(turns=st.lists(st.tuples(settings_, st.booleans())))
def test_whatever_it_is_told_the_machine_is_as_it_says(turns: list[tuple[dict[str, int], bool]]) -> None:
    machine: dict[str, Any] = {}
    panel = Panel([Dial("a", machine), Dial("b", machine, again=True), Dial("c", machine, restarts=True)])
    told: list[str] = []
    for setting, begins in turns:
        told += panel.turn(setting, begins=begins)
        free = {"d": setting["d"]} if "d" in setting else {}
        assert panel.setting == machine | free
        for name in "abc":
            if name != "c" or begins:
                wanted = setting.get(name)
                assert machine.get(name) == (wanted if wanted in (1, 2) else None)
    assert len(told) == len(set(told))
    panel.restore()
    assert (machine, panel.setting) == ({}, {})


@needs_torch
def test_all_that_are_built_in_at_once() -> None:
    importlib.import_module("torch")

    def observe() -> object:
        sizes = [library["num_threads"] for library in importlib.import_module("threadpoolctl").threadpool_info()]
        precision = sys.modules["torch"].get_float32_matmul_precision()
        return sizes, precision, os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0), dict(os.environ)

    def act() -> None:
        knobs = [make() for make in BUILT_IN.values()]
        panel = Panel(knobs)
        before = observe()
        wanted = {knob.name: knob.values(2)[0] for knob in knobs}
        told = panel.turn(wanted, begins=True)
        assert {sentence.partition(":")[0] for sentence in told} <= {"nice"}  # it may take root
        assert panel.setting == {name: value for name, value in wanted.items() if name != "nice" or not told}
        assert observe() != before
        assert panel.turn(wanted) == []
        assert panel.restore() == []
        assert observe() == before

    apart(act)
