"""Which plan makes the deadline, or keeps to the budget, for the least? And which limits can be kept at all?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from thriftune.common.checks import check_number
from thriftune.common.durations import Duration
from thriftune.common.durations import seconds as seconds_of
from thriftune.common.formatting import format_dollars, format_seconds
from thriftune.errors import SettingError
from thriftune.planning import exact, planners
from thriftune.planning.allocation import StageAllocation
from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.cost_model import CostModel
from thriftune.planning.executions import Durations
from thriftune.planning.job import JobSpec
from thriftune.planning.plan import Plan, make
from thriftune.planning.plan_graph import PlanGraph
from thriftune.planning.planners import PlanRequest, Totals
from thriftune.planning.profile import Profile

Planner = Literal["exact", "greedy", "static", "naive_elastic"]

_SIMULATED = 1000
_TIGHTENED = 12  # times, until a plan makes the deadline as surely as it should
_RISKS = 3  # weights of what varies that are tried
_FEW_STAGES = 12
_NEARLY = 1.0 + 1e-9


def plan(
    spec: JobSpec,
    profile: Profile,
    cloud: CloudProfile | Sequence[CloudProfile],
    *,
    deadline: Duration | None = None,
    budget: float | None = None,
    planner: Planner = "exact",
    probability: float = 0.95,
) -> Plan:
    """The cheapest plan that makes the deadline, or with a budget alone, the quickest within it.

    - `cloud`: what may be rented; of several, each stage has the one that serves best.
    - `deadline`: seconds, or a text such as "20m". It is made on average, and with this `probability` where
      anything is random (steps, latencies, machines that may be taken away), which is checked by simulation.
    - `planner`: "exact", the optimum over all fair allocations; "greedy", RubberBand's; "static", one cluster from
      beginning to end; "naive_elastic", the same number of workers for every trial.
    """
    if planner not in get_args(Planner):
        raise SettingError(f"planner: {planner!r} must be one of {', '.join(get_args(Planner))}")
    if not isinstance(probability, (int, float)) or not 0.0 <= probability < 1.0:
        raise SettingError(f"probability: {probability!r} must be from 0 to below 1, such as 0.95")
    seconds = seconds_of("deadline", deadline)
    _check_limits(seconds, budget)
    asking = PlanFinder(_model(spec, profile), _clouds(cloud), seconds, budget, probability)
    if seconds is None and budget is None:
        raise SettingError(f"give a deadline or a budget: {asking.range()}")
    found = asking.exact() if planner == "exact" else asking.by(planner)
    if seconds is not None and budget is not None and found.cost > budget * _NEARLY:
        raise SettingError(
            f"budget: {format_dollars(budget)} is not enough for the deadline of {format_seconds(seconds)}: the "
            f"cheapest {planner} plan that makes it costs {_dollars_or_more(found.cost)}"
        )
    return asking.finished(found)


def frontier(
    spec: JobSpec, profile: Profile, cloud: CloudProfile | Sequence[CloudProfile], *, points: int = 40
) -> list[Plan]:
    """Optimal plans from the quickest to the cheapest, each the cheapest that takes no longer on average; for so
    many deadlines at most, from the one's duration to the other's."""
    if isinstance(points, bool) or not isinstance(points, int) or points < 2:
        raise SettingError(f"points: {points!r} must be a whole number, at least 2")
    asking = PlanFinder(_model(spec, profile), _clouds(cloud), None, None, 0.0)
    quickest, cheapest = asking.quickest(), asking.cheapest()
    found, known = [quickest], exact.Known()
    for limit in np.geomspace(quickest.duration, max(cheapest.duration, quickest.duration), points)[1:].tolist():
        best = exact.best(asking.graph, "seconds", limit, known=known)
        assert best is not None, "the quickest is within it"
        one = make(asking.model, best.choices, "exact", lower_bound=best.lower_bound)
        if one.cost < found[-1].cost * (1.0 - 1e-9):
            found.append(one)
    return found


def best_effort(
    model: CostModel, clouds: Sequence[CloudProfile], deadline: float | None, probability: float = 0.95
) -> Plan:
    """The cheapest plan that makes the deadline in seconds, with this probability; where none does, the quickest.
    Without a deadline, the cheapest of all."""
    asking = PlanFinder(model, clouds, math.inf if deadline is None else deadline, None, probability)
    try:
        return asking.exact()
    except SettingError:
        return asking.quickest()


class PlanFinder:
    """One question about plans, and what its answers share."""

    def __init__(
        self,
        model: CostModel,
        clouds: Sequence[CloudProfile],
        deadline: float | None,
        budget: float | None,
        probability: float,
    ) -> None:
        self.model, self.clouds = model, clouds
        self._deadline, self._budget, self._probability = deadline, budget, probability
        self.graph = PlanGraph.of(model, clouds)
        self._durations = Durations(model, _SIMULATED)
        self._random = bool(model.profile.std) or any(
            cloud.survival is not None or cloud.queue_latency.std or cloud.init_latency.std for cloud in clouds
        )

    def exact(self) -> Plan:
        deadline, budget = self._deadline, self._budget
        if deadline is None:
            assert budget is not None
            best = exact.best(self.graph, "dollars", budget)
            if best is None:
                raise self._refused()
            return make(self.model, best.choices, "exact", lower_bound=best.lower_bound)
        best = exact.best(self.graph, "seconds", deadline)
        if best is None:
            raise self._refused()
        found = make(self.model, best.choices, "exact", lower_bound=best.lower_bound)
        quicker = exact.best(self.graph, "dollars", found.cost)  # of those that cost as much, the quickest
        if quicker is not None and quicker.lower_bound < found.duration:
            one = make(self.model, quicker.choices, "exact", lower_bound=found.lower_bound)
            found = one if one.duration < found.duration else found
        return found if self._sure(found.choices) else self._surer(found)

    def _surer(self, found: Plan) -> Plan:
        """The cheapest known that makes the deadline as surely as it should.

        Among plans that are cheapest within an earlier deadline, which varies. A duration's quantile is the mean
        and some standard deviations; to make the root of their variances a sum, its tangent is taken at the best
        plan so far. And among those of the other planners, but for greedy's where it would take long.
        """
        others = [planners.static, planners.naive_elastic]
        others += [planners.greedy] if len(self.model.spec.stages) <= _FEW_STAGES else []
        sure = [choices for planner in others if (choices := planner(self._asked())) is not None]
        risk = 0.0
        for _ in range(_RISKS):
            sure += self._tightened(found, risk)
            risk = self._risk(self._cheapest_of(sure) if sure else self._quickest(risk))
        if not sure:
            raise self._refused()
        return make(self.model, self._cheapest_of(sure), "exact", lower_bound=found.lower_bound)

    def _risk(self, choices: Sequence[StageAllocation]) -> float:
        """The seconds that a squared second more of variance adds to the quantile of a plan's duration."""
        seconds = self._durations.of(choices)
        above = float(np.quantile(seconds, self._probability) - seconds.mean())
        return max(0.0, above) / (2.0 * float(seconds.var())) if seconds.var() else 0.0

    def _tightened(self, found: Plan, risk: float) -> list[list[StageAllocation]]:
        """Plans that are sure, by halving the range of deadlines; `found` is not sure."""

        def weighed(choices: Sequence[StageAllocation]) -> float:
            return self._asked().totals(choices)[1] + risk * self.model.total_variance(choices)

        quickest = self._quickest(risk)
        sure = [quickest] if self._sure(quickest) else []
        low, high, known = weighed(quickest), weighed(found.choices), exact.Known()
        for _ in range(_TIGHTENED):
            middle = 0.5 * (low + high)
            best = exact.best(self.graph, "seconds", middle, risk, known)
            if best is not None and self._sure(best.choices):
                sure.append(best.choices)
                low = middle
            else:
                high = middle
        return sure

    def _cheapest_of(self, plans: list[list[StageAllocation]]) -> list[StageAllocation]:
        return min(plans, key=lambda choices: self._asked().totals(choices)[0])

    def by(self, planner: str) -> Plan:
        if planner == "greedy" and self._deadline is None:
            raise SettingError("planner: greedy plans for a deadline; for a budget, take exact or static")
        ways: dict[str, Callable[[PlanRequest], list[StageAllocation] | None]] = {
            "static": planners.static,
            "naive_elastic": planners.naive_elastic,
            "greedy": planners.greedy,
        }
        choices = ways[planner](self._asked())
        if choices is None:
            raise self._refused(f"no {planner} plan does; ")
        return make(self.model, choices, planner)

    def finished(self, found: Plan) -> Plan:
        """With its limits, how surely it makes the deadline, and where it would fall back."""
        on_time = None if self._deadline is None else self._probability_of(found.choices)
        found = replace(found, deadline=self._deadline, budget=self._budget, on_time=on_time)
        return replace(found, fall_back_at=self._fall_backs(found))

    def quickest(self) -> Plan:
        choices = self._quickest()
        return make(self.model, choices, "exact", lower_bound=self._asked().totals(choices)[1])

    def _quickest(self, risk: float = 0.0) -> list[StageAllocation]:
        best = exact.best(self.graph, "dollars", math.inf, risk)
        assert best is not None
        return best.choices

    def cheapest(self) -> Plan:
        best = exact.best(self.graph, "seconds", math.inf)
        assert best is not None
        return make(self.model, best.choices, "exact", lower_bound=best.lower_bound)

    def range(self) -> str:
        quickest, cheapest = self.quickest(), self.cheapest()
        return (
            f"the quickest plan takes {format_seconds(quickest.duration)} for {format_dollars(quickest.cost)}, "
            f"the cheapest {format_seconds(cheapest.duration)} for {format_dollars(cheapest.cost)}"
        )

    def _asked(self) -> PlanRequest:
        by = 0 if self._deadline is not None else 1
        return PlanRequest(self.model, self.clouds, self._allows, lambda totals: totals[by])

    def _allows(self, choices: Sequence[StageAllocation], totals: Totals) -> bool:
        dollars, seconds = totals
        if self._deadline is None:
            return self._budget is None or dollars <= self._budget * _NEARLY
        return seconds <= self._deadline * _NEARLY and self._sure(choices)

    def _sure(self, choices: Sequence[StageAllocation]) -> bool:
        return self._probability_of(choices) >= self._probability

    def _probability_of(self, choices: Sequence[StageAllocation]) -> float:
        """Of making the deadline; by the same draws for all plans."""
        assert self._deadline is not None
        if not self._random:
            return 1.0
        return float(np.mean(self._durations.of(choices) <= self._deadline * _NEARLY))

    def _fall_backs(self, found: Plan) -> list[float | None] | None:
        """See Plan.fall_back_at."""
        stays = [cloud for cloud in self.clouds if cloud.survival is None]
        if self._deadline is None or all(choice.cloud.survival is None for choice in found.choices):
            return None
        latest: list[float | None] = []
        for i, choice in enumerate(found.choices):
            if choice.cloud.survival is None or not stays:
                latest.append(None)
                continue
            spec = self.model.spec
            rest = CostModel(JobSpec(spec.stages[i:], spec.begins[i:]), self.model.profile)
            quickest = exact.best(PlanGraph.of(rest, stays), "dollars", math.inf)
            assert quickest is not None
            latest.append(self._deadline - quickest.lower_bound)
        return latest

    def _refused(self, why: str = "") -> SettingError:
        if self._deadline is None:
            assert self._budget is not None
            cheapest = self.cheapest()
            return SettingError(
                f"budget: {format_dollars(self._budget)} is not enough: {why}the cheapest plan costs "
                f"{_dollars_or_more(cheapest.cost)} and takes {format_seconds(cheapest.duration)}"
            )
        quickest = self.quickest()
        needed = quickest.duration
        if self._random and self._probability:
            steadier = make(self.model, self._quickest(self._risk(quickest.choices)), "exact")
            needed, quickest = min(
                ((self._surely(each), each) for each in (quickest, steadier)), key=lambda t: t[0]
            )
        how = f" with a probability of {self._probability:g}" if self._random else ""
        return SettingError(
            f"deadline: {format_seconds(self._deadline)} cannot be made{how}: {why}the quickest plan needs "
            f"{_seconds_or_more(needed)} and costs {format_dollars(quickest.cost)}"
        )

    def _surely(self, found: Plan) -> float:
        """The seconds within which it is done with the probability that was asked for."""
        quantile = np.quantile(self._durations.of(found.choices), self._probability, method="higher")
        return max(found.duration, float(quantile))


