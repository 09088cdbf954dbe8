"""Which values a training function brings along when it is pickled."""

from __future__ import annotations

import functools
import threading
from typing import Any

import pytest

import thriftune as tt
from thriftune.engines.pickled_size import LARGE_BYTES, brought_along, remark

IMAGES = bytearray(LARGE_BYTES)


def of_a_module(trial: tt.Trial) -> float:
    return float(IMAGES[0])


class Model:
    def __init__(self) -> None:
        self.weights = bytearray(10)

    def train(self, trial: tt.Trial) -> float:
        return float(self.weights[0])

    def __call__(self, trial: tt.Trial) -> float:
        return float(self.weights[0])


def with_defaults() -> Any:
    def train(trial: tt.Trial, data: object = "data", *, more: object = "more") -> float:
        return 1.0

    return train


def closure() -> Any:
    images, labels = bytearray(1000), bytearray(10)
    return lambda trial: images[0] + labels[0]


@pytest.mark.parametrize(
    ("train", "names"),
    [
        (of_a_module, []),
        (with_defaults(), ["data", "more"]),
        (functools.partial(print, 1, sep=""), ["argument 0", "sep"]),
        (functools.partial(lambda data, trial: IMAGES, 1), ["argument 0", "IMAGES"]),
        (Model().train, ["weights"]),
        (Model(), ["weights"]),
        (closure(), ["images", "labels"]),
        (len, []),
    ],
)
def test_what_is_brought_along(train: Any, names: list[str]) -> None:
    assert [name for name, _ in brought_along(train)] == names


def test_globals_of_the_main_script_are(monkeypatch: pytest.MonkeyPatch) -> None:
    script: dict[str, Any] = {"__name__": "__main__"}
    exec("a = b = c = 1\ndef train(trial):\n    c = a\n    return [b for _ in 'x'] + [len('')]", script)
    assert [name for name, _ in brought_along(script["train"])] == ["a", "b"]


def test_only_large_functions_are_remarked_upon() -> None:
    assert remark(closure(), LARGE_BYTES) == ""
    assert "brings 20 MB along, mostly images (0 MB), which" in remark(closure(), LARGE_BYTES + 1)
    assert "brings 20 MB along, which" in remark(len, LARGE_BYTES + 1)


def test_what_cannot_be_pickled_is_not_the_largest() -> None:
    lock, images = threading.Lock(), bytearray(100)
    assert "mostly images" in remark(lambda trial: lock and images, LARGE_BYTES + 1)
