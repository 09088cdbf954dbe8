"""Tests of the placeholders in commands."""

from __future__ import annotations

from typing import Any

import pytest

from thriftune.errors import SettingError
from thriftune.space.parameters import Choice, Float, Int
from thriftune.space.space import Space
from thriftune.training.command_line import PLACEHOLDERS, arguments, check_command, shared_folder, used_datasets

SGD = {"opt": "sgd", "lr": 0.1, "n-layers": 3, "momentum": 0.9, "decay": 0.5}
ADAM = {"opt": "adam", "lr": 0.1, "n-layers": 3}
ONLY_SGD = {"opt": "sgd"}
SPACE = Space(
    {
        "opt": Choice(["sgd", "adam"]),
        "lr": Float(0, 1),
        "n-layers": Int(1, 9),
        "momentum": Float(0, 1, when=ONLY_SGD),
        "decay": Float(0, 1, when=ONLY_SGD),
    }
)


@pytest.mark.parametrize(
    ("part", "filled"),
    [
        ("--lr={lr}", "--lr=0.1"),
        ("{lr}{n-layers}", "0.13"),
        ("awk '{{print}}' ${{HOME}}", "awk '{print}' ${HOME}"),
        ("${{HOME|lr}}", "${HOME|lr}"),
        ('{"lr": {lr}}', '{"lr": 0.1}'),
        ("{}", "{}"),
        ("{ lr }", "{ lr }"),
        ("{lr|0.5}", "0.1"),
    ],
)
def test_placeholders_are_filled_in(part: str, filled: str) -> None:
    assert arguments(["train", part], ADAM) == ["train", filled]


@pytest.mark.parametrize(
    ("given", "sgd", "adam"),
    [
        (["--momentum", "{momentum}"], ["--momentum", "0.9"], []),
        (["-m", "{momentum}", "-v"], ["-m", "0.9", "-v"], ["-v"]),
        (["--momentum={momentum}"], ["--momentum=0.9"], []),
        (["--both", "{momentum}", "{decay}", "end"], ["--both", "0.9", "0.5", "end"], ["end"]),
        (["in", "{momentum}", "out"], ["in", "0.9", "out"], ["in", "out"]),
        (["momentum={momentum}", "lr={lr}"], ["momentum=0.9", "lr=0.1"], ["lr=0.1"]),
        (["--pair={lr},{momentum}"], ["--pair=0.1,0.9"], []),
        # None of these is a flag that takes the next argument as its value.
        (["--lr={lr}", "{momentum}"], ["--lr=0.1", "0.9"], ["--lr=0.1"]),
        (["--", "{momentum}"], ["--", "0.9"], ["--"]),
        (["-", "{momentum}"], ["-", "0.9"], ["-"]),
        (["-1", "{momentum}"], ["-1", "0.9"], ["-1"]),
        # A default keeps the argument.
        (["--momentum", "{momentum|0}"], ["--momentum", "0.9"], ["--momentum", "0"]),
        (["--momentum", "{momentum|-1}"], ["--momentum", "0.9"], ["--momentum", "-1"]),
        (["--momentum", "{momentum|}"], ["--momentum", "0.9"], ["--momentum", ""]),
        (
            ["sh", "-c", "train {momentum|no momentum}"],
            ["sh", "-c", "train 0.9"],
            ["sh", "-c", "train no momentum"],
        ),
    ],
)
def test_an_inactive_parameter_is_left_out_with_its_flag(
    given: list[str], sgd: list[str], adam: list[str]
) -> None:
    check_command(["train", *given], SPACE)
    assert arguments(["train", *given], SGD) == ["train", *sgd]
    assert arguments(["train", *given], ADAM) == ["train", *adam]


def test_placeholders_of_the_trial() -> None:
    own = dict(zip(PLACEHOLDERS, ("7", "123", "/s/trials/7", "/s/trials/7/state"), strict=True))
    command = [
        "train",
        "--out={folder}/x",
        "--seed",
        "{seed}",
        "--name",
        "run-{trial}",
        "--resume",
        "{checkpoint}",
    ]
    check_command(command, SPACE)
    assert arguments(command, {**own, **ADAM}) == [
        *("train", "--out=/s/trials/7/x", "--seed", "123", "--name", "run-7", "--resume", "/s/trials/7/state")
    ]
    check_command(["train", "--both", "{seed}", "{lr}"], SPACE)
    check_command(["train", "--seed", "{seed}"], Space({"seed": Int(1, 9)}))


