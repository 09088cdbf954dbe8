"""The nodes of real Ray clusters as machines: they come, are drained, killed, rented, let go of, and shared."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.clouds.conformance import RentingConformance, fold, of
from tests.support.ray_clusters import Nodes, nodes
from thriftune.clouds.protocol import Cloud
from thriftune.clouds.ray.cloud import PATIENCE_SECONDS, RayCloud
from thriftune.clouds.ray.cluster import INSTANCE_TYPE, MARKET, PRICE, Cluster, ClusterNode, NodeType
from thriftune.clouds.ray.node_types import billing_of, priced
from thriftune.clouds.ray.other_studies import Neighbour, Neighbours, Rented, fair_share
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
    """A head without CPUs and a node with 2 that nobody rents."""
    with nodes(2) as there:
        cluster = Cluster.attach(there.address)
        yield there, cluster
        cluster.detach()


class Hands:
    """What an autoscaler would do, done by the test: nodes of TYPE come and go when it says so."""

    def __init__(self, there: Nodes) -> None:
        self.there = there
        self.started: list[str] = []

    def come(self, **labels: str) -> str:
        node = self.there.add(2, labels={**SPOT, **labels}, kind=TYPE.name)
        self.started.append(node)
        return node

    def go(self, node: str, *, kill: bool = False) -> None:
        self.started.remove(node)
        (self.there.kill if kill else self.there.end)(node)


@pytest.fixture
def hands(one_node: tuple[Nodes, Cluster]) -> Iterator[Hands]:
    hands = Hands(one_node[0])
    yield hands
    for node in list(hands.started):
        hands.go(node)
    cluster = one_node[1]
    while len(cluster.nodes()) > 2:
        time.sleep(0.05)
    for key in cluster.noted(""):
        cluster.erase(key)


class Study:
    """One that uses a cluster, and folds what it is told as a history does."""

    def __init__(self, cluster: Cluster, name: str = "a", known: tuple[str, ...] = (), **others: Any) -> None:
        self.cloud = RayCloud(cluster, name, others.pop("worker", WORKER), known, types=(TYPE,), **others)
        self.fleet = Fleet()
        self.told: list[ev.Event] = []

    def hear(self, events: list[ev.Event]) -> list[ev.Event]:
        fold(self.fleet, events)
        self.told += events
        return events

    def open(self) -> list[ev.Event]:
        return self.hear(self.cloud.open(time.time()))

    def rent(self, machine: str, offer: str = TYPE.name) -> list[ev.Event]:
        self.fleet.rent(ev.Rent(time.time(), machine, offer))
        return self.hear(self.cloud.rent(machine, offer, None, time.time()))

    def release(self, machine: str) -> list[ev.Event]:
        return self.hear(self.cloud.release(machine, time.time()))

    def close(self) -> list[ev.Event]:
        return self.hear(self.cloud.close(time.time()))

    def look(self) -> list[ev.Event]:
        return self.hear(self.cloud.poll_events(time.time()))

    def until(self, kind: type, seconds: float = 60.0) -> Any:
        """The first of a kind that is told from now on."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for event in self.look():
                if isinstance(event, kind):
                    return event
            time.sleep(0.05)
        raise AssertionError(f"no {kind.__name__}; all that was told: {self.told}")


@pytest.fixture
def study(one_node: tuple[Nodes, Cluster], hands: Hands) -> Iterator[Study]:
    study = Study(one_node[1])
    yield study
    study.close()


class TestConformance(RentingConformance):
    there, offer = 1, TYPE.name

    @pytest.fixture(autouse=True)
    def _cluster(self, one_node: tuple[Nodes, Cluster], hands: Hands) -> None:
        self.cluster, self.hands = one_node[1], hands

    def make(self) -> Cloud:
        return RayCloud(self.cluster, "a", WORKER, types=(TYPE,))

    def now(self) -> float:
        return time.time()

    def wait(self) -> None:
        time.sleep(0.1)

    def come(self) -> None:
        self.hands.come()

    def go(self, cloud: Cloud, machine: str) -> None:
        self.hands.go(self.hands.started[-1])


