"""Tests of the table of a model's probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.market.revocation.markets import START, changed_after, spiky
from thriftune.errors import SettingError
from thriftune.market.price_history import PriceSeries
from thriftune.market.revocation.tabulated import TabulatedModel

DAY = 86_400.0
EVERY = 900.0
MARGINS = (1e-3, 0.01, 0.05, 0.2, 1.0, 9.0)


class Margin:
    """A model whose probability falls with the margin above the price.

    `latest` is the latest queried time.
    """

    def __init__(self) -> None:
        self.latest = -np.inf

    def probability(self, series: PriceSeries, t: Any, max_price: Any) -> Any:
        self.latest = max(self.latest, float(np.max(t)))
        above = np.asarray(max_price) / series.price_at(np.asarray(t)) - 1.0
        return np.where(above < 0.0, 1.0, 0.8 * np.exp(-3.0 * above))


def market(factor: float = 1.0, after: float = START + DAY) -> PriceSeries:
    prices = changed_after(spiky(2.0), after, factor)
    return PriceSeries("m", "a", prices.times, prices.prices, end=prices.end)


SERIES = market()
TABLE = TabulatedModel(Margin(), SERIES, START, START + 2.0 * DAY)


@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize("row", [0, 1, 50, 191])
def test_the_table_equals_the_model_at_its_nodes(row: int, margin: float) -> None:
    t = START + row * EVERY
    max_price = SERIES.price_at(t) * (1.0 + margin)
    assert TABLE.probability(SERIES, t, max_price) == pytest.approx(
        float(Margin().probability(SERIES, t, max_price))
    )


def test_probabilities_are_monotone_between_margins() -> None:
    t = START + 7 * EVERY
    price = SERIES.price_at(t)
    probabilities = TABLE.probability(SERIES, t, price * (1.0 + np.geomspace(1e-4, 9.0, 200)))
    assert (np.diff(probabilities) <= 1e-12).all()
    assert probabilities.shape == (200,)
    far = TABLE.probability(SERIES, t, price * 100.0)
    assert far == pytest.approx(probabilities[-1])


@given(st.lists(st.floats(0.5, 20.0), min_size=1, max_size=5), st.integers(0, 191))
def test_a_number_and_an_array_give_the_same(times: list[float], row: int) -> None:
    t = START + row * EVERY + 13.0
    max_price = SERIES.price_at(t) * np.array(times)
    assert TABLE.probability(SERIES, t, max_price).tolist() == [
        TABLE.probability(SERIES, t, each) for each in max_price.tolist()
    ]


def test_a_price_above_the_maximum_has_probability_1() -> None:
    t = START + 7 * EVERY + 1.0
    assert TABLE.probability(SERIES, t, SERIES.price_at(t) * 0.999) == 1.0


@settings(max_examples=50, deadline=None)
@given(hours=st.floats(0.0, 23.9), margin=st.floats(0.0, 5.0), factor=st.floats(0.2, 5.0))
def test_later_prices_are_not_used(hours: float, margin: float, factor: float) -> None:
    """Prices after a day do not change the probabilities before it."""
    t = START + hours * 3600.0
    max_price = SERIES.price_at(t) * (1.0 + margin)
    other = market(factor)
    table = TabulatedModel(Margin(), other, START, START + 2.0 * DAY)
    assert table.probability(other, t, max_price) == TABLE.probability(SERIES, t, max_price)


def test_the_model_is_not_queried_beyond_the_record() -> None:
    model = Margin()
    TabulatedModel(model, SERIES, START, START + 9.0 * DAY)
    assert model.latest <= SERIES.end


def test_queries_outside_the_table_are_errors() -> None:
    with pytest.raises(SettingError, match="m a: the table of probabilities does not reach"):
        TABLE.probability(SERIES, START - 1.0, 1.0)
    short = TabulatedModel(Margin(), SERIES, START, START + 3600.0)
    with pytest.raises(SettingError, match="does not reach"):
        short.probability(SERIES, START + DAY, 1.0)
    with pytest.raises(SettingError, match="m a: no price is known from"):
        TabulatedModel(Margin(), SERIES, START + 3.0 * DAY, START + 4.0 * DAY)
