"""A profile of a training function: how long its steps, starts and saves take."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr

from thriftune.common.checks import check_number
from thriftune.errors import SettingError

MIN_SLOWNESS = 0.05
"""The time of the fastest possible trial, relative to the mean, however large `std` is."""


@dataclass(frozen=True)
class Profile:
    """The times of one training function on one machine type, in seconds.

    - `seconds_per_step`: keyed by number of workers; 1 must be a key. Between measured numbers of workers, its
      logarithm is interpolated linearly in the logarithm of the workers. Plans use no more workers than measured.
    - `std`: standard deviation between trials of their mean seconds per step, with 1 worker. With more workers, it
      is the same share of the mean. It causes stragglers; the noise between the steps of one trial averages out.
    - `startup`: time to start a trial, or to restore it from its checkpoint.
    - `checkpoint`: time to save a trial at the end of a stage.
    - `data_gb`: gigabytes that each machine downloads once.
    - `queue`: time from the request for a machine to its handover. `init`: time from then until its workers are as
      warm as when steps were measured. Both apply to machine types that state neither themselves.
    """

    seconds_per_step: Mapping[int, float]
    std: float = 0.0
    startup: float = 0.0
    checkpoint: float = 0.0
    data_gb: float = 0.0
    queue: float = 0.0
    init: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.seconds_per_step, Mapping) or 1 not in self.seconds_per_step:
            raise SettingError("seconds_per_step: must be {workers: seconds}, with an entry for 1 worker")
        for workers, each in self.seconds_per_step.items():
            if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
                raise SettingError(f"seconds_per_step: {workers!r} workers: must be a whole number, at least 1")
            check_number(f"seconds_per_step: with {workers} workers", each, above_zero=True)
        for name in ("std", "startup", "checkpoint", "data_gb", "queue", "init"):
            check_number(name, getattr(self, name))

    @property
    def most_workers(self) -> int:
        return max(self.seconds_per_step)

    @property
    def variation(self) -> float:
        """Return `std` as a share of the mean."""
        return self.std / self.seconds_per_step[1]

    def seconds(self, workers: int) -> float:
        """Return the seconds of a step with this number of workers."""
        if not 1 <= workers <= self.most_workers:
            raise SettingError(
                f"{workers} workers: must be from 1 to {self.most_workers}, the numbers that were measured"
            )
        return float(np.exp(np.interp(math.log(workers), *self._logs)))

    @cached_property
    def _logs(self) -> tuple[list[float], list[float]]:
        known = sorted(self.seconds_per_step.items())
        return [math.log(workers) for workers, _ in known], [math.log(each) for _, each in known]

    @property
    def mean_slowness(self) -> float:
        """Return the mean of `slowness_factors`.

        The mean is above 1 if `std` is large, because factors below `MIN_SLOWNESS` are raised to it.
        """
        if not self.std:
            return 1.0
        at = (MIN_SLOWNESS - 1.0) / self.variation
        density = math.exp(-0.5 * at * at) / math.sqrt(2.0 * math.pi)
        return float(MIN_SLOWNESS * ndtr(at) + 1.0 - ndtr(at) + self.variation * density)

    def to_json(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**fields, "seconds_per_step": {str(k): v for k, v in self.seconds_per_step.items()}}

    @classmethod
    def from_json(cls, data: Any) -> Profile:
        names = set(cls.__dataclass_fields__)
        if not isinstance(data, Mapping) or "seconds_per_step" not in data:
            raise SettingError("a profile must be a table with seconds_per_step, such as {1 = 4.0, 2 = 2.2}")
        if unknown := sorted(set(data) - names):
            raise SettingError(f"profile: {', '.join(unknown)}: unknown; the keys are {', '.join(sorted(names))}")
        steps = data["seconds_per_step"]
        try:
            known = {int(str(workers)): each for workers, each in steps.items()}
        except (AttributeError, ValueError):
            raise SettingError(
                f"profile: seconds_per_step: {steps!r} must be a table keyed by number of workers"
            ) from None
        return cls(**{**data, "seconds_per_step": known})

    def write(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps(self.to_json(), indent=2) + "\n")

    @classmethod
    def read(cls, path: str | Path) -> Profile:
        """Read a JSON file that `write` or `thriftune profile` wrote."""
        try:
            return cls.from_json(json.loads(Path(path).read_text()))
        except OSError as error:
            raise SettingError(
                f"{path}: cannot be read ({error.strerror}); thriftune profile writes one"
            ) from None
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise SettingError(f"{path}: is not JSON: {error}") from None
        except SettingError as error:
            raise SettingError(f"{path}: {error}") from None


def slowness_factors(variation: float, normal: Any) -> Any:
    """Return the times of trials relative to the mean, from standard normal draws."""
    return np.maximum(MIN_SLOWNESS, 1.0 + variation * normal)


def profile_path(study_file: Path) -> Path:
    """Return the default path of a study file's profile.

    `thriftune profile` writes it and `thriftune plan` reads it.
    """
    return study_file.with_suffix(".profile.json")