def test_a_node_that_comes_is_a_machine_until_it_is_killed(study: Study, hands: Hands) -> None:
    [first] = study.open()
    assert isinstance(first, ev.MachineReady)
    assert (first.offer, first.slots) == ("2 CPUs", 2)
    node = hands.there.add(3, labels={MARKET: "spot"})
    ready = study.until(ev.MachineReady)
    assert ready.machine == f"node-{node[-8:]}"
    assert (ready.offer, ready.slots) == ("3 CPUs spot", 3)
    assert study.cloud.node_of(ready.machine).id == node
    hands.there.kill(node)
    lost = study.until(ev.MachineLost)
    assert (lost.machine, lost.revoked) == (ready.machine, True)
    assert lost.why


def test_a_notice_of_one_that_is_busy_and_then_its_end(study: Study, hands: Hands, one_node: Any) -> None:
    study.open()
    node = hands.there.add(1, resources={"mark": 1})
    machine = study.until(ev.MachineReady).machine
    busy = one_node[1].claim({"mark": 1}, {})
    while busy.node() is None:
        time.sleep(0.05)
    deadline = hands.there.drain(node, 30.0)
    notice = study.until(ev.MachineNotice)
    assert notice.machine == machine
    assert notice.deadline == pytest.approx(deadline, abs=0.01)
    assert study.fleet.present[machine].free_slots == 0
    hands.there.kill(node)
    assert study.until(ev.MachineLost).revoked
    busy.end()
    assert len(of(study.told, ev.MachineNotice)) == 1


def test_an_idle_one_goes_with_its_notice(study: Study, hands: Hands) -> None:
    """Ray ends a node that is drained as soon as nothing runs there."""
    study.open()
    node = hands.there.add(1)
    study.until(ev.MachineReady)
    hands.there.drain(node, 30.0)
    assert study.until(ev.MachineLost).revoked
    hands.there.end(node)


def test_nodes_without_room_for_a_worker_are_no_machines(one_node: tuple[Nodes, Cluster], hands: Hands) -> None:
    study = Study(one_node[1], worker={"CPU": 4})
    assert study.open() == []
    study.close()


@pytest.mark.parametrize(
    ("offer", "why"),
    [("large", "are named as"), ("c7i.lurge_spot", "is c7i.large"), ("t3.nano_gift", "are named as")],
)
def test_what_there_is_not_is_refused(study: Study, offer: str, why: str) -> None:
    study.open()
    [event] = study.rent("m1", offer)
    assert isinstance(event, ev.MachineRefused)
    assert why in event.why


def test_no_more_than_the_autoscaler_may_start_or_a_worker_fits_on(one_node: Any, hands: Hands) -> None:
    study = Study(one_node[1])
    study.open()
    assert [study.rent(f"m{number}") for number in range(3)] == [[], [], []]
    [event] = study.rent("m3")
    assert isinstance(event, ev.MachineRefused)
    assert "3 at a time" in event.why
    study.close()
    assert not study.fleet.renting
    study = Study(one_node[1], "b", worker={"CPU": 3})
    study.open()
    [event] = study.rent("m1")
    assert isinstance(event, ev.MachineRefused)
    assert "fits" in event.why
    study.close()


def test_each_of_two_that_are_rented_has_a_node_of_its_own(study: Study, hands: Hands) -> None:
    study.open()
    study.rent("m1")
    study.rent("m2")
    first = hands.come()
    study.until(ev.MachineReady)
    for _ in range(5):  # the second may not come to lie on the first one's node
        time.sleep(0.25)
        study.look()
    second = hands.come()
    study.until(ev.MachineReady)
    assert sorted(study.cloud.node_of(name).id for name in ("m1", "m2")) == sorted([first, second])
    assert study.fleet.present["m1"].price_per_hour == 3.6
    assert study.fleet.present["m1"].on_demand_per_hour == Catalog.shipped()["c7i.large"].price_per_hour
    assert study.release("m1") == []
    gone = study.cloud.node_of("m1").id
    time.sleep(0.5)
    assert study.look() == []  # until it is really gone, it costs
    hands.go(gone)
    assert study.until(ev.MachineReleased).machine == "m1"
    bill = study.fleet.past[-1].bill
    assert bill is not None
    seconds = EC2_SPOT.billed_seconds(study.fleet.past[-1].seconds(0.0))
    assert bill.dollars == pytest.approx(float(seconds) * 3.6 / 3600, rel=1e-6)


