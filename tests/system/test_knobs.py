"""What of its machine may a running trial change? Each knob by its effect on real threads, memory and limits."""

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import needs_torch
from tests.system.knob_conformance import CORES, KnobConformance, apart
from tests.system.nvidia_smi import Gpus
from thriftune.errors import SettingError
from thriftune.system.knobs import (
    BUILT_IN,
    CannotTurn,
    Cores,
    GpuPower,
    Knob,
    Memory,
    MemoryLimit,
    Nice,
    Precision,
    Threads,
)
from thriftune.system.knobs.cores import chosen

VARIABLES = tuple(f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB"))
NOBODY = 65534
CAP_SYS_NICE, CAP_SYS_RESOURCE = 23, 24


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


class Sleeper:
    """A thread that does nothing until it is told to end."""

    def __init__(self) -> None:
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._end.wait, daemon=True)
        self._thread.start()
        assert self._thread.native_id is not None
        self.id = self._thread.native_id

    def end(self) -> None:
        self._end.set()
        self._thread.join()


# --- each keeps the contract ------------------------------------------------------------------------------


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


@needs_torch
class TestPrecision(KnobConformance):
    def make(self) -> Knob:
        return Precision()

    def observe(self) -> object:
        return sys.modules["torch"].get_float32_matmul_precision()

    @pytest.fixture(autouse=True)
    def libraries(self) -> None:
        loaded("torch")

    def test_it_waits_for_pytorch_to_be_loaded(self) -> None:
        torch = sys.modules["torch"]

        def act() -> None:
            knob = Precision()
            del sys.modules["torch"]
            knob.apply("tf32")
            assert "torch" not in sys.modules
            assert torch.get_float32_matmul_precision() == "highest"
            sys.modules["torch"] = torch
            knob.apply("tf32")
            assert torch.get_float32_matmul_precision() == "high"

        apart(act)


class TestMemory(KnobConformance):
    """glibc cannot be told to do as before: what can be taken back is the memory that lies idle."""

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


class TestMemoryLimit(KnobConformance):
    def make(self) -> Knob:
        return MemoryLimit([16 << 30, 32 << 30])

    def observe(self) -> object:
        return resource.getrlimit(resource.RLIMIT_DATA)


class TestCores(KnobConformance):
    def make(self) -> Knob:
        return Cores()

    def prepare(self) -> None:
        sleepers = [Sleeper(), Sleeper()]
        os.sched_setaffinity(sleepers[1].id, {max(os.sched_getaffinity(0))})

    def observe(self) -> object:
        return {thread: os.sched_getaffinity(thread) for thread in tasks()}


def nice_of(threads: Iterable[int]) -> list[int]:
    return [int(stat(thread)[16]) for thread in threads]


@pytest.fixture
def usual_priority() -> None:
    if os.getpriority(os.PRIO_PROCESS, 0) != 0:
        pytest.skip("these tests run at a priority of their own")


@pytest.fixture
def may_be_nice(usual_priority: None) -> None:
    """This process may take back that it gave way."""
    if not capable(CAP_SYS_NICE) and resource.getrlimit(resource.RLIMIT_NICE)[0] < 20:
        pytest.skip("takes root, or RLIMIT_NICE")


@pytest.mark.usefixtures("may_be_nice")
class TestNice(KnobConformance):
    def make(self) -> Knob:
        return Nice()

    def prepare(self) -> None:
        sleepers = [Sleeper(), Sleeper()]
        os.setpriority(os.PRIO_PROCESS, sleepers[1].id, 7)
        self._threads = [os.getpid(), *(sleeper.id for sleeper in sleepers)]

    def observe(self) -> object:
        return nice_of(self._threads)


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return Gpus(tmp_path, a=700.0, b=600.0)


class TestGpuPower(KnobConformance):
    @pytest.fixture(autouse=True)
    def machine(self, gpus: Gpus) -> None:
        self._gpus = gpus

    def make(self) -> Knob:
        return GpuPower([300, 500])

    def observe(self) -> object:
        return self._gpus.watts()


class Collector(Knob):
    """A user's own: no garbage collection."""

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


class TestAUsersOwn(KnobConformance):
    def make(self) -> Knob:
        return Collector()

    def observe(self) -> object:
        return gc.isenabled()


