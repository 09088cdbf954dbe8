"""Check configurations that the user enqueues, and complete them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from thriftune.errors import SettingError, SpaceError
from thriftune.space.space import Space
from thriftune.state.events import Config

_DRAWS = 100
"""How often values are drawn for missing parameters, to find a configuration that was not tried."""


def checked_configs(space: Space, configs: object) -> list[dict[str, Any]]:
    """Return the configurations of the setting `enqueue`, in the types of the space.

    They need not have all parameters. Raises SettingError or SpaceError, whose message names the wrong
    configuration.
    """
    if configs is None:
        return []
    if isinstance(configs, Mapping) or not isinstance(configs, Sequence) or isinstance(configs, str):
        raise SettingError(
            f"enqueue: {configs!r} is not a list; give a list of configurations, such as [{{'lr': 0.1}}]"
        )
    checked = []
    for number, config in enumerate(configs, start=1):
        try:
            checked.append(space.check_part(config))
        except SpaceError as error:
            raise SpaceError(f"enqueue: configuration {number}, {config!r}: {error}") from None
    return checked


def complete_config(
    space: Space, given: Config, rng: np.random.Generator, times: Callable[[Config], int]
) -> dict[str, Any]:
    """Return the configuration `given`, with random values for missing parameters.

    `times`: returns how often a configuration was tried. A configuration that was not tried is preferred.
    """
    for _ in range(_DRAWS):
        config = space.fill(given, rng)
        if not times(config):
            break
    return config
