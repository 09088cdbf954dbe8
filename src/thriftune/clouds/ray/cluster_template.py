"""Write the configuration of a Ray cluster for `ray up`.

Its node types are machine types of the catalog. The YAML is written as text and not by a library, because half
of it consists of comments that say what to edit.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from thriftune.clouds.ray.cluster import HEALTH_CHECKS, INSTANCE_TYPE, MARKET
from thriftune.clouds.ray.node_types import ON_DEMAND, SPOT, node_type_name
from thriftune.clouds.ray.own_wheel import wheel_name
from thriftune.errors import SettingError
from thriftune.market.catalog import Catalog, Offer
from thriftune.version import __version__

MARKETS: Mapping[str, tuple[str, ...]] = {
    SPOT: (SPOT,),
    ON_DEMAND: (ON_DEMAND,),
    "both": (SPOT, ON_DEMAND),
}
"""For each value of the setting `market`: the markets of the node types in the file."""

HEAD = "head"
SHARED_FOLDER = "/shared"
"""The folder that all nodes see, in the example of the file."""

_DEFAULT_RAY_VERSION = "2.60.0"
"""The version of Ray for the cluster if none is installed here."""

_MAX_NAME_LENGTH = 35
"""The longest name of a cluster. Ray adds 28 characters, and Google's machine names have at most 63."""

_NAME = re.compile(rf"[a-z]([a-z0-9-]{{0,{_MAX_NAME_LENGTH - 2}}}[a-z0-9])?")

_ARM = re.compile(r"[a-z]+\d+g[a-z]*\..*|(t2a|c4a|n4a)-.*")
"""Names of machines with ARM cores, such as c7g.large. The machine images in the file are for x86."""

_UPSCALING_SPEED = 100
"""The nodes that may start at once, as a multiple of those that run. This starts all requested nodes at once."""

_MIN_IDLE_MINUTES, _MAX_IDLE_MINUTES = 0.1, 10_000.0
"""Limits of the idle timeout. Python writes much smaller or larger numbers in a form that YAML reads as text."""

_HEAD_CORES, _HEAD_MEMORY_GIB = 2, 8.0
"""The least cores and memory of the head, which runs the driver and Ray's own processes."""


@dataclass(frozen=True, slots=True)
class _Provider:
    name: str  # the provider's name in the catalog
    machines: tuple[str, ...]  # the default; from two families, which are seldom preempted at the same time
    head_package: str  # the Python package by which the autoscaler uses the provider
    shared_is: str  # the kind of file system that SHARED_FOLDER is in the example
    mount: str  # the options and the source of its mount command, with {region}


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
    """Return the configuration of a cluster for `ray up`, as YAML.

    The cluster has a head, which runs no trials, and nodes of each machine type and market.

    - `provider`: a key of PROVIDERS.
    - `machines`: names of machine types in the catalog; if empty, those of PROVIDERS.
    - `region`: a region for which the catalog has prices. None: the provider's only region in the catalog.
    - `most`: the largest number of nodes of each machine type and market.
    - `market`: a key of MARKETS.
    - `idle_minutes`: the time after which the autoscaler ends an idle node.
    - `wheel`: the wheel of thriftune that all nodes install. If it is None, the file says how to create one.
    """
    if provider not in PROVIDERS:
        raise SettingError(f"provider: {provider!r} is not known; use {' or '.join(PROVIDERS)}")
    if market not in MARKETS:
        raise SettingError(f"market: {market!r} is not known; use {', '.join(MARKETS)}")
    if most < 1:
        raise SettingError(f"most: {most} is below 1")
    if not _MIN_IDLE_MINUTES <= idle_minutes <= _MAX_IDLE_MINUTES:
        raise SettingError(
            f"idle_minutes: {idle_minutes:g} is not between {_MIN_IDLE_MINUTES:g} and {_MAX_IDLE_MINUTES:g}"
        )
    if not _NAME.fullmatch(name):
        raise SettingError(
            f"name: {name!r} cannot be the name of a cluster; use at most {_MAX_NAME_LENGTH} small letters, "
            "digits and -, with a letter first and no - at the end"
        )
    cloud = PROVIDERS[provider]
    all_offers = catalog or Catalog.shipped()
    region = _region(cloud, region, all_offers)
    in_region = all_offers.having(provider=cloud.name, region=region)
    offers = [_machine(each, cloud, in_region, all_offers) for each in dict.fromkeys(machines or cloud.machines)]
    head = _head(cloud, region, in_region)
    workers = [(offer, rented) for offer in offers for rented in MARKETS[market]]
    sections = [
        _limits(provider, name, region, workers, most, idle_minutes),
        _provider_and_auth(provider, region),
        _node_types(provider, region, head, workers, most),
        _mounts(provider, wheel),
        _setup(cloud, region),
        _start_commands(),
    ]
    return "\n".join(line for section in sections for line in [*section, ""]).rstrip("\n") + "\n"


