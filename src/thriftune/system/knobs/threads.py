"""The knob "threads": how many threads BLAS, OpenMP and PyTorch use."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from thriftune.common.threads_per_trial import THREAD_VARIABLES
from thriftune.system.knobs.protocol import CannotTurn, Knob, powers_of_two, whole


class Threads(Knob):
    """The number of threads of BLAS, OpenMP and PyTorch in this process.

    The knob imports none of these libraries. Libraries that are loaded later, and processes that are started
    later, get the number from environment variables. The next apply() sets it in libraries that ignore the
    variables. restore() gives each library the number that follows from the original variables.
    """

    name = "threads"
    again = True

    def __init__(self) -> None:
        self._variables: dict[str, str | None] = {}  # the original variables; empty unless the knob is applied
        self._cores = 1
        self._libraries: dict[str, tuple[Any, int]] = {}  # by file: (controller, original threads)
        self._torch_before: int | None = None  # PyTorch's original threads
        self._modules = 0  # how many modules were imported at the last search for libraries

    def values(self, cores: int) -> Sequence[int]:
        return [*powers_of_two(cores), cores]

    def apply(self, value: Any) -> None:
        threads = whole(value)
        first = not self._variables
        if first:
            _check_training_code_sets_none()
            self._variables = {name: os.environ.get(name) for name in THREAD_VARIABLES}
            self._cores = len(os.sched_getaffinity(0))
        self._find_libraries(first)
        for name in THREAD_VARIABLES:
            if os.environ.get(name) != str(threads):
                os.environ[name] = str(threads)
        self._set(dict.fromkeys(self._libraries, threads), threads)

    def restore(self) -> None:
        if not self._variables:
            return
        self._find_libraries(first=False)
        self._set({file: before for file, (_, before) in self._libraries.items()}, self._torch_before)
        for name, text in self._variables.items():
            if text is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = text
        self._variables, self._libraries, self._torch_before = {}, {}, None

    def _find_libraries(self, first: bool) -> None:
        """Find the libraries that are loaded now. `first`: the knob is not applied yet.

        This takes milliseconds, so it is done only if a module was imported since the last time.
        """
        if not first and len(sys.modules) == self._modules:
            return
        from threadpoolctl import ThreadpoolController

        self._modules = len(sys.modules)
        if self._torch_before is None and (torch := _torch()) is not None:
            self._torch_before = torch.get_num_threads() if first else self._original_threads("mkl")
        for library in ThreadpoolController().lib_controllers:
            if library.filepath not in self._libraries:
                before = library.num_threads if first else self._original_threads(library.internal_api)
                self._libraries[library.filepath] = library, before

    def _original_threads(self, library: str) -> int:
        """Return the number of threads that the original variables give to a library.

        Called for a library that was loaded while the knob was applied.
        """
        for name in (f"{library.upper()}_NUM_THREADS", "OMP_NUM_THREADS"):
            text = (self._variables.get(name) or "").partition(",")[0]
            if text.isdecimal() and int(text) > 0:
                return int(text)
        return self._cores

    def _set(self, threads: Mapping[str, int], torch_threads: int | None) -> None:
        for file, count in threads.items():
            library, _ = self._libraries[file]
            library.set_num_threads(count)
            # Recent versions of threadpoolctl reserve OpenBLAS for the thread that set it first.
            getattr(library, "clear_controlling_thread", lambda: None)()
        if torch_threads is not None and (torch := _torch()) is not None:
            torch.set_num_threads(torch_threads)


def _check_training_code_sets_none() -> None:
    """Raise CannotTurn if the training code has set PyTorch's threads itself."""
    variable, torch = os.environ.get("OMP_NUM_THREADS", ""), _torch()
    if torch is not None and variable.isdecimal() and torch.get_num_threads() != int(variable):
        raise CannotTurn(f"the training code has set PyTorch's threads to {torch.get_num_threads()} itself")


def _torch() -> Any:
    """Return the module torch if it is completely loaded, else None."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "set_num_threads") else None
