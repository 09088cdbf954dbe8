"""Read the record of prices or lifetimes that a `thriftune market` command shows, or make one up."""

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
_SYNTHETIC_DEFAULT_CORES = 16
_SYNTHETIC_MACHINES = 150
"""Synthetic machines of each size."""


def record_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument FILE and the options --synthetic and --seed to a command."""
    for option in (
        click.argument("file", required=False, type=click.Path(path_type=Path)),
        click.option("--synthetic", is_flag=True, help="Use made-up machines instead of a FILE."),
        click.option(
            "--seed", type=click.IntRange(0), metavar="N", help="The random seed of --synthetic.  [default: 0]"
        ),
    ):
        command = option(command)
    return command


def _rng(file: Path | None, synthetic: bool, seed: int | None) -> Any:
    """Return the random generator for synthetic data, or None for a file.

    Raises SettingError if both a file and synthetic data are chosen, or neither.
    """
    import numpy as np

    if synthetic == (file is not None):
        raise SettingError("give either a FILE or --synthetic")
    if seed is not None and not synthetic:
        raise SettingError("--seed is for --synthetic; leave it out with a FILE")
    return np.random.default_rng(seed or 0) if synthetic else None


def type_of(lives: Lifetimes, kind: str | None, synthetic: bool) -> str:
    """Return the machine type to show.

    Raises SettingError if none was given and the record has several.
    """
    if kind is not None:
        return kind
    if synthetic:
        return f"synthetic-{_SYNTHETIC_DEFAULT_CORES}"
    if len(lives.types) == 1:
        return lives.types[0]
    raise SettingError(f"choose a machine type with --type; the record has {', '.join(lives.types)}")


def read_prices(file: Path | None, synthetic: bool, seed: int | None) -> PriceHistory:
    """Return the prices of a file, or synthetic ones."""
    from thriftune.cli.screen import busy
    from thriftune.market import Catalog, PriceHistory, synthetic_prices

    rng = _rng(file, synthetic, seed)
    if file is None:
        on_demand = {type: Catalog.shipped()[type].price_per_hour for type in _SYNTHETIC_TYPES}
        return synthetic_prices(on_demand, rng, zones=_SYNTHETIC_ZONES)
    with busy(f"reading {file}"):
        return PriceHistory.read(file)


def read_lifetimes(file: Path | None, synthetic: bool, seed: int | None) -> Lifetimes:
    """Return the lifetimes of a file, or synthetic ones."""
    import numpy as np

    from thriftune.market import Lifetimes, synthetic_lifetimes

    rng = _rng(file, synthetic, seed)
    if file is not None:
        return Lifetimes.read(file)
    by_cores = [synthetic_lifetimes(_SYNTHETIC_MACHINES, rng, cores=cores) for cores in _SYNTHETIC_CORES]
    types = np.repeat([f"synthetic-{cores}" for cores in _SYNTHETIC_CORES], _SYNTHETIC_MACHINES)
    hours, ended = (np.concatenate(arrays) for arrays in zip(*by_cores, strict=True))
    return Lifetimes(types, np.full(len(types), "synthetic"), np.zeros(len(types), dtype=bool), hours, ended)
