"""Define the result of a study: its trials, the best one, and their cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thriftune.common.formatting import format_dollars, format_seconds
from thriftune.results.cost_ledger import SPOT_PRICE_UNKNOWN, Ledger
from thriftune.results.trial_states import counts_line
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.trial_record import TrialRecord
from thriftune.study.views import StudyViews


@dataclass(frozen=True, slots=True)
class Cost:
    """The time and dollars that the machines of a study took.

    - `estimate`: some or all of the dollars come from list prices and not from a provider's bill.
    - `rented`: all machines were rented. The user's own machine costs as much as a similar one rents for.
    - `prices_known`: False if a spot machine without a known price is counted at its on-demand price.
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
class Result(StudyViews):
    """The state of a study, as tune() returns it."""

    spec: Spec
    history: History

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def best(self) -> TrialRecord:
        """The trial with the best value among those that meet all constraints.

        Only finished trials compete. While none has finished, the trials with the most steps compete, and
        `best.finished` is False. Raises NoBestTrial if no trial qualifies, or if the study has several
        objectives: then use `front`.
        """
        return self.history.best

    @property
    def front(self) -> Sequence[TrialRecord]:
        """The feasible trials that no other dominates, sorted by the first objective, the best first.

        The same trials compete as for `best`. With a single objective, returns all trials with the best value.
        """
        return tuple(self.history.front)

    @property
    def trials(self) -> Sequence[TrialRecord]:
        return tuple(self.history.trials)

    @property
    def finished(self) -> str | None:
        """The reason why the study is complete; None while it is not."""
        return self.history.finish_reason

    @property
    def seconds(self) -> float:
        """The time for which a driver ran the study, over all its runs."""
        return self.history.driven_seconds(self.history.last_at)

    @property
    def cost(self) -> Cost:
        history = self.history
        fleet = history.fleet
        dollars, offers = history.dollars(history.last_at), tuple(fleet.offers())
        return Cost(self.seconds, dollars, offers, not fleet.all_billed, fleet.all_rented, fleet.prices_known)

    @property
    def ledger(self) -> Ledger:
        """The cost of each machine, and the work that it did."""
        return Ledger.of(self.history, self.history.last_at)

    def __repr__(self) -> str:
        front = f"; {len(self.front)} on the front" if len(self.spec.objectives) > 1 else ""
        return f"<Result of {self.name}: {counts_line(self.history, has_driver=True)}{front}>"
