"""Grid search: every combination of a few values of each parameter, then no more suggestions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from thriftune.common.checks import check_whole

if TYPE_CHECKING:
    from thriftune.search.protocol import Past
    from thriftune.space.space import Space


class Grid:
    """Suggest configuration n of the grid as suggestion n, or the next untried one; wrap around at the end.

    `points` is the number of values of each numeric parameter.
    """

    def __init__(self, points: int = 5) -> None:
        check_whole("grid: points", points, 1)
        self.points = points
        self.options = {"points": points}
        # A cache for one space: the part of its grid that was needed until now, and an iterator over the rest.
        self._space: Space | None = None
        self._listed: list[dict[str, Any]] = []
        self._rest: Iterator[dict[str, Any]] = iter(())

    def suggest(self, past: Past, rng: np.random.Generator) -> dict[str, Any] | None:  # noqa: ARG002
        if past.space != self._space:
            self._space, self._listed, self._rest = past.space, [], past.space.grid(self.points)
        number = len(past.trials)
        for config in chain(self._iterate_from(number), self._iterate_before(number)):
            if not past.times(config):
                return config.copy()
        return None

    def _iterate_before(self, number: int) -> Iterator[dict[str, Any]]:
        yield from self._listed[:number]  # runs after _iterate_from(), which has listed them

    def _iterate_from(self, number: int) -> Iterator[dict[str, Any]]:
        while True:
            while number >= len(self._listed):
                config = next(self._rest, None)
                if config is None:
                    return
                self._listed.append(config)
            yield self._listed[number]
            number += 1
