"""The panel: its setting is what is in force, whatever its knobs do."""

from __future__ import annotations

import importlib
import os
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
    """Sets an entry of a dictionary. It refuses 13; at 66 it sets the entry and then raises."""

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


def test_it_changes_from_one_setting_to_the_next() -> None:
    machine: dict[str, Any] = {}
    panel = Panel([Dial("a", machine), Dial("b", machine)])
    assert panel.setting == {}
    assert panel.change({"a": 1, "b": 2}) == []
    assert machine == panel.setting == {"a": 1, "b": 2}
    assert panel.change({"b": 3}) == []
    assert machine == panel.setting == {"b": 3}
    assert panel.restore() == []
    assert (machine, panel.setting) == ({}, {})


def test_a_knob_that_cannot_be_restored_stays_in_force() -> None:
    """Otherwise steps with it would count as steps without any knob."""
    machine: dict[str, Any] = {}
    dial = Dial("a", machine)
    panel = Panel([dial])
    panel.change({"a": 1})
    dial.stuck = True
    assert panel.change({}) == ["a: cannot be restored: OSError: it is stuck"]
    assert machine == panel.setting == {"a": 1}
    dial.stuck = False
    assert panel.change({}) == []
    assert machine == panel.setting == {}


def test_options_are_taken_as_they_are() -> None:
    machine: dict[str, Any] = {}
    panel = Panel([Dial("a", machine)])
    panel.change({"a": 1, "loaders": [2, "fork"]})
    assert panel.setting == {"a": 1, "loaders": [2, "fork"]}
    panel.change({"a": 1})
    assert panel.setting == {"a": 1}


def test_an_unchanged_value_is_applied_again_only_if_the_knob_asks_for_it() -> None:
    once, often = Dial("once", {}), Dial("often", {}, again=True)
    panel = Panel([once, often])
    for _ in range(3):
        panel.change({"once": 1, "often": 1})
    assert (once.applied, often.applied) == ([1], [1, 1, 1])


def test_a_refusal_is_returned_once_and_the_other_knobs_are_applied() -> None:
    machine: dict[str, Any] = {}
    dials = [Dial(name, machine) for name in "abc"]
    panel = Panel(dials)
    problems = panel.change({"a": 13, "b": 66, "c": 1})
    assert problems == ["a: cannot be 13: it is unlucky", "b: cannot be 66: ZeroDivisionError: no such number"]
    assert machine == panel.setting == {"c": 1}
    for begins in (False, True):
        assert panel.change({"a": 13, "b": 66, "c": 1}, begins=begins) == []
    panel.restore()
    assert panel.change({"a": 13}, begins=True) == []
    assert dials[0].applied == [13] * 3  # once in each attempt, as apply() may be slow


def test_a_knob_that_refuses_a_value_is_restored() -> None:
    machine: dict[str, Any] = {}
    panel = Panel([Dial("a", machine)])
    for _ in range(2):  # the second time without another apply()
        panel.change({"a": 1})
        panel.change({"a": 13})
        assert (machine, panel.setting) == ({}, {})


def test_a_knob_that_cannot_be_restored_does_not_stop_the_others() -> None:
    machine: dict[str, Any] = {}
    dials = [Dial(name, machine) for name in "abc"]
    panel = Panel(dials)
    panel.change({"a": 1, "b": 1, "c": 1})
    dials[1].stuck = True
    problems = ["b: cannot be restored: OSError: it is stuck"]
    assert panel.change({}) == problems
    assert panel.restore() == problems, "again: the process must not run another attempt"
    assert (machine, panel.setting) == ({"b": 1}, {})
    dials[1].stuck = False
    assert panel.restore() == []
    assert machine == {}


class Exit(Dial):
    """Raises its value, in apply() and again in restore()."""

    def apply(self, value: Any) -> None:
        self._error = value
        raise value

    def restore(self) -> None:
        raise self._error


def test_a_knob_that_exits_is_like_one_that_raises() -> None:
    panel = Panel([Exit("a", {})])
    problems = panel.change({"a": SystemExit("some\nlines")})
    assert problems == [
        "a: cannot be some lines: SystemExit: some lines",
        "a: cannot be restored: SystemExit: some lines",
    ]
    assert panel.restore() == problems[1:]


def test_an_interrupt_is_raised_on() -> None:
    panel = Panel([Exit("a", {})])
    with pytest.raises(KeyboardInterrupt):
        panel.change({"a": KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        panel.restore()


def test_a_knob_that_restarts_waits_for_an_attempt_to_begin() -> None:
    machine: dict[str, Any] = {}
    panel = Panel([Dial("a", machine, restarts=True), Dial("b", machine)])
    panel.change({"a": 1, "b": 1})
    assert machine == panel.setting == {"b": 1}
    panel.change({"a": 1, "b": 1}, begins=True)
    assert machine == panel.setting == {"a": 1, "b": 1}
    panel.change({})
    assert machine == panel.setting == {"a": 1}
    panel.change({"a": 2})
    assert machine == panel.setting == {"a": 1}
    panel.change({}, begins=True)
    assert machine == panel.setting == {}


def test_two_knobs_with_one_name() -> None:
    with pytest.raises(SettingError, match="two have the name 'threads'"):
        Panel([Threads(), Threads()])


settings_ = st.dictionaries(st.sampled_from("abcd"), st.sampled_from([1, 2, 13, 66]))


@given(changes=st.lists(st.tuples(settings_, st.booleans())))
def test_the_setting_is_always_what_is_in_force(changes: list[tuple[dict[str, int], bool]]) -> None:
    machine: dict[str, Any] = {}
    panel = Panel([Dial("a", machine), Dial("b", machine, again=True), Dial("c", machine, restarts=True)])
    problems: list[str] = []
    for setting, begins in changes:
        problems += panel.change(setting, begins=begins)
        free = {"d": setting["d"]} if "d" in setting else {}
        assert panel.setting == machine | free
        for name in "abc":
            if name != "c" or begins:
                wanted = setting.get(name)
                assert machine.get(name) == (wanted if wanted in (1, 2) else None)
    assert len(problems) == len(set(problems))
    panel.restore()
    assert (machine, panel.setting) == ({}, {})


@needs_torch
def test_all_built_in_knobs_at_once() -> None:
    importlib.import_module("torch")

    def observe() -> object:
        sizes = [library["num_threads"] for library in importlib.import_module("threadpoolctl").threadpool_info()]
        return sizes, dict(os.environ)

    def act() -> None:
        knobs = [make() for make in BUILT_IN.values()]
        panel = Panel(knobs)
        before = observe()
        wanted = {knob.name: knob.values(2)[0] for knob in knobs}
        assert panel.change(wanted, begins=True) == []
        assert panel.setting == wanted
        assert observe() != before
        assert panel.change(wanted) == []
        assert panel.restore() == []
        assert observe() == before

    apart(act)
