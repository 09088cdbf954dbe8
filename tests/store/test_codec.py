"""Tests of events as JSON: all events survive it, and unknown or invalid JSON is an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.conformance import any_event
from thriftune.state.events import Codec, Event, Reported


@given(st.lists(any_event(), max_size=10))
def test_events_are_read_as_they_were_written(events: list[Event]) -> None:
    written = [(Codec.kind(event), Codec.body(event)) for event in events]
    assert all(body.isascii() and "\n" not in body for _, body in written)
    assert repr([Codec.event(kind, body) for kind, body in written]) == repr(events)  # repr: NaN is not NaN


def test_a_field_with_a_default_may_be_missing() -> None:
    body = '{"at":1.0,"trial":1,"attempt":1,"number":1,"step":1,"metrics":{}}'
    assert Codec.event("Reported", body) == Reported(1.0, 1, 1, 1, 1, {}, saved=False)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("Teleported", '{"at":1.0}'),
        ("Asked", '{"at":1.0,"later":2}'),
        ("Asked", "{}"),
        ("Asked", "[1.0]"),
        ("Asked", '{"at":'),
        ("Asked", ""),
        ("Asked", "null"),
        ("Asked", "[" * 100_000),
        ("Asked", '{"at":"1"}'),
        ("Asked", '{"at":-1.0}'),
        ("Asked", '{"at":NaN}'),
        ("Asked", '{"at":1e300}'),
        ("Promote", '{"at":1.0,"trial":-1}'),
        ("Promote", '{"at":1.0,"trial":true}'),
        ("Promote", '{"at":1.0,"trial":1.0}'),
        ("Finish", '{"at":1.0,"why":null}'),
        ("Create", '{"at":1.0,"trial":0,"config":[]}'),
        ("Ended", '{"at":1.0,"trial":0,"attempt":1,"seconds":Infinity}'),
        ("Ended", '{"at":1.0,"trial":0,"attempt":1,"seconds":1.0,"cut":1}'),
        ("Place", '{"at":1.0,"trial":0,"attempt":1,"machine":"m","resume_step":0,"workers":{"m":"1"}}'),
        ("Reported", '{"at":1.0,"trial":1,"attempt":1,"number":1,"step":1,"metrics":{"loss":"1"}}'),
        ("Reported", f'{{"at":1.0,"trial":1,"attempt":1,"number":1,"step":1,"metrics":{{"loss":{10**400}}}}}'),
    ],
)
def test_unknown_kinds_and_fields_are_errors(kind: str, body: str) -> None:
    with pytest.raises(ValueError, match=f"an entry of kind '{kind}' cannot be read"):
        Codec.event(kind, body)
