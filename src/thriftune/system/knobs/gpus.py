"""How much power may a GPU draw?"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

from thriftune.system.knobs.knob import CannotTurn, Knob, given, whole

_NVIDIA_SMI_SECONDS = 30.0


class GpuPower(Knob):
    """The most that each GPU which the process sees may draw, in watts. It takes root.

    The limit is the GPU's, not the process's: for GPUs that no other worker uses.
    """

    name = "gpu_power"

    def __init__(self, watts: int | Sequence[int]) -> None:
        """`watts`: one number or several, all of which may be tried."""
        self._values = given(self.name, watts, "watts")
        self._before: dict[str, float] = {}  # watts, by GPU

    def values(self, cores: int) -> Sequence[int]:  # noqa: ARG002
        return self._values

    def apply(self, value: Any) -> None:
        watts = whole(value)
        if not self._before:
            self._before = _power_limits()
        try:
            for gpu in self._before:
                _limit_power(gpu, watts)
        except CannotTurn:
            with contextlib.suppress(CannotTurn):  # why it could not be turned says more
                self.restore()
            raise

    def restore(self) -> None:
        while self._before:
            gpu, watts = next(iter(self._before.items()))
            _limit_power(gpu, watts)
            del self._before[gpu]


def _power_limits() -> dict[str, float]:
    """Of each GPU that the process sees, in watts."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return _asked()
    gpus = [gpu.strip() for gpu in visible.split(",") if gpu.strip()]
    if not gpus:
        raise CannotTurn("the process sees no GPU: CUDA_VISIBLE_DEVICES names none")
    return {name: watts for gpu in gpus for name, watts in _asked("-i", gpu).items()}


def _limit_power(gpu: str, watts: float) -> None:
    said = _nvidia_smi("-i", gpu, "-pl", f"{watts:g}")
    if abs(_asked("-i", gpu)[gpu] - watts) > 0.5:  # where a GPU does not support it, it only warns
        raise CannotTurn(_its_words(said))


def _asked(*which: str) -> dict[str, float]:
    said = _nvidia_smi(*which, "--query-gpu=uuid,power.limit", "--format=csv,noheader,nounits")
    try:
        return {gpu: float(watts) for gpu, _, watts in (line.partition(", ") for line in said.splitlines())}
    except ValueError:  # such as "[N/A]"
        raise CannotTurn(_its_words(said)) from None


def _nvidia_smi(*arguments: str) -> str:
    import subprocess

    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments], capture_output=True, text=True, check=False, timeout=_NVIDIA_SMI_SECONDS
        )
    except FileNotFoundError:
        raise CannotTurn("there is no nvidia-smi here") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotTurn(_its_words(str(error))) from error
    said = done.stdout.strip() or done.stderr.strip()
    if done.returncode != 0:
        raise CannotTurn(_its_words(said))
    return said


def _its_words(said: str) -> str:
    return f"nvidia-smi: {' '.join(said.split())}"
