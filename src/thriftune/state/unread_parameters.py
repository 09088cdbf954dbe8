"""Which parameters does the training function never read? Told at the end: it may be a typing error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from thriftune.state.events import Config


@dataclass(slots=True)
class UnreadParameters:
    """Counts, over the trials that came to their own end, which parameters their functions did not read."""

    trials: int = 0
    count: Counter[str] = field(default_factory=Counter)  # in how many of these it was set and not read
    read: set[str] = field(default_factory=set)  # read in some attempt

    def ended(self, config: Config, unread: Iterable[str], *, cut: bool) -> None:
        """Takes in how an attempt ended. One that was cut may not have come to where it reads the rest."""
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
