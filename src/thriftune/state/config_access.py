"""How does a trial read like a mapping? trial["lr"], dict(trial) and **trial give the active parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView
from typing import Any

from thriftune.common.spelling import did_you_mean
from thriftune.space.values import copy_of
from thriftune.state.events import Config


class ConfigAccess:
    """A trial as a mapping of its active parameters. Each access gives a copy, so that lists may be changed."""

    __slots__ = ()

    def _active(self) -> Config:
        """The configuration itself."""
        raise NotImplementedError

    def _known(self) -> Iterable[str]:
        """The names of all parameters, as far as they are known here."""
        return self._active()

    def _is_read(self, name: str) -> None:
        """Called whenever a value is read."""

    def _is_unknown(self, name: str) -> None:
        """Called where get() is asked for what is not in the configuration."""

    def __getitem__(self, name: str) -> Any:
        try:
            value = self._active()[name]
        except KeyError:
            raise KeyError(missing_name_message(name, self._active(), self._known())) from None
        self._is_read(name)
        return copy_of(value)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a parameter, or `default` where its condition makes it inactive."""
        if name not in self._active():
            self._is_unknown(name)
            return default
        return self[name]

    def keys(self) -> KeysView[str]:
        """The names of the active parameters."""
        return self._active().keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self._active())

    def __len__(self) -> int:
        return len(self._active())

    def __bool__(self) -> bool:
        """A trial is one even where nothing is active."""
        return True

    def __contains__(self, name: object) -> bool:
        return name in self._active()


def missing_name_message(name: object, config: Config, known: Iterable[str]) -> str:
    """Return why a configuration has no such name, and which one may be meant."""
    have = ", ".join(config)
    near = did_you_mean(name, known) if isinstance(name, str) and name not in known else ""
    return (
        f"{name!r} is not in this configuration, which has {have}; "
        f"{near or 'a parameter whose condition does not hold is left out'}"
    )


def unknown_name_warning(name: str, known: Iterable[str]) -> str:
    """Return the warning about get() of a name that no parameter of the space has."""
    near = did_you_mean(name, known) or f"it has {', '.join(known)}"
    return f"trial.get({name!r}) always gives the default: the space has no parameter of that name; {near}"
