"""The planner that finds an optimal plan within a deadline or a budget.

It returns a lower bound as a proof. Plans are paths through a graph (plan_graph.py), and the best plan is a
shortest path with a limit. Let A be the sum to minimize, and B the sum that must be at most b.

1. A price p says how many units of A a unit of B counts. For one price, the least A + p B from any node to the end
   is found backwards, stage by stage. Its value at the start, minus p b, is a lower bound of the best A
   (Lagrange). The planner searches for the price with the highest bound.
2. Labels, which are pairs of A and B at a node, are extended forwards. A label is dropped if another label at its
   node is better in both, if B cannot stay within its limit, or if A cannot get below that of the best path known.
   The last test uses the bound of step 1 from the label's node on, at several prices, because each price gives
   the highest bound for some labels. A label and its best continuation at one of these prices form a path, which
   may become the best path known.

Machines that are released below their billed minimum cost extra. The labels account for this with the ages of
their young machines, which are those below the minimum. The lower bounds leave these costs out. A label is
better than another label with other young machines only if it is still better when all its own young machines are
released at once.
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

_MAX_PRICES = 60  # prices tried in the search for the highest bound; a guard against slow convergence
_PRICE_FACTORS = np.geomspace(0.1, 10.0, 9)  # prices for the forward search, relative to that of the highest bound
_TOLERANCE = 1e-9  # relative; the order in which floats are added must not decide
_MAX_LABELS = 10_000  # most labels of a stage; if more are needed, the best path is not proven to be optimal


@dataclass(frozen=True, slots=True)
class BestPath:
    """The best path within the limit, with a lower bound.

    No path within the limit has a lower minimized sum than `lower_bound`.
    """

    choices: list[StageAllocation]
    lower_bound: float


def find_best(
    graph: PlanGraph, limited: Limited, limit: float, risk: float = 0.0, cache: PathCache | None = None
) -> BestPath | None:
    """Return the best path within a limit on seconds or dollars.

    The path has the fewest dollars within `limit` seconds, or the fewest seconds within `limit` dollars. Returns
    None if no path is within the limit.

    - `risk`: seconds that are added to a duration for each squared second of its variance.
    - `cache`: shared by calls that differ only in `limit`. The call uses the cache and adds to it.
    """
    search = _Search(graph, limited, limit * (1.0 + _TOLERANCE), risk, {} if cache is None else cache)
    if search.least_limited.value[0][0] > search.limit:
        return None
    bound, continuations = search.maximize_bound()
    none = np.zeros((1, 0))
    labels = [
        _Labels(np.zeros(1, np.intp), np.zeros(1), np.zeros(1), np.zeros(1, np.intp), none, none, np.zeros(1))
    ]
    is_proven = True
    for i in range(len(graph.nodes)):
        extended, is_complete = search.extend(i, labels, continuations)
        labels.append(extended)
        is_proven &= is_complete
    if len(labels[-1].node):
        search.consider(_label_path(labels, int(labels[-1].least.argmin())))
    if search.path is None:
        return None
    lower_bound = search.best if is_proven else min(bound, search.best)
    return BestPath(graph.choices(search.path), lower_bound)


@dataclass(frozen=True, slots=True)
class _Continuations:
    """The best continuation from every node to the end at one price of B.

    All lists are indexed by stage, and their arrays by the node of the stage before. The first three lists have
    one more element, an array of zeros for the nodes of the last stage.
    """

    price: float
    value: list[Floats]  # A + price B of the best continuation
    a: list[Floats]  # its A
    b: list[Floats]  # its B
    next_node: list[NDArray[np.intp]]

    def path(self, stage: int, node: int) -> list[int]:
        """Return the nodes from this stage on, given a node of the stage before."""
        nodes = []
        for next_node in self.next_node[stage:]:
            node = int(next_node[node])
            nodes.append(node)
        return nodes


PathCache = dict[tuple[float, float], _Continuations]
"""Continuations, keyed by the weights of B and A."""


@dataclass(frozen=True, slots=True)
class _Labels:
    """Paths to the nodes of a stage; each array has one element or row per label."""

    node: NDArray[np.intp]
    least: Floats  # A from the start to the node
    limited: Floats  # B from the start to the node
    parent: NDArray[np.intp]  # index of the label of the stage before
    young: Floats  # machines below their billed minimum, by time of arrival, the oldest first: (labels, arrivals)
    age: Floats  # seconds for which each of these has been billed
    owed: Floats  # dollars that would be due if all young machines were released now


class _Search:
    """The state of one search.

    `path` is the best path known within the limit, and `best` its minimized sum with all its costs.
    """

    def __init__(self, graph: PlanGraph, limited: Limited, limit: float, risk: float, cache: PathCache) -> None:
        self.graph, self.limited, self.limit, self.risk, self._cache = graph, limited, limit, risk, cache
        self.a, self.b = graph.dollars, graph.seconds
        if risk:
            self.b = [seconds + risk * variance for seconds, variance in zip(self.b, graph.variance, strict=True)]
        if limited == "dollars":
            self.a, self.b = self.b, self.a
        elif math.isinf(limit):  # time does not matter: no label survives only because it is faster
            self.b = [np.zeros_like(each) for each in self.b]
        self.path: list[int] | None = None
        self.best = math.inf
        self.least_limited = self._continuations(1.0, weight_a=0.0)

    def consider(self, path: list[int]) -> None:
        """Store this path if it is within the limit and better than `path`."""
        choices = self.graph.choices(path)
        estimates = self.graph.model.predict(choices)
        dollars = math.fsum(each.dollars for each in estimates)
        seconds = math.fsum(each.seconds for each in estimates)
        if self.risk:
            seconds += self.risk * self.graph.model.total_variance(choices)
        least, limited = (dollars, seconds) if self.limited == "seconds" else (seconds, dollars)
        if limited <= self.limit and least < self.best:
            self.path, self.best = path, least

    def _continuations(self, price: float, weight_a: float = 1.0) -> _Continuations:
        key = (price, weight_a)
        if key not in self._cache:
            self._cache[key] = self._find_continuations(price, weight_a)
        return self._cache[key]

    def _find_continuations(self, price: float, weight_a: float) -> _Continuations:
        end = np.zeros(len(self.graph.nodes[-1]))
        value, a_left, b_left = [end], [end], [end]
        next_node: list[NDArray[np.intp]] = []
        for a, b in zip(reversed(self.a), reversed(self.b), strict=True):
            values = weight_a * a + price * b + value[-1]
            best_node, rows = values.argmin(axis=1), np.arange(len(a))
            next_node.append(best_node)
            value.append(values[rows, best_node])
            a_left.append(a[rows, best_node] + a_left[-1][best_node])
            b_left.append(b[rows, best_node] + b_left[-1][best_node])
        return _Continuations(price, value[::-1], a_left[::-1], b_left[::-1], next_node[::-1])

    def maximize_bound(self) -> tuple[float, list[_Continuations]]:
        """Return the highest lower bound, and continuations at prices around its price.

        The search draws a line in the (B, A) plane from a path within the limit to a path beyond it. The slope of
        the line is the next price to try. A path below the line replaces the end on its side of the limit. The
        search ends when no path is below the line.
        """
        free = self._continuations(0.0)
        a1, b1 = float(free.a[0][0]), float(free.b[0][0])
        # Among paths with the same A, prefer the least B: this price is too low to change the order of A.
        tie_broken = self._continuations(1e-12 * (a1 or 1.0) / b1 if b1 else 0.0)
        self.consider(tie_broken.path(0, 0))
        self.consider(free.path(0, 0))
        b1 = min(b1, float(tie_broken.b[0][0]))
        if b1 <= self.limit:
            return a1, [free]
        tight = self.least_limited
        self.consider(tight.path(0, 0))
        a2, b2, price = float(tight.a[0][0]), float(tight.b[0][0]), 0.0
        for _ in range(_MAX_PRICES):
            price = max(0.0, (a2 - a1) / (b1 - b2)) if b1 > b2 else 0.0
            best = self._continuations(price)
            self.consider(best.path(0, 0))
            a, b = float(best.a[0][0]), float(best.b[0][0])
            if a + price * b >= (a1 + price * b1) * (1.0 - _TOLERANCE):
                break
            if b <= self.limit:
                a2, b2 = a, b
            else:
                a1, b1 = a, b
        bound = a1 + price * (b1 - self.limit)
        return bound, [free, *(self._continuations(price * factor) for factor in _PRICE_FACTORS)]

    def extend(self, i: int, labels: list[_Labels], continuations: list[_Continuations]) -> tuple[_Labels, bool]:
        """Return the labels of stage `i` that may be part of the best path.

        These labels extend the last ones to every node of the stage. Also returns whether they are complete: of
        more than `_MAX_LABELS`, only the most promising are returned.
        """
        last = labels[-1]
        width = len(self.graph.nodes[i])
        least = (last.least[:, None] + self.a[i][last.node]).ravel()
        limited = (last.limited[:, None] + self.b[i][last.node]).ravel()
        bound = self._label_bounds(i, least, limited, np.arange(len(least)) % width, continuations)
        rows = np.flatnonzero(bound < self.best * (1.0 - _TOLERANCE))
        parent, node = np.divmod(rows, width)
        extended = self._with_ages(i, last, node, least[rows], limited[rows], parent)
        undominated = self._undominated(extended)
        extended, bound = _select(extended, undominated), bound[rows][undominated]
        self._complete(i, labels, extended, continuations)
        hopeful = np.flatnonzero(bound < self.best * (1.0 - _TOLERANCE))
        is_complete = len(hopeful) <= _MAX_LABELS
        if not is_complete:
            hopeful = hopeful[np.argsort(bound[hopeful])[:_MAX_LABELS]]
        return _select(extended, hopeful), is_complete

    def _label_bounds(
        self, i: int, least: Floats, limited: Floats, node: NDArray[np.intp], continuations: list[_Continuations]
    ) -> Floats:
        """Return a lower bound of A at the end of the paths through each label.

        The bound is infinite where B cannot stay within the limit.
        """
        bound = np.where(limited + self.least_limited.value[i + 1][node] <= self.limit, 0.0, math.inf)
        for best in continuations:
            excess = best.price * (limited - self.limit) if best.price else 0.0  # the limit may be infinite
            np.maximum(bound, least + excess + best.value[i + 1][node], out=bound)
        return bound

    def _complete(
        self, i: int, labels: list[_Labels], extended: _Labels, continuations: list[_Continuations]
    ) -> None:
        """Consider, for each price, the best path that continues one of these labels."""
        for best in continuations:
            is_within = extended.limited + best.b[i + 1][extended.node] <= self.limit
            total = np.where(is_within, extended.least + best.a[i + 1][extended.node], math.inf)
            if len(total) and total.min() < self.best * (1.0 - _TOLERANCE):
                label = int(total.argmin())
                start = _label_path([*labels, extended], label)
                self.consider(start + best.path(i + 1, int(extended.node[label])))

    def _with_ages(
        self,
        i: int,
        last: _Labels,
        node: NDArray[np.intp],
        least: Floats,
        limited: Floats,
        parent: NDArray[np.intp],
    ) -> _Labels:
        """Return labels of stage `i` with the ages of their young machines.

        The dollars due for machines released below their minimum are added to the labels' sums.
        """
        before, now, came_from = self.graph.held(i - 1), self.graph.held(i), last.node[parent]
        young, age, owed = last.young[parent], last.age[parent], np.zeros(len(node))
        if not young.size and not self.graph.has_minimum_due[i][came_from, node].any():
            return _Labels(node, least, limited, parent, young, age, owed)
        same = before.machine_type[came_from] == now.machine_type[node]
        kept = np.where(same, np.minimum(before.machines[came_from], now.machines[node]), 0)
        released = _oldest(young, young.sum(axis=1) - kept)  # machines that are not young are released first
        missing_seconds = before.minimum_billed_seconds[came_from][:, None] - age
        due = before.price[came_from] * (released * missing_seconds).sum(axis=1)
        seconds, billed = self.graph.seconds[i][came_from, node], self.graph.new_billed[i][came_from, node]
        young = np.column_stack([young - released, now.machines[node] - kept])
        age = np.column_stack([age + seconds[:, None], billed])
        minimum = now.minimum_billed_seconds[node][:, None]
        young[age >= minimum] = 0.0
        age[young == 0.0] = 0.0
        owed = now.price[node] * (young * (minimum - age)).sum(axis=1)
        if i == len(self.graph.nodes) - 1:
            due, owed, young, age = due + owed, np.zeros(len(node)), young[:, :0], age[:, :0]
        if self.limited == "seconds":
            least = least + due
        else:
            limited = limited + due
        is_used = young.any(axis=0)
        return _Labels(node, least, limited, parent, young[:, is_used], age[:, is_used], owed)

    def _undominated(self, labels: _Labels) -> NDArray[np.intp]:
        """Return the indices of labels that no other label at their node dominates."""
        dollars, seconds = labels.least, labels.limited
        if self.limited == "dollars":
            dollars, seconds = seconds, dollars
        if not len(dollars):
            return labels.node
        dollars_with_owed = dollars + labels.owed
        order = np.lexsort((dollars_with_owed, seconds, labels.node))
        node = labels.node[order]
        # Lower each node's labels by more than any difference, so that the running minimum restarts at every node.
        offset = (2.0 * float(dollars_with_owed.max()) + 1.0) * np.cumsum(np.diff(node, prepend=node[0]) > 0)
        running_minimum = np.minimum.accumulate(dollars_with_owed[order] - offset)
        is_dominated = np.append(False, running_minimum[:-1] <= (dollars[order] - offset)[1:])
        return np.asarray(order[~is_dominated])


def _oldest(young: Floats, count: Floats) -> Floats:
    """Return how many machines of each arrival are among the `count` oldest."""
    older = young.cumsum(axis=1) - young
    return np.clip(count[:, None] - older, 0.0, young)


def _select(labels: _Labels, rows: NDArray[np.intp]) -> _Labels:
    return _Labels(*(getattr(labels, each.name)[rows] for each in fields(_Labels)))


def _label_path(labels: list[_Labels], label: int) -> list[int]:
    """Return the nodes on the path of a label of the last stage."""
    path = []
    for stage_labels in reversed(labels[1:]):
        path.append(int(stage_labels.node[label]))
        label = int(stage_labels.parent[label])
    return path[::-1]
