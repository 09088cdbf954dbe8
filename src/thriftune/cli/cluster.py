"""`thriftune cluster`: write the configuration of a Ray cluster to run studies on."""

from __future__ import annotations

from pathlib import Path

import click

from thriftune.clouds.ray.cluster_template import MARKETS, PROVIDERS, cluster_file
from thriftune.clouds.ray.own_wheel import wheel_name, write_wheel
from thriftune.errors import SettingError

_DEFAULT_MACHINES = "; ".join(" and ".join(provider.machines) for provider in PROVIDERS.values())


@click.group("cluster")
def cluster_command() -> None:
    """Set up a Ray cluster to run studies on; see docs/cluster.md."""


@cluster_command.command("template")
@click.argument("provider", type=click.Choice(list(PROVIDERS), case_sensitive=False))
@click.option(
    "--machine",
    "machines",
    multiple=True,
    metavar="NAME",
    help="A machine of the catalog, such as m5.xlarge or n1-highcpu-16; may be repeated.  "
    f"[default: {_DEFAULT_MACHINES}]",
)
@click.option(
    "--region", metavar="R", help="The region to rent them in.  [default: the region of the catalog's prices]"
)
@click.option(
    "--most",
    type=int,
    default=8,
    show_default=True,
    metavar="N",
    help="Largest number of nodes of each machine and market.",
)
@click.option("--name", default="thriftune", show_default=True, help="The name of the cluster.")
@click.option(
    "--market",
    type=click.Choice(list(MARKETS)),
    default="both",
    show_default=True,
    help="Rent spot nodes, on-demand nodes, or both.",
)
@click.option(
    "--idle-minutes",
    type=float,
    default=2.0,
    show_default=True,
    metavar="M",
    help="Release a node that has been idle for M minutes.",
)
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the configuration to FILE, and a wheel of this thriftune beside it, instead of printing it.",
)
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
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
    """Print a configuration for `ray up`, on AWS or Google Cloud.

    Each machine becomes a spot node type, an on-demand node type, or both. The head is a small machine that runs
    no trials. This command rents nothing. Comments in the file say what to edit before you call `ray up`. With
    --to, it also writes a wheel of this thriftune beside the file, which all nodes install.
    """
    if force and to is None:
        raise SettingError("--force is for --to FILE; without --to, nothing is written")
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
        raise SettingError(f"{to}: exists already; choose another file, or overwrite it with --force")
    wheel_path = write_wheel(to.parent)  # first: without the wheel, the configuration cannot be used
    to.write_text(text, encoding="utf-8")
    click.echo(f"wrote {to} and {wheel_path}; edit what the comments say, then: ray up {to}", err=True)
