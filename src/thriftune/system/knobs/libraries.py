"""How do the libraries that compute go about it? With so many threads, and so exactly.

None of them is imported here: a trial that does without one shall not pay for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from thriftune.common.threads import THREAD_VARIABLES
from thriftune.system.knobs.knob import CannotTurn, Knob, one_of, powers_of_two, whole


class Threads(Knob):
    """Threads of BLAS, OpenMP and PyTorch in this process.

    What is loaded or started later has the number from the environment, and a library that did not look there has
    it from the next apply(). At the end, it gets what it would have had by the environment as it was.
    """

    name = "threads"
    again = True

    def __init__(self) -> None:
        self._variables: dict[str, str | None] = {}  # as they were; empty: nothing is turned
        self._cores = 1
        self._libraries: dict[str, tuple[Any, int]] = {}  # by file: what controls it, its threads when unturned
        self._torch_before: int | None = None
        self._modules = 0  # that were imported when it last looked for libraries

    def values(self, cores: int) -> Sequence[int]:
        return [*powers_of_two(cores), cores]

    def apply(self, value: Any) -> None:
        threads = whole(value)
        first = not self._variables
        if first:
            _check_own_choice()
            self._variables = {name: os.environ.get(name) for name in THREAD_VARIABLES}
            self._cores = len(os.sched_getaffinity(0))
        self._look(first)
        for name in THREAD_VARIABLES:
            if os.environ.get(name) != str(threads):
                os.environ[name] = str(threads)
        self._set(dict.fromkeys(self._libraries, threads), threads)

    def restore(self) -> None:
        if not self._variables:
            return
        self._look(first=False)
        self._set({file: before for file, (_, before) in self._libraries.items()}, self._torch_before)
        for name, text in self._variables.items():
            if text is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = text
        self._variables, self._libraries, self._torch_before = {}, {}, None

    def _look(self, first: bool) -> None:
        """Which libraries are there by now? That takes milliseconds, so only if something was imported since."""
        if not first and len(sys.modules) == self._modules:
            return
        from threadpoolctl import ThreadpoolController

        self._modules = len(sys.modules)
        if self._torch_before is None and (torch := _torch()) is not None:
            self._torch_before = torch.get_num_threads() if first else self._unturned("mkl")
        for library in ThreadpoolController().lib_controllers:
            if library.filepath not in self._libraries:
                before = library.num_threads if first else self._unturned(library.internal_api)
                self._libraries[library.filepath] = library, before

    def _unturned(self, library: str) -> int:
        """The threads of a library that was loaded while this was turned, had it not been."""
        for name in (f"{library.upper()}_NUM_THREADS", "OMP_NUM_THREADS"):
            text = (self._variables.get(name) or "").partition(",")[0]
            if text.isdecimal() and int(text) > 0:
                return int(text)
        return self._cores

    def _set(self, threads: Mapping[str, int], torch_threads: int | None) -> None:
        for file, count in threads.items():
            library, _ = self._libraries[file]
            library.set_num_threads(count)
            # Newer ones keep OpenBLAS for the thread that was first to set it; others may want to set it, too.
            getattr(library, "clear_controlling_thread", lambda: None)()
        if torch_threads is not None and (torch := _torch()) is not None:
            torch.set_num_threads(torch_threads)


def _check_own_choice() -> None:
    """Training code that has said how many threads PyTorch shall have knows best."""
    said, torch = os.environ.get("OMP_NUM_THREADS", ""), _torch()
    if torch is not None and said.isdecimal() and torch.get_num_threads() != int(said):
        raise CannotTurn(f"the training code has set PyTorch's threads to {torch.get_num_threads()} itself")


class Precision(Knob):
    """Matrices of 32-bit floats are multiplied by the faster, less exact ways that the hardware has: "tf32"."""

    name = "precision"
    again = True  # PyTorch may be loaded later

    def __init__(self) -> None:
        self._before: str | None = None

    def values(self, cores: int) -> Sequence[str]:  # noqa: ARG002
        return ("tf32",)

    def apply(self, value: Any) -> None:
        one_of(value, "tf32")
        if (torch := _torch()) is None:
            return
        if self._before is None:
            self._before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")

    def restore(self) -> None:
        if self._before is not None and (torch := _torch()) is not None:
            torch.set_float32_matmul_precision(self._before)
        self._before = None


def _torch() -> Any:
    """PyTorch where it is loaded, and all of it."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "set_float32_matmul_precision") else None
