"""What is known of past work: what may be in it, and a file that many processes write and some are killed in."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import fill
from tests.system.adding import numbered
from thriftune.errors import SettingError
from thriftune.system import known_work
from thriftune.system.known_work import KEPT_LINES, KnownWork, Work, best, key, setting_of, signature

HERE = "machine"

names = st.text(max_size=10)
finite = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | finite | st.text(max_size=10)
tuned = st.dictionaries(names, scalars, max_size=3)
works = st.builds(
    Work,
    st.dictionaries(names, finite | st.integers(0, 10**15), max_size=4),
    st.dictionaries(tuned.map(key), st.floats(1e-300, 1e300), max_size=4),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "known_work.jsonl"


# --- settings and work ------------------------------------------------------------------------------------


@given(tuned)
def test_a_key_stands_for_its_setting(setting: dict[str, Any]) -> None:
    text = key(setting)
    assert setting_of(text) == setting
    assert [type(value) for value in setting_of(text).values()] == [
        type(setting[name]) for name in sorted(setting)
    ]
    assert key(dict(reversed(setting.items()))) == text
    assert "\n" not in text


def test_keys_as_they_are_kept() -> None:
    assert key({}) == known_work.UNTURNED == "{}"
    assert key({"threads": 2, "memory": "kept"}) == '{"memory":"kept","threads":2}'


@pytest.mark.parametrize("value", [[1], {"a": 1}, (1,), float("nan"), float("inf"), 10**400, b"x", object()])
def test_a_setting_has_plain_values_only(value: object) -> None:
    with pytest.raises(SettingError, match=r"^threads: .* is no plain value; use a text, a finite number"):
        key({"threads": value})


@pytest.mark.parametrize(
    "text", ['{"a": 1}', '{"b":1,"a":1}', '{"a":[1]}', '{"a":NaN}', "[]", "1", "{", "", "[" * 99999]
)
def test_no_other_text_is_a_key(text: str) -> None:
    with pytest.raises(SettingError, match="is not the key of a setting"):
        setting_of(text)
    with pytest.raises(SettingError, match="is not the key of a setting"):
        Work({}, {text: 1.0})


@pytest.mark.parametrize("rate", ["me@example.org", None, True, [1.0], float("nan"), float("-inf"), 10**400])
def test_a_profile_has_numbers_only(rate: Any) -> None:
    with pytest.raises(SettingError, match=r"profile: 'user_seconds' is .*; give finite numbers"):
        Work({"user_seconds": rate}, {})


@pytest.mark.parametrize("effect", ["fast", None, True, 0.0, -1.0, float("nan"), float("inf")])
def test_an_effect_is_a_number_above_0(effect: Any) -> None:
    with pytest.raises(SettingError, match=r'effects: \{"threads":1\} is .*; give a finite number above 0'):
        Work({}, {key({"threads": 1}): effect})


def test_the_best_setting() -> None:
    one, two = key({"threads": 1}), key({"threads": 2})
    assert best({}) == best({one: 1.2}) == "{}"
    assert best({one: 0.9, two: 0.8}) == two
    assert best({two: 0.9, one: 0.9}) == one, "whatever the order"
    assert best({one: 1.0}) == "{}", "nothing is turned for nothing"


# --- the file ---------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["here", "there"]), st.lists(works, max_size=3)), max_size=5))
def test_what_is_added_is_read(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[str, list[Work]]]
) -> None:
    known = KnownWork(tmp_path_factory.mktemp("store") / "known_work.jsonl")
    for machine, batch in batches:
        assert known.add(machine, batch) is None
    for machine in ("here", "there"):
        told: list[tuple[str, Work]] = []
        for batch in [batch for at, batch in batches if at == machine]:
            before = {text for text, _ in told}
            texts = [json.dumps([work.profile, work.effects]) for work in batch]
            told += [pair for pair in zip(texts, batch, strict=True) if pair[0] not in before]
        assert known.read(machine) == [work for _, work in told]


def test_nothing_is_known_at_first(file: Path) -> None:
    assert KnownWork(file).read(HERE) == []
    assert KnownWork(file).add(HERE, []) is None
    assert not file.exists()


def test_the_folder_is_made(tmp_path: Path) -> None:
    known = KnownWork(tmp_path / "a" / "b" / "known_work.jsonl")
    assert known.add(HERE, [numbered("n", 1)]) is None
    assert known.read(HERE) == [numbered("n", 1)]


def test_a_line_holds_counters_and_settings_and_nothing_else(file: Path) -> None:
    KnownWork(file).add(HERE, [Work({"user_seconds": 0.98}, {key({"threads": 1}): 0.83})])
    assert json.loads(file.read_text()) == {
        "version": 1,
        "machine": HERE,
        "profile": {"user_seconds": 0.98},
        "effects": {'{"threads":1}': 0.83},
        "under": "{}",
    }


@settings(deadline=None, max_examples=50)
@given(cut=st.integers(0, 400), batch=st.lists(works, min_size=1, max_size=3))
def test_a_file_torn_anywhere_loses_one_line(
    tmp_path_factory: pytest.TempPathFactory, cut: int, batch: list[Work]
) -> None:
    file = tmp_path_factory.mktemp("store") / "known_work.jsonl"
    known = KnownWork(file)
    before = [numbered("n", number) for number in range(3)]
    known.add(HERE, before)
    whole = file.read_bytes()
    file.write_bytes(whole[:cut])
    ends = [number for number in range(1, len(whole) + 1) if whole[number - 1 : number] == b"\n"]
    left = before[: sum(end - 1 <= cut for end in ends)]  # a line is whole without its end, too
    assert known.read(HERE) == left
    assert known.add(HERE, batch) is None
    assert known.read(HERE) == [*left, *batch]


GOOD = b'{"version":1,"machine":"machine","profile":{},"effects":{}}'


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe\x00",
        bytes(100),
        b"[" * 100_000,
        b"null",
        b"5",
        b'"version"',
        b"[]",
        b"{}",
        GOOD[:-1],
        GOOD.replace(b"1", b"2"),
        GOOD.replace(b'"machine",', b'"another",'),
        GOOD.replace(b"{}", b"[]", 1),
        GOOD.replace(b"{}", b'{"user_seconds":NaN}', 1),
        GOOD.replace(b"{}", b'{"user_seconds":1e999}', 1),
        GOOD.replace(b"{}", b'{"user_seconds":"me"}', 1),
        GOOD[:-3] + b'{"{\\"threads\\": 1}":0.5}}',
        GOOD[:-3] + b'{"{\\"threads\\":1}":-1}}',
    ],
)
def test_what_is_no_line_of_ours_is_passed_over(file: Path, line: bytes) -> None:
    known = KnownWork(file)
    known.add(HERE, [numbered("n", 1)])
    with file.open("ab") as foreign:
        foreign.write(line + b"\n\n" + GOOD + b"\r\n")
    known.add(HERE, [numbered("n", 2)])
    assert known.read(HERE) == [numbered("n", 1), Work({}, {}), numbered("n", 2)]


def test_the_newest_count(file: Path) -> None:
    known = KnownWork(file)
    everything = [numbered("n", number) for number in range(2 * KEPT_LINES + 1)]
    known.add(HERE, everything[:-1])
    file.chmod(0o664)  # as for a team
    assert file.read_bytes().count(b"\n") == 2 * KEPT_LINES, "it is not cut back yet"
    assert known.read(HERE) == everything[-1 - KEPT_LINES : -1]
    unfinished = file.with_name(f"{file.name}.unfinished")
    unfinished.write_bytes(b"of a process that was killed\n" * 100_000)
    known.add(HERE, everything[-1:])
    assert file.read_bytes().count(b"\n") == KEPT_LINES
    assert known.read(HERE) == everything[-KEPT_LINES:]
    assert stat.S_IMODE(file.stat().st_mode) == 0o664
    assert not unfinished.exists()


# --- several processes ------------------------------------------------------------------------------------


@contextmanager
def adding(file: Path, name: str, adds: int, works: int, counters: int) -> Iterator[subprocess.Popen[str]]:
    """Another process, ready to add (see adding.py); killed at the end if it still runs."""
    command = [
        sys.executable,
        "-m",
        "tests.system.adding",
        str(file),
        name,
        str(adds),
        str(works),
        str(counters),
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def begin(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def numbers(known: list[Work], name: str) -> list[int]:
    return [int(work.profile[name]) for work in known if name in work.profile]


def test_several_processes_lose_nothing(file: Path) -> None:
    """They add three times as many lines as may be there, so that the file is cut back under their hands."""
    adders, adds, together = ("a", "b", "c", "d"), 60, 50
    assert len(adders) * adds * together > 2 * 2 * KEPT_LINES
    with ExitStack() as stack:
        children = [stack.enter_context(adding(file, name, adds, together, 10)) for name in adders]
        for child in children:
            begin(child)
        outputs = [child.communicate(timeout=120)[0] for child in children]
    assert [child.returncode for child in children] == [0] * len(adders)
    assert all(output.endswith(f"{adds * together - 1}\n") for output in outputs)
    known = KnownWork(file).read(HERE)
    assert len(known) == KEPT_LINES, "each of the newest lines is whole"
    for name in adders:
        # Of each process, all that is left are its last, without a gap; who was done early may have none.
        found = numbers(known, name)
        assert found == list(range(adds * together - len(found), adds * together))
    assert sum(len(numbers(known, name)) for name in adders) == KEPT_LINES
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_processes_killed_while_they_add(file: Path) -> None:
    """Whatever was said to be there is, the lock is free, and at most a line for each killed is torn."""
    luck, known, kills = random.Random(0), KnownWork(file), 6
    for kill in range(kills):
        name, together = f"killed{kill}", 100
        with adding(file, name, 10_000, together, 100) as child:
            begin(child)
            time.sleep(luck.uniform(0.05, 0.25))
            child.send_signal(signal.SIGKILL)
            said = [int(line) for line in child.communicate(timeout=60)[0].split()]
        found = numbers(known.read(HERE), name)
        assert found == list(range(found[0], found[-1] + 1)) if found else not said
        assert not said or found[-1] >= said[-1]
        assert known.add(HERE, [numbered("after", kill)]) is None
        assert known.read(HERE)[-1] == numbered("after", kill)
    lines = [line for line in file.read_bytes().split(b"\n") if line]
    torn = sum(known_work._read(line, HERE) is None for line in lines)
    assert torn <= kills


def test_a_lock_that_is_not_let_go_of(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a process that was stopped while it had it."""
    monkeypatch.setattr(known_work, "_PATIENCE_SECONDS", 0.1)
    known = KnownWork(file)
    known.add(HERE, [numbered("n", 1)])
    with file.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        problem = known.add(HERE, [numbered("n", 2)])
        assert problem is not None
        assert "another process has had it locked for 0.1 seconds" in problem
        assert known.read(HERE) == [numbered("n", 1)], "readers do not wait"
    assert known.add(HERE, [numbered("n", 2)]) is None
    assert known.read(HERE) == [numbered("n", 1), numbered("n", 2)]


