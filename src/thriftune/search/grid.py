"""Grid search: every combination of a few values a parameter, and then nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from thriftune.errors import SettingError

if TYPE_CHECKING:
    from thriftune.search.protocol import Past
    from thriftune.space.space import Space


class Grid:
    """Suggestion n is number n of the grid or the next untried one; after the last comes the first again."""

    def __init__(self, points: int = 5) -> None:
        if not isinstance(points, int) or isinstance(points, bool) or points < 1:
            raise SettingError(f"grid: points {points!r} is no number of values; use 1 or more")
        self.points = points
        self.options = {"points": points}
        # A cache: the grid of this space as far as it has been needed, and the rest of it.
        self._space: Space | None = None
        self._made: list[dict[str, Any]] = []
        self._rest: Iterator[dict[str, Any]] = iter(())

    def suggest(self, past: Past, rng: np.random.Generator) -> dict[str, Any] | None:  # noqa: ARG002
        if past.space != self._space:
            self._space, self._made, self._rest = past.space, [], past.space.grid(self.points)
        number = len(past.trials)
        for config in chain(self._from(number), self._made_before(number)):
            if not past.times(config):
                return config.copy()
        return None

    def _made_before(self, number: int) -> Iterator[dict[str, Any]]:
        yield from self._made[:number]  # looked at late: _from() makes them

    def _from(self, number: int) -> Iterator[dict[str, Any]]:
        while True:
            while number >= len(self._made):
                config = next(self._rest, None)
                if config is None:
                    return
                self._made.append(config)
            yield self._made[number]
            number += 1
