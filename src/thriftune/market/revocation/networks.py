"""What do the papers' networks say? RevPred (SpotTune III-B) and Tributary's predictor, an LSTM each.

Torch is needed here only, and comes with the extra `revpred`.
"""

from __future__ import annotations

import importlib
import math
import time
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from thriftune.errors import MissingExtra, SettingError
from thriftune.market.revocation.records import (
    border_max_prices,
    past_records,
    random_max_prices,
    records,
    training_times,
)
from thriftune.market.revocation.steps import Floats, Series, Steps, answer, questions, revoked

_WIDTH = 32  # of every layer; the papers do not say
_BORDER = 0.25  # share of RevPred's training maximum prices that are Algorithm 2's
_LEAST_MARGIN = 1e-6  # of the price
_AT_ONCE = 4096  # questions

Inputs = tuple[Floats, ...]


class Limits(TypedDict, total=False):
    """How long a network is trained.

    - `rows`: minutes of the history, evenly chosen; 20,000.
    - `epochs`: 10; `batch`: 256 rows.
    - `seconds`: training ends then even in the middle of an epoch; the result depends on the machine's speed.
    """

    rows: int
    epochs: int
    batch: int
    seconds: float | None


class _Network(ABC):
    """What both share: scaled inputs, class weights phi- and phi+, Adam, and the correction by Eq. 3."""

    _name: ClassVar[str]
    _as_printed = False

    def __init__(self, **limits: Unpack[Limits]) -> None:
        self._limits: Limits = {"rows": 20_000, "epochs": 10, "batch": 256, "seconds": None, **limits}
        self._network: Any = None
        self._scales: list[tuple[Floats, Floats]] = []
        self._positive_share = 0.5

    def fit(self, series: Series, rng: np.random.Generator | None = None) -> Self:
        torch = _torch()
        rng = rng or np.random.default_rng(0)
        steps = Steps(series)
        t = training_times(steps, self._limits["rows"], self._name)
        max_price = self._max_prices(steps, t, rng)
        y = revoked(steps, t, max_price)
        inputs = self._inputs(steps, t, max_price)
        self._scales = [_scale(x) for x in inputs]
        self._positive_share = float(y.mean())
        device = "cuda" if torch.cuda.is_available() else "cpu"
        with torch.random.fork_rng():
            torch.manual_seed(int(rng.integers(2**62)))
            self._network = self._build(torch).to(device)
            self._train(torch, device, self._scaled(inputs), y, rng)
        return self

    def probability(self, series: Series, t: ArrayLike, max_price: ArrayLike) -> float | Floats:
        if self._network is None:
            raise SettingError(f"{self._name}: not fitted yet; call fit(series) first")
        torch = _torch()
        steps = Steps(series)
        when, most, shape = questions(steps, t, max_price)
        device = next(self._network.parameters()).device
        told = [np.zeros(0)]
        self._network.eval()
        with torch.no_grad():
            for i in range(0, len(when), _AT_ONCE):
                scaled = self._scaled(self._inputs(steps, when[i : i + _AT_ONCE], most[i : i + _AT_ONCE]))
                inputs = [torch.as_tensor(x, dtype=torch.float32, device=device) for x in scaled]
                told.append(self._network(*inputs).double().cpu().numpy())
        odds = unweighted_log_odds(np.concatenate(told), self._positive_share, self._as_printed)
        return answer(steps, when, most, expit(odds), shape)

    def _train(self, torch: Any, device: str, inputs: Inputs, y: Any, rng: np.random.Generator) -> None:
        tensors = [torch.as_tensor(x, dtype=torch.float32, device=device) for x in inputs]
        truth = torch.as_tensor(y, dtype=torch.float32, device=device)
        share = self._positive_share
        weights = torch.where(truth > 0.5, 1.0 - share, share)
        weights = weights / weights.mean().clamp(min=1e-6)  # the scale of a loss, not its minimum
        optimizer = torch.optim.Adam(self._network.parameters(), lr=1e-3)
        loss_of = torch.nn.functional.binary_cross_entropy_with_logits
        batch, seconds = self._limits["batch"], self._limits["seconds"]
        until = math.inf if seconds is None else time.monotonic() + seconds
        self._network.train()
        for _ in range(self._limits["epochs"]):
            order = rng.permutation(len(y))
            for i in range(0, len(y), batch):
                if time.monotonic() > until:
                    return
                rows = torch.as_tensor(order[i : i + batch], device=device)
                told = self._network(*(x[rows] for x in tensors))
                loss = loss_of(told, truth[rows], weight=weights[rows])
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self._network.parameters(), 1.0)
                optimizer.step()

    def _scaled(self, inputs: Inputs) -> Inputs:
        return tuple((x - centre) / spread for x, (centre, spread) in zip(inputs, self._scales, strict=True))

    @abstractmethod
    def _max_prices(self, steps: Steps, t: Floats, rng: np.random.Generator) -> Floats:
        """Those that it is trained with."""

    @abstractmethod
    def _inputs(self, steps: Steps, t: Floats, max_price: Floats) -> Inputs:
        """What the network sees of each question."""

    @abstractmethod
    def _build(self, torch: Any) -> Any:
        """The network, from these inputs to log odds."""


