"""How do I get a Ray cluster? A configuration for `ray up`, with kinds of machines from the catalog.

A kind of node is a machine and how it is rented, and its name says both: `m5.xlarge_spot`, `m5.xlarge_on-demand`.
It is written as text and not by a library, because half of it are comments that say what to edit.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from thriftune import __version__
from thriftune.clouds.ray.cluster import HEALTH_CHECKS, INSTANCE_TYPE, MARKET
from thriftune.clouds.ray.own_wheel import wheel_name
from thriftune.errors import SettingError
from thriftune.market.catalog import Catalog, Offer

SPOT, ON_DEMAND = "spot", "on-demand"
"""Values of the label cluster.MARKET, and how names of node types end."""

MARKETS: Mapping[str, tuple[str, ...]] = {
    SPOT: (SPOT,),
    ON_DEMAND: (ON_DEMAND,),
    "both": (SPOT, ON_DEMAND),
}
"""What can be asked for, and of which markets it has node types."""

HEAD = "head"
SHARED_FOLDER = "/shared"

_RAY_OTHERWISE = "2.60.0"  # where none is installed that the cluster's had better be like
_LONGEST_NAME = 35  # Google's names of machines have 63 characters, and Ray adds 28 to that of the cluster
_NAME = re.compile(rf"[a-z]([a-z0-9-]{{0,{_LONGEST_NAME - 2}}}[a-z0-9])?")
_ARM = re.compile(r"[a-z]+\d+g[a-z]*\..*|(t2a|c4a|n4a)-.*")  # as c7g.large; the images below are for x86
_UPSCALING_SPEED = 100  # so many times as many nodes as there are may be started at once
_IDLE_MINUTES = (0.1, 10_000.0)  # what Python writes of numbers far from these, YAML takes for words
_HEAD_CORES, _HEAD_MEMORY_GIB = 2, 8.0


def node_type(machine: str, spot: bool) -> str:
    """What nodes of this machine are called in the autoscaler's configuration."""
    return f"{machine}_{SPOT if spot else ON_DEMAND}"


def machine_and_market(node_type: str) -> tuple[str, bool] | None:
    """The machine of such a name, and whether it is rented on the spot market; None of any other name."""
    machine, _, market = node_type.rpartition("_")
    return (machine, market == SPOT) if machine and market in (SPOT, ON_DEMAND) else None


@dataclass(frozen=True, slots=True)
class _Provider:
    name: str  # in the catalog
    machines: tuple[str, ...]  # a small choice, of two families: seldom are both taken away at once
    head_package: str  # by which the autoscaler speaks with the provider
    shared_is: str
    mount: str


PROVIDERS: Mapping[str, _Provider] = {
    "aws": _Provider(
        name="AWS",
        machines=("m5.xlarge", "c5.2xlarge"),
        head_package="boto3>=1.28",
        shared_is="an EFS file system with a mount target in every zone, open to the cluster's security group",
        mount="-t nfs4 -o nfsvers=4.1,hard,timeo=600 fs-0123456789.efs.{region}.amazonaws.com:/",
    ),
    "gcp": _Provider(
        name="GCP",
        machines=("e2-standard-4", "n1-highcpu-8"),
        head_package="google-api-python-client>=2",
        shared_is="a Filestore instance in the network of the cluster",
        mount="-t nfs -o hard,timeo=600 10.0.0.2:/share",
    ),
}


