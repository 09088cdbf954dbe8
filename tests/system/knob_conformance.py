"""What every knob must do. A knob's own tests inherit KnobConformance, and say how to make one and how its effect
shows."""

from __future__ import annotations

import json
import os
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable

import pytest

from thriftune.system.knobs import Knob

CORES = len(os.sched_getaffinity(0))


def apart(act: Callable[[], object]) -> None:
    """In a child of its own: what a knob might leave behind shall meet no other test. Its error is the test's."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        error = b""
        try:
            act()
        except BaseException:
            error = traceback.format_exc().encode()
        with os.fdopen(write, "wb") as pipe:
            pipe.write(error)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        error_text = pipe.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 0, f"the child ended with {status}"
    if error_text:
        pytest.fail(error_text, pytrace=False)


class KnobConformance(ABC):
    @abstractmethod
    def make(self) -> Knob: ...

    @abstractmethod
    def observe(self) -> object:
        """All that the knob is about, as the kernel or the library tells it."""

    def prepare(self) -> None:  # noqa: B027 (most need nothing)
        """Makes the child such that something could go wrong."""

    def after_apply(self) -> None:  # noqa: B027 (most need nothing)
        """What it takes for the knob to have an effect."""

    def some_values(self) -> list[object]:
        """What can be applied here."""
        values = list(self.make().values(CORES))
        if not values:
            pytest.skip("takes more cores")
        return values

    @pytest.mark.parametrize("cores", [1, 2, 3, 8, 96])
    def test_its_values_are_json_and_each_is_another(self, cores: int) -> None:
        values = list(self.make().values(cores))
        assert json.loads(json.dumps(values, allow_nan=False)) == values
        assert all(value not in values[:i] for i, value in enumerate(values))

    def test_it_says_what_it_is(self) -> None:
        knob = self.make()
        assert knob.name
        assert {type(flag) for flag in (knob.restarts, knob.lasts, knob.again)} == {bool}

    def test_restoring_what_was_not_applied_does_nothing(self) -> None:
        def act() -> None:
            self.prepare()
            before = self.observe()
            knob = self.make()
            knob.restore()
            assert self.observe() == before

        apart(act)

    def test_every_value_can_be_taken_back(self) -> None:
        values = self.some_values()

        def act() -> None:
            self.prepare()
            before = self.observe()
            knob = self.make()
            seen = []
            for value in values:
                knob.apply(value)
                self.after_apply()
                seen.append(self.observe())
                knob.restore()
                assert self.observe() == before, f"after {value}"
            assert any(one != before for one in seen), "no value changed anything"

        apart(act)

    def test_applied_twice_it_is_as_if_once(self) -> None:
        values = self.some_values()

        def act() -> None:
            self.prepare()
            before = self.observe()
            knob = self.make()
            knob.apply(values[0])
            self.after_apply()
            applied = self.observe()
            knob.apply(values[0])
            assert self.observe() == applied
            knob.restore()
            assert self.observe() == before
            knob.restore()
            assert self.observe() == before

        apart(act)

    def test_after_any_number_of_values_it_goes_back_to_the_beginning(self) -> None:
        values = self.some_values()

        def act() -> None:
            self.prepare()
            before = self.observe()
            knob = self.make()
            for value in [*values, *reversed(values)]:
                knob.apply(value)
                self.after_apply()
            knob.restore()
            assert self.observe() == before

        apart(act)
