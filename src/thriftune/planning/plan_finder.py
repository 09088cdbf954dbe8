"""The search for a plan within a deadline or a budget.

If there is none, an error says which limits are possible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from thriftune.common.checks import check_number, check_whole
from thriftune.common.durations import Duration
from thriftune.common.durations import seconds as seconds_of
from thriftune.common.formatting import format_dollars, format_seconds
from thriftune.errors import SettingError
from thriftune.planning import exact_planner, greedy_planner
from thriftune.planning.allocation import StageAllocation
from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.cost_model import CostModel
from thriftune.planning.executions import DurationSampler
from thriftune.planning.greedy_planner import PlanRequest, Totals
from thriftune.planning.job import JobSpec
from thriftune.planning.plan import Plan, make_plan
from thriftune.planning.plan_graph import PlanGraph
from thriftune.planning.profile import Profile

Planner = Literal["exact", "greedy", "static", "naive_elastic"]

_SIMULATIONS = 1000  # executions behind a probability: a standard error of 0.7 percentage points at 95 %
_BISECTIONS = 12  # bisections of the range of earlier deadlines; 2^-12 of the range is left
_RISK_ROUNDS = 3  # weights of the variance that are tried, each estimated from the best plan of the round before
_MAX_GREEDY_STAGES = 12  # greedy planning takes long for more stages
_ROUNDING = 1.0 + 1e-9  # a sum may exceed its limit by rounding


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
    """Return the best plan within a deadline or a budget.

    The plan is the cheapest that meets the deadline, or with a budget alone the fastest within it.

    - `cloud`: the machine types that can be rented. The plan uses the best one for each stage.
    - `deadline`: seconds, or text such as "20m". The plan meets it on average, and with this `probability` if
      anything is random (steps, latencies, preemptions), which is checked by simulation.
    - `planner`: "exact", the optimum over all fair allocations; "greedy", RubberBand's planner; "static", one
      cluster for the whole job; "naive_elastic", the same number of workers for every trial.

    Raises SettingError if no plan is within the limits; the error says which limits are possible.
    """
    if planner not in get_args(Planner):
        raise SettingError(f"planner: {planner!r} must be one of {', '.join(get_args(Planner))}")
    if not isinstance(probability, (int, float)) or not 0.0 <= probability < 1.0:
        raise SettingError(f"probability: {probability!r} must be at least 0 and below 1, such as 0.95")
    seconds = seconds_of("deadline", deadline)
    _check_limits(seconds, budget)
    finder = PlanFinder(_checked_model(spec, profile), _checked_clouds(cloud), seconds, budget, probability)
    if seconds is None and budget is None:
        raise SettingError(f"give a deadline or a budget: {finder.describe_range()}")
    best = finder.find_exact() if planner == "exact" else finder.find_with(planner)
    if seconds is not None and budget is not None and best.cost > budget * _ROUNDING:
        raise SettingError(
            f"budget: {format_dollars(budget)} is not enough for the deadline of {format_seconds(seconds)}: the "
            f"cheapest {planner} plan that meets it costs {_rounded_up_dollars(best.cost)}"
        )
    return finder.with_limits(best)


def frontier(
    spec: JobSpec, profile: Profile, cloud: CloudProfile | Sequence[CloudProfile], *, points: int = 40
) -> list[Plan]:
    """Return optimal plans from the fastest to the cheapest.

    Each is the cheapest plan that takes no longer on average. There is one for each of at most `points` deadlines
    between the durations of the fastest and the cheapest plan, without repetitions.
    """
    check_whole("points", points, 2)
    finder = PlanFinder(_checked_model(spec, profile), _checked_clouds(cloud), None, None, 0.0)
    fastest, cheapest = finder.fastest(), finder.cheapest()
    plans, cache = [fastest], exact_planner.PathCache()
    for limit in np.geomspace(fastest.duration, max(cheapest.duration, fastest.duration), points)[1:].tolist():
        best = exact_planner.find_best(finder.graph, "seconds", limit, cache=cache)
        assert best is not None, "the fastest plan is within every limit"
        candidate = make_plan(finder.model, best.choices, "exact", lower_bound=best.lower_bound)
        if candidate.cost < plans[-1].cost * (1.0 - 1e-9):
            plans.append(candidate)
    return plans


def best_effort(
    model: CostModel, clouds: Sequence[CloudProfile], deadline: float | None, probability: float = 0.95
) -> Plan:
    """Return the cheapest plan that meets the deadline, or else the fastest.

    The deadline must be met with this probability. `deadline` is in seconds; without one, the plan is the cheapest
    of all.
    """
    finder = PlanFinder(model, clouds, math.inf if deadline is None else deadline, None, probability)
    try:
        return finder.find_exact()
    except SettingError:
        return finder.fastest()


class PlanFinder:
    """The search for a plan of one job within given limits.

    All plans are compared by the same simulated executions.
    """

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
        self._sampler = DurationSampler(model, _SIMULATIONS)
        self._is_random = bool(model.profile.std) or any(
            cloud.survival is not None or cloud.queue_latency.std or cloud.init_latency.std for cloud in clouds
        )

    def find_exact(self) -> Plan:
        """Return the optimal plan within the limits; raises SettingError if there is none."""
        deadline, budget = self._deadline, self._budget
        if deadline is None:
            assert budget is not None
            best = exact_planner.find_best(self.graph, "dollars", budget)
            if best is None:
                raise self._impossible()
            return make_plan(self.model, best.choices, "exact", lower_bound=best.lower_bound)
        best = exact_planner.find_best(self.graph, "seconds", deadline)
        if best is None:
            raise self._impossible()
        cheapest = make_plan(self.model, best.choices, "exact", lower_bound=best.lower_bound)
        # The fastest of the plans that cost no more.
        fastest = exact_planner.find_best(self.graph, "dollars", cheapest.cost)
        if fastest is not None and fastest.lower_bound < cheapest.duration:
            faster = make_plan(self.model, fastest.choices, "exact", lower_bound=cheapest.lower_bound)
            cheapest = faster if faster.duration < cheapest.duration else cheapest
        return cheapest if self._is_likely_on_time(cheapest.choices) else self._find_likely_on_time(cheapest)

    def _find_likely_on_time(self, unlikely: Plan) -> Plan:
        """Return the cheapest plan found that is on time with the given probability.

        The candidates are the plans that are cheapest within earlier deadlines, and the plans of the other
        planners. `unlikely` is the cheapest plan that is on time on average only. A quantile of the duration is
        estimated as its mean plus a multiple of its standard deviation. The search needs a sum over stages. It
        therefore replaces the standard deviation by its tangent at the best plan known, which is linear in the
        variance.
        """
        other_planners = [greedy_planner.static, greedy_planner.naive_elastic]
        other_planners += [greedy_planner.greedy] if len(self.model.spec.stages) <= _MAX_GREEDY_STAGES else []
        request = self._request()
        on_time = [choices for planner in other_planners if (choices := planner(request)) is not None]
        risk = 0.0
        for _ in range(_RISK_ROUNDS):
            on_time += self._bisect_deadline(unlikely, risk)
            risk = self._risk(self._cheapest_of(on_time) if on_time else self._fastest_choices(risk))
        if not on_time:
            raise self._impossible()
        return make_plan(self.model, self._cheapest_of(on_time), "exact", lower_bound=unlikely.lower_bound)

    def _risk(self, choices: Sequence[StageAllocation]) -> float:
        """Return the weight of the variance, in seconds per squared second.

        Each squared second of variance adds this to the estimated quantile of a plan's duration. It is the slope
        of the tangent at the plan with these choices.
        """
        seconds = self._sampler.seconds(choices)
        above_mean = float(np.quantile(seconds, self._probability) - seconds.mean())
        return max(0.0, above_mean) / (2.0 * float(seconds.var())) if seconds.var() else 0.0

    def _bisect_deadline(self, unlikely: Plan, risk: float) -> list[list[StageAllocation]]:
        """Return plans that are on time with the given probability, by bisection.

        The deadline is bisected between the durations of the fastest plan and of `unlikely`, which is not on time
        with that probability. `risk` is the weight of the variance, in seconds per squared second.
        """

        def weighted_seconds(choices: Sequence[StageAllocation]) -> float:
            return self._request().totals(choices)[1] + risk * self.model.total_variance(choices)

        fastest = self._fastest_choices(risk)
        on_time = [fastest] if self._is_likely_on_time(fastest) else []
        low, high = weighted_seconds(fastest), weighted_seconds(unlikely.choices)
        cache = exact_planner.PathCache()
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            best = exact_planner.find_best(self.graph, "seconds", middle, risk, cache)
            if best is not None and self._is_likely_on_time(best.choices):
                on_time.append(best.choices)
                low = middle
            else:
                high = middle
        return on_time

    def _cheapest_of(self, plans: list[list[StageAllocation]]) -> list[StageAllocation]:
        return min(plans, key=lambda choices: self._request().totals(choices)[0])

    def find_with(self, planner: str) -> Plan:
        """Return the plan of a planner other than "exact".

        Raises SettingError if the planner finds none.
        """
        if planner == "greedy" and self._deadline is None:
            raise SettingError("planner: greedy needs a deadline; for a budget, use exact or static")
        functions: dict[str, Callable[[PlanRequest], list[StageAllocation] | None]] = {
            "static": greedy_planner.static,
            "naive_elastic": greedy_planner.naive_elastic,
            "greedy": greedy_planner.greedy,
        }
        choices = functions[planner](self._request())
        if choices is None:
            raise self._impossible(f"no {planner} plan does; ")
        return make_plan(self.model, choices, planner)

    def with_limits(self, best: Plan) -> Plan:
        """Add the limits, the probability and the fall-back times to a plan."""
        on_time = None if self._deadline is None else self._on_time_probability(best.choices)
        best = replace(best, deadline=self._deadline, budget=self._budget, on_time=on_time)
        return replace(best, fall_back_at=self._fall_back_times(best))

    def fastest(self) -> Plan:
        """Return the plan with the shortest expected duration."""
        choices = self._fastest_choices()
        return make_plan(self.model, choices, "exact", lower_bound=self._request().totals(choices)[1])

    def _fastest_choices(self, risk: float = 0.0) -> list[StageAllocation]:
        best = exact_planner.find_best(self.graph, "dollars", math.inf, risk)
        assert best is not None
        return best.choices

    def cheapest(self) -> Plan:
        """Return the plan with the lowest expected cost."""
        best = exact_planner.find_best(self.graph, "seconds", math.inf)
        assert best is not None
        return make_plan(self.model, best.choices, "exact", lower_bound=best.lower_bound)

    def describe_range(self) -> str:
        """Return a phrase with the time and cost of the fastest and the cheapest plan."""
        fastest, cheapest = self.fastest(), self.cheapest()
        return (
            f"the fastest plan takes {format_seconds(fastest.duration)} and costs {format_dollars(fastest.cost)}, "
            f"the cheapest takes {format_seconds(cheapest.duration)} and costs {format_dollars(cheapest.cost)}"
        )

    def _request(self) -> PlanRequest:
        minimized = 0 if self._deadline is not None else 1
        return PlanRequest(self.model, self.clouds, self._allows, lambda totals: totals[minimized])

    def _allows(self, choices: Sequence[StageAllocation], totals: Totals) -> bool:
        dollars, seconds = totals
        if self._deadline is None:
            return self._budget is None or dollars <= self._budget * _ROUNDING
        return seconds <= self._deadline * _ROUNDING and self._is_likely_on_time(choices)

    def _is_likely_on_time(self, choices: Sequence[StageAllocation]) -> bool:
        return self._on_time_probability(choices) >= self._probability

    def _on_time_probability(self, choices: Sequence[StageAllocation]) -> float:
        """Return the share of simulated executions that meet the deadline."""
        assert self._deadline is not None
        if not self._is_random:
            return 1.0
        return float(np.mean(self._sampler.seconds(choices) <= self._deadline * _ROUNDING))

    def _fall_back_times(self, best: Plan) -> list[float | None] | None:
        """Return the times for `Plan.fall_back_at`.

        The result is None without a deadline or without spot machines in the plan.
        """
        on_demand = [cloud for cloud in self.clouds if cloud.survival is None]
        if self._deadline is None or all(choice.cloud.survival is None for choice in best.choices):
            return None
        times: list[float | None] = []
        for i, choice in enumerate(best.choices):
            if choice.cloud.survival is None or not on_demand:
                times.append(None)
                continue
            spec = self.model.spec
            rest = CostModel(JobSpec(spec.stages[i:], spec.begins[i:]), self.model.profile)
            fastest = exact_planner.find_best(PlanGraph.of(rest, on_demand), "dollars", math.inf)
            assert fastest is not None
            times.append(self._deadline - fastest.lower_bound)
        return times

    def _impossible(self, reason: str = "") -> SettingError:
        """Return the error for limits without a plan, which names possible limits."""
        if self._deadline is None:
            assert self._budget is not None
            cheapest = self.cheapest()
            return SettingError(
                f"budget: {format_dollars(self._budget)} is not enough: {reason}the cheapest plan costs "
                f"{_rounded_up_dollars(cheapest.cost)} and takes {format_seconds(cheapest.duration)}"
            )
        fastest = self.fastest()
        needed = fastest.duration
        if self._is_random and self._probability:
            steadier = make_plan(self.model, self._fastest_choices(self._risk(fastest.choices)), "exact")
            needed, fastest = min(
                ((self._likely_seconds(each), each) for each in (fastest, steadier)), key=lambda pair: pair[0]
            )
        certainty = f" with a probability of {self._probability:g}" if self._is_random else ""
        return SettingError(
            f"deadline: {format_seconds(self._deadline)} cannot be met{certainty}: {reason}the fastest plan needs "
            f"{_rounded_up_seconds(needed)} and costs {format_dollars(fastest.cost)}"
        )

    def _likely_seconds(self, candidate: Plan) -> float:
        """Return the seconds within which the plan is done with the required probability."""
        quantile = np.quantile(self._sampler.seconds(candidate.choices), self._probability, method="higher")
        return max(candidate.duration, float(quantile))


def _rounded_up_seconds(seconds: float) -> str:
    """Format a duration rounded up, so that it is a possible deadline."""
    unit = 0.1 if seconds < 89.0 else 1.0 if seconds < 3600.0 else 60.0
    return format_seconds(math.ceil(seconds / unit - 1e-9) * unit)


def _rounded_up_dollars(dollars: float) -> str:
    """Format an amount rounded up, so that it is a possible budget."""
    unit = 0.01 if dollars >= 1.0 else 1e-4
    return format_dollars(math.ceil(dollars / unit - 1e-9) * unit)


def _checked_model(spec: JobSpec, profile: Profile) -> CostModel:
    if not isinstance(spec, JobSpec) or not spec.stages:
        raise SettingError(f"spec: {spec!r} must be a JobSpec, such as planning.successive_halving(64, 4, 508)")
    if not isinstance(profile, Profile):
        raise SettingError(f"profile: {profile!r} must be a Profile, such as planning.Profile({{1: 4.0, 2: 2.2}})")
    return CostModel(spec, profile)


def _checked_clouds(cloud: CloudProfile | Sequence[CloudProfile]) -> list[CloudProfile]:
    candidates = cloud if isinstance(cloud, Sequence) else [cloud]
    clouds = [each for each in candidates if isinstance(each, CloudProfile)]
    if not clouds or len(clouds) < len(candidates):
        raise SettingError("cloud: give a CloudProfile, or a list of them")
    names = [each.name for each in clouds]
    if len(set(names)) < len(names):
        raise SettingError(f"cloud: {', '.join(names)}: give each machine type a name= of its own")
    return clouds


def _check_limits(deadline: float | None, budget: float | None) -> None:
    for name, value in (("deadline", deadline), ("budget", budget)):
        if value is not None:
            check_number(name, value, above_zero=True)
