"""Training functions for the tests of engines. `act` calls the one that the configuration names."""

from __future__ import annotations

import ctypes
import gc
import io
import itertools
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from thriftune.training.trial import Trial

MEMORY_GROUP = "TEST_MEMORY_GROUP"
"""The environment variable that names a control group with little memory, for eat_memory."""

HOME = Path.cwd()
VARIABLES = dict(os.environ)


def process_state() -> dict[str, Any]:
    """Return the state of this process that a trial may change."""
    limits = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "cores": os.sched_getaffinity(0),
        "handlers": [signal.getsignal(number) for number in sorted(signal.valid_signals())],
        "blocked": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "timers": [signal.getitimer(timer) for timer in (0, 1, 2)],
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in limits},
        "recursion": sys.getrecursionlimit(),
        "gc": (gc.isenabled(), gc.get_threshold()),
    }


STATE = process_state()


def act(trial: Trial) -> object:
    """Call the function whose name is in `do`, up to a colon. The rest makes configurations differ."""
    return ACTS[trial["do"].partition(":")[0]](trial)


def check(trial: Trial) -> float:
    """Succeed if the process has no changes of an earlier trial."""
    assert Path.cwd() == HOME
    assert os.environ == VARIABLES
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 64
    assert all(not line.startswith("State:\tT") for line in Path("/proc/self/status").read_text().splitlines())
    mask = os.umask(0o022)
    assert os.umask(mask) == 0o022
    assert mask != 0o777
    print("printed by Python", flush=True)
    os.write(1, b"written to descriptor 1\n")
    assert process_state() == STATE, (process_state(), STATE)
    assert "numpy" not in sys.modules or sys.modules["numpy"].geterr()["invalid"] == "warn"
    return 1.0


def settings(trial: Trial) -> None:
    """Make steps that are long enough to be measured, and report the knob setting of each."""
    for _ in trial.steps():
        pace = trial.system.get("pace", 0)
        time.sleep(0.6)
        trial.report(loss=1.0, pace=pace)


def pid(trial: Trial) -> dict[str, float]:
    return {"loss": 1.0, "pid": float(os.getpid())}


def witness(trial_folder: Path) -> Path:
    """Return the file to which train() appends the steps of a trial.

    On nodes that do not see the test's folders, it is in the folder that a variable names.
    """
    trial, _, _ = trial_folder.name.partition("-")
    apart = os.environ.get("TEST_WITNESS")
    return Path(apart, f"{trial}-steps_done") if apart else trial_folder / "steps_done"


def train(trial: Trial) -> None:
    """Make steps with checkpoints, and log each. After step 2 of the first attempt, call `then`."""
    state = {"step": 0}

    def load(folder: Path) -> None:
        state.update(json.loads((folder / "state").read_text()))

    def save(folder: Path) -> None:
        (folder / "state").write_text(json.dumps(state))

    trial.restore(load)
    for step in trial.steps():
        assert state["step"] == step - 1
        state["step"] = step
        with witness(trial.folder).open("a") as done:
            done.write(f"{trial.attempt} {step}\n")
        trial.report(loss=1.0 / step, save=save)
        if step == 2 and trial.attempt == 1:
            ACTS[trial.get("then", "check")](trial)


def count(trial: Trial) -> None:
    """Report until the end is requested, or to max_steps."""
    for step in trial.steps():
        trial.report(loss=1.0 / step)
        time.sleep(trial.get("pause", 0.0))


def second_raises(trial: Trial) -> None:
    for step in trial.steps():
        if (step, trial.rank) == (2, 1):
            raise ValueError("deliberate")
        trial.report(loss=1.0 / step)
        time.sleep(0.01)


def second_is_killed(trial: Trial) -> None:
    for step in trial.steps():
        if (step, trial.rank) == (2, 1):
            kill_itself(trial)
        trial.report(loss=1.0 / step)
        time.sleep(0.01)


def raise_error(trial: Trial) -> None:
    print("about to raise")
    raise ValueError("deliberate")


def raise_huge(trial: Trial) -> None:
    raise ValueError("began" + "x" * 10_000_000 + "ended")


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def raise_unspeakable(trial: Trial) -> None:
    raise _Unspeakable


def raise_interrupt(trial: Trial) -> None:
    raise KeyboardInterrupt


def recurse(trial: Trial) -> object:
    return recurse(trial)


def exit_3(trial: Trial) -> None:
    print("about to exit", flush=True)
    os._exit(3)


def exit_0(trial: Trial) -> None:
    os._exit(0)


def sys_exit(trial: Trial) -> None:
    sys.exit("leaving")


def segfault(trial: Trial) -> None:
    ctypes.string_at(0)


def abort(trial: Trial) -> None:
    os.abort()


