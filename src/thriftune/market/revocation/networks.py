"""The papers' LSTM networks: RevPred (SpotTune III-B) and Tributary's predictor.

They need torch, which the extra `revpred` installs.
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
from thriftune.market.revocation.price_curve import (
    Floats,
    PriceCurve,
    Series,
    flat_queries,
    revoked,
    shaped_answer,
)
from thriftune.market.revocation.spottune_inputs import (
    border_max_prices,
    past_price_records,
    price_records,
    random_max_prices,
    training_times,
)

_WIDTH = 32  # width of every layer; the papers do not give it
_BORDER_SHARE = 0.25  # share of RevPred's training rows that have a maximum price of Algorithm 2
_MIN_MARGIN = 1e-6  # smallest margin above the price, as a share of it; the margin's logarithm is an input
_BATCH_QUERIES = 4096

Inputs = tuple[Floats, ...]


class TrainingLimits(TypedDict, total=False):
    """Limits of a network's training.

    - `rows`: evenly spaced minutes of the history, 20,000 by default.
    - `epochs`: 10 by default.
    - `batch`: rows per gradient step, 256 by default.
    - `seconds`: training stops after this time, even within an epoch; the result then depends on the machine.
    """

    rows: int
    epochs: int
    batch: int
    seconds: float | None


class _Network(ABC):
    """The parts that both networks share.

    These are scaled inputs, SpotTune's class weights phi- and phi+, Adam, and the correction by SpotTune Eq. 3.
    """

    _name: ClassVar[str]
    _as_printed: bool = False

    def __init__(self, **limits: Unpack[TrainingLimits]) -> None:
        self._limits: TrainingLimits = {"rows": 20_000, "epochs": 10, "batch": 256, "seconds": None, **limits}
        self._network: Any = None
        self._scales: list[tuple[Floats, Floats]] = []
        self._positive_share = 0.5

    def fit(self, series: Series, rng: np.random.Generator | None = None) -> Self:
        torch = _torch()
        rng = rng or np.random.default_rng(0)
        curve = PriceCurve(series)
        t = training_times(curve, self._limits["rows"], self._name)
        max_price = self._max_prices(curve, t, rng)
        y = revoked(curve, t, max_price)
        inputs = self._inputs(curve, t, max_price)
        self._scales = [_mean_and_scale(x) for x in inputs]
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
        curve = PriceCurve(series)
        times, max_prices, shape = flat_queries(curve, t, max_price)
        device = next(self._network.parameters()).device
        log_odds = [np.zeros(0)]
        self._network.eval()
        with torch.no_grad():
            for i in range(0, len(times), _BATCH_QUERIES):
                batch = slice(i, i + _BATCH_QUERIES)
                scaled = self._scaled(self._inputs(curve, times[batch], max_prices[batch]))
                inputs = [torch.as_tensor(x, dtype=torch.float32, device=device) for x in scaled]
                log_odds.append(self._network(*inputs).double().cpu().numpy())
        corrected = unweighted_log_odds(np.concatenate(log_odds), self._positive_share, self._as_printed)
        return shaped_answer(curve, times, max_prices, expit(corrected), shape)

    def _train(self, torch: Any, device: str, inputs: Inputs, y: Any, rng: np.random.Generator) -> None:
        """Train the network on these inputs and labels, within the training limits."""
        tensors = [torch.as_tensor(x, dtype=torch.float32, device=device) for x in inputs]
        labels = torch.as_tensor(y, dtype=torch.float32, device=device)
        share = self._positive_share
        weights = torch.where(labels > 0.5, 1.0 - share, share)
        weights = weights / weights.mean().clamp(min=1e-6)  # scales the loss without moving its minimum
        optimizer = torch.optim.Adam(self._network.parameters(), lr=1e-3)
        weighted_loss = torch.nn.functional.binary_cross_entropy_with_logits
        batch, seconds = self._limits["batch"], self._limits["seconds"]
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        self._network.train()
        for _ in range(self._limits["epochs"]):
            order = rng.permutation(len(y))
            for i in range(0, len(y), batch):
                if time.monotonic() > deadline:
                    return
                rows = torch.as_tensor(order[i : i + batch], device=device)
                log_odds = self._network(*(x[rows] for x in tensors))
                loss = weighted_loss(log_odds, labels[rows], weight=weights[rows])
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self._network.parameters(), 1.0)
                optimizer.step()

    def _scaled(self, inputs: Inputs) -> Inputs:
        return tuple((x - mean) / scale for x, (mean, scale) in zip(inputs, self._scales, strict=True))

    @abstractmethod
    def _max_prices(self, curve: PriceCurve, t: Floats, rng: np.random.Generator) -> Floats:
        """Return a maximum price to train with for each time `t`."""

    @abstractmethod
    def _inputs(self, curve: PriceCurve, t: Floats, max_price: Floats) -> Inputs:
        """Return the network's inputs for each query."""

    @abstractmethod
    def _build(self, torch: Any) -> Any:
        """Return an untrained network from these inputs to log odds."""


