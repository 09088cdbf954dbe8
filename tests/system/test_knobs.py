"""The built-in knobs: their effect on real threads and memory."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import itertools
import multiprocessing
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import needs_torch
from tests.system.knob_conformance import CORES, KnobConformance, apart
from thriftune.system.knobs import BUILT_IN, CannotTurn, Knob, Memory, Threads

VARIABLES = tuple(f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB"))


def fresh(function: Callable[..., Any], *arguments: Any, variables: Mapping[str, str] | None = None) -> Any:
    """What the function returns in a new interpreter, which has loaded no library yet."""
    before = dict(os.environ)
    os.environ.update(variables or {})
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            return pool.submit(function, *arguments).result()
    finally:
        os.environ.clear()
        os.environ.update(before)


def stat(thread: int) -> list[str]:
    """From the third field of proc(5) on: the second, its name, may hold anything."""
    return Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()


def tasks() -> list[int]:
    return sorted(int(entry.name) for entry in Path("/proc/self/task").iterdir())


# --- conformance ------------------------------------------------------------------------------


def pool_sizes() -> dict[str, int]:
    """Threads of every library that is loaded."""
    found = importlib.import_module("threadpoolctl").threadpool_info()
    return {library["filepath"]: library["num_threads"] for library in found}


def loaded(*names: str) -> None:
    for name in names:
        importlib.import_module(name)


@needs_torch
class TestThreads(KnobConformance):
    def make(self) -> Knob:
        return Threads()

    def prepare(self) -> None:
        os.environ.pop("MKL_NUM_THREADS", None)
        os.environ["OMP_NUM_THREADS"] = str(sys.modules["torch"].get_num_threads())

    def observe(self) -> object:
        torch = sys.modules["torch"]
        return {name: os.environ.get(name) for name in VARIABLES}, pool_sizes(), torch.get_num_threads()

    @pytest.fixture(autouse=True)
    def libraries(self) -> None:
        loaded("torch", "numpy", "sklearn.ensemble")


class TestMemory(KnobConformance):
    """glibc keeps its thresholds; restore() returns the idle memory."""

    def make(self) -> Knob:
        return Memory()

    def prepare(self) -> None:
        importlib.import_module("numpy")
        self.before = resident_bytes()

    def observe(self) -> object:
        """Whether memory lies idle: the process has more of it than before, and uses none."""
        return resident_bytes() > self.before + (64 << 20)

    def after_apply(self) -> None:
        """Memory is taken, and freed."""
        array = importlib.import_module("numpy").ones(16 << 20)  # 128 MiB
        array.sum()


class Collector(Knob):
    """A user's knob: no garbage collection."""

    name = "collector"

    def __init__(self) -> None:
        self._was_on: bool | None = None

    def values(self, cores: int) -> Sequence[str]:
        return ("off",)

    def apply(self, value: str) -> None:
        if self._was_on is None:
            self._was_on = gc.isenabled()
        gc.disable()

    def restore(self) -> None:
        if self._was_on:
            gc.enable()
        self._was_on = None


class TestCollector(KnobConformance):
    def make(self) -> Knob:
        return Collector()

    def observe(self) -> object:
        return gc.isenabled()


def test_built_in_knobs_are_listed_by_name() -> None:
    assert {name: make().name for name, make in BUILT_IN.items()} == {name: name for name in BUILT_IN}
    assert sorted(BUILT_IN) == ["memory", "threads"]


