"""Tests that each metric in a command's output is found once and whole, in bounded time."""

from __future__ import annotations

import itertools
import re
import signal
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from thriftune.engines import printed_metrics
from thriftune.engines.printed_metrics import PrintedMetrics
from thriftune.training.run import TrialFailed

PIECE, OVERLAP = 64, 16


@pytest.fixture(autouse=True, scope="module")
def short_pieces() -> Iterable[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(printed_metrics, "_PIECE_CHARACTERS", PIECE)
        patch.setattr(printed_metrics, "_OVERLAP_CHARACTERS", OVERLAP)
        yield


def matches_of(chunks: Iterable[bytes], **patterns: str) -> list[tuple[str, str]]:
    return [pair for piece in pieces(chunks, patterns) for pair in piece]


def pieces(chunks: Iterable[bytes], patterns: Mapping[str, str]) -> list[list[tuple[str, str]]]:
    metrics = PrintedMetrics({name: re.compile(pattern) for name, pattern in patterns.items()})
    return [piece for chunk in (*chunks, b"\n") for piece in metrics.feed(chunk)]


def numbers(text: str, pattern: str) -> list[str]:
    return [number for _, number in matches_of([text.encode()], loss=pattern)]


@given(
    words=st.lists(st.sampled_from(["loss=12.345", "loss=1", "loss", "=7", "12.5", " ", "xyz", "ü", "\n", "\r"])),
    sizes=st.lists(st.integers(1, 100), min_size=1),
    pattern=st.sampled_from([r"loss=([0-9.]+)", r"([0-9.]+) ", r"\b([0-9.]+)", r"(?<==)([0-9]+)", r"^loss=(\d+)"]),
)
def test_pieces_have_the_same_matches_as_the_whole_line(words: list[str], sizes: list[int], pattern: str) -> None:
    printed = "".join(words)
    ends = itertools.accumulate(itertools.chain(sizes, itertools.repeat(50)), initial=0)
    spans = itertools.takewhile(lambda span: span[0] < len(printed.encode()), itertools.pairwise(ends))
    chunks = [printed.encode()[start:end] for start, end in spans]
    assume(not re.search(r"[0-9.]{12,}", printed))  # a match longer than the overlap may be missed
    lines = re.split(r"[\r\n]", printed)
    expected = [match.group(1) for line in lines for match in re.finditer(pattern, line)]
    assert [number for _, number in matches_of(chunks, loss=pattern)] == expected


@pytest.mark.parametrize("before", range(2 * PIECE))
@pytest.mark.parametrize("pattern", [r"loss=([0-9.]+)", r".*loss=([0-9.]+)", r".*?loss=([0-9.]+)", r"loss=(\S+);"])
def test_a_number_is_whole_wherever_a_line_is_cut(pattern: str, before: int) -> None:
    assert numbers("x" * before + "loss=12.345;" + "x" * 2 * PIECE, pattern) == ["12.345"]


@pytest.mark.parametrize("before", range(2 * PIECE))
def test_the_end_of_a_piece_is_not_the_end_of_the_line(before: int) -> None:
    text = "x" * before + "loss=12.345"
    assert numbers(text + ";" * PIECE, r"loss=([0-9.]+)$") == []
    assert numbers(text, r"loss=([0-9.]+)$") == ["12.345"]
    assert numbers(text, r"^x?loss=([0-9.]+)") == (["12.345"] if before < 2 else [])


def test_a_carriage_return_ends_a_line() -> None:
    assert pieces([b"10% loss=3\r20% loss=2\r\nloss=1"], {"loss": r"loss=(\d)$"}) == [
        [("loss", "3")],
        [("loss", "2")],
        [],
        [("loss", "1")],
    ]


def test_characters_and_groups_that_are_incomplete() -> None:
    euro = "€".encode()
    assert matches_of([euro[:1], euro[1:] + b" loss=1", euro[:2]], loss=r"€ loss=(\d+)") == [("loss", "1")]
    assert matches_of([b"loss=none loss=2"], loss=r"loss=(?:none|(\d))") == [("loss", "2")]


def test_a_pattern_that_backtracks_endlessly_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed_metrics, "_MATCH_SECONDS", 0.05)
    handler = signal.getsignal(signal.SIGVTALRM)
    slow = r"loss=((?:a+)+|[0-9.]+)$"
    with pytest.raises(TrialFailed) as raised:
        matches_of([b"loss=" + b"a" * 50 + b"!"], accuracy="acc=(.*)", loss=slow)
    assert f"metrics: loss: the pattern {slow!r} took more than 0.05 s" in str(raised.value)
    assert "Use a simpler one" in str(raised.value)
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGVTALRM) is handler


def test_patterns_that_use_most_of_the_time_give_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = PrintedMetrics({"accuracy": re.compile("acc=(.*)"), "loss": re.compile(".*.*.*loss=(.*)")})
    assert list(metrics.feed(b"loss=1\n")) == [[("loss", "1")]]
    assert metrics.take_warning() is None
    monkeypatch.setattr(printed_metrics, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(printed_metrics, "SLOW_SHARE", 0.0)
    list(metrics.feed(b"lose=" * 10 + b"\n"))
    warning = metrics.take_warning() or ""
    assert "metrics: loss: the pattern '.*.*.*loss=(.*)' is slow" in warning
    assert metrics.take_warning() is None
