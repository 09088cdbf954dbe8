"""Small simulated studies on small clouds, whose drivers may be killed at any cycle."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tests.support.tables import replayed
from thriftune.loop.conductor import Conductor
from thriftune.loop.driver import make_run
from thriftune.market.billing import EC2_SPOT, PER_SECOND
from thriftune.market.lifetime import Exponential
from thriftune.market.price_history import PriceSeries
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.protocol import Provisioner
from thriftune.provisioning.workload import StudyWorkload
from thriftune.replay.preemptions import (
    AvailabilityPreemptions,
    LifetimePreemptions,
    Preemptions,
    PricePreemptions,
)
from thriftune.replay.simulated_cloud import SimulatedCloud
from thriftune.replay.simulated_engine import Curve, SimulatedEngine, VirtualClock
from thriftune.results.cost_ledger import Ledger
from thriftune.search.random import Random
from thriftune.space.objectives import Objective
from thriftune.space.parameters import Float
from thriftune.space.space import Space
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.stopping.protocol import Stopper
from thriftune.training.run import Run

HOUR = 3600.0
FOREVER = 1e7
STEPS = 20
DOWN_SECONDS = 700.0  # from a driver's end to the next one's start

_MAX_CYCLES = 20_000
_MAX_CYCLES_AT_ONCE = 60  # more cycles at one moment are an endless loop

PolicyFactory = Callable[[Sequence[MachineType], StudyWorkload], Provisioner]


class NoFuturePrices(PriceSeries):
    """A price series that raises an error if it is asked for future prices."""

    def __init__(self, series: PriceSeries, clock: VirtualClock) -> None:
        super().__init__(series.type, series.zone, series.times, series.prices, end=series.end)
        self._clock = clock

    def _rows_at(self, t: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.intp]]:
        assert (t <= self._clock.time).all(), f"asked for the price at {t.max()}, and it is {self._clock.time}"
        return super()._rows_at(t)

    def next_above(self, price: Any, t: Any) -> Any:
        raise AssertionError(f"asked when the price will be above {price}")


class SteepRevocation:
    """A revocation model in which prices seldom exceed a maximum that is far above them."""

    def probability(self, series: PriceSeries, t: float, max_price: ArrayLike) -> Any:
        above = np.asarray(max_price, dtype=float) / series.price_at(t) - 1.0
        return np.where(above < 0.0, 1.0, 0.4 * np.exp(-6.0 * np.maximum(above, 0.0)))[()]


@dataclass
class CloudSetup:
    """A simulated cloud: its machine types, and when their machines are preempted."""

    kinds: Sequence[MachineType]
    preemptions: Mapping[str, Preemptions] = field(default_factory=dict)
    seed: int = 0


def on_demand(name: str = "stays", price: float = 1.0, speed: float = 1.0, **settings: Any) -> MachineType:
    return MachineType(name, price, speed=speed, queue=30.0, init=30.0, **settings)


def preempted_by_price(seed: int = 0) -> CloudSetup:
    """Return a cloud with two spot markets, with notices and refunds."""
    rng = np.random.default_rng((seed, 7))
    machine_types, preemptions = [], {}
    for name, level, speed in (("calm", 0.3, 1.0), ("wild", 0.5, 2.0)):
        times = np.concatenate([[-8.0 * HOUR], np.cumsum(rng.exponential(2000.0, 400)) - 8.0 * HOUR + 1.0])
        wild = 0.6 if name == "wild" else 0.15
        series = PriceSeries(name, "a", times, level * np.exp(wild * rng.standard_normal(401)), end=FOREVER)
        machine_types.append(
            MachineType(
                name, series, speed=speed, billing=EC2_SPOT, revocation=SteepRevocation(), notice_seconds=120.0,
                queue=60.0, init=60.0, on_demand_price=1.2 * speed,
            )
        )  # fmt: skip
        preemptions[name] = PricePreemptions(series)
    return CloudSetup([*machine_types, on_demand()], preemptions, seed)


def random_lifetimes(seed: int = 0) -> CloudSetup:
    """Return a cloud with random lifetimes, without notices; some machines have two slots."""
    short, long = Exponential(1.5), Exponential(5.0)
    machine_types = [
        MachineType("short", 0.2, survival=short, queue=(40.0, 10.0), init=(50.0, 20.0), on_demand_price=0.8),
        MachineType("long", 0.55, 2, 1.3, survival=long, billing=EC2_SPOT, init=45.0, on_demand_price=1.9),
        on_demand(),
    ]
    return CloudSetup(
        machine_types,
        {"short": LifetimePreemptions(short, seed), "long": LifetimePreemptions(long, seed + 1000)},
        seed,
    )


def limited_availability(seed: int = 0) -> CloudSetup:
    """Return a cloud with few spot machines, and at times none."""
    rng = np.random.default_rng((seed, 8))
    machine_types, preemptions = [], {}
    for name in ("east", "west"):
        times = np.concatenate([[0.0], np.cumsum(rng.exponential(4000.0, 300)) + 1.0])
        preemptions[name] = AvailabilityPreemptions(times, rng.integers(0, 4, len(times)), FOREVER)
        machine_types.append(
            MachineType(name, 0.3, survival=Exponential(1.5), queue=30.0, init=60.0, on_demand_price=1.0)
        )  # fmt: skip
    return CloudSetup([*machine_types, on_demand()], preemptions, seed)


def with_notice(seed: int = 0) -> CloudSetup:
    """Return a cloud that hands machines over at once, sometimes with their notice."""
    rng = np.random.default_rng((seed, 9))
    changes = np.append(0.0, np.cumsum(rng.exponential(1500.0, 600)) + 1.0)
    prices = 0.3 * np.exp(0.4 * rng.standard_normal(601))
    series = PriceSeries("price", "a", changes - 8.0 * HOUR, prices, end=FOREVER)
    room = AvailabilityPreemptions(changes, rng.integers(0, 4, 601), FOREVER)
    machine_types = [
        MachineType("price", series, revocation=SteepRevocation(), notice_seconds=300.0),
        MachineType("room", 0.3, survival=Exponential(1.0), notice_seconds=300.0, billing=EC2_SPOT),
        MachineType("stays", 1.0),
    ]
    return CloudSetup(machine_types, {"price": PricePreemptions(series), "room": room}, seed)


def instant_machines(seed: int = 0) -> CloudSetup:
    """Return a cloud that hands machines over at once and preempts them often."""
    life = Exponential(1.0)
    machine_types = [
        MachineType("now", 0.2, survival=life, billing=EC2_SPOT),
        MachineType("too", 0.2, 2, survival=life, billing=PER_SECOND),
        MachineType("stays", 1.0),
    ]
    return CloudSetup(
        machine_types,
        {"now": LifetimePreemptions(life, seed), "too": LifetimePreemptions(life, seed + 1000)},
        seed,
    )


def only_on_demand(seed: int = 0) -> CloudSetup:
    return CloudSetup([on_demand(), on_demand("quick", 1.9, 2.0, slots=2)], {}, seed)


def large_machines(seed: int = 0) -> CloudSetup:
    """Return a cloud with large machines that take long to start."""
    large = MachineType("large", 4.0, 4, queue=100.0, init=900.0)
    return CloudSetup([large, MachineType("huge", 16.0, 16, queue=100.0, init=900.0)], {}, seed)


def curve(config: ev.Config, steps: int = STEPS) -> Curve:
    """Return a curve whose steps take two to nine minutes, by the trial and slightly by the step."""
    seconds = 120.0 + 400.0 * config["x"]
    return Curve(
        range(1, steps + 1),
        [{"loss": config["x"] + 1.0 / step} for step in range(1, steps + 1)],
        [seconds * (1.0 + 0.05 * math.sin(7.0 * step)) for step in range(steps)],
    )


@dataclass
class StudyOutcome:
    """A completed run of a study."""

    spec: Spec
    history: History
    cloud: SimulatedCloud
    log: list[ev.Event]
    cycles: int
    now: float

    def of(self, *types: type[ev.Event]) -> list[Any]:
        return [entry for entry in self.log if isinstance(entry, types)]

    @property
    def ledger(self) -> Ledger:
        return Ledger.of(self.history, self.now)

    def offers(self) -> Counter[str]:
        return Counter(entry.offer for entry in self.of(ev.MachineRented))


def make_spec(trials: int = 4, *, seed: int = 1, steps: int = STEPS, **settings: Any) -> Spec:
    space = Space({"x": Float(0.0, 1.0)})
    return Spec("rented", space, (Objective("loss", False),), seed, trials=trials, max_steps=steps, **settings)


def run(
    make: PolicyFactory,
    setup: CloudSetup,
    workload: StudyWorkload,
    spec: Spec | None = None,
    *,
    kill_after: Collection[int] = (),
    stop_after: int | None = None,
    curves: Callable[[ev.Config], Curve] = curve,
    pace: Callable[[MachineType], float] | None = None,
    rule: Callable[[], Stopper] | None = None,
) -> StudyOutcome:
    """Run a study to its end.

    - `kill_after`: cycles after which the driver is killed; the new one has only the log, and learns from the
      provider what became of the requests of the last one.
    - `stop_after`: the cycle after which the user stops the study.
    - `pace`: returns the seconds of a step on a type relative to its curve; by default, the inverse of its speed.
    - `rule`: makes the stopping rule.
    """
    spec = make_spec(workload.trials or 4) if spec is None else spec
    clock = VirtualClock()
    machine_types = [
        replace(machine_type, price=NoFuturePrices(machine_type.price, clock))
        if isinstance(machine_type.price, PriceSeries)
        else machine_type
        for machine_type in setup.kinds
    ]
    cloud = SimulatedCloud(machine_types, setup.preemptions, setup.seed)

    def paced(_: Run, machine: str) -> float:
        machine_type = cloud.kind_of(machine)
        return 1.0 / machine_type.speed if pace is None else pace(machine_type)

    def an_engine() -> SimulatedEngine:
        return SimulatedEngine(
            curves, clock, workload.restart_seconds, save_seconds=workload.save_seconds, pace=paced
        )

    def a_conductor(log: list[ev.Event]) -> Conductor:
        return Conductor(spec, replayed(spec, log), Random(), make(machine_types, workload), rule and rule())

    log: list[ev.Event] = []
    conductor, engine = a_conductor(log), an_engine()
    events: list[ev.Event] = [ev.DriverStarted(clock.time, 1, "host")]
    cycles, instant_machines = 0, 0
    while True:
        cycles, moment = cycles + 1, clock.time
        assert cycles <= _MAX_CYCLES, "the study does not end"
        if cycles == stop_after:
            events = [*events, ev.StopRequested(clock.time, "test")]
        entries = conductor.handle(events, clock.time)
        log += entries
        history = conductor.history
        history.validate()
        answers = _carried_out(entries, conductor, engine, cloud, clock)
        if cycles in kill_after:
            clock.time += DOWN_SECONDS
            conductor, engine = a_conductor(log), an_engine()
            events = [ev.DriverStarted(clock.time, 1, "host"), *answers, *cloud.poll_events(clock.time)]
            continue
        if answers:
            events = answers
        elif history.finish_reason is not None or (conductor.halted and not history.running):
            return StudyOutcome(spec, history, cloud, log, cycles, clock.time)
        else:
            times = [at for at in (conductor.wake_at(clock.time), cloud.next_event_at()) if at is not None]
            events = engine.wait(max(0.0, min(times) - clock.time) if times else None)
            events = [*events, *cloud.poll_events(clock.time)]
            assert events or times, "nothing runs and no event is due"
        instant_machines = instant_machines + 1 if clock.time <= math.nextafter(moment, math.inf) else 0
        assert instant_machines <= _MAX_CYCLES_AT_ONCE, (
            f"endless loop at {clock.time}: {[type(e).__name__ for e in log[-8:]]}"
        )


def _carried_out(
    entries: list[ev.Event],
    conductor: Conductor,
    engine: SimulatedEngine,
    cloud: SimulatedCloud,
    clock: VirtualClock,
) -> list[ev.Event]:
    answers: list[ev.Event] = []
    for entry in entries:
        match entry:
            case ev.Place():
                engine.start(make_run(conductor.spec, conductor.history, entry.trial), {entry.machine: 1})
            case ev.Move() | ev.Pause() | ev.Stop():
                engine.request_end(entry.trial, entry.attempt)
            case ev.Kill():
                engine.kill(entry.trial, entry.attempt)
            case ev.Rent():
                answers += cloud.rent(entry.machine, entry.offer, entry.max_price, clock.time)
            case ev.Release():
                answers += cloud.release(entry.machine, clock.time)
            case ev.MachineLost() | ev.MachineReleased():
                engine.machine_lost(entry.machine)
            case _:
                pass
    return answers