def cluster_file(
    provider: str,
    machines: Sequence[str] = (),
    *,
    region: str | None = None,
    most: int = 8,
    name: str = "thriftune",
    market: str = "both",
    idle_minutes: float = 2.0,
    catalog: Catalog | None = None,
    wheel: Path | None = None,
) -> str:
    """YAML for `ray up`: a head that no trial runs on, and up to `most` nodes of each machine and market.

    - `provider`: of `PROVIDERS`; the machines are its, by their names in the catalog.
    - `region`: one the catalog has prices of; it may be left out where there is only one.
    - `market`: of `MARKETS`.
    - `idle_minutes`: after which a node that nothing runs on is given back.
    - `wheel`: of the thriftune that all nodes install; without one, the file says how to make it.
    """
    if provider not in PROVIDERS:
        raise SettingError(f"provider: {provider!r} is not known; use {' or '.join(PROVIDERS)}")
    if market not in MARKETS:
        raise SettingError(f"market: {market!r} is not known; use {', '.join(MARKETS)}")
    if most < 1:
        raise SettingError(f"most: {most} is below 1")
    least, longest = _IDLE_MINUTES
    if not least <= idle_minutes <= longest:
        raise SettingError(f"idle_minutes: {idle_minutes:g} is not between {least:g} and {longest:g}")
    if not _NAME.fullmatch(name):
        raise SettingError(
            f"name: {name!r} cannot be a cluster's; use small letters, digits and -, beginning with a letter and "
            f"ending with no -, {_LONGEST_NAME} of them at most"
        )
    cloud = PROVIDERS[provider]
    all_offers = catalog or Catalog.shipped()
    region = _region(cloud, region, all_offers)
    there = all_offers.having(provider=cloud.name, region=region)
    offers = [_machine(each, cloud, there, all_offers) for each in dict.fromkeys(machines or cloud.machines)]
    head = _head(cloud, region, there)
    workers = [(offer, rented) for offer in offers for rented in MARKETS[market]]
    parts = [
        _top(provider, name, region, workers, most, idle_minutes),
        _where(provider, region),
        _node_types(provider, region, head, workers, most),
        _mounts(provider, wheel),
        _setup(cloud, region),
        _starting(),
    ]
    return "\n".join(line for part in parts for line in [*part, ""]).rstrip("\n") + "\n"


# --- what is asked for, in the catalog ------------------------------------------------------------------------


def _region(cloud: _Provider, wanted: str | None, catalog: Catalog) -> str:
    regions = sorted({offer.region for offer in catalog.having(provider=cloud.name)})
    if wanted is None and len(regions) == 1:
        return regions[0]
    if wanted in regions:
        return str(wanted)
    if not regions:
        raise SettingError(f"the catalog has no machine of {cloud.name}")
    if wanted is None:
        raise SettingError(f"region: is missing; the catalog has prices of {', '.join(regions)}")
    raise SettingError(
        f"region: the catalog has no prices of {cloud.name} in {wanted}, but in {', '.join(regions)}; "
        "make the file for there, and change the region in it"
    )


def _machine(name: str, cloud: _Provider, there: Catalog, catalog: Catalog) -> Offer:
    if not any(offer.name == name for offer in there):
        for offer in catalog:
            if offer.name == name and offer.provider != cloud.name:
                other = next((key for key, each in PROVIDERS.items() if each.name == offer.provider), None)
                way_out = f"; make a file for {other}, or take another" if other else "; take another"
                raise SettingError(f"{name}: is a machine of {offer.provider}, not of {cloud.name}{way_out}")
    offer = there.find(name)  # raises, and names what is near
    if _ARM.fullmatch(name):
        raise SettingError(f"{name}: has ARM cores, and the file's machine images are for x86; take another")
    return offer


def _head(cloud: _Provider, region: str, there: Catalog) -> Offer:
    """The cheapest that can do it: it has the driver and Ray's own processes, and no trial."""
    able = there.having(cores=_HEAD_CORES, memory_gib=_HEAD_MEMORY_GIB)
    plain = [offer for offer in able if not offer.accelerators and not _ARM.fullmatch(offer.name)]
    if not plain:
        raise SettingError(
            f"the catalog has no machine of {cloud.name} in {region} for the head: one with {_HEAD_CORES} cores, "
            f"{_HEAD_MEMORY_GIB:g} GiB and no accelerators"
        )
    return min(plain, key=lambda offer: (offer.price_per_hour, offer.name))


# --- the file, part by part -----------------------------------------------------------------------------------


def _top(
    provider: str, name: str, region: str, workers: Sequence[tuple[Offer, str]], most: int, idle_minutes: float
) -> Iterator[str]:
    dearest = sum(most * offer.price_per_hour for offer, _ in workers)
    yield f"# A Ray cluster on {PROVIDERS[provider].name}, by thriftune {__version__}. Look for EDIT, then:"
    yield "#"
    yield "#     ray up cluster.yaml                  begins with the head alone; nodes come when trials need them"
    yield "#     ray attach cluster.yaml              a shell on the head, where studies are run"
    yield "#     ray down cluster.yaml                ends all of it"
    yield "#"
    yield f"# All nodes at once cost ${dearest:.2f} an hour at most: that is {region}'s list price on demand."
    yield ""
    yield f"cluster_name: {json.dumps(name)}  # one that no other cluster of yours has"
    yield f"max_workers: {most * len(workers)}  # in all, besides the head"
    yield f"upscaling_speed: {_UPSCALING_SPEED}  # all that is asked for is started at once"
    yield f"idle_timeout_minutes: {idle_minutes:g}  # a node with nothing to do is given back after so long"


