"""`thriftune market catalog`: the machines of the catalog that comes with thriftune."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from thriftune.cli.common import json_option, print_json
from thriftune.errors import SettingError

if TYPE_CHECKING:
    from thriftune.market.catalog import Offer


@click.command("catalog")
@click.option("--cloud", metavar="NAME", help="Only this cloud: aws or gcp.")
@click.option(
    "--search", metavar="TEXT", help="Only machines with TEXT in the name of the machine or its accelerator."
)
@json_option
def catalog_command(cloud: str | None, search: str | None, as_json: bool) -> None:
    """List the machines that can be rented, with their list prices.

    The catalog comes with thriftune; this command contacts no cloud. It shows a spot price only if the cloud sets
    one for the whole region.
    """
    from thriftune.market.catalog import Catalog

    offers = _matching_offers(Catalog.shipped(), cloud, search)
    if as_json:
        print_json([_offer_json(offer) for offer in offers])
    else:
        _show(offers)


def _matching_offers(catalog: Any, cloud: str | None, search: str | None) -> list[Offer]:
    from thriftune.common.spelling import did_you_mean

    clouds = sorted({offer.provider.lower() for offer in catalog})
    if cloud is not None and cloud.lower() not in clouds:
        raise SettingError(f"--cloud: {cloud!r} is not in the catalog; use {' or '.join(clouds)}")
    offers = [offer for offer in catalog if cloud is None or offer.provider.lower() == cloud.lower()]
    if search is not None:
        text = search.lower()
        names = [offer.name for offer in offers]
        offers = [offer for offer in offers if text in f"{offer.name}\n{offer.accelerator}".lower()]
        if not offers:
            hint = did_you_mean(search, names) or "leave --search out to see all"
            raise SettingError(f"--search: no machine of the catalog has {search!r} in its name; {hint}")
    return sorted(offers, key=lambda offer: (offer.provider, offer.price_per_hour, offer.name))


def _offer_json(offer: Offer) -> dict[str, Any]:
    return {
        "cloud": offer.provider.lower(),
        "machine": offer.name,
        "cores": offer.cores,
        "memory_gib": offer.memory_gib,
        "accelerator": offer.accelerator or None,
        "accelerators": offer.accelerators,
        "price_per_hour": offer.price_per_hour,
        "spot_price_per_hour": offer.spot_price_per_hour,
        "region": offer.region,
        "as_of": offer.as_of,
    }


def _show(offers: list[Offer]) -> None:
    from thriftune.cli.screen import open_console, table

    console = open_console()
    console.print(f"{len(offers)} machines; list prices of Linux in dollars an hour")
    console.print()
    rows = [
        (
            offer.provider.lower(),
            offer.name,
            f"{offer.accelerators} x {offer.accelerator}" if offer.accelerators else "-",
            str(offer.cores),
            f"{offer.memory_gib:g}",
            f"{offer.price_per_hour:g}",
            "-" if offer.spot_price_per_hour is None else f"{offer.spot_price_per_hour:g}",
            offer.region,
            offer.as_of,
        )
        for offer in offers
    ]
    columns = ("cloud", "machine", "accelerators", "cores", "GiB", "on demand", "spot", "region", "as of")
    table(console, columns, rows, left=3)
