"""Format numbers, amounts, times and dollars for people."""

from __future__ import annotations

import time
from collections.abc import Mapping


def format_number(value: float | None) -> str:
    """Return a number with six significant digits, or "-" for None."""
    return "-" if value is None else f"{value:.6g}"


def plural(count: int, thing: str) -> str:
    """Return a count with its noun, such as "1 trial" or "3 trials"."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def format_short(value: float) -> str:
    """Return a number with three digits and the letter for its thousands, such as 20.6M."""
    for letter, size in _THOUSANDS:
        if abs(value) >= _ROUNDS_UP * size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


_ROUNDS_UP = 0.9995
"""From this part of a unit on, three digits round up to the whole unit, so that unit is used."""

_THOUSANDS = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))


def format_bytes(count: int) -> str:
    """Return a number of bytes, such as "512 bytes" or "1.5 GB"."""
    for unit, size in _BYTES:
        if count >= _ROUNDS_UP * size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


_BYTES = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def format_energy(joules: float) -> str:
    """Return an energy in the unit that suits its size: J, kJ, Wh or kWh."""
    for unit, size in _ENERGIES:
        if joules >= _ROUNDS_UP * size:
            amount = joules / size
            return f"{amount:.3g} {unit}" if amount < 999.5 else f"{amount:,.0f} {unit}"
    return f"{joules:.3g} J"


_ENERGIES = (("kWh", 3.6e6), ("Wh", 3600.0), ("kJ", 1000.0))


def format_energy_total(joules: float, estimated: float) -> str:
    """Return an energy, and how much of it is an estimate.

    `estimated`: the joules that no meter has measured.
    """
    if not estimated:
        return format_energy(joules)
    if estimated < 0.995 * joules:
        return f"{format_energy(joules)}, {max(0.01, estimated / joules):.0%} of it not metered (estimate)"
    return f"{format_energy(joules)} (estimate)"


def time_unit(longest_seconds: float) -> tuple[str, float]:
    """Return the unit for a column or axis of times up to `longest_seconds`, and the seconds in one unit."""
    if longest_seconds < 300.0:
        return "seconds", 1.0
    return ("minutes", 60.0) if longest_seconds < 18_000.0 else ("hours", 3600.0)


def format_resources(worker: Mapping[str, float]) -> str:
    """Return a worker's resources, such as "2 CPU, 1 GPU"."""
    return ", ".join(
        f"{amount / 2**30:.3g} GB memory" if name == "memory" else f"{amount:g} {name}"
        for name, amount in worker.items()
    )


def format_seconds(seconds: float) -> str:
    """Return a duration, such as "45.0 s", "12 min 05 s" or "3 h 07 min"."""
    if seconds < 90:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def format_dollars(dollars: float) -> str:
    """Return an amount of dollars, with four decimals below one dollar."""
    return f"${dollars:.2f}" if dollars >= 1 else f"${dollars:.4f}"


def format_time(at: float) -> str:
    """Return a time in local time, such as "2026-11-20 09:00 CET", with its seconds unless they are 0."""
    shown = time.localtime(at)
    return time.strftime("%Y-%m-%d %H:%M:%S %Z" if shown.tm_sec else "%Y-%m-%d %H:%M %Z", shown)


def format_unfinished(step: int, max_steps: int | None, *, stopped: bool) -> str:
    """Return the progress of an unfinished trial, such as "unfinished, step 3 of 10" or "stopped at step 3 of 10".

    `stopped`: the trial does not continue, as its study has finished.
    """
    return f"{'stopped at' if stopped else 'unfinished,'} step {step}" + (f" of {max_steps}" if max_steps else "")
