"""Find parameters that the training function never reads, which may be a typing error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from thriftune.state.events import Config


@dataclass(slots=True)
class UnreadParameters:
    """Counts of the parameters that trials did not read."""

    trials: int = 0  # number of attempts that came to their own end
    count: Counter[str] = field(default_factory=Counter)  # in how many of them a parameter was set but not read
    read: set[str] = field(default_factory=set)  # parameters that some attempt has read

    def add_attempt(self, config: Config, unread: Iterable[str], *, cut: bool) -> None:
        """Add an attempt that has ended.

        `cut`: it ended early, so it may not have read all that it would.
        """
        names = set(unread)
        self.read |= config.keys() - names
        if not cut:
            self.trials += 1
            self.count.update(names)

    def sentences(self) -> list[str]:
        """Return a sentence for each parameter that was set in some of the trials and never read."""
        trials = "1 trial" if self.trials == 1 else f"{self.trials} trials"
        return [
            f"the training function never read {name!r} (set in {count} of {trials})"
            for name, count in sorted(self.count.items())
            if name not in self.read
        ]
