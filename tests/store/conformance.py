"""Tests that every store must pass. The tests of a store inherit StoreConformance and create the store."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thriftune.common.checks import LATEST_AT
from thriftune.errors import StoreConflict, StoreError, StudyBusy, StudyExists, StudyNotFound
from thriftune.state.events import Codec, Create, Event, Failed, Reported
from thriftune.store.protocol import DriverInfo, Store

# What users put into metrics, configurations and specs: anything JSON can hold, and then some.
_numbers = st.floats() | st.integers(-(10**60), 10**60)
_json = st.recursive(
    st.none() | st.booleans() | _numbers | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
_fields: dict[Any, st.SearchStrategy[Any]] = {
    Any: _json,
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    int: st.integers(0, 2**63 - 1),
    str: st.text(),
}


_times = st.floats(0, LATEST_AT, exclude_max=True)


def _values(hint: Any) -> st.SearchStrategy[Any]:
    if get_origin(hint) is UnionType:  # of something, or None
        return st.none() | _values(get_args(hint)[0])
    if get_origin(hint) is Mapping:
        inner = {float: _numbers, int: _fields[int]}.get(get_args(hint)[1], _json)
        return st.dictionaries(st.text(), inner, max_size=4)
    if get_origin(hint) is Sequence:
        return st.lists(_fields.get(get_args(hint)[0], _json), max_size=3)
    return _fields[hint]


def any_event() -> st.SearchStrategy[Event]:
    """Generate every kind of event from its annotations, so that new kinds are tested automatically."""
    return st.one_of(
        [
            st.builds(
                kind, **{name: _values(hint) for name, hint in get_type_hints(kind).items()} | {"at": _times}
            )
            for kind in Codec.kinds.values()
        ]
    )


def report(number: int, trial: int = 1, **metrics: float) -> Reported:
    return Reported(1.7e9 + number, trial, 1, number, number, metrics or {"loss": 1 / number}, saved=True)


def reports(first: int, last: int) -> list[Event]:
    return [report(number) for number in range(first, last + 1)]


NEEDS_A_STUDY: dict[str, Callable[[Store, str], object]] = {
    "spec": lambda store, name: store.spec(name),
    "update_spec": lambda store, name: store.update_spec(name, {}),
    "append": lambda store, name: store.append(name, 0, reports(1, 1)),
    "read": lambda store, name: store.read(name),
    "length": lambda store, name: store.length(name),
    "drive": lambda store, name: store.drive(name).__enter__(),
    "driver": lambda store, name: store.driver(name),
    "request": lambda store, name: store.request(name, "stop", 1.0),
    "take_requests": lambda store, name: store.take_requests(name),
    "rename": lambda store, name: store.rename(name, "new", {}),
    "delete": lambda store, name: store.delete(name),
}


class StoreConformance(ABC):
    where: str
    """A part of the text by which messages name the store."""

    @abstractmethod
    def make(self, folder: Path) -> Store:
        """Return a new, empty store."""

    @abstractmethod
    def reopen(self, store: Store) -> Store:
        """Return the same studies as another process sees them; the store itself if no other can open it."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        with ExitStack() as self._opened:
            store = self._opened.enter_context(self.make(tmp_path))
            store.create("digits", {"metric": "loss"}, 100.0)
            yield store

    def again(self, store: Store) -> Store:
        return self._opened.enter_context(self.reopen(store))

    # --- studies ------------------------------------------------------------------------------------------

    def test_a_new_study_is_empty(self, store: Store) -> None:
        assert store.spec("digits") == {"metric": "loss"}
        assert store.length("digits") == 0
        assert store.read("digits") == []
        assert store.driver("digits") is None
        assert store.take_requests("digits") == []

    def test_a_log_may_begin_with_the_study(self, store: Store) -> None:
        store.create("s", {"metric": "loss"}, 1.0, reports(1, 3))
        assert self.again(store).read("s") == reports(1, 3)
        with pytest.raises(StoreConflict):
            store.append("s", 0, reports(1, 1))
        store.append("s", 3, reports(4, 5))
        assert store.read("s") == reports(1, 5)
        (listed,) = (study for study in store.studies() if study.name == "s")
        assert (listed.entries, listed.summary) == (5, {})

    def test_a_study_with_invalid_first_entries_is_not_created(self, store: Store) -> None:
        with pytest.raises(TypeError):
            store.create("s", {}, 1.0, [report(1), Create(2.0, 1, {"lr": object()})])
        store.create("s", {}, 1.0)
        assert store.read("s") == []

    def test_a_spec_can_be_any_json(self, store: Store) -> None:
        spec = {"schlüssel ☃": [1e-300, -0.0, None, True, {"a": "\x00\ud800"}], "big": 10**300, "": math.inf}
        store.create("s", spec, 1.0)
        assert repr(self.again(store).spec("s")) == repr(spec)
        store.create("nan", {"x": math.nan}, 1.0)
        assert math.isnan(store.spec("nan")["x"])

    def test_a_spec_can_be_replaced(self, store: Store) -> None:
        store.append("digits", 0, reports(1, 2))
        store.update_spec("digits", {"trials": 9})
        assert self.again(store).spec("digits") == {"trials": 9}
        assert store.length("digits") == 2

    def test_a_name_is_taken_once(self, store: Store) -> None:
        with pytest.raises(StudyExists, match=f"study 'digits' is already in .*{self.where}.*; resume it, delete"):
            store.create("digits", {"other": 1}, 2.0)
        assert store.spec("digits") == {"metric": "loss"}

    @pytest.mark.parametrize(
        "name", ["a/b", "..", "", "a b", "名前", "x'; DROP TABLE studies; --", "n\nl", "A" * 500]
    )
    def test_any_text_is_a_name(self, store: Store, name: str) -> None:
        store.create(name, {"n": name}, 1.0)
        with store.drive(name):
            store.append(name, 0, reports(1, 3))
            assert store.driver(name) is not None
        assert (store.spec(name), store.length(name)) == ({"n": name}, 3)
        store.delete(name)
        assert [study.name for study in store.studies()] == ["digits"]

    def test_a_name_with_invalid_text_is_an_error(self, store: Store) -> None:
        with pytest.raises(StoreError, match="is not valid text"):
            store.create("\udcff", {}, 1.0)

    @pytest.mark.parametrize("method", NEEDS_A_STUDY)
    def test_an_unknown_name_is_an_error_that_helps(self, store: Store, method: str) -> None:
        with pytest.raises(StudyNotFound) as error:
            NEEDS_A_STUDY[method](store, "digit")
        message = str(error.value)
        assert message.startswith("there is no study 'digit' in ")
        assert self.where in message
        assert message.endswith("; did you mean 'digits'?")

    def test_far_names_are_not_suggested(self, store: Store) -> None:
        with pytest.raises(StudyNotFound) as error:
            store.spec("mnist")
        assert "did you mean" not in str(error.value)

    def test_the_listing_is_newest_first(self, store: Store) -> None:
        store.create("old", {"o": 1}, 50.0)
        store.create("new", {"n": 1}, 200.0)
        store.append("old", 0, reports(1, 3), {"best": 0.5})
        with store.drive("new"):
            new, digits, old = self.again(store).studies()
        assert [new.name, digits.name, old.name] == ["new", "digits", "old"]
        assert (old.created_at, old.spec, old.summary, old.entries) == (50.0, {"o": 1}, {"best": 0.5}, 3)
        assert (digits.summary, digits.entries, digits.driver) == ({}, 0, None)
        assert isinstance(new.driver, DriverInfo)

    # --- the log ------------------------------------------------------------------------------------------

    def test_entries_keep_their_order(self, store: Store) -> None:
        store.append("digits", 0, reports(1, 1))
        store.append("digits", 1, reports(2, 5))
        store.append("digits", 5, reports(6, 12))
        for seen in (store, self.again(store)):
            assert seen.read("digits") == reports(1, 12)
            assert seen.read("digits", after=9) == reports(10, 12)
            assert seen.read("digits", after=12) == seen.read("digits", after=99) == []
            assert seen.length("digits") == 12

    def test_logs_of_studies_are_separate(self, store: Store) -> None:
        store.create("other", {}, 1.0)
        store.append("digits", 0, reports(1, 3))
        store.append("other", 0, reports(7, 8))
        assert (store.read("digits"), store.read("other")) == (reports(1, 3), reports(7, 8))

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
    @given(entries=st.lists(any_event(), max_size=5))
    def test_any_entry_is_read_as_it_was_written(self, store: Store, entries: list[Event]) -> None:
        before = store.length("digits")
        store.append("digits", before, entries)
        assert repr(self.again(store).read("digits", before)) == repr(entries)  # repr: NaN is not NaN

    def test_unusual_values_are_read_as_they_were_written(self, store: Store) -> None:
        entries = [
            report(1, loss=math.nan, lowest=-math.inf, big=10**200),
            Create(1.0, 1, {"größe": "☃", "n": 2**100}),
            Failed(1.0, 1, 1, "raised", "bytes that are no text: \udcff", "\x00\x1b[31m\r\n"),
        ]
        store.append("digits", 0, entries)
        assert repr(self.again(store).read("digits")) == repr(entries)

    @pytest.mark.parametrize("after", [0, 2, 4, 100])
    def test_a_writer_that_is_not_up_to_date_writes_nothing(self, store: Store, after: int) -> None:
        store.append("digits", 0, reports(1, 3), {"best": 1})
        with pytest.raises(StoreConflict) as error:
            store.append("digits", after, reports(50, 52), {"best": 2})
        message = str(error.value)
        assert message.startswith("study 'digits' has 3 entries in ")
        assert f"its driver knows of {after}: another driver wrote to it" in message
        assert store.read("digits") == reports(1, 3)
        assert store.studies()[0].summary == {"best": 1}
        store.append("digits", 3, reports(4, 4))

    def test_an_entry_that_cannot_be_written_takes_the_others_with_it(self, store: Store) -> None:
        with pytest.raises(TypeError):
            store.append("digits", 0, [*reports(1, 2), Create(1.0, 1, {"f": object()})], {"best": 2})
        with pytest.raises(StoreError):
            store.append("digits", 0, [*reports(1, 2), Create(math.nan, 1, {})], {"best": 2})
        assert (store.length("digits"), store.studies()[0].summary) == (0, {})
        store.append("digits", 0, reports(1, 1))

    def test_a_summary_stays_until_replaced(self, store: Store) -> None:
        store.append("digits", 0, reports(1, 1), {"best": 1})
        store.append("digits", 1, reports(2, 2))
        assert store.studies()[0].summary == {"best": 1}
        store.append("digits", 2, [], {"done": True})
        listed = store.studies()[0]
        assert (listed.summary, listed.entries) == ({"done": True}, 2)

    # --- the driver ---------------------------------------------------------------------------------------

    def test_there_is_one_driver(self, store: Store) -> None:
        other = self.again(store)
        refused: list[StudyBusy] = []

        def try_to_drive(by: Store) -> None:
            try:
                with by.drive("digits"):
                    pass
            except StudyBusy as error:
                refused.append(error)

        with store.drive("digits"):
            driver = other.driver("digits")
            assert driver is not None
            try_to_drive(store)
            try_to_drive(other)
            thread = threading.Thread(target=try_to_drive, args=(other,))
            thread.start()
            thread.join()
            assert other.driver("digits") == store.driver("digits") == driver
        assert len(refused) == 3
        for error in refused:
            assert f"study 'digits' is being run by process {driver.pid} on {driver.host} since 20" in str(error)
            assert "wait for it to end, or stop it: thriftune stop digits --store " in str(error)
        assert other.driver("digits") is None
        with other.drive("digits"):
            assert store.driver("digits") is not None

    def test_two_studies_can_be_driven_at_once(self, store: Store) -> None:
        store.create("other", {}, 1.0)
        with store.drive("digits"), store.drive("other"):
            assert store.driver("digits") is not None
            assert store.driver("other") is not None

    def test_a_drive_that_fails_is_over_and_its_error_is_untouched(self, store: Store) -> None:
        with pytest.raises(OSError, match="mine"), store.drive("digits"):
            raise OSError("mine")
        assert store.driver("digits") is None
        with store.drive("digits"):
            pass

    def test_requests_wait_for_the_driver_and_are_taken_once(self, store: Store) -> None:
        store.create("other", {}, 1.0)
        self.again(store).request("digits", "stop", 1.0)
        self.again(store).request("digits", "mehr ☃", 2.0)
        store.request("other", "stop", 3.0)
        assert store.take_requests("digits") == ["stop", "mehr ☃"]
        assert store.take_requests("digits") == []
        assert store.take_requests("other") == ["stop"]

    # --- another name ------------------------------------------------------------------------------------

    def test_a_renamed_study_has_all_it_had(self, store: Store) -> None:
        store.append("digits", 0, reports(1, 3), {"best": 1})
        store.request("digits", "stop", 1.0)
        store.rename("digits", "letters", {"metric": "loss", "name": "letters"})
        seen = self.again(store)
        assert (seen.read("letters"), seen.length("letters")) == (reports(1, 3), 3)
        assert seen.spec("letters") == {"metric": "loss", "name": "letters"}
        (listed,) = seen.studies()
        assert (listed.name, listed.created_at, listed.summary) == ("letters", 100.0, {"best": 1})
        store.append("letters", 3, reports(4, 4))
        assert store.take_requests("letters") == ["stop"]
        with pytest.raises(StudyNotFound):
            store.read("digits")

    def test_the_name_of_a_renamed_study_is_free(self, store: Store) -> None:
        store.append("digits", 0, reports(1, 3))
        store.rename("digits", "letters", {})
        store.create("digits", {"new": 1}, 2.0)
        store.append("digits", 0, reports(7, 7))
        assert (store.read("digits"), store.read("letters")) == (reports(7, 7), reports(1, 3))

    def test_a_study_is_not_renamed_to_the_name_of_another(self, store: Store) -> None:
        store.create("letters", {"other": 1}, 1.0)
        with pytest.raises(StudyExists, match=f"study 'letters' is already in .*{self.where}.*; take"):
            store.rename("digits", "letters", {})
        assert (store.spec("digits"), store.spec("letters")) == ({"metric": "loss"}, {"other": 1})

    def test_a_study_that_is_driven_is_not_renamed(self, store: Store) -> None:
        with store.drive("digits"), pytest.raises(StudyBusy):
            self.again(store).rename("digits", "letters", {})
        assert store.spec("digits") == {"metric": "loss"}

    # --- the end ------------------------------------------------------------------------------------------

    def test_delete_leaves_nothing(self, store: Store) -> None:
        store.append("digits", 0, reports(1, 3), {"best": 1})
        store.request("digits", "stop", 1.0)
        store.delete("digits")
        with pytest.raises(StudyNotFound):
            store.read("digits")
        assert store.studies() == []
        store.create("digits", {}, 1.0)
        assert (store.read("digits"), store.length("digits"), store.take_requests("digits")) == ([], 0, [])
        assert store.studies()[0].summary == {}

    def test_a_driven_study_is_not_deleted(self, store: Store) -> None:
        with store.drive("digits"), pytest.raises(StudyBusy):
            self.again(store).delete("digits")
        assert store.length("digits") == 0
        store.delete("digits")

    def test_threads_may_share_a_store(self, store: Store) -> None:
        def write(name: str) -> None:
            for number in range(50):
                store.append(name, number, [report(number + 1)])
                assert len(store.read(name)) == number + 1
            done.append(name)

        done: list[str] = []
        names = ["a", "b", "c", "d"]
        for name in names:
            store.create(name, {}, 1.0)
        threads = [threading.Thread(target=write, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(done) == names
        assert all(store.read(name) == reports(1, 50) for name in names)

    def test_a_closed_store_raises_an_error(self, store: Store) -> None:
        store.close()
        store.close()
        with pytest.raises(StoreError, match="closed"):
            store.studies()