def test_what_is_released_and_still_there_can_be_had_again(study: Study, hands: Hands) -> None:
    study.open()
    study.rent("m1")
    node = hands.come()
    study.until(ev.MachineReady)
    study.release("m1")
    study.rent("m2")
    assert study.until(ev.MachineReady).machine == "m2"
    assert study.cloud.node_of("m2").id == node
    kinds = [type(event).__name__ for event in study.told[-4:]]
    assert kinds == ["MachineReleased", "MachineBilled", "MachineRented", "MachineReady"]


def test_one_that_comes_after_all_is_nobodys(study: Study, hands: Hands) -> None:
    study.open()
    study.rent("m1")
    study.release("m1")
    hands.come()
    for _ in range(5):
        time.sleep(0.25)
        assert study.look() == []


def test_a_new_driver_has_its_machines_back_but_for_those_that_are_gone(one_node: Any, hands: Hands) -> None:
    study = Study(one_node[1])
    study.open()
    for machine in ("m1", "m2", "m3"):
        study.rent(machine)
        hands.come()
        study.until(ev.MachineReady)
    nodes_of = {machine: study.cloud.node_of(machine).id for machine in ("m1", "m2", "m3")}
    hands.go(nodes_of["m2"], kill=True)
    while nodes_of["m2"] in {node.id for node in one_node[1].nodes()}:
        time.sleep(0.1)
    # The first driver is not asked any more; what it told of m3 was never written down.
    after = RayCloud(one_node[1], "a", WORKER, ("m1", "m2", "m4"), types=(TYPE,))
    events = after.open(time.time())
    assert sorted(of(events, ev.MachineLost)) == ["m2", "m4"]
    assert of(events, ev.MachineRented) == ["m3"]
    assert after.node_of("m1").id == nodes_of["m1"]
    assert len(of(events, ev.MachineReady)) == 2  # m3, and what is there for all
    for machine in ("m1", "m3"):
        after.release(machine, time.time())
    assert sorted(of(after.close(time.time()), ev.MachineBilled)) == ["m1", "m3"]
    study.cloud.close(time.time())


def test_what_was_being_released_when_the_driver_went_is_there_again_or_released(
    one_node: Any, hands: Hands
) -> None:
    study = Study(one_node[1])
    study.open()
    for machine in ("m1", "m2"):
        study.rent(machine)
        hands.come()
        study.until(ev.MachineReady)
    study.release("m1")
    study.release("m2")
    hands.go(study.cloud.node_of("m2").id)
    while len(one_node[1].nodes()) > 3:
        time.sleep(0.1)
    after = RayCloud(one_node[1], "a", WORKER, ("m1", "m2"), types=(TYPE,))
    events = after.open(time.time())
    assert of(events, ev.MachineReleased) == ["m2"]
    assert not of(events, ev.MachineLost, ev.MachineRented)
    assert after.node_of("m1").id == study.cloud.node_of("m1").id
    after.release("m1", time.time())
    assert of(after.close(time.time()), ev.MachineReleased)[0] == "m1"
    study.cloud.close(time.time())


def test_a_machine_that_went_while_no_driver_ran_is_not_billed_for_that_time(one_node: Any, hands: Hands) -> None:
    study = Study(one_node[1])
    study.open()
    study.rent("m1")
    node = hands.come()
    study.until(ev.MachineReady)
    last_at = time.time()
    study.cloud.release_claims()  # as its driver does when it is killed
    hands.go(node)
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


