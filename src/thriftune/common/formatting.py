"""Numbers, amounts, times and dollars as people read them."""

from __future__ import annotations

import time
from collections.abc import Mapping


def format_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def plural(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def format_short(value: float) -> str:
    """In three digits, with the letters that stand for thousands: 20.6M."""
    for letter, size in _THOUSANDS:
        if abs(value) >= 0.9995 * size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


_THOUSANDS = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))


def format_energy(joules: float) -> str:
    """In the unit that people know for so much."""
    for unit, size in _ENERGIES:
        if joules >= 0.9995 * size:
            amount = joules / size
            return f"{amount:.3g} {unit}" if amount < 999.5 else f"{amount:,.0f} {unit}"
    return f"{joules:.3g} J"


_ENERGIES = (("kWh", 3.6e6), ("Wh", 3600.0), ("kJ", 1000.0))


def format_energy_total(joules: float, estimated: float) -> str:
    """`estimated`: the part of them that no meter has told."""
    if not estimated:
        return format_energy(joules)
    if estimated < 0.995 * joules:
        return f"{format_energy(joules)}, {max(0.01, estimated / joules):.0%} of it not metered (estimate)"
    return f"{format_energy(joules)} (estimate)"


def time_unit(longest_seconds: float) -> tuple[str, float]:
    """For a column or an axis that goes so far: its name, and its seconds."""
    if longest_seconds < 300.0:
        return "seconds", 1.0
    return ("minutes", 60.0) if longest_seconds < 18_000.0 else ("hours", 3600.0)


def format_resources(worker: Mapping[str, float]) -> str:
    """What a worker gets, as in "2 CPU, 1 GPU"."""
    return ", ".join(
        f"{amount / 2**30:.3g} GB memory" if name == "memory" else f"{amount:g} {name}"
        for name, amount in worker.items()
    )


def format_seconds(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def format_dollars(dollars: float) -> str:
    """Enough digits that a small sum is not shown as nothing."""
    return f"${dollars:.2f}" if dollars >= 1 else f"${dollars:.4f}"


def format_time(at: float) -> str:
    """Return a moment in local time, such as "2026-11-20 09:00 CET"; with seconds where it has some."""
    shown = time.localtime(at)
    return time.strftime("%Y-%m-%d %H:%M:%S %Z" if shown.tm_sec else "%Y-%m-%d %H:%M %Z", shown)


def format_unfinished(step: int, max_steps: int | None) -> str:
    """Return how far a leading trial has come that has not finished, such as "unfinished, step 3 of 10"."""
    return f"unfinished, step {step}" + (f" of {max_steps}" if max_steps else "")