def kill_itself(trial: Trial) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def eat_memory(trial: Trial) -> float:
    group = Path(os.environ[MEMORY_GROUP])
    (group / "cgroup.procs").write_text(str(os.getpid()))
    print("hungry", flush=True)
    eaten = [bytearray(os.urandom(1 << 20)) for _ in range(1000)]
    return float(len(eaten))


def print_much(trial: Trial) -> None:
    line = b"x" * 99_999 + b"\n"
    for _ in range(1000):
        os.write(1, line)
    os.write(1, b"the last of it\n")
    raise ValueError("after 100 MB")


def print_no_newline(trial: Trial) -> None:
    print("no end of line", end="")
    raise ValueError("deliberate")


def print_bytes(trial: Trial) -> None:
    os.write(1, b"\xff\xfe\x00 no text \x80")
    raise ValueError("deliberate")


def print_mark(trial: Trial) -> float:
    os.write(1, b"\x1e" * 10)
    return 1.0


def return_nan(trial: Trial) -> float:
    return float("nan")


def return_inf(trial: Trial) -> float:
    return float("-inf")


def return_none(trial: Trial) -> None:
    return None


def return_text(trial: Trial) -> str:
    return "good"


def return_dict(trial: Trial) -> dict[str, float]:
    return {"loss": 0.5, "accuracy": 0.9}


def return_other(trial: Trial) -> dict[str, float]:
    return {"accuracy": 0.9}


def report_text(trial: Trial) -> None:
    trial.report(loss="small")  # type: ignore[arg-type]


def close_stdout(trial: Trial) -> float:
    sys.stdout.close()
    sys.stderr.close()
    return 1.0


def close_descriptors_1_and_2(trial: Trial) -> float:
    os.close(1)
    os.close(2)
    return 1.0


def close_all(trial: Trial) -> float:
    os.closerange(0, 4096)
    return 1.0


def replace_stdout(trial: Trial) -> float:
    sys.stdout = io.StringIO()
    sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    return 1.0


def unblock_stdout(trial: Trial) -> float:
    os.set_blocking(1, False)
    return 1.0


def write_on_every_line(trial: Trial) -> float:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):  # noqa: PTH115
                os.write(int(name), b"Nonsense {]\n\xff\n")
        except OSError:
            continue
    time.sleep(60)
    return 1.0


def change_folder(trial: Trial) -> float:
    os.chdir("/")
    os.umask(0o777)
    return 1.0


def remove_folder(trial: Trial) -> float:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
    return 1.0


def change_variables(trial: Trial) -> float:
    os.environ.clear()
    os.environ["LEFT"] = "behind"
    return 1.0


def change_signals(trial: Trial) -> float:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(9))
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    return 1.0


def change_limits(trial: Trial) -> float:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return 1.0


def set_clock_back(trial: Trial) -> float:
    """Set the wall clock of this process back by an hour."""
    trial.report(loss=1.0)
    right = time.time
    time.time = lambda: right() - 3600.0
    return 1.0


def change_process(trial: Trial) -> float:
    """Change all state of the process that outlives a function."""
    import numpy  # only here: what a worker has not loaded, it need not put right

    os.setpriority(os.PRIO_PROCESS, 0, 5)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    signal.signal(signal.SIGXCPU, lambda *_: None)
    signal.signal(signal.SIGRTMIN + 3, signal.SIG_IGN)
    for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
        signal.setitimer(timer, 100.0)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM})
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)  # would end the worker when it is unblocked
    for limit in (resource.RLIMIT_STACK, resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_FSIZE):
        soft, hard = resource.getrlimit(limit)
        resource.setrlimit(limit, (min(soft, 1 << 16) if soft >= 0 else 1 << 16, hard))
    sys.setrecursionlimit(500)
    gc.disable()
    gc.set_threshold(7, 7, 7)
    numpy.seterr(all="raise")
    return 1.0


def leave_socket(trial: Trial) -> float:
    with socket.socket() as sock:
        os.dup(sock.fileno())
    return 1.0


def leave_written_file(trial: Trial) -> float:
    os.open(trial.folder / "left", os.O_WRONLY | os.O_CREAT)
    return 1.0


def leave_read_file(trial: Trial) -> float:
    """Leave a file open for reading, as libraries do with their data."""
    os.open(__file__, os.O_RDONLY)
    return 1.0


def limit_files(trial: Trial) -> None:
    """Limit the size of files, and report until the worker's spool file is too large."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    for _ in range(1000):
        trial.report(loss=1.0)


def limit_files_for_good(trial: Trial) -> None:
    """Do as limit_files(), with a limit that cannot be raised again."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    for _ in range(1000):
        trial.report(loss=1.0)


