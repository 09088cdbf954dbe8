"""Defines trials that change the state of their whole process, for test_process_state.py.

Modules that a worker has not loaded yet are loaded by the functions that use them.
"""

from __future__ import annotations

import faulthandler
import locale
import logging
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.engines.processes import eventually
from thriftune.training.trial import Trial


class Kind(NamedTuple):
    """One kind of state: `read` returns it, and `change` makes it differ from what it was."""

    read: Callable[[], object]
    change: Callable[[], object]


FOUND: dict[str, object] = {}
"""The state of each kind before a trial of this process changed it."""

WATCHDOGS: set[str] = set()
"""The thread ids of faulthandler's watchdogs that trials have started in this process."""


def act(trial: Trial) -> object:
    return ACTS[trial["do"]](trial)


def pid(trial: Trial) -> dict[str, float]:
    return {"loss": 1.0, "pid": float(os.getpid())}


def change(trial: Trial) -> dict[str, float]:
    kind = KINDS[trial["kind"]]
    FOUND[trial["kind"]] = kind.read()
    kind.change()
    assert kind.read() != FOUND[trial["kind"]], "nothing was changed"
    return pid(trial)


def check(trial: Trial) -> dict[str, float]:
    """Succeed if all changes of an earlier trial of this process were undone."""
    assert KINDS[trial["kind"]].read() == FOUND[trial["kind"]], KINDS[trial["kind"]].read()
    return pid(trial)


def do(trial: Trial) -> dict[str, float]:
    """Make one of CHANGES, which check() does not know."""
    CHANGES[trial["change"]]()
    return pid(trial)


# --- faulthandler


def start_watchdog(trial: Trial) -> dict[str, float]:
    """Start a watchdog that ends the process long after this trial."""
    before = set(os.listdir("/proc/self/task"))  # noqa: PTH208
    faulthandler.dump_traceback_later(3600, exit=True)
    WATCHDOGS.update(set(os.listdir("/proc/self/task")) - before)  # noqa: PTH208
    assert WATCHDOGS
    return pid(trial)


def check_watchdog(trial: Trial) -> dict[str, float]:
    assert WATCHDOGS
    eventually(lambda: not WATCHDOGS & set(os.listdir("/proc/self/task")), "the watchdog ends")  # noqa: PTH208
    return pid(trial)


def segfault(trial: Trial) -> None:
    faulthandler._sigsegv()  # type: ignore[attr-defined]


def write_tracebacks_elsewhere() -> None:
    faulthandler.enable(file=Path(os.devnull).open("w"))  # noqa: SIM115


def handle_faults() -> None:
    for number in (signal.SIGILL, signal.SIGSEGV):
        signal.signal(number, lambda *_: None)


# --- reading and changing


def read_warning() -> object:
    """Return whether a warning is an error, which depends on more than the list of filters."""
    try:
        warnings.warn("deliberate", UserWarning, stacklevel=1)
    except UserWarning:
        return "an error"
    return "a message"


def replace_warning_filters() -> None:
    warnings.catch_warnings().__enter__()
    warnings.simplefilter("error")


def log_to_a_file() -> None:
    """Log to a file as many training scripts do. The file stays open for writing."""
    log = Path(f"/tmp/thriftune-test-{os.getpid()}.log")
    logging.basicConfig(filename=log, level=logging.DEBUG, force=True)
    log.unlink()


def set_time_zone(name: str) -> None:
    os.environ["TZ"] = name
    time.tzset()


def set_time_zone_unseen() -> None:
    """Change the time zone in the C library, but not in os.environ."""
    before = dict(os.environ)
    set_time_zone("XYZ-5")
    os.environ.pop("TZ")
    os.environ.update(before)


def local_hour() -> tuple[int, int]:
    """Return the hour at the epoch in two ways. Only the second one has C read the variable TZ."""
    return time.localtime(0).tm_hour, int(time.mktime((1970, 1, 1, 0, 0, 0, 0, 1, 0)))


def change_locale() -> None:
    before = locale.setlocale(locale.LC_ALL)
    locale.setlocale(locale.LC_ALL, "C.UTF-8" if before == "C" else "C")


def read_decimal() -> object:
    import decimal

    context = decimal.getcontext()
    return context.prec, context.rounding, dict(context.flags), dict(context.traps), str(decimal.Decimal(2).sqrt())


def change_decimal() -> None:
    import decimal

    decimal.setcontext(decimal.Context(prec=3, rounding=decimal.ROUND_UP, traps=[decimal.Inexact], Emax=99))
    decimal.getcontext().clear_traps()


def read_decimal_default() -> object:
    """Return the decimal context of a new thread."""
    values: list[object] = []
    thread = threading.Thread(target=lambda: values.append(read_decimal()))
    thread.start()
    thread.join()
    return values


def change_decimal_default() -> None:
    import decimal

    decimal.DefaultContext.prec = 5
    decimal.DefaultContext.rounding = decimal.ROUND_DOWN
    decimal.DefaultContext.traps[decimal.Underflow] = True


def read_tempdir() -> object:
    import tempfile

    return tempfile.tempdir


def change_tempdir() -> None:
    import tempfile

    tempfile.tempdir = "/nowhere"


def read_start_method() -> object:
    import multiprocessing

    return multiprocessing.get_start_method(allow_none=True)


def change_start_method() -> None:
    import multiprocessing

    multiprocessing.set_start_method("spawn", force=True)


def read_oom_score() -> str:
    return Path("/proc/self/oom_score_adj").read_text()


def raise_oom_score() -> None:
    Path("/proc/self/oom_score_adj").write_text("900")