def _where(provider: str, region: str) -> Iterator[str]:
    yield "provider:"
    yield f"    type: {provider}"
    yield f"    region: {region}"
    if provider == "aws":
        yield "    # EDIT: zones, with the preferred first, if not all of them will do."
        yield f"    # availability_zone: {region}a,{region}b"
        yield "    # Nodes are ended, not stopped: of one that is stopped, the disk is paid for."
    else:
        yield "    # Ray keeps to one zone of Google's. EDIT here and in diskType below, if it is to be another."
        yield f"    availability_zone: {_zone(region)}"
        yield "    project_id: null  # EDIT: your project's"
        yield "    # Nodes are deleted, not stopped: of one that is stopped, the disk is paid for."
    yield "    cache_stopped_nodes: false"
    yield ""
    yield "auth:"
    yield "    ssh_user: ubuntu"
    yield "    # ssh_private_key: ~/.ssh/mine.pem  # Ray makes a pair of keys unless you have one"


def _zone(region: str) -> str:
    return f"{region}-a"


def _node_types(
    provider: str, region: str, head: Offer, workers: Sequence[tuple[Offer, str]], most: int
) -> Iterator[str]:
    yield "# Names and labels of node types tell thriftune which machine it is, and how it is rented: keep them."
    if provider == "aws":
        yield "# EDIT: without an ImageId, Ray takes an image with Ubuntu 18.04, too old for today's PyTorch and"
        yield "# accelerators. How to find a newer one, for x86 and with Ubuntu, is told at"
        yield "# https://docs.aws.amazon.com/dlami/latest/devguide/find-dlami-id.html"
    yield "available_node_types:"
    yield f"    {HEAD}:"
    yield f"        # {_described(head, ON_DEMAND)}. No trial runs here: it has no cores to give."
    yield "        min_workers: 0"
    yield "        max_workers: 0"
    yield '        resources: {"CPU": 0}'
    yield from _node_config(provider, region, head, ON_DEMAND)
    for offer, market in workers:
        labels = {MARKET: market, INSTANCE_TYPE: offer.name}
        resources = {"CPU": offer.cores} | ({"GPU": offer.accelerators} if offer.accelerators else {})
        yield ""
        yield f"    {node_type(offer.name, market == SPOT)}:"
        yield f"        # {_described(offer, market)}."
        yield "        min_workers: 0"
        yield f"        max_workers: {most}"
        yield f"        resources: {json.dumps(resources)}"
        yield f"        labels: {json.dumps(labels)}"
        yield from _node_config(provider, region, offer, market)
    yield ""
    yield f"head_node_type: {HEAD}"


def _described(offer: Offer, market: str) -> str:
    has = f"{offer.cores} cores, {offer.memory_gib:g} GiB"
    if offer.accelerators:
        has += f", {offer.accelerators} {offer.accelerator}"
    costs = f"${offer.price_per_hour:g}/h on demand"
    if market == SPOT:
        spot = offer.spot_price_per_hour
        costs += ", less on the spot market" if spot is None else f", ${spot:g}/h on the spot market"
    return f"{has}: {costs} ({offer.as_of})"


def _node_config(provider: str, region: str, offer: Offer, market: str) -> Iterator[str]:
    yield "        node_config:"
    if provider == "aws":
        yield f"            InstanceType: {offer.name}"
        yield "            # ImageId: ami-0123456789abcdef0"
        if market == SPOT:
            yield "            InstanceMarketOptions:"
            yield "                MarketType: spot"
        return
    image = "ubuntu-os-cloud/global/images/family/ubuntu-2204-lts"
    if offer.accelerators:  # with their driver
        image = "deeplearning-platform-release/global/images/family/common-cu128-ubuntu-2204-nvidia-570"
    # Of Google's disks, the one that most machines take; the newest take another only.
    disk = "hyperdisk-balanced" if offer.name.startswith("a3-ultragpu") else "pd-balanced"
    yield f"            machineType: {offer.name}"
    yield "            disks:"
    yield "              - boot: true"
    yield "                autoDelete: true"
    yield "                type: PERSISTENT"
    yield "                initializeParams:"
    yield "                    diskSizeGb: 100"
    yield f"                    diskType: zones/{_zone(region)}/diskTypes/{disk}"
    yield f"                    sourceImage: projects/{image}"
    scheduling: dict[str, str] = {}
    if market == SPOT:
        scheduling |= {"provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"}
    if offer.accelerators:  # such a machine cannot be moved while it runs, and Google wants that said
        scheduling["onHostMaintenance"] = "TERMINATE"
    if scheduling:
        yield "            scheduling:"
        yield from (f"                {key}: {value}" for key, value in scheduling.items())


