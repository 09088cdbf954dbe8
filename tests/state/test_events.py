"""Tests of events: equal fields make equal events, copies are equal, and events cannot be changed."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import FrozenInstanceError, fields, replace

import pytest
from hypothesis import given

from tests.store.conformance import any_event
from thriftune.state.events import Event, Reported


@given(any_event())
def test_events_with_equal_fields_are_equal(event: Event) -> None:
    values = {field.name: getattr(event, field.name) for field in fields(event)}
    kind = type(event)
    for made in (kind(*values.values()), kind(**values), replace(event), copy.copy(event)):
        assert type(made) is kind
        assert made == event
    assert repr(pickle.loads(pickle.dumps(event))) == repr(event)  # repr: NaN is not NaN
    assert replace(event, at=math.nextafter(event.at, math.inf)) != event
    assert list(values) == [name for base in reversed(kind.__mro__) for name in getattr(base, "__slots__", ())]


@given(any_event())
def test_events_cannot_be_changed(event: Event) -> None:
    for field in fields(event):
        with pytest.raises(FrozenInstanceError):
            setattr(event, field.name, None)
        with pytest.raises(FrozenInstanceError):
            delattr(event, field.name)
    with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
        event.more = 1  # type: ignore[attr-defined]


def test_reports_differ_if_any_field_differs() -> None:
    report = Reported(1.0, 2, 3, 4, 5, {"loss": 6.0}, saved=True)
    others = [
        replace(report, at=0.0),
        replace(report, trial=0),
        replace(report, attempt=0),
        replace(report, number=0),
        replace(report, step=0),
        replace(report, metrics={}),
        replace(report, saved=False),
    ]
    assert all(other != report for other in others)
    assert Reported(1.0, 2, 3, 4, 5, {}).saved is False
    with pytest.raises(TypeError, match="metrics"):
        Reported(1.0, 2, 3, 4, 5)  # type: ignore[call-arg]