def test_a_file_replaced_or_removed_just_before_it_is_locked(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was opened is then nobody's file any more, and what is written to it would be lost."""
    known, another = KnownWork(file), KnownWork(file.with_name("another"))
    known.add(HERE, [numbered("n", 1)])
    another.add(HERE, [numbered("n", 2)])
    lock = known_work._try_lock
    meanwhile: list[Callable[[], object]] = [lambda: file.with_name("another").replace(file), file.unlink]

    def late(descriptor: int) -> bool:
        if meanwhile:
            meanwhile.pop(0)()
        return lock(descriptor)

    monkeypatch.setattr(known_work, "_try_lock", late)
    assert known.add(HERE, [numbered("n", 3)]) is None
    assert known.read(HERE) == [numbered("n", 3)]
    assert not meanwhile


# --- where it cannot be written ---------------------------------------------------------------------------


def test_no_place_for_it(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for path, why in (
        (tmp_path / "taken" / "known_work.jsonl", "Not a directory|File exists"),
        (tmp_path / "folder", "it is no plain file"),
        (tmp_path / "pipe", "it is no plain file"),  # which nobody writes to: reading it would never end
        (Path("/proc/known_work.jsonl"), "No such file|Permission denied"),
    ):
        problem = KnownWork(path).add(HERE, [numbered("n", 1)])
        assert problem is not None
        assert problem.startswith(f"{path} cannot be written (")
        assert any(reason in problem for reason in why.split("|"))
        assert KnownWork(path).read(HERE) == []


def test_a_full_disk_leaves_it_as_it_was(small_disk: Path) -> None:
    file = small_disk / "known_work.jsonl"
    known = KnownWork(file)
    known.add(HERE, [numbered("n", 1)])
    ballast = fill(small_disk)
    before = file.read_bytes()
    # The rest of its last block is still free, so that there is room for a part of it.
    problem = known.add(HERE, [numbered("n", number, 100) for number in range(100)])
    assert problem is not None
    assert "No space left on device" in problem
    assert file.read_bytes() == before
    ballast.unlink()
    assert known.add(HERE, [numbered("n", 2)]) is None
    assert known.read(HERE) == [numbered("n", 1), numbered("n", 2)]


# --- machines ---------------------------------------------------------------------------------------------


def test_the_signature_is_of_machine_and_counters() -> None:
    assert signature("software") == signature("software") != signature("hardware")
    assert f", {os.cpu_count()} core" in signature("software")
    assert signature("software").endswith(" GiB, software counters")


def test_processors_by_model_or_numbers() -> None:
    x86 = "processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\n\nprocessor\t: 1\nmodel name\t: Other\n"
    assert known_work._processor_in(x86) == "Some CPU @ 2.00GHz"
    arm = known_work._processor_in("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n")
    assert arm.endswith(" 0x41 0xd0c")
    assert known_work._processor_in("") == arm.split()[0]


def test_it_is_the_machine_s_whatever_this_process_may_use() -> None:
    """A trial may be told to keep to fewer cores; what it finds is still of the same machine."""
    script = "import os; from thriftune.system.known_work import signature; {}print(signature('software'))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    said = [
        subprocess.check_output([sys.executable, "-c", script.format(first)], text=True, env=environment)
        for first in ("", "os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1]); ")
    ]
    assert said[0] == said[1]


def test_what_is_told_again_is_kept_once(file: Path) -> None:
    """As by a study that is resumed."""
    first, second = (Work({"user_seconds": each}, {key({"threads": 2}): 0.5}) for each in (0.5, 0.9))
    KnownWork(file).add(HERE, [first])
    KnownWork(file).add(HERE, [first, second])
    assert KnownWork(file).read(HERE) == [first, second]
