"""When a failed request is tried again. The clock is the test's own."""

from __future__ import annotations

import pytest

from thriftune.object_store import retries
from thriftune.object_store.protocol import AccessDenied, StoreUnavailable
from thriftune.object_store.retries import with_retries


class Clock:
    """Stands in for the time module. Sleeping moves it on."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(retries, "time", clock)
    return clock


def test_a_request_that_succeeds_is_made_once(clock: Clock) -> None:
    assert with_retries(lambda: 3, 30) == 3
    assert clock.pauses == []


def test_pauses_double_up_to_a_limit(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    results = iter([False] * 8 + [True])

    def request() -> bool:
        if not next(results):
            raise StoreUnavailable("no answer")
        return True

    assert with_retries(request, 60)
    assert clock.pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_retries_end_some_time_after_the_first_failure(clock: Clock) -> None:
    begun = []

    def request() -> None:
        begun.append(clock.now)
        clock.now += 4  # each attempt takes time
        raise StoreUnavailable(f"failure {len(begun)}")

    with pytest.raises(StoreUnavailable, match="failure"):
        with_retries(request, 30)
    assert begun[-1] < begun[0] + 4 + 30
    assert len(begun) > 4


def test_a_long_request_that_fails_late_is_tried_again(clock: Clock) -> None:
    begun = []

    def request() -> None:
        begun.append(clock.now)
        clock.now += 200
        raise StoreUnavailable("cut")

    with pytest.raises(StoreUnavailable):
        with_retries(request, 30)
    assert len(begun) == 2


def test_other_errors_are_raised_at_once(clock: Clock) -> None:
    def request() -> None:
        raise AccessDenied("no")

    with pytest.raises(AccessDenied):
        with_retries(request, 30)
    assert clock.pauses == []


def test_without_time_for_retries_there_are_none(clock: Clock) -> None:
    def request() -> None:
        raise StoreUnavailable("no")

    with pytest.raises(StoreUnavailable):
        with_retries(request, 0)
    assert clock.pauses == []
