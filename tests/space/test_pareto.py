"""The Pareto front, compared with a comparison of all with all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thriftune.space.pareto import undominated


def dominates(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True)) and any(x < y for x, y in zip(a, b, strict=True))


numbers = st.integers(0, 3).map(float) | st.floats(allow_nan=False, allow_infinity=False)


@given(st.integers(1, 4).flatmap(lambda width: st.lists(st.tuples(*[numbers] * width), max_size=40)))
def test_undominated_matches_a_comparison_of_all_with_all(losses: list[tuple[float, ...]]) -> None:
    expected = [i for i, mine in enumerate(losses) if not any(dominates(each, mine) for each in losses)]
    assert undominated(losses) == expected


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([], []),
        ([(1.0, 2.0)], [0]),
        ([(0.0, 1.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)], [0, 1, 3]),
        ([(-0.0, 1.0), (0.0, 1.0)], [0, 1]),
        ([(1e300, -1e300), (-1e300, 1e300), (5e-324, 5e-324)], [0, 1, 2]),
        ([(0.0, 0.0, 1.0), (0.0, 0.0, 0.0), (0.0, 1.0, -1.0)], [1, 2]),
    ],
)
def test_fronts(losses: list[tuple[float, ...]], expected: list[int]) -> None:
    assert undominated(losses) == expected


def test_a_front_of_thousands_is_fast() -> None:
    """All points are on the front, which needs the most comparisons."""
    line = [(float(i), float(-i)) for i in range(50_000)]
    assert undominated(line) == list(range(50_000))
    surface = [(float(i), float(-i), float(i % 7)) for i in range(3_000)]
    assert undominated(surface) == list(range(3_000))