def test_those_that_need_no_argument_go_by_their_names() -> None:
    assert {name: make().name for name, make in BUILT_IN.items()} == {name: name for name in BUILT_IN}
    assert sorted(BUILT_IN) == ["cores", "memory", "nice", "precision", "threads"]


def test_they_cost_no_import() -> None:
    """A worker imports them though its trials may use none of the libraries."""
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
@pytest.mark.parametrize("make", [*BUILT_IN.values(), lambda: MemoryLimit(1 << 40), lambda: GpuPower(300)])
def test_what_is_no_value_of_theirs_is_refused(make: Callable[[], Knob], value: object) -> None:
    with pytest.raises(CannotTurn, match=r"it (must|can) be"):
        make().apply(value)


# --- threads ----------------------------------------------------------------------------------------------


@given(cores=st.integers(1, 512))
def test_numbers_of_threads_to_try(cores: int) -> None:
    values = Threads().values(cores)
    assert values[0] == 1
    assert values[-1] == cores
    assert all(low < high <= 2 * low for low, high in itertools.pairwise(values))
    assert Cores().values(cores) == values[:-1]


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


def busy_while_turned(make_work: Callable[[], Callable[[], object]]) -> list[int]:
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
def test_libraries_use_so_many_threads(make_work: Callable[[], Callable[[], object]]) -> None:
    one = dict.fromkeys(VARIABLES, "1")
    assert fresh(busy_while_turned, make_work, variables=one) == [2, 1, 2, 1]


def loaded_while_turned(again: bool) -> tuple[dict[str, int], dict[str, int], int]:
    assert not {"numpy", "torch", "sklearn"} & set(sys.modules)
    knob = Threads()
    knob.apply(1)
    loaded("numpy", "torch", "sklearn.ensemble")
    if again:
        importlib.import_module("threadpoolctl").threadpool_limits(5)  # as do libraries that ask nobody
        knob.apply(1)
    turned = pool_sizes()
    knob.restore()
    return turned, pool_sizes(), sys.modules["torch"].get_num_threads()


@needs_torch
@pytest.mark.parametrize("again", [False, True])
def test_libraries_loaded_since_get_the_number_and_lose_it(again: bool) -> None:
    turned, restored, torch = fresh(loaded_while_turned, again, variables=dict.fromkeys(VARIABLES, "2"))
    assert len(turned) >= 3
    assert set(turned.values()) == {1}
    assert set(restored.values()) == {2}
    assert torch == 2


@needs_torch
def test_where_no_variable_says_a_library_loaded_since_gets_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    _, restored, torch = fresh(loaded_while_turned, True)
    assert {*restored.values(), torch} == {CORES}


def test_it_looks_for_libraries_only_when_something_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_processes_started_later_have_the_number() -> None:
    def act() -> None:
        Threads().apply(3)
        code = f"import os; print([os.environ[name] for name in {VARIABLES}])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == str(["3"] * len(VARIABLES))

    apart(act)


def test_another_thread_may_set_openblas_as_well() -> None:
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


def test_kept_memory_need_not_come_anew() -> None:
    (before, kept, after), resident = fresh(page_faults, variables={"NUMPY_MADVISE_HUGEPAGE": "0"})
    assert kept * 10 < before
    assert after < before, "what it had is given back, but glibc cannot be told to do as before"
    assert resident[1] > resident[0] + (80 << 20)
    assert resident[2] < resident[0] + (20 << 20)


def test_where_memory_is_short_none_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thriftune.system.knobs.memory._plenty", lambda: False)
    with pytest.raises(CannotTurn, match="not much more memory left"):
        Memory().apply("kept")


def set_by_hand() -> str:
    torch = importlib.import_module("torch")
    torch.set_num_threads(2)
    try:
        Threads().apply(1)
    except CannotTurn as refused:
        return f"{refused}; {torch.get_num_threads()}"
    return "was turned"


@needs_torch
def test_who_sets_the_threads_by_hand_has_the_last_word() -> None:
    said = fresh(set_by_hand, variables={"OMP_NUM_THREADS": "1"})
    assert said == "the training code has set PyTorch's threads to 2 itself; 2"


def test_it_takes_the_gnu_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    knob = Memory()
    with pytest.raises(CannotTurn, match="GNU C library"):
        knob.apply("kept")
    knob.restore()


def data_bytes() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
    return int(line.split()[1]) << 10


