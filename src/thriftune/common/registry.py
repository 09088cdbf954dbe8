"""Registries of searchers, stopping rules and similar parts that users select by name or pass as objects."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

from thriftune.errors import SettingError

T = TypeVar("T")


class Registry(Generic[T]):
    """The classes that one setting can name.

    A class is imported when it is first used: some imports are slow.
    """

    def __init__(self, setting: str, homes: Mapping[str, tuple[str, str]], methods: tuple[str, ...]) -> None:
        """Create a registry.

        - `setting`: the setting's name, for errors.
        - `homes`: the module and the class of each name.
        - `methods`: the methods that an object must have, with their arguments as errors show them.
        """
        self._setting = setting
        self._homes = homes
        self._methods = methods

    def __contains__(self, name: object) -> bool:
        return name in self._homes

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._homes)

    def kind(self, name: str) -> type[T]:
        """Return the class of a name; raise SettingError if it is not known."""
        if name not in self._homes:
            raise SettingError(f"{self._setting} {name!r} is not known; use one of {', '.join(self._homes)}")
        module, class_name = self._homes[name]
        kind: type[T] = getattr(import_module(module), class_name)
        return kind

    def make(self, name: str, options: Mapping[str, Any]) -> T:
        """Return a new object of the class of this name, with options from a study file."""
        kind = self.kind(name)
        known = inspect.signature(kind).parameters
        if unknown := [option for option in options if option not in known]:
            allowed = ", ".join(known) or "none"
            raise SettingError(
                f"{self._setting}: {name} does not take {', '.join(unknown)}; its options: {allowed}"
            )
        return kind(**options)

    def check(self, value: object) -> None:
        """Raise SettingError unless the value is a known name or an object with the required methods."""
        if isinstance(value, str):
            self.kind(value)
        elif isinstance(value, type):
            raise SettingError(f"{self._setting}: {value.__name__} is a class; give an object, {value.__name__}()")
        elif not all(callable(getattr(value, method.partition("(")[0], None)) for method in self._methods):
            raise SettingError(
                f"{self._setting}: {value!r} has no method {' and '.join(self._methods)}; "
                f"give an object that has, or one of {', '.join(map(repr, self._homes))}"
            )

    def name_and_options(self, value: str | T) -> tuple[str, dict[str, Any]]:
        """Return the name and options of a value, as a study file has them.

        For an object of a class that is not registered, return the name of its class without options.
        """
        if isinstance(value, str):
            return value, {}
        kind = type(value)
        for name, home in self._homes.items():
            if home == (kind.__module__, kind.__name__):
                return name, dict(getattr(value, "options", {}))
        return kind.__name__, {}

    @property
    def classes(self) -> list[str]:
        """Return the names of the classes."""
        return [class_name for _, class_name in self._homes.values()]

    def of_class(self, name: str) -> Any:
        """Return the class with this class name. Called by a module's __getattr__()."""
        for module, class_name in self._homes.values():
            if name == class_name:
                return getattr(import_module(module), name)
        raise AttributeError(f"there is no {name!r} among {', '.join(self.classes)}")
