"""Tests of segments: their encoding, and which belong together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.conformance import any_event
from thriftune.state.events import Codec
from thriftune.store import log_segments
from thriftune.store.log_segments import (
    DamagedSegment,
    Line,
    Segment,
    decode,
    encode,
    join,
    merged,
    shipped_name,
    split,
    to_merge,
)

lines = st.lists(
    any_event().map(
        lambda event: Line(Codec.kind(event), getattr(event, "trial", None), event.at, Codec.body(event))
    ),
    max_size=5,
)


def line(number: int) -> Line:
    return Line("Reported", 1, float(number), "{}")


def numbered(first: int, end: int) -> list[Line]:
    return [line(number) for number in range(first, end)]


@given(lines, st.integers(0, 10**12))
def test_a_segment_is_read_as_it_was_written(given_lines: list[Line], first: int) -> None:
    assert decode(shipped_name(first), encode(first, given_lines)) == given_lines


@given(st.lists(st.integers(0, 300), min_size=1), st.integers(1, 255))
def test_any_damage_is_noticed(places: list[int], change: int) -> None:
    data = bytearray(encode(3, numbered(3, 40)))
    for place in set(places):
        data[place % len(data)] ^= change
    with pytest.raises(DamagedSegment, match="segment 000000000003: "):
        decode(shipped_name(3), bytes(data))


@pytest.mark.parametrize("size", [0, 1, 20, 40, -1])
def test_a_part_of_a_segment_is_damaged(size: int) -> None:
    with pytest.raises(DamagedSegment):
        decode(shipped_name(0), encode(0, numbered(0, 9))[:size])


def test_a_segment_under_another_name_and_of_another_format_is_refused() -> None:
    data = encode(3, numbered(3, 5))
    with pytest.raises(DamagedSegment, match="begins with entry 3"):
        decode(shipped_name(4), data)
    with pytest.raises(DamagedSegment, match="format 2 is unknown; upgrade thriftune"):
        decode(shipped_name(3), data.replace(b"log 1 ", b"log 2 "))


@given(st.data(), st.integers(0, 30))
def test_any_segments_that_cover_the_log_join_to_it(data: st.DataObject, entries: int) -> None:
    spans = data.draw(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=12))
    have = data.draw(st.integers(0, entries))
    segments = {
        Segment(first, end - first, 1).name: numbered(first, end)
        for first, end in [*spans, (0, entries)]
        if first <= end <= entries
    }
    assert join(have, segments) == (numbered(have, entries), False)


def test_entries_beyond_a_gap_are_not_used() -> None:
    segments = {shipped_name(0): numbered(0, 3), shipped_name(4): numbered(4, 6)}
    assert join(0, segments) == (numbered(0, 3), True)
    assert join(4, segments) == (numbered(4, 6), False)


def test_a_long_log_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_segments, "LARGEST_SEGMENT_ENTRIES", 4)
    assert split(3, 10) == [Segment(3, 4), Segment(7, 4), Segment(11, 2)]
    assert split(3, 0) == []


@pytest.mark.parametrize(("ships", "entries", "most"), [(20_000, 1, 60), (3_000, 100, 100), (500, 5_000, 500)])
def test_merging_keeps_segments_few(ships: int, entries: int, most: int) -> None:
    segments: list[Segment] = []
    rewritten = 0
    for number in range(ships):
        segments.append(Segment(number * entries, entries))
        while due := to_merge(segments):
            segments[-len(due) :] = [merged(due)]
            rewritten += segments[-1].entries
        assert len(segments) <= most
    assert [segment.first for segment in segments[1:]] == [segment.end for segment in segments[:-1]]
    assert segments[-1].end == ships * entries
    assert all(segment.entries <= log_segments.LARGEST_SEGMENT_ENTRIES for segment in segments)
    assert rewritten <= 4 * ships * entries
