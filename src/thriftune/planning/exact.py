"""What is the cheapest plan that is in time, or the quickest that is not too dear? The optimum, with its proof.

Plans are paths through a graph (graph.py), and the best one is a shortest path with a limit. With A what is to be
least and B what is limited, by some b:

1. For a price p of B, the least of A + p B from any node to the end is found backwards, stage by stage. From the
   start and minus p b, it is a lower bound of what is sought (Lagrange); p is chosen so that the bound is highest.
2. Labels, pairs of A and B, go forwards. One is dropped if another at its node is better in both, if B cannot stay
   within its limit any more, or if A cannot get below the best path known: by the same bound from its node on, at
   several prices, of which each is the sharpest for some of them. A label that goes on as at one of these prices
   is a path as well, and may be the best one known from then on.

What is owed for machines that are let go before the least that is billed is added as the labels go, with the ages
of the young ones. The bounds are without it, and stay bounds; one label is better than another with young machines
of other ages if it is so even when all of its own are let go at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thriftune.planning.allocation import StageAllocation
from thriftune.planning.plan_graph import Floats, PlanGraph

Limited = Literal["seconds", "dollars"]

_PRICES_TRIED = 60
_PRICES_KEPT = np.geomspace(0.1, 10.0, 9)  # times the one of the highest bound
_NEARLY = 1e-9  # of a sum, and of what it is compared with: the order in which floats are added must not matter
_MOST_LABELS = 10_000


@dataclass(frozen=True, slots=True)
class Best:
    """`lower_bound`: of what is to be least, over all paths within the limit."""

    choices: list[StageAllocation]
    lower_bound: float


def best(
    graph: PlanGraph, limited: Limited, limit: float, risk: float = 0.0, known: Known | None = None
) -> Best | None:
    """The path with the least dollars within `limit` seconds, or the least seconds within `limit` dollars; None:
    there is none. `risk`: how many seconds a squared second of a duration's variance counts for.
    `known`: what was found for other limits of the same, which this call uses and adds to."""
    search = _Search(graph, limited, limit * (1.0 + _NEARLY), risk, {} if known is None else known)
    if search.least_limited.value[0][0] > search.limit:
        return None
    bound, ways = search.dual()
    none = np.zeros((1, 0))
    labels = [
        _Labels(np.zeros(1, np.intp), np.zeros(1), np.zeros(1), np.zeros(1, np.intp), none, none, np.zeros(1))
    ]
    proven = True
    for i in range(len(graph.nodes)):
        found, whole = search.forward(i, labels, ways)
        labels.append(found)
        proven &= whole
    if len(labels[-1].node):
        search.take(_path(labels, int(labels[-1].least.argmin())))
    if search.path is None:
        return None
    return Best(graph.choices(search.path), search.least if proven else min(bound, search.least))


@dataclass(frozen=True, slots=True)
class _Way:
    """How to go on where what is limited has this price, by stage and by the node before it; at the end, 0."""

    price: float
    value: list[Floats]  # the least of A + price B
    a: list[Floats]  # of the path that has it, like the next
    b: list[Floats]
    to: list[NDArray[np.intp]]

    def path(self, stage: int, node: int) -> list[int]:
        """From that node, the nodes of this stage and the later ones."""
        nodes = []
        for to in self.to[stage:]:
            node = int(to[node])
            nodes.append(node)
        return nodes


Known = dict[tuple[float, float], _Way]
"""By the prices of what is limited and of what is to be least."""


@dataclass(frozen=True, slots=True)
class _Labels:
    """Paths to nodes of a stage."""

    node: NDArray[np.intp]
    least: Floats  # A so far
    limited: Floats  # B so far
    parent: NDArray[np.intp]  # the label of the stage before
    young: Floats  # machines below the least that is billed, by when they came, the oldest first: (labels, times)
    age: Floats  # the seconds for which each of these has been billed
    owed: Floats  # dollars, if all the young machines were let go now


class _Search:
    """`path`: the best one known that stays within the limit; `least`: what is least of it, with all it costs."""

    def __init__(self, graph: PlanGraph, limited: Limited, limit: float, risk: float, known: Known) -> None:
        self.graph, self.limited, self.limit, self.risk, self.known = graph, limited, limit, risk, known
        self.a, self.b = graph.dollars, graph.seconds
        if risk:
            self.b = [each + risk * varies for each, varies in zip(self.b, graph.variance, strict=True)]
        if limited == "dollars":
            self.a, self.b = self.b, self.a
        elif math.isinf(limit):  # then no label is kept for its time
            self.b = [np.zeros_like(each) for each in self.b]
        self.path: list[int] | None = None
        self.least = math.inf
        self.least_limited = self._way(1.0, of_a=0.0)

    def take(self, path: list[int]) -> None:
        told = self.graph.model.predict(self.graph.choices(path))
        dollars, seconds = math.fsum(e.dollars for e in told), math.fsum(e.seconds for e in told)
        if self.risk:
            seconds += self.risk * self.graph.model.total_variance(self.graph.choices(path))
        least, limited = (dollars, seconds) if self.limited == "seconds" else (seconds, dollars)
        if limited <= self.limit and least < self.least:
            self.path, self.least = path, least

    def _way(self, price: float, of_a: float = 1.0) -> _Way:
        key = (price, of_a)
        if key not in self.known:
            self.known[key] = self._find_way(price, of_a)
        return self.known[key]

    def _find_way(self, price: float, of_a: float) -> _Way:
        end = np.zeros(len(self.graph.nodes[-1]))
        value, a_left, b_left = [end], [end], [end]
        to: list[NDArray[np.intp]] = []
        for a, b in zip(reversed(self.a), reversed(self.b), strict=True):
            all_ways = of_a * a + price * b + value[-1]
            best_to, rows = all_ways.argmin(axis=1), np.arange(len(a))
            to.append(best_to)
            value.append(all_ways[rows, best_to])
            a_left.append(a[rows, best_to] + a_left[-1][best_to])
            b_left.append(b[rows, best_to] + b_left[-1][best_to])
        return _Way(price, value[::-1], a_left[::-1], b_left[::-1], to[::-1])

    def dual(self) -> tuple[float, list[_Way]]:
        """The highest bound, and ways to go on at the prices around its own.

        Both ends of a line are paths, one within the limit and one beyond it; a path below the line takes the
        place of one of them, until there is none.
        """
        free = self._way(0.0)
        a1, b1 = float(free.a[0][0]), float(free.b[0][0])
        # Of paths that are as good, the one with the least of what is limited: the price tips no other scales.
        tipped = self._way(1e-12 * (a1 or 1.0) / b1 if b1 else 0.0)
        self.take(tipped.path(0, 0))
        self.take(free.path(0, 0))
        b1 = min(b1, float(tipped.b[0][0]))
        if b1 <= self.limit:
            return a1, [free]
        tight = self.least_limited
        self.take(tight.path(0, 0))
        a2, b2, price = float(tight.a[0][0]), float(tight.b[0][0]), 0.0
        for _ in range(_PRICES_TRIED):
            price = max(0.0, (a2 - a1) / (b1 - b2)) if b1 > b2 else 0.0
            way = self._way(price)
            self.take(way.path(0, 0))
            a, b = float(way.a[0][0]), float(way.b[0][0])
            if a + price * b >= (a1 + price * b1) * (1.0 - _NEARLY):
                break
            if b <= self.limit:
                a2, b2 = a, b
            else:
                a1, b1 = a, b
        return a1 + price * (b1 - self.limit), [free, *(self._way(price * each) for each in _PRICES_KEPT)]

    def forward(self, i: int, labels: list[_Labels], ways: list[_Way]) -> tuple[_Labels, bool]:
        """The labels of the last stage with every node of stage `i`, but for hopeless ones; and whether that is
        all of them, or only the most promising of too many."""
        last = labels[-1]
        width = len(self.graph.nodes[i])
        least = (last.least[:, None] + self.a[i][last.node]).ravel()
        limited = (last.limited[:, None] + self.b[i][last.node]).ravel()
        promise = self._promise(i, least, limited, np.arange(len(least)) % width, ways)
        rows = np.flatnonzero(promise < self.least * (1.0 - _NEARLY))
        parent, node = np.divmod(rows, width)
        found = self._aged(i, last, node, least[rows], limited[rows], parent)
        kept = self._undominated(found)
        found, promise = _chosen(found, kept), promise[rows][kept]
        self._complete(i, labels, found, ways)
        still = np.flatnonzero(promise < self.least * (1.0 - _NEARLY))
        whole = len(still) <= _MOST_LABELS
        if not whole:
            still = still[np.argsort(promise[still])[:_MOST_LABELS]]
        return _chosen(found, still), whole

    def _promise(self, i: int, least: Floats, limited: Floats, node: NDArray[np.intp], ways: list[_Way]) -> Floats:
        """What A comes to at least; infinite where B cannot stay within the limit."""
        promise = np.where(limited + self.least_limited.value[i + 1][node] <= self.limit, 0.0, math.inf)
        for way in ways:
            spare = way.price * (limited - self.limit) if way.price else 0.0  # the limit may be infinite
            np.maximum(promise, least + spare + way.value[i + 1][node], out=promise)
        return promise

    def _complete(self, i: int, labels: list[_Labels], found: _Labels, ways: list[_Way]) -> None:
        """The best path that goes on from one of these labels as at one of the prices, if it is the best known."""
        for way in ways:
            within = found.limited + way.b[i + 1][found.node] <= self.limit
            total = np.where(within, found.least + way.a[i + 1][found.node], math.inf)
            if len(total) and total.min() < self.least * (1.0 - _NEARLY):
                at = int(total.argmin())
                self.take(_path([*labels, found], at) + way.path(i + 1, int(found.node[at])))

    def _aged(
        self,
        i: int,
        last: _Labels,
        node: NDArray[np.intp],
        least: Floats,
        limited: Floats,
        parent: NDArray[np.intp],
    ) -> _Labels:
        """With the ages of young machines, and what is owed for those that were let go too early."""
        before, now, came_from = self.graph.held(i - 1), self.graph.held(i), last.node[parent]
        young, age, owed = last.young[parent], last.age[parent], np.zeros(len(node))
        if not young.size and not self.graph.short[i][came_from, node].any():
            return _Labels(node, least, limited, parent, young, age, owed)
        same = before.kind[came_from] == now.kind[node]
        kept = np.where(same, np.minimum(before.machines[came_from], now.machines[node]), 0)
        let_go = _oldest(young, young.sum(axis=1) - kept)  # those of age are let go first
        due = before.price[came_from] * (let_go * (before.least_billed[came_from][:, None] - age)).sum(axis=1)
        seconds, billed = self.graph.seconds[i][came_from, node], self.graph.new_billed[i][came_from, node]
        young = np.column_stack([young - let_go, now.machines[node] - kept])
        age = np.column_stack([age + seconds[:, None], billed])
        least_billed = now.least_billed[node][:, None]
        young[age >= least_billed] = 0.0
        age[young == 0.0] = 0.0
        owed = now.price[node] * (young * (least_billed - age)).sum(axis=1)
        if i == len(self.graph.nodes) - 1:
            due, owed, young, age = due + owed, np.zeros(len(node)), young[:, :0], age[:, :0]
        if self.limited == "seconds":
            least = least + due
        else:
            limited = limited + due
        there = young.any(axis=0)
        return _Labels(node, least, limited, parent, young[:, there], age[:, there], owed)

    def _undominated(self, labels: _Labels) -> NDArray[np.intp]:
        """Those for which no other one at the same node is better, however they go on."""
        dollars, seconds = labels.least, labels.limited
        if self.limited == "dollars":
            dollars, seconds = seconds, dollars
        if not len(dollars):
            return labels.node
        most = dollars + labels.owed
        order = np.lexsort((most, seconds, labels.node))
        node = labels.node[order]
        # Lower by more than any difference with every node, so that each begins anew.
        anew = (2.0 * float(most.max()) + 1.0) * np.cumsum(np.diff(node, prepend=node[0]) > 0)
        lowest = np.minimum.accumulate(most[order] - anew)
        better = np.append(False, lowest[:-1] <= (dollars[order] - anew)[1:])
        return np.asarray(order[~better])


def _oldest(young: Floats, count: Floats) -> Floats:
    """How many of each are among the `count` oldest."""
    older = young.cumsum(axis=1) - young
    return np.clip(count[:, None] - older, 0.0, young)


def _chosen(labels: _Labels, rows: NDArray[np.intp]) -> _Labels:
    return _Labels(*(getattr(labels, each.name)[rows] for each in fields(_Labels)))


def _path(labels: list[_Labels], at: int) -> list[int]:
    """The nodes of a label of the last stage."""
    path = []
    for each in reversed(labels[1:]):
        path.append(int(each.node[at]))
        at = int(each.parent[at])
    return path[::-1]