@pytest.mark.parametrize(
    ("part", "space", "why"),
    [
        (
            "{output}",
            SPACE,
            "{output} in '{output}' is not a parameter; the space has opt, lr, n-layers, momentum, decay; "
            "you can also use {trial}, {seed}, {folder}, {checkpoint}",
        ),
        ("{trial:03}", SPACE, "has a format, but placeholders take none"),
        (
            "{seed}",
            Space({"opt": Choice(["sgd", "adam"]), "seed": Int(1, 9, when=ONLY_SGD)}),
            "{seed} in '{seed}' is a parameter that may be inactive",
        ),
        (
            "{seed|1}",
            Space({"opt": Choice(["sgd", "adam"]), "seed": Int(1, 9, when=ONLY_SGD)}),
            "give the parameter another name",
        ),
    ],
)
def test_wrong_or_unclear_placeholder_is_refused(part: str, space: Space, why: str) -> None:
    with pytest.raises(SettingError) as refused:
        check_command(["train", part], space)
    assert why in str(refused.value)


def test_remark_if_trials_share_a_folder() -> None:
    remark = shared_folder(["train", "{lr}"], SPACE, "/project")
    assert remark.startswith("all trials run in /project: what a trial writes belongs in its own folder")
    assert shared_folder(["train", "{{folder}}"], SPACE, "/project") == remark
    assert shared_folder(["train", "{folder}"], Space({"folder": Choice(["a", "b"])}), "/project") == remark
    assert shared_folder(["train", "--out={folder}/x"], SPACE, "/project") == ""
    assert shared_folder(["train", "{checkpoint}"], SPACE, "/project") == ""


def test_parameter_with_value_none_is_active() -> None:
    assert arguments(["train", "--clip", "{clip}"], {"clip": None}) == ["train", "--clip", ""]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train {lr}", "command: 'train {lr}' must be a list of strings, such as"),
        ([], r"command: \[\] must be a list of strings"),
        (["train", 3], r"command: \['train', 3\] must be a list of strings"),
        (["--rate={rate}"], "command: {rate} in '--rate={rate}' is not a parameter; the space has opt, lr"),
        (["train", "{rate|1}"], r"{rate} in '{rate\|1}' is not a parameter; .* write {{rate\|1}}"),
        (
            ["train-{momentum}"],
            r"command: {momentum} in 'train-{momentum}' .* name of the program.*{momentum\|...",
        ),
        (
            ["sh", "-c", "train {momentum}"],
            r"command: {momentum} in 'train {momentum}' .* after '-c'.*{momentum\|...",
        ),
        (["train", "--set", "m={momentum}"], "after '--set'.*join the two with '=', or give"),
        (["train", "-o", "m={momentum}"], "after '-o', .* inactive; give the text"),
        # A part of what a flag takes would be left out.
        (["train", "--two", "{lr}", "{momentum}"], "{momentum} .* one of several arguments after '--two'"),
        (["train", "--two", "{momentum}", "{lr}"], "{momentum} .* one of several arguments after '--two'"),
        (["train", "--two", "{momentum}", "{decay|0}"], "{momentum} .* one of several arguments after '--two'"),
        (["train", "{lr:.3f}"], r"{lr:.3f} in '{lr:.3f}' has a format, .* write {lr}, or {{lr:.3f}} for"),
        (["train", "{momentum|{lr}}"], r"the text after {momentum\| must not contain braces"),
    ],
)
def test_invalid_commands_are_refused(command: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        check_command(command, SPACE)


def test_datasets_are_placeholders() -> None:
    command = ["train", "--data={data.train}", "{data.my-test}", "{{data.train}}", "{lr}"]
    check_command(command, SPACE, ["train", "my-test", "unused"])
    used = used_datasets(command, ["train", "my-test", "unused"])
    assert used == {"data.train": "train", "data.my-test": "my-test"}
    filled = arguments(command, {"lr": 0.1, "data.train": "/cache/train", "data.my-test": "/test"})
    assert filled == ["train", "--data=/cache/train", "/test", "{data.train}", "0.1"]


def test_an_unknown_dataset_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(SettingError, match=r"\{data\.trian\} .* is not a parameter.*\{data\.train\}"):
        check_command(["train", "{data.trian}"], SPACE, ["train"])
    with pytest.raises(SettingError, match=r"is not a parameter"):
        check_command(["train", "{data.train}"], SPACE)
