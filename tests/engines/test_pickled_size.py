"""Tests which objects are pickled with a training function."""

from __future__ import annotations

import functools
import threading
from typing import Any

import pytest

import thriftune as tt
from thriftune.engines.pickled_size import LARGE_BYTES, pickled_objects, size_warning

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
def test_lists_the_pickled_objects(train: Any, names: list[str]) -> None:
    assert [name for name, _ in pickled_objects(train)] == names


def test_lists_globals_of_the_main_script(monkeypatch: pytest.MonkeyPatch) -> None:
    script: dict[str, Any] = {"__name__": "__main__"}
    exec("a = b = c = 1\ndef train(trial):\n    c = a\n    return [b for _ in 'x'] + [len('')]", script)
    assert [name for name, _ in pickled_objects(script["train"])] == ["a", "b"]


def test_only_large_functions_give_a_warning() -> None:
    assert size_warning(closure(), LARGE_BYTES) == ""
    assert "uses 20 MB of objects, mostly images (0 MB), which" in size_warning(closure(), LARGE_BYTES + 1)
    assert "uses 20 MB of objects, which" in size_warning(len, LARGE_BYTES + 1)


def test_an_object_that_cannot_be_pickled_is_not_the_largest() -> None:
    lock, images = threading.Lock(), bytearray(100)
    assert "mostly images" in size_warning(lambda trial: lock and images, LARGE_BYTES + 1)
