"""Standard test functions, and mixed-type functions whose optimum is known by construction."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Function:
    """A function of a configuration; `optimum` is its lowest value, except for rounding in the last digit."""

    kind: str
    parameters: Mapping[str, Mapping[str, Any]]
    formula: Callable[[Any], Any]
    optimum: float

    def __call__(self, config: Mapping[str, Any]) -> float:
        if self.kind == "mixed":
            return float(self.formula(config))
        return float(self.formula(np.array([config[name] for name in self.parameters])))


def _on_box(bounds: Sequence[tuple[float, float]], formula: Callable[[Array], float], optimum: float) -> Function:
    parameters = {f"x{i}": {"type": "float", "low": lo, "high": hi} for i, (lo, hi) in enumerate(bounds, 1)}
    return Function("function", parameters, formula, optimum)


# --- continuous -------------------------------------------------------------------------------------------


def _branin(x: Array) -> float:
    bend = x[1] - 5.1 / (4 * math.pi**2) * x[0] ** 2 + 5 / math.pi * x[0] - 6
    return float(bend**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x[0]) + 10)


_HARTMANN_WEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
_HARTMANN6_A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
_HARTMANN6_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)
_HARTMANN3_A = np.array([[3.0, 10, 30], [0.1, 10, 35], [3.0, 10, 30], [0.1, 10, 35]])
_HARTMANN3_P = 1e-4 * np.array([[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]])


def _hartmann(scales: Array, centres: Array) -> Callable[[Array], float]:
    def formula(x: Array) -> float:
        return -float(_HARTMANN_WEIGHTS @ np.exp(-np.sum(scales * (x - centres) ** 2, axis=1)))

    return formula


def _ackley(x: Array) -> float:
    far = math.exp(-0.2 * math.sqrt(np.mean(x**2)))
    # The exact minimum at 0 is 0; rounding may give -4e-16.
    return max(0.0, 20 + math.e - 20 * far - math.exp(np.mean(np.cos(2 * math.pi * x))))


def _rosenbrock(x: Array) -> float:
    return float(np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))


def _levy(x: Array) -> float:
    w = 1 + (x - 1) / 4
    middle = np.sum((w[:-1] - 1) ** 2 * (1 + 10 * np.sin(math.pi * w[:-1] + 1) ** 2))
    last = (w[-1] - 1) ** 2 * (1 + math.sin(2 * math.pi * w[-1]) ** 2)
    return float(math.sin(math.pi * w[0]) ** 2 + middle + last)


def _styblinski(x: Array) -> float:
    return float(np.sum(x**4 - 16 * x**2 + 5 * x)) / 2


_SHEKEL_B = 0.1 * np.array([1, 2, 2, 4, 4, 6, 3, 7, 5, 5])
_SHEKEL_C = np.array(
    [[4, 1, 8, 6, 3, 2, 5, 8, 6, 7], [4, 1, 8, 6, 7, 9, 3, 1, 2, 3.6]] * 2,
).T


def _shekel(x: Array) -> float:
    return -float(np.sum(1 / (np.sum((x - _SHEKEL_C) ** 2, axis=1) + _SHEKEL_B)))


def _michalewicz(x: Array) -> float:
    i = np.arange(1, len(x) + 1)
    return -float(np.sum(np.sin(x) * np.sin(i * x**2 / math.pi) ** 20))


def _griewank(x: Array) -> float:
    return float(np.sum(x**2) / 4000 - np.prod(np.cos(x / np.sqrt(np.arange(1, len(x) + 1)))) + 1)


def _dixon_price(x: Array) -> float:
    i = np.arange(2, len(x) + 1)
    return float((x[0] - 1) ** 2 + np.sum(i * (2 * x[1:] ** 2 - x[:-1]) ** 2))


def _goldstein_price(x: Array) -> float:
    a, b = x
    left = 1 + (a + b + 1) ** 2 * (19 - 14 * a + 3 * a**2 - 14 * b + 6 * a * b + 3 * b**2)
    right = 30 + (2 * a - 3 * b) ** 2 * (18 - 32 * a + 12 * a**2 + 48 * b - 36 * a * b + 27 * b**2)
    return float(left * right)


def _camel(x: Array) -> float:
    a, b = x
    return float((4 - 2.1 * a**2 + a**4 / 3) * a**2 + a * b + (-4 + 4 * b**2) * b**2)


_ROTATION = np.linalg.qr(np.random.default_rng(8).normal(size=(8, 8)))[0]
_SHIFT = np.random.default_rng(9).uniform(-3, 3, size=8)
_STRETCH = 10 ** np.linspace(0, 1.5, 8)


def _sphere(x: Array) -> float:
    return float(np.sum(_STRETCH * (_ROTATION @ (x - _SHIFT)) ** 2))


BRANIN = _on_box([(-5, 10), (0, 15)], _branin, 0.39788735772973816)
HARTMANN6 = _on_box([(0, 1)] * 6, _hartmann(_HARTMANN6_A, _HARTMANN6_P), -3.3223680114155147)
# The optimum is 0, the centre of the usual box, where some peers start; so this box is not centred.
ACKLEY5 = _on_box([(-10, 30)] * 5, _ackley, 0.0)
ROSENBROCK4 = _on_box([(-5, 10)] * 4, _rosenbrock, 0.0)
LEVY8 = _on_box([(-10, 10)] * 8, _levy, 0.0)

STYBLINSKI5 = _on_box([(-5, 5)] * 5, _styblinski, -195.83082851885709)
HARTMANN3 = _on_box([(0, 1)] * 3, _hartmann(_HARTMANN3_A, _HARTMANN3_P), -3.8627797873327696)
SHEKEL4 = _on_box([(0, 10)] * 4, _shekel, -10.53644315348353)
MICHALEWICZ5 = _on_box([(0, math.pi)] * 5, _michalewicz, -4.687658179088148)
GRIEWANK6 = _on_box([(-200, 400)] * 6, _griewank, 0.0)
DIXONPRICE4 = _on_box([(-10, 10)] * 4, _dixon_price, 0.0)
GOLDSTEIN = _on_box([(-2, 2)] * 2, _goldstein_price, 2.999999999999)
CAMEL = _on_box([(-3, 3), (-2, 2)], _camel, -1.0316284534898776)
SPHERE8 = _on_box([(-5, 5)] * 8, _sphere, 0.0)


# --- mixed types: every term is at least 0, and all are 0 at one configuration --------------------------------

_NETWORK_ACTIVATION = {"sigmoid": (0.45, -0.8), "tanh": (0.12, -0.3), "relu": (0.05, 0.4), "gelu": (0.0, 0.0)}


def _network(c: Mapping[str, Any]) -> Any:
    """Return a made-up validation loss: the best rate depends on depth and activation, dropout on width."""
    cost, shift = _NETWORK_ACTIVATION[c["activation"]]
    rate = math.log10(c["rate"]) + 2.6 + 0.25 * (c["layers"] - 4) + shift
    width = math.log2(c["width"] / 96)
    learnt = 1 - math.exp(-0.35 * rate**2)
    diverged = 2.0 / (1 + math.exp(-8 * (rate - 1.8))) if rate > 0.5 else 0.0
    dropout = c["dropout"] - 0.25 - 0.08 * width
    return cost + learnt + diverged + 0.03 * width**2 + 0.02 * (c["layers"] - 4) ** 2 + 0.9 * dropout**2


NETWORK = Function(
    "mixed",
    {
        "rate": {"type": "float", "low": 1e-5, "high": 1.0, "log": True},
        "layers": {"type": "int", "low": 1, "high": 8},
        "width": {"type": "int", "low": 16, "high": 1024, "log": True},
        "activation": {"type": "choice", "choices": list(_NETWORK_ACTIVATION)},
        "dropout": {"type": "float", "low": 0.0, "high": 0.8},
    },
    _network,
    0.0,
)


def _optimizer(c: Mapping[str, Any]) -> Any:
    """Return a made-up loss of three optimizers, each with parameters of its own, and two shared ones."""
    decay = math.log10(c["decay"]) + 4.2
    loss = 0.06 * decay**2 + {"constant": 0.25, "cosine": 0.0, "step": 0.1}[c["schedule"]]
    if c["method"] == "sgd":
        # The loss depends on the effective rate, rate / (1 - momentum).
        effective = math.log10(c["sgd_rate"]) - math.log10(1 - c["momentum"]) - 0.1
        return loss + 0.5 * abs(effective) + 2.0 * (c["momentum"] - 0.87) ** 2 + 0.08 * (not c["nesterov"])
    if c["method"] == "adam":
        rate = math.log10(c["adam_rate"]) + 3.3
        beta = math.log10(c["one_minus_beta"]) + 1.2
        return loss + 0.12 + 0.4 * rate**2 + 0.2 * beta**2 + 0.05 * abs(rate * beta)
    return loss + 0.3 + 0.02 * (c["history"] - 12) ** 2 / (1 + 0.05 * (c["history"] - 12) ** 2)


OPTIMIZER = Function(
    "mixed",
    {
        "method": {"type": "choice", "choices": ["lbfgs", "adam", "sgd"]},
        "sgd_rate": {"type": "float", "low": 1e-5, "high": 10.0, "log": True, "when": {"method": "sgd"}},
        "momentum": {"type": "float", "low": 0.0, "high": 0.99, "when": {"method": "sgd"}},
        "nesterov": {"type": "choice", "choices": [False, True], "when": {"method": "sgd"}},
        "adam_rate": {"type": "float", "low": 1e-6, "high": 1.0, "log": True, "when": {"method": "adam"}},
        "one_minus_beta": {"type": "float", "low": 1e-3, "high": 0.5, "log": True, "when": {"method": "adam"}},
        "history": {"type": "int", "low": 1, "high": 50, "when": {"method": "lbfgs"}},
        "decay": {"type": "float", "low": 1e-8, "high": 1e-1, "log": True},
        "schedule": {"type": "choice", "choices": ["constant", "cosine", "step"]},
    },
    _optimizer,
    0.0,
)


_KILN_CLAY = {"red": (0.3, 0.0, 1.0), "white": (0.0, 0.3, 1.4), "grey": (0.15, -0.4, 0.7)}
_KILN_GLAZE = {"none": 0.5, "ash": 0.2, "salt": 0.0, "lead": 0.9, "tin": 0.35}


def _kiln(c: Mapping[str, Any]) -> Any:
    """Return bumps over two floats, with integers that compensate each other and choices that move the bumps."""
    cost, shift, steep = _KILN_CLAY[c["clay"]]
    heat = (c["heat"] - 1150) / 150 - (shift - 0.3)
    hours = math.log2(c["hours"] / 14)
    waves = 0.25 * (1 - math.cos(5 * heat)) + 0.15 * (1 - math.cos(4 * (c["air"] - 0.7)))
    shelves = 0.02 * abs(c["shelves"] * c["hours"] - 70) / (1 + 0.01 * abs(c["shelves"] * c["hours"] - 70))
    bowl = steep * heat**2 + 2 * (c["air"] - 0.7 + 0.2 * heat) ** 2 + 0.2 * hours**2
    return cost + _KILN_GLAZE[c["glaze"]] + waves + shelves + bowl + (0.1 if c["lid"] else 0.0)


KILN = Function(
    "mixed",
    {
        "heat": {"type": "float", "low": 800.0, "high": 1300.0},
        "air": {"type": "float", "low": 0.0, "high": 1.0},
        "hours": {"type": "int", "low": 2, "high": 72, "log": True},
        "shelves": {"type": "int", "low": 1, "high": 20},
        "clay": {"type": "choice", "choices": list(_KILN_CLAY)},
        "glaze": {"type": "choice", "choices": list(_KILN_GLAZE)},
        "lid": {"type": "choice", "choices": [True, False]},
    },
    _kiln,
    0.0,
)


def _pipeline(c: Mapping[str, Any]) -> Any:
    """Return a made-up loss of three models with their own parameters; one has a part that can be switched on."""
    loss = {"none": 0.15, "standard": 0.0, "quantile": 0.04}[c["scaling"]]
    if c["model"] == "linear":
        return loss + 0.25 + 0.03 * (math.log10(c["penalty"]) - 0.5) ** 2 + 0.2 * (c["ratio"] - 0.15) ** 2
    if c["model"] == "neighbours":
        few = math.log2(c["k"] / 7)
        return loss + 0.18 + 0.05 * few**2 + (0.0 if c["weights"] == "distance" else 0.06)
    depth = 0.012 * (c["depth"] - 9) ** 2
    share = 0.5 * (c["share"] - 0.35) ** 2
    if not c["boost"]:
        return loss + 0.1 + depth + share
    rate = math.log10(c["shrinkage"]) + 1.1
    return loss + depth + share + 0.25 * rate**2 + 0.04 * abs(rate + 0.1 * (c["depth"] - 9))


PIPELINE = Function(
    "mixed",
    {
        "model": {"type": "choice", "choices": ["linear", "neighbours", "trees"]},
        "scaling": {"type": "choice", "choices": ["none", "standard", "quantile"]},
        "penalty": {"type": "float", "low": 1e-4, "high": 1e4, "log": True, "when": {"model": "linear"}},
        "ratio": {"type": "float", "low": 0.0, "high": 1.0, "when": {"model": "linear"}},
        "k": {"type": "int", "low": 1, "high": 100, "log": True, "when": {"model": "neighbours"}},
        "weights": {"type": "choice", "choices": ["uniform", "distance"], "when": {"model": "neighbours"}},
        "depth": {"type": "int", "low": 1, "high": 20, "when": {"model": "trees"}},
        "share": {"type": "float", "low": 0.05, "high": 1.0, "when": {"model": "trees"}},
        "boost": {"type": "choice", "choices": [False, True], "when": {"model": "trees"}},
        "shrinkage": {
            "type": "float",
            "low": 1e-4,
            "high": 1.0,
            "log": True,
            "when": {"model": "trees", "boost": True},
        },
    },
    _pipeline,
    0.0,
)
