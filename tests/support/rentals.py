"""Simulated studies on rented machines that are preempted, with a policy that rents and releases at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thriftune.loop.conductor import Conductor
from thriftune.market.billing import (
    EC2_SPOT,
    EC2_SPOT_2016,
    EC2_SPOT_HELD,
    GCP_PREEMPTIBLE,
    HOURLY,
    PER_SECOND,
    Billing,
)
from thriftune.market.lifetime import Exponential
from thriftune.market.price_history import PriceSeries
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.present_machines import PresentMachines
from thriftune.replay.preemptions import (
    AvailabilityPreemptions,
    LifetimePreemptions,
    Preemptions,
    PricePreemptions,
)
from thriftune.replay.simulated_cloud import SimulatedCloud
from thriftune.replay.simulated_engine import Curve, SimulatedEngine, VirtualClock
from thriftune.replay.simulation_loop import drive
from thriftune.search.random import Random
from thriftune.space.objectives import Objective
from thriftune.space.parameters import Float
from thriftune.space.space import Space
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.trial_record import TrialRecord

BILLINGS = (EC2_SPOT, EC2_SPOT_2016, EC2_SPOT_HELD, GCP_PREEMPTIBLE, HOURLY, PER_SECOND)
MAX_PRICES = (0.3, 0.9, 2.0, None)
FOREVER = 1e8


def cloud(seed: int, billing: Billing | None = None) -> SimulatedCloud:
    """Return a simulated cloud with four machine types.

    Their machines are preempted by the price, at random, by other users, or never. They are billed by the rules of
    random providers, or by `billing`.
    """
    rng = np.random.default_rng((seed, 1))
    times = np.concatenate([[0.0], np.cumsum(rng.exponential(1500.0, 400)) + 1.0])
    prices = PriceSeries("price", "a", times, np.round(rng.lognormal(-0.7, 0.8, 401), 4), end=FOREVER)
    counts = AvailabilityPreemptions(times[::4], rng.integers(0, 6, len(times[::4])), FOREVER)
    preemptions: dict[str, Preemptions] = {
        "price": PricePreemptions(prices),
        "chance": LifetimePreemptions(Exponential(float(rng.uniform(0.2, 3.0))), seed),
        "room": counts,
    }

    def rules() -> Billing:
        return BILLINGS[rng.integers(len(BILLINGS))] if billing is None else billing

    kinds = [
        MachineType("price", prices, billing=rules(), notice_seconds=120.0, init=30.0, on_demand_price=1.5),
        MachineType(
            "chance", 0.27, 2, billing=rules(), queue=(20.0, 15.0), init=(60.0, 30.0), on_demand_price=0.9
        ),
        MachineType("room", 0.333, 4, billing=rules(), data_gb=1.7),
        MachineType("stays", 1.01, 2, billing=rules(), init=45.0),
    ]
    return SimulatedCloud(kinds, preemptions, seed)


@dataclass
class RandomPolicy(PresentMachines):
    """Rents random machines, and releases them while trials run."""

    seed: int
    most: int
    offers: Sequence[str] = ("price", "chance", "room", "stays")

    def react(self, event: ev.Event, history: History) -> Sequence[ev.Decision]:
        if isinstance(event, ev.Reported) or history.finish_reason:
            return ()
        rng = np.random.default_rng((self.seed, history.entries))
        fleet = history.fleet
        if len(fleet.present) + len(fleet.renting) < self.most:
            offer = self.offers[int(rng.integers(len(self.offers)))]
            if fleet.last_unavailable_at.get(offer) == event.at:
                return ()
            price = MAX_PRICES[rng.integers(len(MAX_PRICES))]
            return [ev.Rent(event.at, f"{offer}-{fleet.rented_count + 1}", offer, price)]
        if fleet.present and rng.random() < 0.05:
            return [ev.Release(event.at, list(fleet.present)[rng.integers(len(fleet.present))])]
        return ()

    def save_every(self, trial: TrialRecord, machine: str, history: History) -> float | None:
        return 900.0

    def wake_at(self, history: History, now: float) -> float | None:
        return now + 600.0


def study(seed: int, *, trials: int = 12, most: int = 5) -> tuple[History, SimulatedCloud, float]:
    """Run a study to its end; return its history, its cloud and the time of its end."""
    rng = np.random.default_rng((seed, 2))

    def curve(config: ev.Config) -> Curve:
        steps = int(rng.integers(5, 40))
        return Curve(
            range(1, steps + 1), [{"loss": config["x"]}] * steps, rng.uniform(50.0, 500.0, steps).tolist()
        )

    clock, rented = VirtualClock(), cloud(seed)
    engine = SimulatedEngine(curve, clock, 20.0, start_seconds=20.0, save_seconds=5.0)
    spec = Spec("rented", Space({"x": Float(0.0, 1.0)}), (Objective("loss", False),), seed, trials=trials)
    conductor = Conductor(spec, spec.new_history(), Random(), RandomPolicy(seed, most))
    drive(conductor, engine, clock, cloud=rented)
    return conductor.history, rented, clock.time