def test_a_driver_that_fails_lets_go_of_all_it_claims(one_node: Any, hands: Hands) -> None:
    """Its process may go on, connected to the cluster, and the autoscaler would do as it was asked."""
    from ray.util import placement_group_table

    def claimed() -> int:
        return sum(group["state"] != "REMOVED" for group in placement_group_table().values())

    study = Study(one_node[1])
    study.open()
    before = claimed()
    study.rent("m1")
    hands.come()
    study.until(ev.MachineReady)
    study.rent("m2")
    assert claimed() >= before + 2
    study.cloud.release_claims()
    study.cloud.release_claims()
    deadline = time.monotonic() + 30.0
    while claimed() > before:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_memory_which_types_do_not_tell_of_is_looked_at_when_a_node_comes(one_node: Any, hands: Hands) -> None:
    fits, none_fits = ({"CPU": 1.0, "memory": amount} for amount in (1e6, 1e15))
    for worker, told in ((fits, ev.MachineReady), (none_fits, ev.MachineRefused)):
        study = Study(one_node[1], worker=worker)
        study.open()
        assert study.rent("m1") == []
        node = hands.come()
        found = study.until((ev.MachineReady, ev.MachineRefused))  # type: ignore[arg-type]
        assert type(found) is told
        study.release("m1")
        study.close()
        hands.go(node)
        while len(one_node[1].nodes()) > 2:
            time.sleep(0.1)
    assert "fits on the node that came" in found.why


def test_one_that_never_comes_is_refused_at_last(study: Study) -> None:
    study.open()
    study.rent("m1")
    assert study.look() == []
    [event] = study.hear(study.cloud.poll_events(time.time() + PATIENCE_SECONDS + 1.0))
    assert isinstance(event, ev.MachineRefused)
    assert not study.fleet.renting


def test_two_studies_share_what_is_there_and_keep_what_they_rent(one_node: Any, hands: Hands) -> None:
    cluster = one_node[1]
    one, two = Study(cluster, "one"), Study(cluster, "two")
    one.cloud._wants = two.cloud._wants = lambda: 4
    one.open()
    two.open()
    share = one.until(ev.ShareChanged)
    assert (share.workers, share.why) == (1, "1 other study: two")
    assert two.told[-1] == ev.ShareChanged(two.told[-1].at, 1, "1 other study: one")
    one.rent("m1")
    hands.come()
    assert one.until(ev.MachineReady).machine == "m1"
    assert [event.workers for event in one.told if isinstance(event, ev.ShareChanged)] == [1, 3]
    two.look()
    assert "m1" not in two.fleet.present
    assert len(two.fleet.present) == 1
    another = Study(cluster, "three")
    assert len(of(another.open(), ev.MachineReady)) == 1  # not the rented one
    another.close()
    two.close()
    change = one.until(ev.ShareChanged)
    assert (change.workers, change.why) == (None, "no other study wants any")
    one.close()


def test_a_node_of_a_kind_to_rent_that_is_there_is_had_at_once(one_node: Any, hands: Hands) -> None:
    """It was left by a study that is over, or by the measuring of this one."""
    node = hands.come()
    study = Study(one_node[1])
    study.open()
    assert len(study.fleet.present) == 1  # the one that is no such
    study.rent("m1")
    assert study.until(ev.MachineReady).machine == "m1"
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
    assert one.until(ev.ShareChanged).workers == 2
    assert [event.workers for event in two.told if isinstance(event, ev.ShareChanged)] == [0]
    one.close()
    two.close()


# --- notes and prices -----------------------------------------------------------------------------------------