def write_without_end(trial: Trial) -> float:
    """Write 300 MB without a newline to the worker's connection to the driver."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):  # noqa: PTH115
                for _ in range(300):
                    os.write(int(name), b"x" * 1_000_000)
        except OSError:
            continue
    time.sleep(600)
    return 1.0


def report_much(trial: Trial) -> None:
    trial.report({"loss": 1.0, "x" * 50_000_000: 1.0})


def leave_thread(trial: Trial) -> float:
    threading.Thread(target=time.sleep, args=(600,)).start()
    return 1.0


def report_from_threads(trial: Trial) -> None:
    """Report 200 times from each of eight threads, with the numbers of thread and report."""

    def speak(speaker: int) -> None:
        for count in range(200):
            trial.report(loss=1.0, speaker=speaker, count=count)

    threads = [threading.Thread(target=speak, args=(speaker,)) for speaker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def report_from_handler(trial: Trial) -> None:
    """Report from a signal handler and the main thread. The last report counts those of the handler."""
    begun, returned = itertools.count(), itertools.count()  # a handler may be interrupted by the next

    def handle(*_: object) -> None:
        trial.report(loss=1.0, speaker=1, count=next(begun))
        next(returned)

    signal.signal(signal.SIGALRM, handle)
    for count in range(1000):
        signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + count % 200))
        trial.report(loss=1.0, speaker=0, count=count)
    signal.setitimer(signal.ITIMER_REAL, 0)
    trial.report(loss=1.0, speaker=2, count=next(returned))


def raise_from_handler(trial: Trial) -> float:
    """Raise from a signal handler while the main thread reports, as a time limit does."""

    def handle(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, handle)
    for count in range(1000):
        try:
            signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + count % 200))
            trial.report(loss=1.0, count=count)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except TimeoutError:
            continue
    return 1.0


def leave_speaking_thread(trial: Trial) -> float:
    """Leave a thread that goes on reporting after the trial, while others run."""

    def speak() -> None:
        while True:
            trial.report(loss=-1000.0)

    def begin() -> None:
        time.sleep(0.05)
        speak()

    threading.Thread(target=begin, daemon=True).start()
    return 1.0


def leave_child(trial: Trial) -> float:
    subprocess.Popen(["sleep", "600"])
    return 1.0


def leave_printing_child(trial: Trial) -> float:
    subprocess.Popen(["yes"])
    raise ValueError("deliberate")


def leave_zombie(trial: Trial) -> dict[str, float]:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    return pid(trial)


def leave_daemon(trial: Trial) -> float:
    daemonize(["sleep", "600"])
    return 1.0


def daemonize(command: list[str]) -> None:
    """Start a daemon as usual: fork, setsid, fork."""
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp(command[0], command)
        os._exit(0)
    os.waitpid(child, 0)


def send_into_background(trial: Trial) -> dict[str, float]:
    """Start processes whose parents end at once; report how many are left when they have ended, too.

    The loss is the exit status of a child of its own, which it waits for last.
    """
    own = subprocess.Popen(["sh", "-c", "exit 7"])
    reading, writing = os.pipe()
    for _ in range(5):
        child = os.fork()
        if child == 0:
            grandchild = os.fork()
            if grandchild:
                os.write(writing, b"%d\n" % grandchild)
            os._exit(0)
        os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as lines:
        adopted = [Path(f"/proc/{int(line)}") for line in lines]
    deadline = time.monotonic() + 30
    while any(map(Path.exists, adopted)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return {"loss": own.wait(), "left": sum(map(Path.exists, adopted)), "adopted": len(adopted)}


def fork_and_return(trial: Trial) -> float:
    """Return from the training function in two processes."""
    child = os.fork()
    if child == 0:
        return -1000.0
    os.waitpid(child, 0)
    return 1.0


def fork_and_raise(trial: Trial) -> float:
    child = os.fork()
    if child == 0:
        raise ValueError("of the fork")
    os.waitpid(child, 0)
    return 1.0


def sleep(trial: Trial) -> float:
    print("asleep", flush=True)
    time.sleep(600)
    return 1.0


def sleep_in_company(trial: Trial) -> float:
    """Sleep, with a child that has a child, and a daemon."""
    subprocess.Popen(["sh", "-c", "sleep 601 & sleep 602"], start_new_session=True)
    daemonize(["sh", "-c", "sleep 603 & sleep 604"])
    trial.report(loss=1.0)
    return sleep(trial)


def wait_for_notice(trial: Trial) -> None:
    """Report the time left, once it is known."""
    print("waiting", trial.rank, flush=True)
    for step in trial.steps():
        while (left := trial.time_left) is None and trial.rank == 0:
            time.sleep(0.01)
        trial.report(loss=1.0 / step, left=left or 0.0)


def spin(trial: Trial) -> None:
    """Hold the interpreter's lock for ever, in a call of a C function."""
    print("spinning", flush=True)
    pow(7, 10**10)


def ignore_sigterm(trial: Trial) -> float:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return sleep(trial)


ACTS: dict[str, Callable[[Trial], Any]] = {
    name: value for name, value in list(globals().items()) if callable(value) and name.islower() and name != "act"
}
