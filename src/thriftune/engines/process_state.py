"""The parts of a process's state that a trial may change.

Each part has a function that reads it and one that writes it. The state of a module that is not loaded is its
initial state. The module is not loaded to read it.
"""

from __future__ import annotations

import _locale  # built into the interpreter; `locale` would be loaded from a file
import faulthandler
import gc
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple


class Property(NamedTuple):
    """One part of the state.

    `write` restores the value that `read` has returned, or raises if it cannot.
    """

    read: Callable[[], Any]
    write: Callable[[Any], object]


def _attribute(module: Any, name: str) -> Property:
    """Return the property for an attribute of a module that is always loaded."""
    return Property(lambda: getattr(module, name), lambda value: setattr(module, name, value))


def _of_module(
    name: str, read: Callable[[Any], Any], write: Callable[[Any, Any], object], initial: Any
) -> Property:
    """Return a property of a module that may not be loaded.

    - `read`, `write`: the first argument of both is the module.
    - `initial`: the value that `read` returns right after the module was loaded.
    """

    def read_if_loaded() -> Any:
        module = sys.modules.get(name)
        if module is None:
            return initial
        try:
            return read(module)
        except AttributeError:  # the module is still loading, or another one has its name
            return initial

    return Property(read_if_loaded, lambda value: write(sys.modules[name], value))


# --- state in the kernel ----------------------------------------------------------------------------------

_LIMITS = sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")})
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_FAULTS = {signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGBUS, signal.SIGILL}
"""The signals that faulthandler handles."""

_OOM_SCORE = "/proc/self/oom_score_adj"

# The C function behind getsignal() takes a hundredth of its time. It is called for 64 signals after each trial.
_handler_of: Callable[[int], Any] = vars(signal.getsignal).get("__wrapped__", signal.getsignal)


def _blocked() -> set[signal.Signals]:
    return signal.pthread_sigmask(signal.SIG_BLOCK, ())  # type: ignore[return-value]


def _block(blocked: set[signal.Signals]) -> None:
    for number in signal.sigpending():  # a pending signal was meant for the trial; ignoring it discards it
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _handlers() -> list[Any]:
    return [_handler_of(number) for number in range(1, signal.NSIG)]


def _set_handlers(handlers: list[Any]) -> None:
    for number, handler in enumerate(handlers, start=1):
        if _handler_of(number) is not handler:
            if number in _FAULTS:
                faulthandler.disable()  # otherwise, enable() would not install its handler again
            signal.signal(number, handler)  # raises for None, a handler that was not set by Python


def _timers() -> list[bool]:
    return [signal.getitimer(timer) != (0.0, 0.0) for timer in _TIMERS]


def _stop_timers(_: object) -> None:
    for timer in _TIMERS:
        signal.setitimer(timer, 0)


def _limits() -> list[tuple[int, int]]:
    return [resource.getrlimit(limit) for limit in _LIMITS]


def _set_limits(limits: list[tuple[int, int]]) -> None:
    for limit, value in zip(_LIMITS, limits, strict=True):
        if resource.getrlimit(limit) != value:
            resource.setrlimit(limit, value)


def _scheduling() -> tuple[int, os.sched_param] | None:
    """Return the scheduling policy and its parameters.

    Returns None if it cannot be read, as with the C library musl.
    """
    try:
        return os.sched_getscheduler(0), os.sched_getparam(0)
    except OSError:
        return None


def _oom_score() -> bytes | None:
    """Return the score by which the kernel chooses a process to kill.

    The kernel does so if memory runs out. Returns None if it cannot be read.
    """
    try:
        fd = os.open(_OOM_SCORE, os.O_RDONLY)
    except OSError:
        return None
    try:
        return os.read(fd, 16)
    finally:
        os.close(fd)


def _set_oom_score(score: bytes) -> None:
    fd = os.open(_OOM_SCORE, os.O_WRONLY)
    try:
        os.write(fd, score)
    finally:
        os.close(fd)


# --- state of Python ----------------------------------------------------------------------------------------


def _set_faulthandler(enabled: bool) -> None:
    if enabled:
        faulthandler.enable(file=2)
    else:
        faulthandler.disable()


def _time_zone() -> tuple[Any, ...]:
    return time.tzname, time.timezone, time.altzone


def _set_time_zone(zone: tuple[Any, ...]) -> None:
    """Set the time zone from os.environ.

    Called after the environment was restored. Raises OSError if the result is not `zone`.
    """
    time.tzset()
    if _time_zone() != zone:
        raise OSError(f"the variable TZ does not mean the time zone {zone}")


def _logging() -> tuple[Any, ...]:
    root = logging.root
    captures_warnings = vars(logging).get("_warnings_showwarning") is not None
    return root.manager.disable, root.level, list(root.handlers), captures_warnings


def _set_logging(state: tuple[Any, ...]) -> None:
    disabled, level, handlers, captures_warnings = state
    logging.disable(disabled)
    logging.root.setLevel(level)
    logging.root.handlers[:] = handlers
    logging.captureWarnings(captures_warnings)


def _set_warning_filters(filters: list[Any]) -> None:
    warnings.resetwarnings()  # also forgets which warnings were shown
    warnings.filters[:] = filters  # type: ignore[index]


# --- state of modules that may not be loaded ----------------------------------------------------------------

_DECIMAL_FIELDS = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp", "flags", "traps")
_DECIMAL_TRAPS = frozenset({"InvalidOperation", "DivisionByZero", "Overflow"})
_DECIMAL_CONTEXT = (28, "ROUND_HALF_EVEN", -999999, 999999, 1, 0, frozenset[str](), _DECIMAL_TRAPS)
_NUMPY_ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}