def test_a_study_that_says_nothing_any_more_is_gone(one_node: Any, hands: Hands) -> None:
    cluster = one_node[1]
    old, new = Neighbours(cluster, "old"), Neighbours(cluster, "new")
    old.tell(1000.0, Want(WORKER, 3))
    old.keep({"m1": Rented("abc", "c7i.large_spot", 0.1, 900.0)})
    there = {"old": Neighbour(Want(WORKER, 3), frozenset({"abc"}))}
    assert new.others(1009.0) == there
    assert new.others(1011.0) == {}
    old.tell(1011.0, Want(WORKER, 3))
    assert new.others(1011.0) == there
    assert old.kept()["m1"].node == "abc"
    old.leave()
    assert new.others(1011.0) == {}
    assert old.kept()  # for its next driver
    old.keep({})
    assert old.kept() == {}


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
def test_when_a_share_is_told(mine: int, theirs: tuple[int, ...], share: int | None, why: str) -> None:
    others = {f"s{n}": Neighbour(Want(WORKER, workers), frozenset()) for n, workers in enumerate(theirs)}
    found, because = fair_share({"CPU": 4.0}, "zz", Want(WORKER, mine), others)
    assert found == share
    assert why in because


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
def test_what_a_node_costs(labels: dict[str, str], expected: tuple[Any, ...]) -> None:
    found = priced(ClusterNode("abc", "127.0.0.1", {"CPU": 4.0}, labels), Catalog.shipped())
    assert [a for a, b in zip(found, expected, strict=True) if b is not ...] == [
        b for b in expected if b is not ...
    ]
    if labels.get(INSTANCE_TYPE) == "n1-highcpu-2":
        offer = Catalog.shipped()["n1-highcpu-2"]
        assert found[1:3] == (offer.spot_price_per_hour, offer.price_per_hour)


def test_a_label_that_is_no_price_is_said() -> None:
    with pytest.raises(SettingError, match="'cheap' is no price"):
        priced(ClusterNode("abc", "127.0.0.1", {"CPU": 4.0}, {PRICE: "cheap"}), Catalog.shipped())


@pytest.mark.parametrize(
    ("name", "told", "expected"),
    [
        ("c7i.large_spot", None, EC2_SPOT),
        ("c7i.large_on-demand", None, PER_SECOND),
        ("n1-highcpu-2_spot", None, GCP_PREEMPTIBLE),
        ("own_spot", None, Billing()),
        ("own_on-demand", 30.0, Billing(least_seconds=30.0)),
        ("c7i.large_spot", 0.0, replace(EC2_SPOT, least_seconds=0.0)),
    ],
)
def test_nodes_are_billed_by_their_providers_rules(name: str, told: float | None, expected: Billing) -> None:
    kinds = {name: NodeType(name, {"CPU": 2.0}, 3, least_billed=told)}
    assert billing_of(name, kinds, Catalog.shipped()) == expected


def test_a_spot_node_that_is_lost_in_its_first_hour_is_free(study: Study, hands: Hands) -> None:
    study.open()
    study.rent("m1")
    node = hands.come()
    study.until(ev.MachineReady)
    hands.go(node, kill=True)
    bill = study.until(ev.MachineBilled)
    assert bill.dollars == 0.0
    assert bill.refunded >= 60.0 * 0.001  # $3.6 an hour, for a minute at least
    assert bill.estimated


def test_a_spot_node_that_is_released_is_billed_for_a_minute_at_least(study: Study, hands: Hands) -> None:
    study.open()
    study.rent("m1")
    node = hands.come()
    study.until(ev.MachineReady)
    study.release("m1")
    hands.go(node)
    bill = study.until(ev.MachineBilled)
    assert bill.dollars >= 60.0 * 0.001
    assert bill.refunded == 0.0
    assert bill.estimated


def test_a_machine_that_another_study_has_taken_over_is_not_refunded(one_node: Any, hands: Hands) -> None:
    study, other = Study(one_node[1]), Study(one_node[1], "b")
    study.open()
    study.rent("m1")
    node = hands.come()
    study.until(ev.MachineReady)
    other.open()
    there = Rented(node, TYPE.name, 3.6, time.time())
    other.cloud._neighbours.keep({"n1": there})
    bill = study.until(ev.MachineBilled)
    assert bill.dollars >= 60.0 * 0.001
    assert bill.refunded == 0.0
    for each in (study, other):
        each.close()


def test_a_spot_node_without_a_price_is_said_to_have_none(one_node: Any, hands: Hands) -> None:
    study = Study(one_node[1])
    study.open()
    study.rent("m1")
    there = one_node[0]
    hands.started.append(there.add(2, labels={INSTANCE_TYPE: "c7i.large", MARKET: "spot"}, kind=TYPE.name))
    assert not study.until(ev.MachineReady).price_known
    assert not study.fleet.present["m1"].price_known
    study.close()