# --- offers of the catalog ------------------------------------------------------------------------------------


def _region(cloud: _Provider, wanted: str | None, catalog: Catalog) -> str:
    """Return the wanted region, or the provider's only region if `wanted` is None.

    Raises SettingError if the catalog has no prices for the region.
    """
    regions = sorted({offer.region for offer in catalog.having(provider=cloud.name)})
    if wanted is None and len(regions) == 1:
        return regions[0]
    if wanted in regions:
        return str(wanted)
    if not regions:
        raise SettingError(f"the catalog has no machine of {cloud.name}")
    if wanted is None:
        raise SettingError(f"region: is missing; the catalog has prices for {', '.join(regions)}")
    raise SettingError(
        f"region: the catalog has no prices of {cloud.name} in {wanted}, but in {', '.join(regions)}; "
        "make the file for one of these, and change the region in it"
    )


def _machine(name: str, cloud: _Provider, in_region: Catalog, catalog: Catalog) -> Offer:
    """Return the offer of a machine type.

    Raises SettingError if the provider does not have it in the region.
    """
    if not any(offer.name == name for offer in in_region):
        for offer in catalog:
            if offer.name == name and offer.provider != cloud.name:
                other = next((key for key, each in PROVIDERS.items() if each.name == offer.provider), None)
                way_out = (
                    f"; make a file for {other}, or use another machine" if other else "; use another machine"
                )
                raise SettingError(f"{name}: is a machine of {offer.provider}, not of {cloud.name}{way_out}")
    offer = in_region.find(name)  # raises SettingError, which names similar machines
    if _ARM.fullmatch(name):
        raise SettingError(
            f"{name}: has ARM cores, and the file's machine images are for x86; use another machine"
        )
    return offer


def _head(cloud: _Provider, region: str, in_region: Catalog) -> Offer:
    """Return the cheapest suitable machine for the head.

    The head runs the driver and Ray's own processes, but no trial.
    """
    large_enough = in_region.having(cores=_HEAD_CORES, memory_gib=_HEAD_MEMORY_GIB)
    suitable = [offer for offer in large_enough if not offer.accelerators and not _ARM.fullmatch(offer.name)]
    if not suitable:
        raise SettingError(
            f"the catalog has no machine of {cloud.name} in {region} for the head: one with {_HEAD_CORES} cores, "
            f"{_HEAD_MEMORY_GIB:g} GiB and no accelerators"
        )
    return min(suitable, key=lambda offer: (offer.price_per_hour, offer.name))


# --- sections of the file -------------------------------------------------------------------------------------


def _limits(
    provider: str, name: str, region: str, workers: Sequence[tuple[Offer, str]], most: int, idle_minutes: float
) -> Iterator[str]:
    max_price = sum(most * offer.price_per_hour for offer, _ in workers)
    yield f"# A Ray cluster on {PROVIDERS[provider].name}, by thriftune {__version__}. Look for EDIT, then:"
    yield "#"
    yield "#     ray up cluster.yaml                  starts the head; nodes start when trials need them"
    yield "#     ray attach cluster.yaml              opens a shell on the head, where you run studies"
    yield "#     ray down cluster.yaml                ends the head and all nodes"
    yield "#"
    yield f"# All nodes together cost at most ${max_price:.2f} an hour, at the on-demand list prices of {region}."
    yield ""
    yield f"cluster_name: {json.dumps(name)}  # must differ from the names of your other clusters"
    yield f"max_workers: {most * len(workers)}  # nodes in all, without the head"
    yield f"upscaling_speed: {_UPSCALING_SPEED}  # starts all requested nodes at once"
    yield f"idle_timeout_minutes: {idle_minutes:g}  # ends a node that has been idle this long"


def _provider_and_auth(provider: str, region: str) -> Iterator[str]:
    yield "provider:"
    yield f"    type: {provider}"
    yield f"    region: {region}"
    if provider == "aws":
        yield "    # EDIT: the zones to use, in order of preference, if not all of them are suitable."
        yield f"    # availability_zone: {region}a,{region}b"
        yield "    # Terminate nodes instead of stopping them: the disk of a stopped node still costs money."
    else:
        yield "    # Ray uses one zone of Google Cloud. EDIT it here and in each diskType below to use another."
        yield f"    availability_zone: {_zone(region)}"
        yield "    project_id: null  # EDIT: the id of your project"
        yield "    # Delete nodes instead of stopping them: the disk of a stopped node still costs money."
    yield "    cache_stopped_nodes: false"
    yield ""
    yield "auth:"
    yield "    ssh_user: ubuntu"
    yield "    # ssh_private_key: ~/.ssh/mine.pem  # without it, Ray creates a key pair"


def _zone(region: str) -> str:
    return f"{region}-a"


