"""How long does a step take? By the number of workers that a trial has, as measured or as told by a file."""

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

LEAST_FACTOR = 0.05
"""No trial is faster than so much of the mean, however large `std` is."""


@dataclass(frozen=True)
class Profile:
    """Of one training function on one kind of machine. All times are seconds.

    - `seconds_per_step`: by number of workers, 1 among them. Between those that were measured, its logarithm is
      linear in theirs; more workers than were measured are never planned with.
    - `std`: of a trial's mean seconds a step, from one trial to another, with 1 worker; with more, it is the same
      part of the mean. This is what makes stragglers: the noise between the steps of one trial averages out.
    - `startup`: to take a trial up, from its checkpoint where it has one; `checkpoint`: to save it at a
      stage's end.
    - `data_gb`: the dataset's size, which every machine gets once.
    - `queue`: from asking for a machine until it is there, and `init`: from then until its workers are as warm as
      they were when steps were measured; of kinds of which nothing else is said.
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
            raise SettingError("seconds_per_step: must be {workers: seconds}, and have those of 1 worker")
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
        """`std` as a part of the mean."""
        return self.std / self.seconds_per_step[1]

    def seconds(self, workers: int) -> float:
        """Of a step."""
        if not 1 <= workers <= self.most_workers:
            raise SettingError(f"{workers} workers: from 1 to {self.most_workers} were measured")
        return float(np.exp(np.interp(math.log(workers), *self._logs)))

    @cached_property
    def _logs(self) -> tuple[list[float], list[float]]:
        known = sorted(self.seconds_per_step.items())
        return [math.log(workers) for workers, _ in known], [math.log(each) for _, each in known]

    @property
    def mean_slowness(self) -> float:
        """Of the slownesses: above 1 where `std` is so large that a normal law would go below zero."""
        if not self.std:
            return 1.0
        at = (LEAST_FACTOR - 1.0) / self.variation
        density = math.exp(-0.5 * at * at) / math.sqrt(2.0 * math.pi)
        return float(LEAST_FACTOR * ndtr(at) + 1.0 - ndtr(at) + self.variation * density)

    def to_json(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**found, "seconds_per_step": {str(k): v for k, v in self.seconds_per_step.items()}}

    @classmethod
    def from_json(cls, data: Any) -> Profile:
        names = set(cls.__dataclass_fields__)
        if not isinstance(data, Mapping) or "seconds_per_step" not in data:
            raise SettingError("a profile must be a table with seconds_per_step, such as {1 = 4.0, 2 = 2.2}")
        if unknown := sorted(set(data) - names):
            raise SettingError(f"profile: {', '.join(unknown)}: unknown; there are {', '.join(sorted(names))}")
        steps = data["seconds_per_step"]
        try:
            known = {int(str(workers)): each for workers, each in steps.items()}
        except (AttributeError, ValueError):
            raise SettingError(f"profile: seconds_per_step: {steps!r} must be by number of workers") from None
        return cls(**{**data, "seconds_per_step": known})

    def write(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps(self.to_json(), indent=2) + "\n")

    @classmethod
    def read(cls, path: str | Path) -> Profile:
        """A JSON file, as `write` and `thriftune profile` make it."""
        try:
            return cls.from_json(json.loads(Path(path).read_text()))
        except OSError as error:
            raise SettingError(f"{path}: cannot be read ({error.strerror}); thriftune profile makes one") from None
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise SettingError(f"{path}: is no JSON: {error}") from None
        except SettingError as error:
            raise SettingError(f"{path}: {error}") from None


def slownesses(variation: float, normal: Any) -> Any:
    """How many times as long as on average trials take, from standard normal draws."""
    return np.maximum(LEAST_FACTOR, 1.0 + variation * normal)


def profile_path(study_file: Path) -> Path:
    """Where `thriftune profile` writes, and `thriftune plan` looks, unless told otherwise."""
    return study_file.with_suffix(".profile.json")