class RevPred(_Network):
    """SpotTune's: 59 past records through three LSTM layers, the present one with the maximum price through three
    dense layers, both together to one probability.

    The paper trains on the maximum prices of Algorithm 2 alone, which are hardly above the price, and asks about
    prices up to 0.2 dollars above: its network has never seen such a margin, and foretells far too many
    revocations. Here a quarter are Algorithm 2's and the rest random, and the network sees how far the maximum is
    above the price, in logarithms, since margins of a thousandth and of a half are both asked about. `as_printed`
    trains on Algorithm 2 alone, sees the maximum price itself and corrects the odds in the direction of the
    printed Eq. 3, to reproduce the paper.
    """

    _name = "RevPred"

    def __init__(self, *, as_printed: bool = False, **limits: Unpack[Limits]) -> None:
        super().__init__(**limits)
        self._as_printed = as_printed

    def _max_prices(self, steps: Steps, t: Floats, rng: np.random.Generator) -> Floats:
        border = border_max_prices(steps, t)
        if self._as_printed:
            return border
        return np.where(rng.random(t.shape) < _BORDER, border, random_max_prices(steps, t, rng))

    def _inputs(self, steps: Steps, t: Floats, max_price: Floats) -> Inputs:
        present = records(steps, t)
        margin = np.maximum(max_price / present[:, 0] - 1.0, _LEAST_MARGIN)
        asked = np.log(max_price if self._as_printed else margin)
        return _logs(past_records(steps, t)), np.column_stack([_logs(present), asked])

    def _build(self, torch: Any) -> Any:
        nn = torch.nn

        class Two(nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.past = nn.LSTM(6, _WIDTH, num_layers=3, batch_first=True)
                layers = [nn.Linear(7, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH), nn.ReLU()]
                self.present = nn.Sequential(*layers, nn.Linear(_WIDTH, _WIDTH), nn.ReLU())
                self.out = nn.Linear(2 * _WIDTH, 1)

            def forward(self, past: Any, present: Any) -> Any:
                both = torch.cat([self.past(past)[0][:, -1], self.present(present)], dim=1)
                return self.out(both)[:, 0]

        return Two()


class Tributary(_Network):
    """As SpotTune describes it: all 60 records, each with the maximum price, through the LSTM layers.

    Trained on random maximum prices. The paper names no other difference, so that depth, class weights and
    correction are RevPred's.
    """

    _name = "Tributary"

    def _max_prices(self, steps: Steps, t: Floats, rng: np.random.Generator) -> Floats:
        return random_max_prices(steps, t, rng)

    def _inputs(self, steps: Steps, t: Floats, max_price: Floats) -> Inputs:
        whole = _logs(np.concatenate([past_records(steps, t), records(steps, t)[:, None]], axis=1))
        asked = np.broadcast_to(np.log(max_price)[:, None, None], (*whole.shape[:2], 1))
        return (np.concatenate([whole, asked], axis=2),)

    def _build(self, torch: Any) -> Any:
        nn = torch.nn

        class One(nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.records = nn.LSTM(7, _WIDTH, num_layers=3, batch_first=True)
                self.out = nn.Linear(_WIDTH, 1)

            def forward(self, seen: Any) -> Any:
                return self.out(self.records(seen)[0][:, -1])[:, 0]

        return One()


def unweighted_log_odds(log_odds: Floats, positive_share: float, as_printed: bool = False) -> Floats:
    """The true log odds, from those of a model that was trained with class weights (SpotTune Eq. 3).

    Weight phi- on positives and phi+ on negatives multiplies the model's odds by phi-/phi+, so that they are
    divided by it. As printed they are multiplied once more; that is here to reproduce the paper.
    """
    share = min(max(positive_share, 1e-6), 1.0 - 1e-6)
    shift = math.log(1.0 - share) - math.log(share)
    return log_odds + (shift if as_printed else -shift)


def _logs(rows: Floats) -> Floats:
    """Prices as logarithms: a spike to ten times the price would leave all others next to one another."""
    return np.concatenate([np.log(rows[..., :2]), rows[..., 2:]], axis=-1)


def _scale(x: Floats) -> tuple[Floats, Floats]:
    """Mean and spread of each feature; those that never change stay as they are."""
    over = tuple(range(x.ndim - 1))
    spread = x.std(axis=over)
    return x.mean(axis=over), np.where(spread > 0.0, spread, 1.0)


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise MissingExtra(
            "RevPred and Tributary need torch; install it with: pip install 'thriftune[revpred]'"
        ) from None