def _node_types(
    provider: str, region: str, head: Offer, workers: Sequence[tuple[Offer, str]], most: int
) -> Iterator[str]:
    yield "# Do not change the names and labels of node types: they tell thriftune the machine and the market."
    if provider == "aws":
        yield "# EDIT: without an ImageId, Ray uses an image with Ubuntu 18.04, too old for current PyTorch"
        yield "# and accelerators. To find a newer image with Ubuntu for x86, see"
        yield "# https://docs.aws.amazon.com/dlami/latest/devguide/find-dlami-id.html"
    yield "available_node_types:"
    yield f"    {HEAD}:"
    yield f"        # {_described(head, ON_DEMAND)}. It offers no cores, so no trial runs here."
    yield "        min_workers: 0"
    yield "        max_workers: 0"
    yield '        resources: {"CPU": 0}'
    yield from _node_config(provider, region, head, ON_DEMAND)
    for offer, market in workers:
        labels = {MARKET: market, INSTANCE_TYPE: offer.name}
        resources = {"CPU": offer.cores} | ({"GPU": offer.accelerators} if offer.accelerators else {})
        yield ""
        yield f"    {node_type_name(offer.name, market == SPOT)}:"
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
    if offer.accelerators:  # an image that has their driver
        image = "deeplearning-platform-release/global/images/family/common-cu128-ubuntu-2204-nvidia-570"
    # Most machines support pd-balanced. The newest support only hyperdisk-balanced.
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
    if offer.accelerators:  # Google cannot migrate such a machine while it runs, and requires this setting
        scheduling["onHostMaintenance"] = "TERMINATE"
    if scheduling:
        yield "            scheduling:"
        yield from (f"                {key}: {value}" for key, value in scheduling.items())


def _mounts(provider: str, wheel: Path | None) -> Iterator[str]:
    yield "# Files that are copied to all nodes, by their path there and on the machine that runs `ray up`."
    yield "file_mounts:"
    yield "    # The wheel of this thriftune, which no package index has yet."
    if wheel is None:
        yield "    # EDIT: the wheel does not exist yet. This command writes it, beside a new copy of this file:"
        yield f"    #     thriftune cluster template {provider} --to cluster.yaml"
    local = wheel_name() if wheel is None else str(wheel.absolute())
    yield f'    "~/{wheel_name()}": {json.dumps(local)}'
    yield "    # EDIT: your own code, if it has more than one file."
    yield '    # "~/project": "./project"'


def _setup(cloud: _Provider, region: str) -> Iterator[str]:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    yield "setup_commands:"
    yield "    # EDIT: every node must see the storage of a study, so that trials can move between nodes. In this"
    yield f"    # example, {SHARED_FOLDER} is {cloud.shared_is}:"
    yield "    # - sudo apt-get update && sudo apt-get install -y nfs-common"
    yield f"    # - sudo mkdir -p {SHARED_FOLDER}"
    mount = cloud.mount.format(region=region)
    yield f"    # - mountpoint -q {SHARED_FOLDER} || sudo mount {mount} {SHARED_FOLDER}"
    yield f"    # - sudo chmod 777 {SHARED_FOLDER}"
    yield "    # Install the same Python on all nodes, whatever Python their images have."
    yield "    - test -x ~/.local/bin/uv || curl -LsSf https://astral.sh/uv/install.sh | sh"
    yield f"    - test -x ~/python/bin/python || ~/.local/bin/uv venv --seed --python {python} ~/python"
    yield "    - grep -q python/bin ~/.bashrc || echo 'export PATH=\"$HOME/python/bin:$PATH\"' >> ~/.bashrc"
    yield "    # All nodes and the machine that runs `ray up` must have the same version of Ray."
    yield f"    - pip install \"$HOME/{wheel_name()}[ray]\" 'ray[default]=={ray_version()}'"
    yield "    # Install the wheel again by force: pip does not replace an older wheel of the same version."
    yield f'    - pip install --no-deps --force-reinstall "$HOME/{wheel_name()}"'
    yield "    # EDIT: the packages that your training needs."
    yield "    # - pip install torch"
    yield ""
    yield "head_setup_commands:"
    yield f"    - pip install '{cloud.head_package}'"
    yield ""
    yield "worker_setup_commands: []"


def ray_version() -> str:
    """Return the version of Ray for the cluster.

    It is the installed version, because `ray up` and the cluster must have the same version.
    """
    try:
        return version("ray")
    except PackageNotFoundError:
        return _DEFAULT_RAY_VERSION


def _start_commands() -> Iterator[str]:
    yield "# This uses version 2 of Ray's autoscaler, which supports labels. It is the default since Ray 2.50."
    yield "# With these health checks, Ray notices a dead node within seconds."
    yield "# Nodes do not require a token: the firewall of `ray up` admits only ssh and the cluster's machines."
    yield "# Keep it so, or give all machines the same ~/.ray/auth_token and RAY_AUTH_MODE=token."
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