def _seconds_or_more(seconds: float) -> str:
    """Rounded up, to what is written: a deadline that can be made."""
    unit = 0.1 if seconds < 89.0 else 1.0 if seconds < 3600.0 else 60.0
    return format_seconds(math.ceil(seconds / unit - 1e-9) * unit)


def _dollars_or_more(dollars: float) -> str:
    unit = 0.01 if dollars >= 1.0 else 1e-4
    return format_dollars(math.ceil(dollars / unit - 1e-9) * unit)


def _model(spec: JobSpec, profile: Profile) -> CostModel:
    if not isinstance(spec, JobSpec) or not spec.stages:
        raise SettingError(f"spec: {spec!r} must be a JobSpec, such as planning.successive_halving(64, 4, 508)")
    if not isinstance(profile, Profile):
        raise SettingError(f"profile: {profile!r} must be a Profile, such as planning.Profile({{1: 4.0, 2: 2.2}})")
    return CostModel(spec, profile)


def _clouds(cloud: CloudProfile | Sequence[CloudProfile]) -> list[CloudProfile]:
    given = cloud if isinstance(cloud, Sequence) else [cloud]
    clouds = [each for each in given if isinstance(each, CloudProfile)]
    if not clouds or len(clouds) < len(given):
        raise SettingError("cloud: give a CloudProfile, or several of them")
    names = [each.name for each in clouds]
    if len(set(names)) < len(names):
        raise SettingError(f"cloud: {', '.join(names)}: give each kind of machine a name= of its own")
    return clouds


def _check_limits(deadline: float | None, budget: float | None) -> None:
    for name, value in (("deadline", deadline), ("budget", budget)):
        if value is not None:
            check_number(name, value, above_zero=True)
