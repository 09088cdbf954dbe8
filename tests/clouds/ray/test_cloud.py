"""Tests the cloud on real Ray clusters: nodes start, are drained, killed, rented, released and shared."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.clouds.conformance import RentingConformance, fold, machines_of
from tests.support.ray_clusters import Nodes, nodes
from thriftune.clouds.protocol import Cloud
from thriftune.clouds.ray.cloud import MAX_WAIT_SECONDS, RayCloud
from thriftune.clouds.ray.cluster import INSTANCE_TYPE, MARKET, PRICE, Cluster, ClusterNode, NodeType
from thriftune.clouds.ray.node_types import billing_of, price_of
from thriftune.clouds.ray.other_studies import OtherStudy, RentedNode, StudyNotes, fair_share
from thriftune.clouds.ray.sharing import Want
from thriftune.errors import SettingError
from thriftune.market.billing import EC2_SPOT, GCP_PREEMPTIBLE, PER_SECOND, Billing
from thriftune.market.catalog import Catalog, reference_offer
from thriftune.state import events as ev
from thriftune.state.fleet import Fleet

pytestmark = pytest.mark.cluster

SPOT = {INSTANCE_TYPE: "c7i.large", MARKET: "spot", PRICE: "3.6"}
TYPE = NodeType("c7i.large_spot", {"CPU": 2.0}, 3)
WORKER = {"CPU": 1.0}


@pytest.fixture(scope="module")
def one_node() -> Iterator[tuple[Nodes, Cluster]]:
    """Start a head without CPUs and a shared node with 2 CPUs."""
    with nodes(2) as ray_nodes:
        cluster = Cluster.attach(ray_nodes.address)
        yield ray_nodes, cluster
        cluster.detach()


class FakeAutoscaler:
    """Starts and ends nodes of TYPE when the test wants it to."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.started: list[str] = []

    def start_node(self, **labels: str) -> str:
        node = self.nodes.add(2, labels={**SPOT, **labels}, kind=TYPE.name)
        self.started.append(node)
        return node

    def end_node(self, node: str, *, kill: bool = False) -> None:
        self.started.remove(node)
        (self.nodes.kill if kill else self.nodes.end)(node)


@pytest.fixture
def autoscaler(one_node: tuple[Nodes, Cluster]) -> Iterator[FakeAutoscaler]:
    autoscaler = FakeAutoscaler(one_node[0])
    yield autoscaler
    for node in list(autoscaler.started):
        autoscaler.end_node(node)
    cluster = one_node[1]
    while len(cluster.nodes()) > 2:
        time.sleep(0.05)
    for key in cluster.read_notes(""):
        cluster.delete_note(key)