def test_there_is_no_more_memory_than_the_limit() -> None:
    def act() -> None:
        limit = data_bytes() + (200 << 20)
        knob = MemoryLimit(limit)
        assert list(knob.values(2)) == [limit]
        knob.apply(limit)
        bytearray(50 << 20)
        with pytest.raises(MemoryError):
            bytearray(400 << 20)
        knob.restore()
        bytearray(400 << 20)

    apart(act)


def test_a_limit_below_what_is_used_is_refused() -> None:
    def act() -> None:
        before = resource.getrlimit(resource.RLIMIT_DATA)
        knob = MemoryLimit(1 << 20)
        with pytest.raises(CannotTurn, match="GiB of data already"):
            knob.apply(1 << 20)
        knob.restore()
        assert resource.getrlimit(resource.RLIMIT_DATA) == before

    apart(act)


def test_a_limit_above_the_hard_one_is_refused() -> None:
    def act() -> None:
        limits = (8 << 30, 16 << 30)
        resource.setrlimit(resource.RLIMIT_DATA, limits)
        knob = MemoryLimit([8 << 30, 32 << 30])
        with pytest.raises(CannotTurn, match="17,179,869,184 bytes"):
            knob.apply(32 << 30)
        assert resource.getrlimit(resource.RLIMIT_DATA) == limits
        knob.apply(16 << 30)
        knob.restore()
        assert resource.getrlimit(resource.RLIMIT_DATA) == limits

    apart(act)


@pytest.mark.parametrize("given_", [0, -1, 2.5, True, "2GB", None, [1 << 30, "8g"]])
@pytest.mark.parametrize("make", [MemoryLimit, GpuPower])
def test_what_is_no_number_is_named(make: Callable[[Any], Knob], given_: Any) -> None:
    wrong = given_[1] if isinstance(given_, list) else given_
    with pytest.raises(SettingError, match=f"{wrong!r} is no number of (bytes|watts); give a whole one above 0"):
        make(given_)


def test_something_must_be_given() -> None:
    with pytest.raises(SettingError, match="gpu_power: nothing is given"):
        GpuPower([])


# --- cores ------------------------------------------------------------------------------------------------