def from_torch(name: str) -> Callable[..., Any]:
    """Return the function of PyTorch by that name. PyTorch is loaded when it is called."""

    def call(*args: Any, **options: Any) -> Any:
        import torch

        return getattr(torch, name)(*args, **options)

    return call


def change_dtype() -> None:
    import torch

    torch.set_default_dtype(torch.float64)


def read_device() -> str:
    import torch

    return str(torch.zeros(1).device)


def change_device() -> None:
    import torch

    torch.set_default_device("meta" if read_device() == "cpu" else "cpu")


def leave_inference_mode_on() -> None:
    import torch

    mode = torch.inference_mode()
    mode.__enter__()
    FOUND["inference mode"] = mode  # the mode ends with this object


def stop_being_root() -> None:
    """Raise a score that only root may lower, and become another user."""
    raise_oom_score()
    os.seteuid(65534)


KINDS = {
    "faulthandler": Kind(faulthandler.is_enabled, faulthandler.disable),
    "trace function": Kind(sys.gettrace, lambda: sys.settrace(lambda *_: None)),
    "profile function": Kind(sys.getprofile, lambda: sys.setprofile(lambda *_: None)),
    "trace function of threads": Kind(threading.gettrace, lambda: threading.settrace(lambda *_: None)),
    "profile function of threads": Kind(threading.getprofile, lambda: threading.setprofile(lambda *_: None)),
    "excepthook": Kind(lambda: sys.excepthook, lambda: setattr(sys, "excepthook", print)),
    "excepthook of threads": Kind(lambda: threading.excepthook, lambda: setattr(threading, "excepthook", print)),
    "unraisablehook": Kind(lambda: sys.unraisablehook, lambda: setattr(sys, "unraisablehook", print)),
    "switch interval": Kind(sys.getswitchinterval, lambda: sys.setswitchinterval(1.0)),
    "scheduling policy": Kind(
        lambda: os.sched_getscheduler(0), lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    ),
    "out-of-memory score": Kind(read_oom_score, raise_oom_score),
    "warning filters": Kind(read_warning, lambda: warnings.simplefilter("error")),
    "warning filters replaced": Kind(read_warning, replace_warning_filters),
    "showwarning": Kind(lambda: warnings.showwarning, lambda: setattr(warnings, "showwarning", print)),
    "captured warnings": Kind(
        lambda: warnings.showwarning,
        lambda: logging.captureWarnings(warnings.showwarning.__module__ == "warnings"),
    ),
    "disabled logging": Kind(lambda: logging.root.isEnabledFor(logging.ERROR), lambda: logging.disable()),
    "level of the root logger": Kind(
        lambda: logging.getLogger("some.name").isEnabledFor(logging.DEBUG),
        lambda: logging.getLogger().setLevel(logging.DEBUG),
    ),
    "handlers of the root logger": Kind(
        lambda: list(logging.root.handlers), lambda: logging.basicConfig(force=True)
    ),
    "a log file": Kind(lambda: list(logging.root.handlers), log_to_a_file),
    "socket timeout": Kind(socket.getdefaulttimeout, lambda: socket.setdefaulttimeout(0.001)),
    "time zone": Kind(local_hour, lambda: set_time_zone("XYZ-5")),
    "time zone unseen": Kind(lambda: (time.tzname, time.localtime(0).tm_hour), set_time_zone_unseen),
    "time zone in os.environ": Kind(local_hour, lambda: os.environ.update(TZ="XYZ-5")),
    "locale": Kind(lambda: locale.setlocale(locale.LC_ALL), change_locale),
    "decimal context": Kind(read_decimal, change_decimal),
    "default decimal context": Kind(read_decimal_default, change_decimal_default),
    "folder for temporary files": Kind(read_tempdir, change_tempdir),
    "start method": Kind(read_start_method, change_start_method),
    "arguments": Kind(lambda: list(sys.argv), lambda: sys.argv.append("--more")),
    "arguments replaced": Kind(lambda: list(sys.argv), lambda: setattr(sys, "argv", ["other.py"])),
}
"""The kinds of state that can be read, so that check() can find out whether they were restored."""

TORCH_KINDS = {
    "default device": Kind(read_device, change_device),
    "default dtype": Kind(from_torch("get_default_dtype"), change_dtype),
    "grad mode": Kind(from_torch("is_grad_enabled"), lambda: from_torch("set_grad_enabled")(False)),
    "deterministic algorithms": Kind(
        from_torch("are_deterministic_algorithms_enabled"),
        lambda: from_torch("use_deterministic_algorithms")(True),
    ),
    "warnings of algorithms that are not deterministic": Kind(
        from_torch("is_deterministic_algorithms_warn_only_enabled"),
        lambda: from_torch("use_deterministic_algorithms")(True, warn_only=True),
    ),
    "anomaly detection": Kind(
        from_torch("is_anomaly_enabled"), lambda: from_torch("set_anomaly_enabled")(True, False)
    ),
    "check for NaN": Kind(
        from_torch("is_anomaly_check_nan_enabled"), lambda: from_torch("set_anomaly_enabled")(False, False)
    ),
}

KINDS |= TORCH_KINDS

CHANGES: dict[str, Callable[[], object]] = {
    "write_tracebacks_elsewhere": write_tracebacks_elsewhere,
    "disable_faulthandler": faulthandler.disable,
    "handle_faults": handle_faults,
    "leave_inference_mode_on": leave_inference_mode_on,
    "stop_being_root": stop_being_root,
}

ACTS: dict[str, Callable[[Trial], object]] = {
    each.__name__: each for each in (pid, change, check, do, start_watchdog, check_watchdog, segfault)
}