class Study:
    """A study that uses a cluster, and applies the events as a history does."""

    def __init__(self, cluster: Cluster, name: str = "a", known: tuple[str, ...] = (), **options: Any) -> None:
        self.cloud = RayCloud(cluster, name, options.pop("worker", WORKER), known, types=(TYPE,), **options)
        self.fleet = Fleet()
        self.events: list[ev.Event] = []

    def record(self, events: list[ev.Event]) -> list[ev.Event]:
        fold(self.fleet, events)
        self.events += events
        return events

    def open(self) -> list[ev.Event]:
        return self.record(self.cloud.open(time.time()))

    def rent(self, machine: str, offer: str = TYPE.name) -> list[ev.Event]:
        self.fleet.apply_rent(ev.Rent(time.time(), machine, offer))
        return self.record(self.cloud.rent(machine, offer, None, time.time()))

    def release(self, machine: str) -> list[ev.Event]:
        return self.record(self.cloud.release(machine, time.time()))

    def close(self) -> list[ev.Event]:
        return self.record(self.cloud.close(time.time()))

    def poll(self) -> list[ev.Event]:
        return self.record(self.cloud.poll_events(time.time()))

    def wait_for(self, event_type: type, seconds: float = 60.0) -> Any:
        """Poll until there is an event of a type; return it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for event in self.poll():
                if isinstance(event, event_type):
                    return event
            time.sleep(0.05)
        raise AssertionError(f"no {event_type.__name__}; all events: {self.events}")


@pytest.fixture
def study(one_node: tuple[Nodes, Cluster], autoscaler: FakeAutoscaler) -> Iterator[Study]:
    study = Study(one_node[1])
    yield study
    study.close()


class TestConformance(RentingConformance):
    unrented, offer = 1, TYPE.name

    @pytest.fixture(autouse=True)
    def _cluster(self, one_node: tuple[Nodes, Cluster], autoscaler: FakeAutoscaler) -> None:
        self.cluster, self.autoscaler = one_node[1], autoscaler

    def make(self) -> Cloud:
        return RayCloud(self.cluster, "a", WORKER, types=(TYPE,))

    def now(self) -> float:
        return time.time()

    def wait(self) -> None:
        time.sleep(0.1)

    def start_rented(self) -> None:
        self.autoscaler.start_node()

    def end_released(self, cloud: Cloud, machine: str) -> None:
        self.autoscaler.end_node(self.autoscaler.started[-1])


def test_a_new_node_is_a_machine_until_it_is_killed(study: Study, autoscaler: FakeAutoscaler) -> None:
    [first] = study.open()
    assert isinstance(first, ev.MachineReady)
    assert (first.offer, first.slots) == ("2 CPUs", 2)
    node = autoscaler.nodes.add(3, labels={MARKET: "spot"})
    ready = study.wait_for(ev.MachineReady)
    assert ready.machine == f"node-{node[-8:]}"
    assert (ready.offer, ready.slots) == ("3 CPUs spot", 3)
    assert study.cloud.node_of(ready.machine).id == node
    autoscaler.nodes.kill(node)
    lost = study.wait_for(ev.MachineLost)
    assert (lost.machine, lost.revoked) == (ready.machine, True)
    assert lost.why


def test_a_busy_node_gets_a_notice_and_then_ends(study: Study, autoscaler: FakeAutoscaler, one_node: Any) -> None:
    study.open()
    node = autoscaler.nodes.add(1, resources={"mark": 1})
    machine = study.wait_for(ev.MachineReady).machine
    busy = one_node[1].claim({"mark": 1}, {})
    while busy.node() is None:
        time.sleep(0.05)
    deadline = autoscaler.nodes.drain(node, 30.0)
    notice = study.wait_for(ev.MachineNotice)
    assert notice.machine == machine
    assert notice.deadline == pytest.approx(deadline, abs=0.01)
    assert study.fleet.present[machine].free_slots == 0
    autoscaler.nodes.kill(node)
    assert study.wait_for(ev.MachineLost).revoked
    busy.end()
    assert len(machines_of(study.events, ev.MachineNotice)) == 1


def test_an_idle_node_ends_with_its_notice(study: Study, autoscaler: FakeAutoscaler) -> None:
    """Ray ends a draining node as soon as nothing runs there."""
    study.open()
    node = autoscaler.nodes.add(1)
    study.wait_for(ev.MachineReady)
    autoscaler.nodes.drain(node, 30.0)
    assert study.wait_for(ev.MachineLost).revoked
    autoscaler.nodes.end(node)


def test_nodes_without_room_for_a_worker_are_no_machines(
    one_node: tuple[Nodes, Cluster], autoscaler: FakeAutoscaler
) -> None:
    study = Study(one_node[1], worker={"CPU": 4})
    assert study.open() == []
    study.close()


@pytest.mark.parametrize(
    ("offer", "why"),
    [("large", "is no node type"), ("c7i.lurge_spot", "mean c7i.large"), ("t3.nano_gift", "is no node type")],
)
def test_unknown_node_types_are_refused(study: Study, offer: str, why: str) -> None:
    study.open()
    [event] = study.rent("m1", offer)
    assert isinstance(event, ev.MachineRefused)
    assert why in event.why


def test_refuses_more_nodes_than_allowed_and_nodes_that_are_too_small(
    one_node: Any, autoscaler: FakeAutoscaler
) -> None:
    study = Study(one_node[1])
    study.open()
    assert [study.rent(f"m{number}") for number in range(3)] == [[], [], []]
    [event] = study.rent("m3")
    assert isinstance(event, ev.MachineRefused)
    assert "no more than 3 of these nodes at a time" in event.why
    study.close()
    assert not study.fleet.renting
    study = Study(one_node[1], "b", worker={"CPU": 3})
    study.open()
    [event] = study.rent("m1")
    assert isinstance(event, ev.MachineRefused)
    assert "fits" in event.why
    study.close()


def test_two_rented_machines_get_two_nodes(study: Study, autoscaler: FakeAutoscaler) -> None:
    study.open()
    study.rent("m1")
    study.rent("m2")
    first = autoscaler.start_node()
    study.wait_for(ev.MachineReady)
    for _ in range(5):  # the second machine must not get the node of the first
        time.sleep(0.25)
        study.poll()
    second = autoscaler.start_node()
    study.wait_for(ev.MachineReady)
    assert sorted(study.cloud.node_of(name).id for name in ("m1", "m2")) == sorted([first, second])
    assert study.fleet.present["m1"].price_per_hour == 3.6
    assert study.fleet.present["m1"].on_demand_per_hour == Catalog.shipped()["c7i.large"].price_per_hour
    assert study.release("m1") == []
    released = study.cloud.node_of("m1").id
    time.sleep(0.5)
    assert study.poll() == []  # it is billed until its node has ended
    autoscaler.end_node(released)
    assert study.wait_for(ev.MachineReleased).machine == "m1"
    bill = study.fleet.past[-1].bill
    assert bill is not None
    seconds = EC2_SPOT.billed_seconds(study.fleet.past[-1].seconds(0.0))
    assert bill.dollars == pytest.approx(float(seconds) * 3.6 / 3600, rel=1e-6)


def test_a_released_node_can_be_rented_again_before_it_ends(study: Study, autoscaler: FakeAutoscaler) -> None:
    study.open()
    study.rent("m1")
    node = autoscaler.start_node()
    study.wait_for(ev.MachineReady)
    study.release("m1")
    study.rent("m2")
    assert study.wait_for(ev.MachineReady).machine == "m2"
    assert study.cloud.node_of("m2").id == node
    types = [type(event).__name__ for event in study.events[-4:]]
    assert types == ["MachineReleased", "MachineBilled", "MachineRented", "MachineReady"]


def test_a_node_that_starts_after_its_order_was_cancelled_is_no_machine(
    study: Study, autoscaler: FakeAutoscaler
) -> None:
    study.open()
    study.rent("m1")
    study.release("m1")
    autoscaler.start_node()
    for _ in range(5):
        time.sleep(0.25)
        assert study.poll() == []


def test_a_new_driver_finds_the_machines_that_still_run(one_node: Any, autoscaler: FakeAutoscaler) -> None:
    study = Study(one_node[1])
    study.open()
    for machine in ("m1", "m2", "m3"):
        study.rent(machine)
        autoscaler.start_node()
        study.wait_for(ev.MachineReady)
    nodes_of = {machine: study.cloud.node_of(machine).id for machine in ("m1", "m2", "m3")}
    autoscaler.end_node(nodes_of["m2"], kill=True)
    while nodes_of["m2"] in {node.id for node in one_node[1].nodes()}:
        time.sleep(0.1)
    # The first driver is not polled any more, and the history does not have its m3.
    after = RayCloud(one_node[1], "a", WORKER, ("m1", "m2", "m4"), types=(TYPE,))
    events = after.open(time.time())
    assert sorted(machines_of(events, ev.MachineLost)) == ["m2", "m4"]
    assert machines_of(events, ev.MachineRented) == ["m3"]
    assert after.node_of("m1").id == nodes_of["m1"]
    assert len(machines_of(events, ev.MachineReady)) == 2  # m3 and the shared node
    for machine in ("m1", "m3"):
        after.release(machine, time.time())
    assert sorted(machines_of(after.close(time.time()), ev.MachineBilled)) == ["m1", "m3"]
    study.cloud.close(time.time())


def test_a_new_driver_finds_machines_that_were_being_released(one_node: Any, autoscaler: FakeAutoscaler) -> None:
    study = Study(one_node[1])
    study.open()
    for machine in ("m1", "m2"):
        study.rent(machine)
        autoscaler.start_node()
        study.wait_for(ev.MachineReady)
    study.release("m1")
    study.release("m2")
    autoscaler.end_node(study.cloud.node_of("m2").id)
    while len(one_node[1].nodes()) > 3:
        time.sleep(0.1)
    after = RayCloud(one_node[1], "a", WORKER, ("m1", "m2"), types=(TYPE,))
    events = after.open(time.time())
    assert machines_of(events, ev.MachineReleased) == ["m2"]
    assert not machines_of(events, ev.MachineLost, ev.MachineRented)
    assert after.node_of("m1").id == study.cloud.node_of("m1").id
    after.release("m1", time.time())
    assert machines_of(after.close(time.time()), ev.MachineReleased)[0] == "m1"
    study.cloud.close(time.time())


def test_a_machine_that_ended_without_a_driver_is_billed_until_the_driver_ended(
    one_node: Any, autoscaler: FakeAutoscaler
) -> None:
    study = Study(one_node[1])
    study.open()
    study.rent("m1")
    node = autoscaler.start_node()
    study.wait_for(ev.MachineReady)
    last_at = time.time()
    study.cloud.release_claims()  # as if its driver had been killed
    autoscaler.end_node(node)
    while len(one_node[1].nodes()) > 2:
        time.sleep(0.1)
    after = RayCloud(one_node[1], "a", WORKER, ("m1", "m4"), types=(TYPE,), driven_until=last_at)
    days_later = last_at + 72 * 3600.0
    events = after.open(days_later)
    lost = [event for event in events if isinstance(event, ev.MachineLost)]
    assert [(event.machine, event.at) for event in lost] == [("m1", last_at), ("m4", last_at)]
    fold(study.fleet, [lost[0]])
    assert study.fleet.past[-1].dollars(days_later) < 0.1
    (bill,) = [event for event in events if isinstance(event, ev.MachineBilled)]
    assert (bill.machine, bill.at) == ("m1", last_at)
    assert bill.dollars < 0.1
    after.close(time.time())


def test_a_failing_driver_can_end_all_its_claims(one_node: Any, autoscaler: FakeAutoscaler) -> None:
    """Its process may stay connected to the cluster, and the autoscaler would keep nodes for the claims."""
    from ray.util import placement_group_table

    def claimed() -> int:
        return sum(group["state"] != "REMOVED" for group in placement_group_table().values())

    study = Study(one_node[1])
    study.open()
    before = claimed()
    study.rent("m1")
    autoscaler.start_node()
    study.wait_for(ev.MachineReady)
    study.rent("m2")
    assert claimed() >= before + 2
    study.cloud.release_claims()
    study.cloud.release_claims()
    deadline = time.monotonic() + 30.0
    while claimed() > before:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_memory_is_checked_when_the_node_has_started(one_node: Any, autoscaler: FakeAutoscaler) -> None:
    fits, none_fits = ({"CPU": 1.0, "memory": amount} for amount in (1e6, 1e15))
    for worker, expected in ((fits, ev.MachineReady), (none_fits, ev.MachineRefused)):
        study = Study(one_node[1], worker=worker)
        study.open()
        assert study.rent("m1") == []
        node = autoscaler.start_node()
        event = study.wait_for((ev.MachineReady, ev.MachineRefused))  # type: ignore[arg-type]
        assert type(event) is expected
        study.release("m1")
        study.close()
        autoscaler.end_node(node)
        while len(one_node[1].nodes()) > 2:
            time.sleep(0.1)
    assert "fits on the node that started" in event.why


def test_an_order_is_refused_after_the_longest_wait(study: Study) -> None:
    study.open()
    study.rent("m1")
    assert study.poll() == []
    [event] = study.record(study.cloud.poll_events(time.time() + MAX_WAIT_SECONDS + 1.0))
    assert isinstance(event, ev.MachineRefused)
    assert not study.fleet.renting


def test_two_studies_share_unrented_nodes_only(one_node: Any, autoscaler: FakeAutoscaler) -> None:
    cluster = one_node[1]
    one, two = Study(cluster, "one"), Study(cluster, "two")
    one.cloud._wants = two.cloud._wants = lambda: 4
    one.open()
    two.open()
    share = one.wait_for(ev.ShareChanged)
    assert (share.workers, share.why) == (1, "1 other study: two")
    assert two.events[-1] == ev.ShareChanged(two.events[-1].at, 1, "1 other study: one")
    one.rent("m1")
    autoscaler.start_node()
    assert one.wait_for(ev.MachineReady).machine == "m1"
    assert [event.workers for event in one.events if isinstance(event, ev.ShareChanged)] == [1, 3]
    two.poll()
    assert "m1" not in two.fleet.present
    assert len(two.fleet.present) == 1
    third = Study(cluster, "three")
    assert len(machines_of(third.open(), ev.MachineReady)) == 1  # the shared node, not the rented one
    third.close()
    two.close()
    change = one.wait_for(ev.ShareChanged)
    assert (change.workers, change.why) == (None, "no other study wants any")
    one.close()


def test_an_existing_node_of_a_rentable_type_is_rented_at_once(one_node: Any, autoscaler: FakeAutoscaler) -> None:
    """An ended study may have left it, or the profiling run of this study."""
    node = autoscaler.start_node()
    study = Study(one_node[1])
    study.open()
    assert len(study.fleet.present) == 1  # the shared node
    study.rent("m1")
    assert study.wait_for(ev.MachineReady).machine == "m1"
    assert study.cloud.node_of("m1").id == node
    study.release("m1")
    study.close()


def test_a_share_is_of_whole_trials(one_node: Any) -> None:
    """Two CPUs, of which half is of no use to a trial with two workers."""
    cluster = one_node[1]
    one, two = Study(cluster, "one", gang=2), Study(cluster, "two", gang=2)
    one.cloud._wants = two.cloud._wants = lambda: 4
    one.open()
    two.open()
    assert one.wait_for(ev.ShareChanged).workers == 2
    assert [event.workers for event in two.events if isinstance(event, ev.ShareChanged)] == [0]
    one.close()
    two.close()


# --- notes and prices -----------------------------------------------------------------------------------------


def test_a_study_counts_as_ended_when_its_note_is_old(one_node: Any, autoscaler: FakeAutoscaler) -> None:
    cluster = one_node[1]
    old, new = StudyNotes(cluster, "old"), StudyNotes(cluster, "new")
    old.write_want(1000.0, Want(WORKER, 3))
    old.write_rented({"m1": RentedNode("abc", "c7i.large_spot", 0.1, 900.0)})
    expected = {"old": OtherStudy(Want(WORKER, 3), frozenset({"abc"}))}
    assert new.others(1009.0) == expected
    assert new.others(1011.0) == {}
    old.write_want(1011.0, Want(WORKER, 3))
    assert new.others(1011.0) == expected
    assert old.read_rented()["m1"].node == "abc"
    old.delete_want()
    assert new.others(1011.0) == {}
    assert old.read_rented()  # its next driver finds them
    old.write_rented({})
    assert old.read_rented() == {}


@pytest.mark.parametrize(
    ("mine", "theirs", "share", "why"),
    [
        (9, (), None, "no other"),
        (9, (0, 0), None, "no other"),
        (2, (1, 1), None, "room for all"),
        (9, (9,), 2, "1 other study: s0"),
        (9, (9, 9), 1, "2 other studies: s0, s1"),
        (1, (9, 9), 1, "2 other studies: s0, s1"),
        (0, (9,), None, "room for all"),
    ],
)
def test_fair_share_gives_a_limit_only_if_studies_compete(
    mine: int, theirs: tuple[int, ...], share: int | None, why: str
) -> None:
    others = {f"s{n}": OtherStudy(Want(WORKER, workers), frozenset()) for n, workers in enumerate(theirs)}
    granted, reason = fair_share({"CPU": 4.0}, "zz", Want(WORKER, mine), others)
    assert granted == share
    assert why in reason


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, ("4 CPUs", reference_offer(4).price_per_hour, None, True)),
        ({MARKET: "spot"}, ("4 CPUs spot", reference_offer(4).price_per_hour, None, False)),
        ({INSTANCE_TYPE: "c7i.large"}, ("c7i.large", Catalog.shipped()["c7i.large"].price_per_hour, ..., True)),
        ({INSTANCE_TYPE: "c7i.large", MARKET: "spot"}, ("c7i.large spot", ..., ..., False)),
        ({INSTANCE_TYPE: "n1-highcpu-2", MARKET: "spot"}, ("n1-highcpu-2 spot", ..., ..., True)),
        ({INSTANCE_TYPE: "own", MARKET: "spot"}, ("own spot", reference_offer(4).price_per_hour, None, False)),
        ({INSTANCE_TYPE: "own", MARKET: "spot", PRICE: "0.25"}, ("own spot", 0.25, None, True)),
        ({INSTANCE_TYPE: "own"}, ("own", reference_offer(4).price_per_hour, None, True)),
    ],
)
def test_prices_of_nodes(labels: dict[str, str], expected: tuple[Any, ...]) -> None:
    price = price_of(ClusterNode("abc", "127.0.0.1", {"CPU": 4.0}, labels), Catalog.shipped())
    assert [a for a, b in zip(price, expected, strict=True) if b is not ...] == [
        b for b in expected if b is not ...
    ]
    if labels.get(INSTANCE_TYPE) == "n1-highcpu-2":
        offer = Catalog.shipped()["n1-highcpu-2"]
        assert price[1:3] == (offer.spot_price_per_hour, offer.price_per_hour)


def test_refuses_a_price_label_that_is_no_price() -> None:
    with pytest.raises(SettingError, match="'cheap' is no price"):
        price_of(ClusterNode("abc", "127.0.0.1", {"CPU": 4.0}, {PRICE: "cheap"}), Catalog.shipped())


@pytest.mark.parametrize(
    ("name", "least_billed", "expected"),
    [
        ("c7i.large_spot", None, EC2_SPOT),
        ("c7i.large_on-demand", None, PER_SECOND),
        ("n1-highcpu-2_spot", None, GCP_PREEMPTIBLE),
        ("own_spot", None, Billing()),
        ("own_on-demand", 30.0, Billing(least_seconds=30.0)),
        ("c7i.large_spot", 0.0, replace(EC2_SPOT, least_seconds=0.0)),
    ],
)
def test_nodes_are_billed_by_the_rules_of_their_provider(
    name: str, least_billed: float | None, expected: Billing
) -> None:
    types = {name: NodeType(name, {"CPU": 2.0}, 3, least_billed=least_billed)}
    assert billing_of(name, types, Catalog.shipped()) == expected


def test_a_spot_node_that_is_preempted_in_its_first_hour_is_free(study: Study, autoscaler: FakeAutoscaler) -> None:
    study.open()
    study.rent("m1")
    node = autoscaler.start_node()
    study.wait_for(ev.MachineReady)
    autoscaler.end_node(node, kill=True)
    bill = study.wait_for(ev.MachineBilled)
    assert bill.dollars == 0.0
    assert bill.refunded >= 60.0 * 0.001  # $3.6 an hour, for at least a minute
    assert bill.estimated


def test_a_released_spot_node_is_billed_for_at_least_a_minute(study: Study, autoscaler: FakeAutoscaler) -> None:
    study.open()
    study.rent("m1")
    node = autoscaler.start_node()
    study.wait_for(ev.MachineReady)
    study.release("m1")
    autoscaler.end_node(node)
    bill = study.wait_for(ev.MachineBilled)
    assert bill.dollars >= 60.0 * 0.001
    assert bill.refunded == 0.0
    assert bill.estimated


def test_a_machine_that_another_study_rents_now_is_not_refunded(one_node: Any, autoscaler: FakeAutoscaler) -> None:
    study, other = Study(one_node[1]), Study(one_node[1], "b")
    study.open()
    study.rent("m1")
    node = autoscaler.start_node()
    study.wait_for(ev.MachineReady)
    other.open()
    rented = RentedNode(node, TYPE.name, 3.6, time.time())
    other.cloud._notes.write_rented({"n1": rented})
    bill = study.wait_for(ev.MachineBilled)
    assert bill.dollars >= 60.0 * 0.001
    assert bill.refunded == 0.0
    for each in (study, other):
        each.close()


def test_a_spot_node_may_have_no_known_price(one_node: Any, autoscaler: FakeAutoscaler) -> None:
    study = Study(one_node[1])
    study.open()
    study.rent("m1")
    autoscaler.started.append(
        one_node[0].add(2, labels={INSTANCE_TYPE: "c7i.large", MARKET: "spot"}, kind=TYPE.name)
    )
    assert not study.wait_for(ev.MachineReady).price_known
    assert not study.fleet.present["m1"].price_known
    study.close()
