"""Which record does a `thriftune market` command show? That of a file, or one that is made up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from thriftune.errors import SettingError

if TYPE_CHECKING:
    from thriftune.market import Lifetimes, PriceHistory

_SYNTHETIC_TYPES = ("m4.2xlarge", "r3.xlarge", "r4.large", "r4.2xlarge")
_SYNTHETIC_ZONES = ("us-east-1a", "us-east-1b")
_SYNTHETIC_CORES = (2, 4, 8, 16, 32, 64)
_SYNTHETIC_SHOWN = 16
_SYNTHETIC_MACHINES = 150  # of each size


def record_option(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.argument("file", required=False, type=click.Path(path_type=Path)),
        click.option("--synthetic", is_flag=True, help="Of made-up machines, instead of a FILE."),
        click.option("--seed", type=click.IntRange(0), metavar="N", help="Of --synthetic; 0 by default."),
    ):
        command = option(command)
    return command


def _rng(file: Path | None, synthetic: bool, seed: int | None) -> Any:
    """For what is made up; None where a file is given."""
    import numpy as np

    if synthetic == (file is not None):
        raise SettingError("give either a FILE or --synthetic")
    if seed is not None and not synthetic:
        raise SettingError("--seed is for --synthetic; a FILE is as it is")
    return np.random.default_rng(seed or 0) if synthetic else None


def type_of(lives: Lifetimes, kind: str | None, synthetic: bool) -> str:
    """Which type of machine is meant, if that was not said."""
    if kind is not None:
        return kind
    if synthetic:
        return f"synthetic-{_SYNTHETIC_SHOWN}"
    if len(lives.types) == 1:
        return lives.types[0]
    raise SettingError(f"say which type of machine, with --type; there are {', '.join(lives.types)}")


def read_prices(file: Path | None, synthetic: bool, seed: int | None) -> PriceHistory:
    from thriftune.cli.screen import busy
    from thriftune.market import Catalog, PriceHistory, synthetic_prices

    rng = _rng(file, synthetic, seed)
    if file is None:
        on_demand = {type: Catalog.shipped()[type].price_per_hour for type in _SYNTHETIC_TYPES}
        return synthetic_prices(on_demand, rng, zones=_SYNTHETIC_ZONES)
    with busy(f"reading {file}"):
        return PriceHistory.read(file)


def read_lifetimes(file: Path | None, synthetic: bool, seed: int | None) -> Lifetimes:
    import numpy as np

    from thriftune.market import Lifetimes, synthetic_lifetimes

    rng = _rng(file, synthetic, seed)
    if file is not None:
        return Lifetimes.read(file)
    told = [synthetic_lifetimes(_SYNTHETIC_MACHINES, rng, cores=cores) for cores in _SYNTHETIC_CORES]
    types = np.repeat([f"synthetic-{cores}" for cores in _SYNTHETIC_CORES], _SYNTHETIC_MACHINES)
    hours, ended = (np.concatenate(part) for part in zip(*told, strict=True))
    return Lifetimes(types, np.full(len(types), "synthetic"), np.zeros(len(types), dtype=bool), hours, ended)
