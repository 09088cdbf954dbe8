"""Make a trial a mapping of its active parameters.

They are accessible as trial["lr"], dict(trial) and **trial.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView
from typing import Any

from thriftune.common.spelling import did_you_mean
from thriftune.space.values import copy_of
from thriftune.state.events import Config


class ConfigAccess:
    """A mapping of a trial's active parameters.

    Each access to a value returns a copy, so that the user may change a list.
    """

    __slots__ = ()

    def _active(self) -> Config:
        """Return the configuration, which has only active parameters."""
        raise NotImplementedError

    def _known(self) -> Iterable[str]:
        """Return the names of all parameters of the space.

        Returns only the active ones if the space is not known.
        """
        return self._active()

    def _note_read(self, name: str) -> None:
        """Note that a parameter's value was read."""

    def _note_unknown(self, name: str) -> None:
        """Note that get() was called with a name that is not in the configuration."""

    def __getitem__(self, name: str) -> Any:
        try:
            value = self._active()[name]
        except KeyError:
            raise KeyError(missing_name_message(name, self._active(), self._known())) from None
        self._note_read(name)
        return copy_of(value)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a parameter, or `default` if it is not active."""
        if name not in self._active():
            self._note_unknown(name)
            return default
        return self[name]

    def keys(self) -> KeysView[str]:
        """Return the names of the active parameters."""
        return self._active().keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self._active())

    def __len__(self) -> int:
        return len(self._active())

    def __bool__(self) -> bool:
        """Return True, even for a trial without active parameters."""
        return True

    def __contains__(self, name: object) -> bool:
        return name in self._active()


def missing_name_message(name: object, config: Config, known: Iterable[str]) -> str:
    """Return the error for a name that is not in the configuration.

    It suggests a similar name from `known`.
    """
    hint = did_you_mean(name, known) if isinstance(name, str) and name not in known else ""
    return (
        f"{name!r} is not in this configuration, which has {', '.join(config)}; "
        f"{hint or 'a parameter whose condition does not hold is left out'}"
    )


def unknown_name_warning(name: str, known: Iterable[str]) -> str:
    """Return the warning about get() with a name that no parameter of the space has."""
    hint = did_you_mean(name, known) or f"it has {', '.join(known)}"
    return f"trial.get({name!r}) always gives the default: the space has no parameter of that name; {hint}"
