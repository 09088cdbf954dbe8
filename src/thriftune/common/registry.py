"""What does a name stand for? Searchers and stopping rules may be given by name, or as an object with options."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

from thriftune.errors import SettingError

T = TypeVar("T")


class Registry(Generic[T]):
    """All parts of one kind. Their modules are imported when they are first asked for: some are heavy."""

    def __init__(self, setting: str, homes: Mapping[str, tuple[str, str]], methods: tuple[str, ...]) -> None:
        """`homes`: by name, the module and the class. `methods`: what an object must have, as it is called."""
        self._setting = setting
        self._homes = homes
        self._methods = methods

    def __contains__(self, name: object) -> bool:
        return name in self._homes

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._homes)

    def kind(self, name: str) -> type[T]:
        if name not in self._homes:
            raise SettingError(f"{self._setting} {name!r} is not known; use one of {', '.join(self._homes)}")
        module, found = self._homes[name]
        kind: type[T] = getattr(import_module(module), found)
        return kind

    def make(self, name: str, options: Mapping[str, Any]) -> T:
        """The part of that name, with options as a study file gives them."""
        kind = self.kind(name)
        known = inspect.signature(kind).parameters
        if unknown := [option for option in options if option not in known]:
            may = ", ".join(known) or "none"
            raise SettingError(f"{self._setting}: {name} does not take {', '.join(unknown)}; its options: {may}")
        return kind(**options)

    def check(self, given: object) -> None:
        """Whether it is a name, or an object that can be asked; SettingError if not."""
        if isinstance(given, str):
            self.kind(given)
        elif isinstance(given, type):
            raise SettingError(f"{self._setting}: {given.__name__} is a class; give an object, {given.__name__}()")
        elif not all(callable(getattr(given, method.partition("(")[0], None)) for method in self._methods):
            raise SettingError(
                f"{self._setting}: {given!r} has no method {' and '.join(self._methods)}; "
                f"give an object that has, or one of {', '.join(map(repr, self._homes))}"
            )

    def name_and_options(self, given: str | T) -> tuple[str, dict[str, Any]]:
        """Its name and its options, as a study file has them; of a user's own, the name of its class."""
        if isinstance(given, str):
            return given, {}
        kind = type(given)
        for name, home in self._homes.items():
            if home == (kind.__module__, kind.__name__):
                return name, dict(getattr(given, "options", {}))
        return kind.__name__, {}

    @property
    def classes(self) -> list[str]:
        """Their names."""
        return [found for _, found in self._homes.values()]

    def of_class(self, name: str) -> Any:
        """For a module's __getattr__: the part whose class has that name."""
        for module, found in self._homes.values():
            if name == found:
                return getattr(import_module(module), name)
        raise AttributeError(f"there is no {name!r} among {', '.join(self.classes)}")