class RevPred(_Network):
    """SpotTune's network, RevPred.

    It joins an LSTM on past records with dense layers on the present record. The 59 past records go through three
    LSTM layers. The present record and the maximum price go through three dense layers.

    The paper trains on the maximum prices of Algorithm 2 alone, which are hardly above the price, but bids up to
    0.2 dollars above it. A network that never saw such a margin predicts far too many revocations. Here a quarter
    of the training rows use Algorithm 2 and the rest random maximum prices. The input is the logarithm of the
    margin above the price, because margins from a thousandth to a half occur.

    `as_printed` reproduces the paper: it trains on Algorithm 2 alone, uses the maximum price itself as input, and
    corrects the odds in the direction of the printed Eq. 3.
    """

    _name = "RevPred"

    def __init__(self, *, as_printed: bool = False, **limits: Unpack[TrainingLimits]) -> None:
        super().__init__(**limits)
        self._as_printed = as_printed

    def _max_prices(self, curve: PriceCurve, t: Floats, rng: np.random.Generator) -> Floats:
        border = border_max_prices(curve, t)
        if self._as_printed:
            return border
        return np.where(rng.random(t.shape) < _BORDER_SHARE, border, random_max_prices(curve, t, rng))

    def _inputs(self, curve: PriceCurve, t: Floats, max_price: Floats) -> Inputs:
        present = price_records(curve, t)
        margin = np.maximum(max_price / present[:, 0] - 1.0, _MIN_MARGIN)
        price_input = np.log(max_price if self._as_printed else margin)
        return _log_prices(past_price_records(curve, t)), np.column_stack([_log_prices(present), price_input])

    def _build(self, torch: Any) -> Any:
        nn = torch.nn

        class PastAndPresent(nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.past = nn.LSTM(6, _WIDTH, num_layers=3, batch_first=True)
                layers = [nn.Linear(7, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH), nn.ReLU()]
                self.present = nn.Sequential(*layers, nn.Linear(_WIDTH, _WIDTH), nn.ReLU())
                self.out = nn.Linear(2 * _WIDTH, 1)

            def forward(self, past: Any, present: Any) -> Any:
                both = torch.cat([self.past(past)[0][:, -1], self.present(present)], dim=1)
                return self.out(both)[:, 0]

        return PastAndPresent()


class Tributary(_Network):
    """Tributary's network as SpotTune describes it.

    60 records, each with the maximum price, go through an LSTM. It trains on random maximum prices. The paper
    names no other difference, so depth, class weights and correction are those of RevPred.
    """

    _name = "Tributary"

    def _max_prices(self, curve: PriceCurve, t: Floats, rng: np.random.Generator) -> Floats:
        return random_max_prices(curve, t, rng)

    def _inputs(self, curve: PriceCurve, t: Floats, max_price: Floats) -> Inputs:
        records = np.concatenate([past_price_records(curve, t), price_records(curve, t)[:, None]], axis=1)
        records = _log_prices(records)
        price_input = np.broadcast_to(np.log(max_price)[:, None, None], (*records.shape[:2], 1))
        return (np.concatenate([records, price_input], axis=2),)

    def _build(self, torch: Any) -> Any:
        nn = torch.nn

        class PastOnly(nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.records = nn.LSTM(7, _WIDTH, num_layers=3, batch_first=True)
                self.out = nn.Linear(_WIDTH, 1)

            def forward(self, records: Any) -> Any:
                return self.out(self.records(records)[0][:, -1])[:, 0]

        return PastOnly()


def unweighted_log_odds(log_odds: Floats, positive_share: float, as_printed: bool = False) -> Floats:
    """Undo the effect of class weights on a model's log odds (SpotTune Eq. 3).

    The weight phi- on positives and phi+ on negatives multiplies the model's odds by phi-/phi+, so the correction
    divides by it. The printed equation multiplies by it again; `as_printed` reproduces that.
    """
    share = min(max(positive_share, 1e-6), 1.0 - 1e-6)
    shift = math.log(1.0 - share) - math.log(share)
    return log_odds + (shift if as_printed else -shift)


def _log_prices(records: Floats) -> Floats:
    """Return the records with logarithms of their two prices.

    Without logarithms, a spike to ten times the price would make all other scaled prices nearly equal.
    """
    return np.concatenate([np.log(records[..., :2]), records[..., 2:]], axis=-1)


def _mean_and_scale(x: Floats) -> tuple[Floats, Floats]:
    """Return the mean and the standard deviation of each feature.

    The deviation of a constant feature counts as 1.
    """
    axes = tuple(range(x.ndim - 1))
    scale = x.std(axis=axes)
    return x.mean(axis=axes), np.where(scale > 0.0, scale, 1.0)


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise MissingExtra(
            "RevPred and Tributary need torch; install it with: pip install 'thriftune[revpred]'"
        ) from None
