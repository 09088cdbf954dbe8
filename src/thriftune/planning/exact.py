"""What is the cheapest plan that is in time, or the quickest that is not too dear? The optimum, with its proof.

A stage's node is what it may run on: so many machines of a kind, and the allocation on them. To go from a stage's
node to one of the next costs seconds and dollars (model.py): a plan is a path, and the best plan a shortest path
with a limit. With A what is to be least and B what is limited, by some b:

1. For a price p of B, the least of A + p B over all paths is found backwards, stage by stage. Minus p b, it is a
   lower bound of what is sought (Lagrange); p is chosen so that the bound is highest.
2. Labels, pairs of A and B, go forwards. One is dropped if another at its node is better in both, if B cannot stay
   in its limit any more, or if A cannot get below the best path known, by the bound of 1.

Of numbers of machines only those matter which some stage needs: what is held beyond saves no wait, or one that is
longer the fewer are missing, and costs by the machine; so either all or none of it pays. What is owed for machines
that are let go before the least that is billed is added as the labels go, with the ages of the young ones; the
bound is without it, and stays one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thriftune.planning.allocation import Allocation, Choice, fair
from thriftune.planning.cloud import CloudProfile
from thriftune.planning.dag import machines_kept
from thriftune.planning.model import Cohorts, Model, released

Floats = NDArray[np.float64]
Limited = Literal["seconds", "dollars"]
Prices = tuple[float, float]  # of seconds and dollars
Useful = tuple[int, float, float, Allocation]  # machines needed, seconds and dollars of use

_PRICES_TRIED = 60
_NEARLY = 1e-9  # of a sum, and of what it is compared with: the order in which floats are added must not matter
_MOST_LABELS = 200_000


@dataclass(frozen=True)
class Graph:
    """The nodes of each stage, and what it takes to get from those of the stage before to them."""

    model: Model
    nodes: list[list[Choice]]
    seconds: list[Floats]  # by stage: (nodes before, nodes)
    dollars: list[Floats]
    new_billed: list[Floats]  # seconds, of machines that come

    @cached_property
    def short(self) -> list[NDArray[np.bool_]]:
        """Whether machines come that are not as old as the least that is billed when the stage ends."""
        least = [np.array([node.cloud.least_billed for node in nodes]) for nodes in self.nodes]
        return [billed < most for billed, most in zip(self.new_billed, least, strict=True)]

    @classmethod
    def of(cls, model: Model, clouds: Sequence[CloudProfile]) -> Graph:
        useful = [[_useful(model, i, cloud) for cloud in clouds] for i in range(len(model.spec.stages))]
        held = [sorted({need for stage in useful for need, *_ in stage[c]}) for c in range(len(clouds))]
        nodes = [
            [
                Choice(cloud, machines, allocation)
                for c, cloud in enumerate(clouds)
                for machines in held[c]
                for allocation in _best_on(stage[c], machines, cloud)
            ]
            for stage in useful
        ]
        graph = cls(model, nodes, [], [], [])
        before: list[Choice | None] = [None]
        for i, now in enumerate(nodes):
            told = _transitions(model, i, before, now)
            for matrices, found in zip((graph.seconds, graph.dollars, graph.new_billed), told, strict=True):
                matrices.append(found)
            before = list(now)
        return graph

    def to_go(self, price_of_seconds: float, price_of_dollars: float) -> list[Floats]:
        """By stage and node before it: the least of what is left, at these prices. The last is 0."""
        found = [np.zeros(len(self.nodes[-1]))]
        for seconds, dollars in zip(reversed(self.seconds), reversed(self.dollars), strict=True):
            found.append((price_of_seconds * seconds + price_of_dollars * dollars + found[-1]).min(axis=1))
        return found[::-1]

    def path(self, price_of_seconds: float, price_of_dollars: float) -> list[int]:
        """The nodes of that least."""
        left = self.to_go(price_of_seconds, price_of_dollars)
        at, nodes = 0, []
        for i, (seconds, dollars) in enumerate(zip(self.seconds, self.dollars, strict=True)):
            at = int((price_of_seconds * seconds[at] + price_of_dollars * dollars[at] + left[i + 1]).argmin())
            nodes.append(at)
        return nodes

    def choices(self, path: Sequence[int]) -> list[Choice]:
        return [nodes[at] for nodes, at in zip(self.nodes, path, strict=True)]


def _useful(model: Model, i: int, cloud: CloudProfile) -> list[Useful]:
    """What no other one beats in all of its figures."""
    found: list[Useful] = []
    most = cloud.max_machines or math.inf
    by_function = cloud.billing == "per_function"
    for allocation in fair(model.spec.stages[i].trials, model.profile.most_workers):
        need = cloud.machines_for(*allocation)
        if need > most:
            continue
        seconds = model.train_seconds(i, cloud, allocation)
        found.append(
            (need, seconds, model.function_dollars(i, cloud, allocation) if by_function else 0.0, allocation)
        )
    found.sort()
    kept: list[Useful] = []
    for each in found:
        if not any(other[1] <= each[1] and other[2] <= each[2] for other in kept):
            kept.append(each)
    return kept


def _best_on(useful: list[Useful], machines: int, cloud: CloudProfile) -> list[Allocation]:
    fitting = [each for each in useful if each[0] <= machines]
    if cloud.billing == "per_instance":
        fitting = sorted(fitting, key=lambda each: each[1])[:1]
    return [allocation for *_, allocation in fitting]


def _transitions(
    model: Model, i: int, before: Sequence[Choice | None], now: Sequence[Choice]
) -> tuple[Floats, Floats, Floats]:
    """Seconds, dollars, and seconds billed of new machines, each of (nodes before, nodes)."""
    held = np.array([0 if one is None else one.machines for one in before])
    columns = []
    for choice in now:
        same = np.array([one is not None and one.cloud is choice.cloud for one in before])
        columns.append(model.expected(i, choice, np.where(same, np.minimum(held, choice.machines), 0)))
    seconds, dollars, billed = (np.stack(each, axis=1) for each in zip(*columns, strict=True))
    return seconds, dollars, billed


# --- the shortest path with a limit -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Best:
    """`lower_bound`: of what is to be least, over all paths within the limit."""

    choices: list[Choice]
    lower_bound: float


@dataclass(frozen=True, slots=True)
class _Labels:
    """Paths to nodes of a stage. `young`: machines that are not yet as old as the least that is billed."""

    node: NDArray[np.intp]
    least: Floats  # of what is to be least, so far
    limited: Floats
    parent: NDArray[np.intp]
    young: list[tuple[tuple[int, float], ...]]


def best(graph: Graph, limited: Limited, limit: float) -> Best | None:
    """The path with the least dollars within `limit` seconds, or the least seconds within `limit` dollars; None:
    there is none."""
    limit *= 1.0 + _NEARLY
    a, b = (graph.dollars, graph.seconds) if limited == "seconds" else (graph.seconds, graph.dollars)
    prices = (lambda p: (p, 1.0)) if limited == "seconds" else (lambda p: (1.0, p))
    least_b = graph.to_go(*((1.0, 0.0) if limited == "seconds" else (0.0, 1.0)))
    if least_b[0][0] > limit:
        return None
    known = _Known(graph, limited, limit)
    price, bound = _dual(known, a, b, prices)
    left = graph.to_go(*prices(price))
    labels = [_Labels(np.zeros(1, np.intp), np.zeros(1), np.zeros(1), np.zeros(1, np.intp), [()])]
    proven = True
    for i in range(len(graph.nodes)):
        found = _forward(graph, i, labels[-1], a[i], b[i], limited)
        hopeful = found.limited + least_b[i + 1][found.node] <= limit
        spare = price * (found.limited - limit) if price else 0.0  # the limit may be infinite
        promise = found.least + spare + left[i + 1][found.node]
        hopeful &= promise <= known.least * (1.0 - _NEARLY)
        rows = _undominated(found, np.flatnonzero(hopeful))
        if len(rows) > _MOST_LABELS:
            rows, proven = rows[np.argsort(promise[rows])[:_MOST_LABELS]], False
        labels.append(_kept(found, rows))
    path = _path(labels)
    if path is not None:
        known.take(path)
    if known.path is None:
        return None
    return Best(graph.choices(known.path), known.least if proven else min(bound, known.least))


class _Known:
    """The best path so far that stays within the limit, with all it costs."""

    def __init__(self, graph: Graph, limited: Limited, limit: float) -> None:
        self._graph, self._limited, self._limit = graph, limited, limit
        self.path: list[int] | None = None
        self.least = math.inf

    def take(self, path: list[int]) -> tuple[float, float]:
        """What is to be least and what is limited of this path, as the labels count."""
        told = self._graph.model.predict(self._graph.choices(path))
        dollars, seconds = math.fsum(e.dollars for e in told), math.fsum(e.seconds for e in told)
        least, limited = (dollars, seconds) if self._limited == "seconds" else (seconds, dollars)
        if limited <= self._limit and least < self.least:
            self.path, self.least = path, least
        return least, limited


def _dual(
    known: _Known, a: list[Floats], b: list[Floats], prices: Callable[[float], Prices]
) -> tuple[float, float]:
    """The price of what is limited at which the bound is highest, and that bound.

    Both ends of a line are paths, one within the limit and one beyond it; a path below the line takes the place of
    one of them, until there is none.
    """
    graph, limit = known._graph, known._limit

    def point(path: list[int]) -> tuple[float, float]:
        known.take(path)
        at, x, y = 0, 0.0, 0.0
        for i, to in enumerate(path):
            x, y, at = x + float(a[i][at, to]), y + float(b[i][at, to]), to
        return x, y

    a1, b1 = point(graph.path(*prices(0.0)))
    if b1 <= limit:
        return 0.0, a1
    a2, b2 = point(graph.path(*((1.0, 0.0) if known._limited == "seconds" else (0.0, 1.0))))
    price = 0.0
    for _ in range(_PRICES_TRIED):
        price = max(0.0, (a2 - a1) / (b1 - b2)) if b1 > b2 else 0.0
        x, y = point(graph.path(*prices(price)))
        if x + price * y >= (a1 + price * b1) * (1.0 - _NEARLY):
            break
        if y <= limit:
            a2, b2 = x, y
        else:
            a1, b1 = x, y
    return price, a1 + price * (b1 - limit)


def _forward(graph: Graph, i: int, labels: _Labels, a: Floats, b: Floats, limited: Limited) -> _Labels:
    """Every label with every node of stage `i`."""
    count, width = len(labels.node), a.shape[1]
    least = (labels.least[:, None] + a[labels.node]).ravel()
    spent = (labels.limited[:, None] + b[labels.node]).ravel()
    parent, node = np.divmod(np.arange(count * width), width)
    young: list[tuple[tuple[int, float], ...]] = [()] * (count * width)
    old = [each == () for each in labels.young]
    short = graph.short[i]
    if all(old) and not short.any():
        return _Labels(node, least, spent, parent, young)
    before = [None] if i == 0 else graph.nodes[i - 1]
    dollars = least if limited == "seconds" else spent
    last = i == len(graph.nodes) - 1
    careful = short[labels.node] | ~np.array(old, dtype=bool)[:, None]
    for at in np.flatnonzero(careful.ravel()).tolist():
        row, column = int(parent[at]), int(node[at])
        one, now = before[labels.node[row]], graph.nodes[i][column]
        seconds, billed = graph.seconds[i][labels.node[row], column], graph.new_billed[i][labels.node[row], column]
        young[at], owed = _ages(labels.young[row], one, now, float(seconds), float(billed), last)
        dollars[at] += owed
    return _Labels(node, least, spent, parent, young)


def _ages(
    young: tuple[tuple[int, float], ...],
    before: Choice | None,
    now: Choice,
    seconds: float,
    billed: float,
    last: bool,
) -> tuple[tuple[tuple[int, float], ...], float]:
    """The young machines after a stage, and what is owed for those that were let go too early."""
    owed, kept = 0.0, machines_kept(before, now)
    cohorts: Cohorts = list(young)
    if before is not None:
        mature = before.machines - sum(count for count, _ in cohorts)
        gone = max(0, before.machines - kept - mature)
        cohorts, missing = released(cohorts, gone, before.cloud.least_billed)
        owed += missing * before.cloud.dollars_per_second
    cloud = now.cloud
    cohorts = [(count, age + seconds) for count, age in cohorts] + [(now.machines - kept, billed)]
    cohorts = [(count, age) for count, age in cohorts if count and age < cloud.least_billed]
    if last:
        missing = released(cohorts, now.machines, cloud.least_billed)[1]
        return (), owed + missing * cloud.dollars_per_second
    return tuple(cohorts), owed


def _undominated(labels: _Labels, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Of these rows, those for which no other one at the same node, with machines of the same ages, is better."""
    numbers: dict[tuple[tuple[int, float], ...], int] = {}
    ages = np.array([numbers.setdefault(labels.young[row], len(numbers)) for row in rows], dtype=np.intp)
    if not len(rows):
        return rows
    group = labels.node[rows] * len(numbers) + ages
    least, limited = labels.least[rows], labels.limited[rows]
    order = np.lexsort((least, limited, group))
    # Lower by more than any difference with every group, so that each begins anew.
    apart = 2.0 * float(least.max()) + 1.0
    value = least[order] - apart * np.cumsum(np.diff(group[order], prepend=group[order[0]]) > 0)
    lowest = np.minimum.accumulate(value)
    fresh = np.append(True, value[1:] < lowest[:-1])
    return np.asarray(rows[order[fresh]])


def _kept(labels: _Labels, rows: NDArray[np.intp]) -> _Labels:
    young = [labels.young[row] for row in rows]
    return _Labels(labels.node[rows], labels.least[rows], labels.limited[rows], labels.parent[rows], young)


def _path(labels: list[_Labels]) -> list[int] | None:
    """Of the best label of the last stage."""
    if not len(labels[-1].node):
        return None
    at, path = int(labels[-1].least.argmin()), []
    for each in reversed(labels[1:]):
        path.append(int(each.node[at]))
        at = int(each.parent[at])
    return path[::-1]