def _mounts(provider: str, wheel: Path | None) -> Iterator[str]:
    yield "# What is copied to all nodes."
    yield "file_mounts:"
    yield "    # This thriftune, which no package index has yet. Its path is that on the machine of `ray up`."
    if wheel is None:
        yield "    # EDIT: that wheel does not exist yet. This command writes it beside the file:"
        yield f"    #     thriftune cluster template {provider} --to cluster.yaml"
    local = wheel_name() if wheel is None else str(wheel.absolute())
    yield f'    "~/{wheel_name()}": {json.dumps(local)}'
    yield "    # EDIT: your own code, if it is more than one file."
    yield '    # "~/project": "./project"'


def _setup(cloud: _Provider, region: str) -> Iterator[str]:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    yield "setup_commands:"
    yield f"    # EDIT: a study's storage must be seen from every node, or trials cannot move. {SHARED_FOLDER} is"
    yield f"    # {cloud.shared_is}:"
    yield "    # - sudo apt-get update && sudo apt-get install -y nfs-common"
    yield f"    # - sudo mkdir -p {SHARED_FOLDER}"
    mount = cloud.mount.format(region=region)
    yield f"    # - mountpoint -q {SHARED_FOLDER} || sudo mount {mount} {SHARED_FOLDER}"
    yield f"    # - sudo chmod 777 {SHARED_FOLDER}"
    yield "    # A Python of the cluster's own: all nodes have the same one, whatever their image has."
    yield "    - test -x ~/.local/bin/uv || curl -LsSf https://astral.sh/uv/install.sh | sh"
    yield f"    - test -x ~/python/bin/python || ~/.local/bin/uv venv --seed --python {python} ~/python"
    yield "    - grep -q python/bin ~/.bashrc || echo 'export PATH=\"$HOME/python/bin:$PATH\"' >> ~/.bashrc"
    yield "    # Ray must be of one version on all nodes, and where `ray up` is called."
    yield f"    - pip install \"$HOME/{wheel_name()}[ray]\" 'ray[default]=={ray_version()}'"
    yield "    # Once more by itself: pip does not replace an older wheel of the same version."
    yield f'    - pip install --no-deps --force-reinstall "$HOME/{wheel_name()}"'
    yield "    # EDIT: what your training needs."
    yield "    # - pip install torch"
    yield ""
    yield "head_setup_commands:"
    yield f"    - pip install '{cloud.head_package}'"
    yield ""
    yield "worker_setup_commands: []"


def ray_version() -> str:
    """Of the Ray that is installed here, since `ray up` and the cluster must have the same."""
    try:
        return version("ray")
    except PackageNotFoundError:
        return _RAY_OTHERWISE


def _starting() -> Iterator[str]:
    yield "# The autoscaler is Ray's second, which knows labels: the one of `ray up` since Ray 2.50."
    yield "# By the health checks, a dead node is known after some seconds."
    yield "# Nodes ask each other for no token: `ray up` lets only the cluster's own machines, and ssh, through to"
    yield "# them. Keep it so, or give all of them the same ~/.ray/auth_token, and RAY_AUTH_MODE=token."
    yield "head_start_ray_commands:"
    yield "    - ray stop"
    yield "    - >-"
    yield "      export RAY_enable_autoscaler_v2=1;"
    yield "      export RAY_AUTH_MODE=disabled;"
    yield "      ulimit -n 65536;"
    yield "      ray start --head --port=6379 --object-manager-port=8076"
    yield "      --autoscaling-config=~/ray_bootstrap_config.yaml"
    yield f"      --system-config='{json.dumps(HEALTH_CHECKS)}'"
    yield ""
    yield "worker_start_ray_commands:"
    yield "    - ray stop"
    yield "    - >-"
    yield "      export RAY_AUTH_MODE=disabled;"
    yield "      ulimit -n 65536;"
    yield "      ray start --address=$RAY_HEAD_IP:6379 --object-manager-port=8076"
