"""Find parameters that the training function never reads.

Their names may be misspelled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from thriftune.state.events import Config


@dataclass(slots=True)
class UnreadParameters:
    """The number of attempts that did not read a parameter, for each parameter."""

    trials: int = 0  # number of attempts that were not cut
    count: Counter[str] = field(
        default_factory=Counter
    )  # by parameter: the number of these attempts that had it and did not read it
    read: set[str] = field(default_factory=set)  # parameters that some attempt has read

    def add_attempt(self, config: Config, unread: Iterable[str], *, cut: bool) -> None:
        """Add an attempt that has ended.

        - `unread`: the parameters that it did not read.
        - `cut`: it ended early, so it may have ended before it read them.
        """
        names = set(unread)
        self.read |= config.keys() - names
        if not cut:
            self.trials += 1
            self.count.update(names)

    def sentences(self) -> list[str]:
        """Return a sentence for each parameter that no trial has read."""
        trials = "1 trial" if self.trials == 1 else f"{self.trials} trials"
        return [
            f"the training function never read {name!r} (set in {count} of {trials})"
            for name, count in sorted(self.count.items())
            if name not in self.read
        ]
