"""`thriftune cluster`: a Ray cluster to run studies on."""

from __future__ import annotations

from pathlib import Path

import click

from thriftune.clouds.ray.cluster_template import MARKETS, PROVIDERS, cluster_file
from thriftune.clouds.ray.own_wheel import wheel_name, write_wheel
from thriftune.errors import SettingError

_DEFAULT_MACHINES = "; ".join(" and ".join(provider.machines) for provider in PROVIDERS.values())


@click.group("cluster")
def cluster_command() -> None:
    """A Ray cluster to run studies on; docs/cluster.md tells more."""


@cluster_command.command("template")
@click.argument("provider", type=click.Choice(list(PROVIDERS), case_sensitive=False))
@click.option(
    "--machine",
    "machines",
    multiple=True,
    metavar="NAME",
    help="A machine of the catalog, such as m5.xlarge or n1-highcpu-16; as often as you like.  "
    f"[default: {_DEFAULT_MACHINES}]",
)
@click.option("--region", metavar="R", help="Where to rent them.  [default: the one the catalog has prices of]")
@click.option(
    "--most",
    type=int,
    default=8,
    show_default=True,
    metavar="N",
    help="Nodes of each machine and market, at most.",
)
@click.option("--name", default="thriftune", show_default=True, help="Of the cluster.")
@click.option("--market", type=click.Choice(list(MARKETS)), default="both", show_default=True, help="How to rent.")
@click.option(
    "--idle-minutes",
    type=float,
    default=2.0,
    show_default=True,
    metavar="M",
    help="After which a node that nothing runs on is given back.",
)
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write it there instead of printing it, and beside it a wheel of this thriftune.",
)
@click.option("--force", is_flag=True, help="Write it even where there is such a file.")
def template_command(
    provider: str,
    machines: tuple[str, ...],
    region: str | None,
    most: int,
    name: str,
    market: str,
    idle_minutes: float,
    to: Path | None,
    force: bool,
) -> None:
    """Give a configuration for `ray up`, on AWS or Google Cloud.

    Each machine is a node type for the spot market, one on demand, or both; the head is a small machine that no
    trial runs on. Nothing is rented. Comments in the file say what to edit before `ray up` is called with it.
    With --to, a wheel of this thriftune is written beside the file, for all nodes to install.
    """
    if force and to is None:
        raise SettingError("--force is for --to FILE; without it, nothing is written")
    wheel = None if to is None else to.with_name(wheel_name())
    text = cluster_file(
        provider,
        machines,
        region=region,
        most=most,
        name=name,
        market=market,
        idle_minutes=idle_minutes,
        wheel=wheel,
    )
    if to is None:
        click.echo(text, nl=False)
        return
    if to.exists() and not force:
        raise SettingError(f"{to}: is there already; write it elsewhere, or over it with --force")
    written = write_wheel(to.parent)  # first: without it, the file is of no use
    to.write_text(text, encoding="utf-8")
    click.echo(f"wrote {to} and {written}; edit what the file says, then: ray up {to}", err=True)
