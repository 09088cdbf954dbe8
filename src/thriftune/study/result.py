"""What came of a study? Its trials, its best one, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thriftune.common.formatting import format_dollars, format_seconds
from thriftune.results.ledger import SPOT_PRICE_UNKNOWN, Ledger
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.trial_record import TrialRecord
from thriftune.study.looking import Looking


@dataclass(frozen=True, slots=True)
class Cost:
    """The time and dollars that the machines of a study took.

    - `estimate`: the dollars are not, or not only, providers' bills but come from list prices.
    - `rented`: all machines were rented. For a machine of one's own, the dollars are what a like one rents for.
    - `prices_known`: False if a spot machine without a known price is counted at an on-demand price.
    """

    seconds: float
    dollars: float
    offers: tuple[str, ...]
    estimate: bool = True
    rented: bool = False
    prices_known: bool = True

    def __str__(self) -> str:
        dollars, offers = format_dollars(self.dollars), ", ".join(self.offers)
        if self.estimate and self.rented:
            offers = f"estimate from list prices: {offers}"
        elif self.estimate:
            dollars += " if rented"
        unknown = "" if self.prices_known else f"; {SPOT_PRICE_UNKNOWN}"
        return f"{format_seconds(self.seconds)}, {dollars} ({offers}{unknown})"

    def __float__(self) -> float:
        return self.dollars


@dataclass(frozen=True, slots=True)
class Result(Looking):
    """A study as it stands: what tune() returns."""

    spec: Spec
    history: History

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def best(self) -> TrialRecord:
        """The trial whose configuration to use: the best value of those that meet all constraints.

        While any of them has finished, only finished trials compete. Until then those compete that have come
        furthest, and `best.finished` is False. Raises NoBestTrial if there is none, and with several objectives,
        which leave no single best: see `front`.
        """
        return self.history.best

    @property
    def front(self) -> Sequence[TrialRecord]:
        """The trials that meet all constraints and that no other dominates, the best by the first objective first.

        Those compete that compete for `best`. With a single objective, all trials that have the best value.
        """
        return tuple(self.history.front)

    @property
    def trials(self) -> Sequence[TrialRecord]:
        return tuple(self.history.trials)

    @property
    def finished(self) -> str | None:
        """Why nothing is left to do; None if something is."""
        return self.history.finish_reason

    @property
    def seconds(self) -> float:
        """How long it was driven, over all its drives."""
        return self.history.driven_seconds(self.history.last_at)

    @property
    def cost(self) -> Cost:
        history = self.history
        fleet = history.fleet
        dollars, offers = history.dollars(history.last_at), tuple(fleet.offers())
        return Cost(self.seconds, dollars, offers, not fleet.all_billed, fleet.all_rented, fleet.prices_known)

    @property
    def ledger(self) -> Ledger:
        """What each machine cost, and what came of it."""
        return Ledger.of(self.history, self.history.last_at)

    def __repr__(self) -> str:
        from thriftune.show.describe import counts_line

        front = f"; {len(self.front)} on the front" if len(self.spec.objectives) > 1 else ""
        return f"<Result of {self.name}: {counts_line(self.history, driven=True)}{front}>"