def test_knobs_import_no_heavy_module() -> None:
    """Workers import them, although trials may use none of the libraries."""
    heavy = ["torch", "numpy", "scipy", "sklearn", "threadpoolctl", "ctypes", "subprocess"]
    code = f"""
import sys
import thriftune.errors
before = set(sys.modules)
import thriftune.system.knobs
print([name for name in {heavy} if name in set(sys.modules) - before])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("value", [None, 0, -1, "none such", 1.5, True, [1]])
@pytest.mark.parametrize("make", [*BUILT_IN.values()])
def test_other_values_are_refused(make: Callable[[], Knob], value: object) -> None:
    with pytest.raises(CannotTurn, match=r"it (must|can) be"):
        make().apply(value)


# --- threads ----------------------------------------------------------------------------------------------


@given(cores=st.integers(1, 512))
def test_thread_counts_are_powers_of_two_and_all_cores(cores: int) -> None:
    values = Threads().values(cores)
    assert values[0] == 1
    assert values[-1] == cores
    assert all(low < high <= 2 * low for low, high in itertools.pairwise(values))


def cpu_ticks() -> dict[int, int]:
    """CPU time of each thread, in hundredths of a second."""
    found = {}
    for thread in tasks():
        with contextlib.suppress(OSError):
            found[thread] = int(stat(thread)[11]) + int(stat(thread)[12])
    return found


def busy_threads(work: Callable[[], object]) -> int:
    """How many threads take a good part in the work."""
    work()  # whoever starts threads has done so
    before: dict[int, int] = {}
    while before != (before := cpu_ticks()):
        time.sleep(0.05)  # threads without work look for some at full speed for a while, and then sleep
    spent: dict[int, int] = {}
    while max(spent.values(), default=0) < 20:
        work()
        spent = {thread: ticks - before.get(thread, 0) for thread, ticks in cpu_ticks().items()}
    return sum(ticks > max(spent.values()) / 4 for ticks in spent.values())


def multiply_arrays() -> Callable[[], object]:
    numpy = importlib.import_module("numpy")
    matrix = numpy.random.default_rng(0).random((900, 900))
    return lambda: matrix @ matrix


def multiply_tensors() -> Callable[[], object]:
    torch = importlib.import_module("torch")
    matrix = torch.rand(900, 900)
    return lambda: matrix @ matrix


def sines_of_a_tensor() -> Callable[[], object]:
    tensor = importlib.import_module("torch").rand(1_000_000)
    return lambda: tensor.sin().cos()


def boost() -> Callable[[], object]:
    ensemble = importlib.import_module("sklearn.ensemble")
    numbers = importlib.import_module("numpy").random.default_rng(0)
    x, y = numbers.random((8000, 20)), numbers.random(8000)
    return lambda: ensemble.HistGradientBoostingRegressor(max_iter=10).fit(x, y)


def busy_while_applied(make_work: Callable[[], Callable[[], object]]) -> list[int]:
    work = make_work()
    knob = Threads()
    busy = []
    for threads in (2, 1, 2):
        knob.apply(threads)
        busy.append(busy_threads(work))
    knob.restore()
    return [*busy, busy_threads(work)]


@pytest.mark.parametrize(
    "make_work",
    [
        multiply_arrays,
        pytest.param(multiply_tensors, marks=needs_torch),
        pytest.param(sines_of_a_tensor, marks=needs_torch),
        boost,
    ],
)
def test_libraries_use_the_number_of_threads(make_work: Callable[[], Callable[[], object]]) -> None:
    one = dict.fromkeys(VARIABLES, "1")
    assert fresh(busy_while_applied, make_work, variables=one) == [2, 1, 2, 1]


def loaded_while_applied(again: bool) -> tuple[dict[str, int], dict[str, int], int]:
    assert not {"numpy", "torch", "sklearn"} & set(sys.modules)
    knob = Threads()
    knob.apply(1)
    loaded("numpy", "torch", "sklearn.ensemble")
    if again:
        importlib.import_module("threadpoolctl").threadpool_limits(5)  # as do libraries that ask nobody
        knob.apply(1)
    applied = pool_sizes()
    knob.restore()
    return applied, pool_sizes(), sys.modules["torch"].get_num_threads()


@needs_torch
@pytest.mark.parametrize("again", [False, True])
def test_libraries_loaded_later_get_the_number_and_are_restored(again: bool) -> None:
    applied, restored, torch = fresh(loaded_while_applied, again, variables=dict.fromkeys(VARIABLES, "2"))
    assert len(applied) >= 3
    assert set(applied.values()) == {1}
    assert set(restored.values()) == {2}
    assert torch == 2


@needs_torch
def test_without_variables_a_later_library_is_restored_to_all_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    _, restored, torch = fresh(loaded_while_applied, True)
    assert {*restored.values(), torch} == {CORES}


def test_libraries_are_searched_only_after_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    threadpoolctl = importlib.import_module("threadpoolctl")
    looks = []

    class Counted(threadpoolctl.ThreadpoolController):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            looks.append(1)
            super().__init__()

    monkeypatch.setattr(threadpoolctl, "ThreadpoolController", Counted)

    def act() -> None:
        knob = Threads()
        for threads in (1, 1, 2, 2):
            knob.apply(threads)
        assert len(looks) == 1
        sys.modules["something.new"] = sys
        knob.apply(2)
        knob.apply(2)
        assert len(looks) == 2

    apart(act)


def test_child_processes_have_the_number() -> None:
    def act() -> None:
        Threads().apply(3)
        code = f"import os; print([os.environ[name] for name in {VARIABLES}])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == str(["3"] * len(VARIABLES))

    apart(act)


def test_another_thread_may_set_openblas_too() -> None:
    """threadpoolctl keeps it for the thread that was first; later trials may need it elsewhere."""
    loaded("numpy")
    threadpoolctl = importlib.import_module("threadpoolctl")

    def act() -> None:
        knob = Threads()
        knob.apply(2)
        limit = threading.Thread(target=threadpoolctl.threadpool_limits, args=(1, "blas"))
        limit.start()
        limit.join()
        found = threadpoolctl.threadpool_info()
        assert {library["num_threads"] for library in found if library["user_api"] == "blas"} == {1}

    apart(act)


# --- memory -----------------------------------------------------------------------------------------------


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def page_faults() -> tuple[list[int], list[int]]:
    """Of a loop with large arrays before and while memory is kept, and after; and the memory of the process."""
    numpy = importlib.import_module("numpy")
    array = numpy.ones(12_000_000)  # 96 MB: glibc never keeps as much by itself

    def loop() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(10):
            (array * 2.0 + array).sum()
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    knob = Memory()
    faults, resident = [loop()], [resident_bytes()]
    knob.apply("kept")
    loop()
    faults.append(loop())
    resident.append(resident_bytes())
    knob.restore()
    resident.append(resident_bytes())
    faults.append(loop())
    return faults, resident


def test_kept_memory_is_not_requested_again() -> None:
    (before, kept, after), resident = fresh(page_faults, variables={"NUMPY_MADVISE_HUGEPAGE": "0"})
    assert kept * 10 < before
    assert after < before, "idle memory is returned, but glibc keeps its thresholds"
    assert resident[1] > resident[0] + (80 << 20)
    assert resident[2] < resident[0] + (20 << 20)


def test_no_memory_is_kept_where_little_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thriftune.system.knobs.memory._has_spare_memory", lambda: False)
    with pytest.raises(CannotTurn, match="little more memory left"):
        Memory().apply("kept")


def set_by_hand() -> str:
    torch = importlib.import_module("torch")
    torch.set_num_threads(2)
    try:
        Threads().apply(1)
    except CannotTurn as refused:
        return f"{refused}; {torch.get_num_threads()}"
    return "was applied"


@needs_torch
def test_threads_set_by_the_training_code_are_not_changed() -> None:
    refusal = fresh(set_by_hand, variables={"OMP_NUM_THREADS": "1"})
    assert refusal == "the training code has set PyTorch's threads to 2 itself; 2"


def test_memory_needs_the_gnu_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    knob = Memory()
    with pytest.raises(CannotTurn, match="GNU C library"):
        knob.apply("kept")
    knob.restore()