def _decimal_values(context: Any) -> tuple[Any, ...]:
    """Return the values of a decimal context, in the order of _DECIMAL_FIELDS.

    Signals are represented by their names.
    """
    *numbers, flags, traps = context.__reduce__()[1]
    return *numbers, frozenset(each.__name__ for each in flags), frozenset(each.__name__ for each in traps)


def _new_decimal_context(decimal: Any, values: tuple[Any, ...]) -> Any:
    *numbers, flags, traps = values
    return decimal.Context(*numbers, *([getattr(decimal, name) for name in names] for names in (flags, traps)))


def _set_default_decimal_context(decimal: Any, values: tuple[Any, ...]) -> None:
    """Change the decimal context that is copied for each new thread.

    The object is changed and not replaced, because Python would ignore another object.
    """
    context = _new_decimal_context(decimal, values)
    for name in _DECIMAL_FIELDS:
        setattr(decimal.DefaultContext, name, getattr(context, name))


def _set_numpy_errors(numpy: Any, errors: tuple[Any, Any]) -> None:
    numpy.seterrcall(errors[1])
    numpy.seterr(**errors[0])


def _torch_deterministic(torch: Any) -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _torch_device(torch: Any) -> str | None:
    """Return the default device; None if none was set.

    PyTorch's public function is not used, because it may start CUDA to find the index of the device.
    """
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if context is None else str(context.device)


def _refuse_inference_mode(_: Any, on: bool) -> None:
    raise RuntimeError(f"PyTorch has no function that sets inference mode to {on}")


PROPERTIES = (
    Property(
        sys.gettrace, sys.settrace
    ),  # first, because Python calls the trace and profile functions while the rest is restored
    Property(sys.getprofile, sys.setprofile),
    Property(_timers, _stop_timers),  # before the signals, because timers send signals
    Property(_blocked, _block),
    Property(_handlers, _set_handlers),
    Property(faulthandler.is_enabled, _set_faulthandler),  # after the handlers
    Property(_limits, _set_limits),
    Property(_scheduling, lambda policy: os.sched_setscheduler(0, *policy)),
    Property(lambda: os.getpriority(os.PRIO_PROCESS, 0), lambda nice: os.setpriority(os.PRIO_PROCESS, 0, nice)),
    Property(lambda: os.sched_getaffinity(0), lambda cores: os.sched_setaffinity(0, cores)),
    Property(_oom_score, _set_oom_score),
    Property(sys.getrecursionlimit, sys.setrecursionlimit),
    Property(sys.getswitchinterval, sys.setswitchinterval),
    Property(gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    Property(gc.get_threshold, lambda thresholds: gc.set_threshold(*thresholds)),
    Property(gc.get_debug, gc.set_debug),
    Property(threading.gettrace, threading.settrace),
    Property(threading.getprofile, threading.setprofile),
    Property(lambda: list(sys.argv), lambda arguments: setattr(sys, "argv", list(arguments))),
    _attribute(sys, "excepthook"),
    _attribute(sys, "unraisablehook"),
    _attribute(threading, "excepthook"),
    Property(_time_zone, _set_time_zone),
    Property(
        lambda: _locale.setlocale(_locale.LC_ALL, None), lambda text: _locale.setlocale(_locale.LC_ALL, text)
    ),
    Property(_logging, _set_logging),  # before showwarning, which logging may have replaced
    _attribute(warnings, "showwarning"),
    Property(lambda: list(warnings.filters), _set_warning_filters),
    Property(socket.getdefaulttimeout, socket.setdefaulttimeout),
    _of_module(
        "decimal",
        lambda decimal: _decimal_values(decimal.getcontext()),
        lambda decimal, values: decimal.setcontext(_new_decimal_context(decimal, values)),
        _DECIMAL_CONTEXT,
    ),
    _of_module(
        "decimal",
        lambda decimal: _decimal_values(decimal.DefaultContext),
        _set_default_decimal_context,
        _DECIMAL_CONTEXT,
    ),
    _of_module(
        "tempfile",
        lambda tempfile: tempfile.tempdir,
        lambda tempfile, folder: setattr(tempfile, "tempdir", folder),
        None,
    ),
    _of_module(
        "multiprocessing",
        lambda multiprocessing: multiprocessing.get_start_method(allow_none=True),
        lambda multiprocessing, method: multiprocessing.set_start_method(method, force=True),
        None,
    ),
    _of_module(
        "numpy", lambda numpy: (numpy.geterr(), numpy.geterrcall()), _set_numpy_errors, (_NUMPY_ERRORS, None)
    ),
    _of_module(
        "torch",
        lambda torch: str(torch.get_default_dtype()),
        lambda torch, name: torch.set_default_dtype(getattr(torch, name.removeprefix("torch."))),
        "torch.float32",
    ),
    _of_module("torch", _torch_device, lambda torch, device: torch.set_default_device(device), None),
    _of_module("torch", lambda torch: torch.is_inference_mode_enabled(), _refuse_inference_mode, False),
    _of_module("torch", lambda torch: torch.is_grad_enabled(), lambda torch, on: torch.set_grad_enabled(on), True),
    _of_module(
        "torch",
        _torch_deterministic,
        lambda torch, state: torch.use_deterministic_algorithms(state[0], warn_only=state[1]),
        (False, False),
    ),
    _of_module(
        "torch",
        lambda torch: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda torch, state: torch.autograd.set_detect_anomaly(*state),
        (False, True),
    ),
)
"""All parts of the state, in the order in which they are restored after a trial."""