@given(
    allowed=st.sets(st.integers(0, 127), min_size=1, max_size=32).map(sorted),
    pid=st.integers(1, 4_194_304),
    data=st.data(),
)
def test_which_cores(allowed: list[int], pid: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(allowed)))
    taken = [chosen(allowed, count, pid + i) for i in range(len(allowed) // count)]
    assert all(len(cores) == count and cores <= set(allowed) for cores in taken)
    # Workers started one after another do not share cores while there are enough.
    assert len(set().union(*taken)) == count * len(taken)


@pytest.fixture
def two_cores() -> None:
    if CORES < 2:
        pytest.skip("takes two cores")


@pytest.mark.usefixtures("two_cores")
def test_every_thread_keeps_to_the_cores_and_so_do_new_ones() -> None:
    def act() -> None:
        allowed = os.sched_getaffinity(0)
        old = Sleeper()
        knob = Cores()
        knob.apply(1)
        new = Sleeper()
        masks = [os.sched_getaffinity(thread) for thread in tasks()]
        assert len(masks) == 3
        assert masks == [chosen(sorted(allowed), 1, os.getpid())] * 3
        old.end()
        knob.restore()
        assert os.sched_getaffinity(new.id) == os.sched_getaffinity(0) == allowed

    apart(act)


@pytest.mark.usefixtures("two_cores")
def test_no_thread_escapes_that_is_started_meanwhile() -> None:
    def act() -> None:
        over = threading.Event()

        def breed() -> None:
            while not over.is_set():
                threading.Thread(target=over.wait, args=(0.02,), daemon=True).start()

        breeders = [threading.Thread(target=breed, daemon=True) for _ in range(3)]
        for breeder in breeders:
            breeder.start()
        allowed = os.sched_getaffinity(0)
        for _ in range(10):
            knob = Cores()
            knob.apply(1)
            assert masks() == {frozenset(chosen(sorted(allowed), 1, os.getpid()))}
            knob.restore()
            assert masks() == {frozenset(allowed)}
        over.set()

    def masks() -> set[frozenset[int]]:
        found = set()
        for thread in tasks():
            with contextlib.suppress(ProcessLookupError):
                found.add(frozenset(os.sched_getaffinity(thread)))
        return found

    apart(act)


def test_more_cores_than_there_are() -> None:
    with pytest.raises(CannotTurn, match=f"may run on {CORES} only"):
        Cores().apply(CORES + 1)


@pytest.mark.usefixtures("may_be_nice")
def test_every_thread_gives_way_and_none_less_than_before() -> None:
    def act() -> None:
        eager, lazy = Sleeper(), Sleeper()
        os.setpriority(os.PRIO_PROCESS, lazy.id, 7)
        knob = Nice()
        knob.apply(5)
        threads = [os.getpid(), eager.id, lazy.id, Sleeper().id]
        assert nice_of(threads) == [5, 5, 7, 5]
        knob.apply(10)
        assert nice_of(threads) == [10, 10, 10, 10]
        knob.restore()
        assert nice_of(threads) == [0, 0, 7, 0]

    apart(act)


def capable(capability: int) -> bool:
    """Containers have some of root's rights, and not others."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff"))
    return bool(int(line.split()[1], 16) >> capability & 1)


def become_nobody() -> None:
    if os.geteuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)


@pytest.mark.usefixtures("usual_priority")
def test_nobody_gives_way_who_could_not_take_it_back() -> None:
    def act() -> None:
        resource.setrlimit(resource.RLIMIT_NICE, (0, 0))
        become_nobody()
        with pytest.raises(CannotTurn, match="root, or a limit RLIMIT_NICE of 20"):
            Nice().apply(5)
        assert nice_of([os.getpid()]) == [0]

    apart(act)


@pytest.mark.usefixtures("usual_priority")
def test_a_limit_is_as_good_as_being_root() -> None:
    if resource.getrlimit(resource.RLIMIT_NICE)[1] < 20 and not capable(CAP_SYS_RESOURCE):
        pytest.skip("the limit cannot be raised here")

    def act() -> None:
        resource.setrlimit(resource.RLIMIT_NICE, (20, 20))
        become_nobody()
        knob = Nice()
        knob.apply(5)
        assert nice_of([os.getpid()]) == [5]
        knob.restore()
        assert nice_of([os.getpid()]) == [0]

    apart(act)


@pytest.mark.usefixtures("usual_priority")
def test_giving_way_less_than_already_is_none() -> None:
    def act() -> None:
        os.setpriority(os.PRIO_PROCESS, 0, 10)
        with pytest.raises(CannotTurn, match="it is 10 without"):
            Nice().apply(5)

    apart(act)


# --- graphics processors ----------------------------------------------------------------------------------


def test_all_gpus_are_limited(gpus: Gpus) -> None:
    knob = GpuPower(300)
    knob.apply(300)
    assert gpus.watts() == [300.0, 300.0]
    knob.restore()
    assert gpus.watts() == [700.0, 600.0]


@pytest.mark.parametrize("visible", ["1", "b", " b ,"])
def test_only_those_that_the_process_sees(gpus: Gpus, visible: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    knob = GpuPower(300)
    knob.apply(300)
    assert gpus.watts() == [700.0, 300.0]
    knob.restore()
    assert gpus.watts() == [700.0, 600.0]


@pytest.mark.parametrize(
    ("visible", "why"), [("", "names none"), ("7", "nvidia-smi: No devices were found"), ("-1", "No devices")]
)
def test_a_process_that_sees_no_gpu(gpus: Gpus, visible: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(CannotTurn, match=why):
        GpuPower(300).apply(300)


def test_what_nvidia_smi_refuses_is_told_in_its_words(gpus: Gpus) -> None:
    knob = GpuPower(900)
    with pytest.raises(CannotTurn, match=r"nvidia-smi: Provided power limit 900\.00 W is not a valid power limit"):
        knob.apply(900)
    assert gpus.watts() == [700.0, 600.0]


def test_one_that_only_warns_has_not_done_it(gpus: Gpus) -> None:
    gpus.fix("b")
    knob = GpuPower(300)
    with pytest.raises(CannotTurn, match=r"not supported for GPU: b\. Treating as warning"):
        knob.apply(300)
    assert gpus.watts() == [700.0, 600.0]


def test_one_that_tells_no_limit(tmp_path: Path, gpus: Gpus) -> None:
    Gpus(tmp_path, a=None)
    with pytest.raises(CannotTurn, match=r"nvidia-smi: a, \[N/A\]"):
        GpuPower(300).apply(300)


def test_without_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotTurn, match="there is no nvidia-smi"):
        GpuPower(300).apply(300)
