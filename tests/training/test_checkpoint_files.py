"""Tests of checkpoints: they are complete or absent, and damaged ones are skipped and reported."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thriftune.errors import CheckpointError, SettingError
from thriftune.training.checkpoint_files import Checkpoints, DiskFullError


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "study" / "trial")


def state(text: str) -> Callable[[Path], None]:
    """Return a save function for a small state of two files, one of them in a folder."""

    def write(folder: Path) -> None:
        (folder / "model.bin").write_text(text * 100)
        (folder / "optimizer").mkdir()
        (folder / "optimizer" / "moments.bin").write_text(text)

    return write


def loaded_state(checkpoints: Checkpoints, at_most: int | None = None) -> str:
    """Return the text that state() saved; fail unless it is intact and no checkpoint was skipped."""
    found = checkpoints.load(at_most)
    assert found.passed_over == ()
    assert found.folder is not None
    text = (found.folder / "optimizer" / "moments.bin").read_text()
    assert (found.folder / "model.bin").read_text() == text * 100
    return text


def unfinished(checkpoints: Checkpoints) -> list[str]:
    return [path.name for path in checkpoints.folder.iterdir() if not path.name.startswith("step-")]


# --- saving and loading -----------------------------------------------------------------------------------


def test_nothing_saved(checkpoints: Checkpoints) -> None:
    found = checkpoints.load()
    assert (found.step, found.folder, found.passed_over) == (0, None, ())
    assert checkpoints.steps() == []
    checkpoints.delete()
    assert not checkpoints.folder.exists()  # only the first save makes it


def test_round_trip(checkpoints: Checkpoints) -> None:
    folder = checkpoints.save(7, state("seven"))
    assert folder == checkpoints.folder / "step-0000000007" / "state"
    assert checkpoints.load().folder == folder
    assert loaded_state(checkpoints) == "seven"
    assert unfinished(checkpoints) == []


Tree = dict[str, Any]  # a name to bytes (a file) or to another tree (a folder)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=20)
trees = st.dictionaries(
    names.filter(lambda name: name not in (".", "..")) | st.just("manifest") | st.just("caf\udce9"),
    st.recursive(st.binary(max_size=50), lambda inner: st.dictionaries(st.just("state") | st.just("a b"), inner)),
    max_size=5,
).filter(lambda tree: bool(list(files_of(tree))))


def files_of(tree: Tree) -> Iterator[bytes]:
    for content in tree.values():
        if isinstance(content, bytes):
            yield content
        else:
            yield from files_of(content)


def plant(tree: Tree, folder: Path) -> None:
    for name, content in tree.items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            (folder / name).mkdir()
            plant(content, folder / name)


def harvest(folder: Path) -> Tree:
    return {path.name: harvest(path) if path.is_dir() else path.read_bytes() for path in folder.iterdir()}


@settings(deadline=None)  # disks take their time
@given(trees)
def test_any_tree_comes_back(tmp_path_factory: pytest.TempPathFactory, tree: Tree) -> None:
    checkpoints = Checkpoints(tmp_path_factory.mktemp("trial"))
    checkpoints.save(1, lambda folder: plant(tree, folder))
    found = checkpoints.load()
    assert found.passed_over == ()
    assert found.folder is not None
    assert harvest(found.folder) == tree


def test_large_file(checkpoints: Checkpoints) -> None:
    content = os.urandom((1 << 22) + 1)
    checkpoints.save(1, lambda folder: (folder / "model.bin").write_bytes(content))
    found = checkpoints.load()
    assert found.folder is not None
    assert (found.folder / "model.bin").read_bytes() == content


def test_folder_may_be_used_as_a_string(checkpoints: Checkpoints) -> None:
    checkpoints.save(1, lambda folder: np.save(os.fspath(folder) + "/weights.npy", np.arange(3)))
    found = checkpoints.load()
    assert found.folder is not None
    assert np.load(os.fspath(found.folder) + "/weights.npy").tolist() == [0, 1, 2]


def test_last_checkpoint_may_be_copied_into_the_next(checkpoints: Checkpoints) -> None:
    last = checkpoints.save(1, state("same"))
    checkpoints.save(2, lambda folder: shutil.copytree(last, folder, dirs_exist_ok=True))
    assert loaded_state(checkpoints) == "same"


def test_delete(checkpoints: Checkpoints) -> None:
    checkpoints.save(1, state("one"))
    checkpoints.delete()
    assert not checkpoints.folder.exists()
    assert checkpoints.load().folder is None


# --- which are kept ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [2, 3, 5])
def test_keeps_the_newest(tmp_path: Path, keep: int) -> None:
    checkpoints = Checkpoints(tmp_path, keep)
    for step in range(1, 8):
        checkpoints.save(step, state(f"{step}"))
        assert checkpoints.steps() == list(range(max(1, step - keep + 1), step + 1))


@pytest.mark.parametrize("keep", [1, 0, -1])
def test_keep_must_be_two_at_least(tmp_path: Path, keep: int) -> None:
    with pytest.raises(SettingError, match=f"keep: {keep} is too few"):
        Checkpoints(tmp_path, keep)


def test_same_step_again_replaces(checkpoints: Checkpoints) -> None:
    checkpoints.save(1, state("one"))
    for text in ["first", "second", "third"]:
        checkpoints.save(2, state(text))
        assert loaded_state(checkpoints) == text
        assert checkpoints.steps() == [1, 2]
        assert len(list(checkpoints.folder.iterdir())) == 2


def test_later_steps_of_a_lost_attempt_remove_nothing(checkpoints: Checkpoints) -> None:
    for step in (4, 5, 6):
        checkpoints.save(step, state(f"first {step}"))
    assert checkpoints.load(at_most=5).step == 5
    assert checkpoints.load(at_most=4).folder is None
    checkpoints.save(5, state("second 5"))  # 6 was never reported
    assert checkpoints.steps() == [5]
    checkpoints.save(6, state("second 6"))
    assert checkpoints.steps() == [5, 6]
    assert [loaded_state(checkpoints, at_most) for at_most in (5, 6)] == ["second 5", "second 6"]


def test_steps_sort_as_numbers(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for step in (9, 10, 9_999_999_999, 10_000_000_000):
        checkpoints.save(step, state(f"{step}"))
    assert checkpoints.steps() == [9_999_999_999, 10_000_000_000]
    assert loaded_state(checkpoints) == "10000000000"


# --- damage -----------------------------------------------------------------------------------------------


def flip_a_byte(checkpoint: Path) -> None:
    content = bytearray((checkpoint / "state" / "model.bin").read_bytes())
    content[len(content) // 2] ^= 1
    (checkpoint / "state" / "model.bin").write_bytes(content)


def empty(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)
    checkpoint.mkdir()


def edit_manifest(old: bytes, new: bytes) -> Callable[[Path], object]:
    def edit(checkpoint: Path) -> None:
        content = (checkpoint / "manifest").read_bytes()
        assert old in content
        (checkpoint / "manifest").write_bytes(content.replace(old, new))

    return edit


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "flipped byte": (flip_a_byte, "model.bin: checksum differs"),
    "truncated": (
        lambda path: os.truncate(path / "state" / "model.bin", 9),
        "model.bin: 9 bytes instead of 500",
    ),
    "file gone": (
        lambda path: (path / "state/optimizer/moments.bin").unlink(),
        "optimizer/moments.bin: missing",
    ),
    "torn manifest": (lambda path: os.truncate(path / "manifest", 40), "manifest: incomplete"),
    "empty manifest": (lambda path: os.truncate(path / "manifest", 0), "manifest: incomplete"),
    "edited manifest": (edit_manifest(b'"step": 7', b'"step": 8'), "manifest: incomplete"),
    "manifest gone": (lambda path: (path / "manifest").unlink(), "manifest: missing"),
    "empty folder": (empty, "manifest: missing"),
}


@pytest.mark.parametrize(("damage", "flaw"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_one_is_skipped(checkpoints: Checkpoints, damage: Callable[[Path], object], flaw: str) -> None:
    checkpoints.save(6, state("six"))
    path = checkpoints.save(7, state("seven")).parent
    damage(path)
    found = checkpoints.load()
    assert found.step == 6
    assert found.folder is not None
    assert (found.folder / "optimizer" / "moments.bin").read_text() == "six"
    assert found.passed_over == (f"checkpoint of step 7 is corrupt ({flaw}); using step 6",)
    checkpoints.save(7, state("seven again"))
    assert loaded_state(checkpoints) == "seven again"


def test_truncated_manifest_is_detected(checkpoints: Checkpoints) -> None:
    manifest = checkpoints.save(7, state("seven")).parent / "manifest"
    whole = manifest.read_bytes()
    for length in range(len(whole)):
        manifest.write_bytes(whole[:length])
        assert checkpoints.load().folder is None


def test_all_damaged(checkpoints: Checkpoints) -> None:
    for step in (6, 7):
        flip_a_byte(checkpoints.save(step, state("some")).parent)
    found = checkpoints.load()
    assert (found.step, found.folder) == (0, None)
    assert found.passed_over == tuple(
        f"checkpoint of step {step} is corrupt (model.bin: checksum differs); "
        "no other checkpoint exists, so the trial starts from the beginning"
        for step in (7, 6)
    )


def test_checkpoint_under_another_name(checkpoints: Checkpoints) -> None:
    path = checkpoints.save(7, state("seven")).parent
    path.rename(path.with_name("step-0000000008"))
    assert "(manifest: belongs to step 7)" in checkpoints.load().passed_over[0]


def test_additional_file_is_allowed(checkpoints: Checkpoints) -> None:
    folder = checkpoints.save(7, state("seven"))
    (folder / "unpacked").write_text("by the restore function")
    assert loaded_state(checkpoints) == "seven"


def test_warning_can_be_stored_with_any_file_name(checkpoints: Checkpoints) -> None:
    folder = checkpoints.save(7, lambda folder: (folder / "caf\udce9").write_text("latin-1"))
    (folder / "caf\udce9").unlink()
    (sentence,) = checkpoints.load().passed_over
    assert sentence.encode()
    assert "caf\\udce9: missing" in sentence


# --- save functions that fail -----------------------------------------------------------------------------


def test_error_of_the_save_function_is_raised(checkpoints: Checkpoints) -> None:
    checkpoints.save(1, state("one"))
    error = ValueError("mine")

    def write(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise error

    with pytest.raises(ValueError) as caught:
        checkpoints.save(2, write)
    assert caught.value is error
    assert unfinished(checkpoints) == []
    assert loaded_state(checkpoints) == "one"


@pytest.mark.parametrize("write", [lambda: None, "model.bin"])
def test_save_function_must_take_a_folder(checkpoints: Checkpoints, write: Any) -> None:
    with pytest.raises(TypeError):
        checkpoints.save(1, write)
    assert unfinished(checkpoints) == []


@pytest.mark.parametrize("write", [lambda folder: None, lambda folder: (folder / "empty").mkdir()])
def test_no_file_written(checkpoints: Checkpoints, write: Callable[[Path], object]) -> None:
    checkpoints.save(1, state("one"))
    with pytest.raises(CheckpointError, match=r"save wrote no file into .* for step 2"):
        checkpoints.save(2, write)
    assert loaded_state(checkpoints) == "one"


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.symlink_to("elsewhere"),
        lambda path: path.symlink_to(path.parent),
        lambda path: path.symlink_to(path.with_name("model.bin")),
        lambda path: os.mkfifo(path),
    ],
    ids=["dangling", "folder", "file", "pipe"],
)
def test_links_and_devices_are_refused(checkpoints: Checkpoints, make: Callable[[Path], object]) -> None:
    def write(folder: Path) -> None:
        state("one")(folder)
        make(folder / "optimizer" / "odd")

    with pytest.raises(CheckpointError, match=r"^optimizer/odd: save must write only plain files and folders$"):
        checkpoints.save(1, write)
    assert list(checkpoints.folder.iterdir()) == []


def dev_full(folder: Path) -> None:
    Path("/dev/full").write_bytes(b"x")


def wrapped(folder: Path) -> None:
    try:
        dev_full(folder)
    except OSError as error:
        raise ValueError("could not save") from error


def hidden(folder: Path) -> None:
    try:
        dev_full(folder)
    except OSError:
        raise ValueError("could not save") from KeyError("something else")


def over_quota(folder: Path) -> None:
    raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


@pytest.mark.parametrize("write", [dev_full, wrapped, hidden, over_quota])
def test_disk_full(checkpoints: Checkpoints, write: Callable[[Path], object]) -> None:
    checkpoints.save(1, state("one"))
    with pytest.raises(DiskFullError, match="no room for the checkpoint of step 2") as caught:
        checkpoints.save(2, write)
    assert str(checkpoints.folder) in str(caught.value)
    assert "bytes are free" in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError | ValueError)
    assert unfinished(checkpoints) == []
    assert loaded_state(checkpoints) == "one"


def test_interrupt_stays_an_interrupt(checkpoints: Checkpoints) -> None:
    def write(folder: Path) -> None:
        try:
            dev_full(folder)
        except OSError:
            raise KeyboardInterrupt from None

    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(1, write)
    assert unfinished(checkpoints) == []


def write_bytes(folder: Path) -> None:
    (folder / "model.bin").write_bytes(bytes(1 << 25))


def write_array(folder: Path) -> None:
    np.save(folder / "model.npy", np.zeros(1 << 22))  # whose OSError has no errno


def fill(folder: Path) -> None:
    with contextlib.suppress(OSError), (folder / "model.bin").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def leave_room_for_half_the_manifest(folder: Path) -> None:
    for number in range(40):
        (folder / f"{number:0200}").touch()
    fill(folder)
    os.truncate(folder / "model.bin", (folder / "model.bin").stat().st_size - 4096)


@pytest.mark.parametrize("write", [write_bytes, write_array, fill, leave_room_for_half_the_manifest])
def test_disk_full_on_a_small_file_system(small_disk: Path, write: Callable[[Path], object]) -> None:
    checkpoints = Checkpoints(small_disk / "trial")
    checkpoints.save(1, state("one"))
    for _ in range(3):  # what a failed save leaves behind does not add up
        with pytest.raises(DiskFullError, match="no room for the checkpoint of step 2"):
            checkpoints.save(2, write)
        assert loaded_state(checkpoints) == "one"
        checkpoints.save(1, state("one"))


def test_leftovers_make_room_before_the_save(small_disk: Path) -> None:
    leftover = small_disk / ".unfinished-1234"
    leftover.mkdir()
    fill(leftover)
    checkpoints = Checkpoints(small_disk)
    checkpoints.save(1, state("one"))
    assert loaded_state(checkpoints) == "one"
    assert not leftover.exists()


# --- at every instant -------------------------------------------------------------------------------------

on_audit: Callable[[str], None] | None = None


def audit(event: str, args: tuple[object, ...]) -> None:
    """Calls a function before each file operation of a test; an audit hook cannot be removed again."""
    global on_audit
    look, on_audit = on_audit, None  # not at its own operations
    if look is not None and event.startswith(("os.", "open", "shutil.")):
        look(event)
    on_audit = look


def test_intact_before_every_file_operation(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, str]] = []

    def look(event: str) -> None:
        seen.append((checkpoints.load().step, loaded_state(checkpoints)))
        for path in checkpoints.folder.glob("step-*"):  # older ones too, even while they are removed
            assert sum(inner.is_file() for inner in path.rglob("*")) == 3

    checkpoints.save(1, state("a"))
    sys.addaudithook(audit)
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules[__name__], "on_audit", look)
        for step, text in [(2, "b"), (3, "c"), (3, "d"), (3, "e"), (4, "f")]:
            checkpoints.save(step, state(text))
    assert list(dict.fromkeys(seen)) == [(1, "a"), (2, "b"), (3, "c"), (3, "d"), (3, "e"), (4, "f")]
    assert seen == sorted(seen)
    assert len(seen) > 50


def test_removed_while_it_is_read(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    def overtake(event: str) -> None:
        if event == "open" and checkpoints.steps() == [1]:
            for step in (2, 3):
                checkpoints.save(step, state(f"{step}"))

    checkpoints.save(1, state("1"))
    sys.addaudithook(audit)
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules[__name__], "on_audit", overtake)
        found = checkpoints.load()
    assert (found.step, found.passed_over) == (3, ())


def test_readers_see_only_complete_checkpoints(checkpoints: Checkpoints) -> None:
    checkpoints.save(1, state("1"))
    seen: list[int] = []
    problems: list[object] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            found = checkpoints.load()
            seen.append(found.step)
            problems.extend(found.passed_over)

    reader = threading.Thread(target=read)
    reader.start()
    for step in range(1, 150):
        checkpoints.save(step, state(f"{step}"))
        checkpoints.save(step, state(f"{step}"))
    done.set()
    reader.join()
    assert problems == []
    assert seen == sorted(seen)
    assert len(set(seen)) > 10


CHILD = """
import itertools, os, sys
from pathlib import Path
from thriftune.training.checkpoint_files import Checkpoints

def write(folder):
    (folder / "optimizer").mkdir()
    (folder / "model.bin").write_text(f"{step}" * 100)
    (folder / "optimizer" / "moments.bin").write_text(f"{step}")

checkpoints = Checkpoints(Path(sys.argv[1]))
for step in itertools.count(checkpoints.load().step + 1):
    for _ in range(2):  # once more, to be killed while replacing too
        checkpoints.save(step, write)
        os.write(1, b"%d\\n" % step)
"""


def test_killed_at_any_moment(checkpoints: Checkpoints) -> None:
    rng = random.Random(0)
    leftovers = 0
    for _ in range(30):
        with subprocess.Popen(
            [sys.executable, "-c", CHILD, str(checkpoints.folder)], stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            first = child.stdout.readline()
            time.sleep(rng.uniform(0, 0.02))
            child.send_signal(signal.SIGKILL)
            acknowledged = int((first + child.stdout.read()).split()[-1])
        assert child.returncode == -signal.SIGKILL
        step = int(loaded_state(checkpoints))
        assert step == checkpoints.load().step
        assert acknowledged <= step <= acknowledged + 1
        leftovers += len(unfinished(checkpoints))
    assert leftovers > 0  # or it was never killed in the middle of a save
    checkpoints.save(step + 1, state("end"))
    assert unfinished(checkpoints) == []
    assert len(list(checkpoints.folder.iterdir())) == 2


# --- the best one -----------------------------------------------------------------------------------------


def test_also_keep_keeps_other_checkpoints(checkpoints: Checkpoints) -> None:
    for step in range(1, 7):
        checkpoints.save(step, state(f"{step}"), attempt=1, also_keep=[(2, 1)] if step > 2 else [])
    assert checkpoints.steps() == [2, 5, 6]
    checkpoints.save(1, state("anew"), attempt=2, also_keep=[(5, 1)])
    assert checkpoints.steps() == [1, 5], "an attempt that began anew leaves the best of the one before"
    assert loaded_state(checkpoints, at_most=1) == "anew"


def test_repeated_step_does_not_replace_the_reported_checkpoint(checkpoints: Checkpoints) -> None:
    checkpoints.save(3, state("reported"), attempt=1)
    checkpoints.save(3, state("not yet"), attempt=2, also_keep=[(3, 1)])
    for attempt, text in ((1, "reported"), (2, "not yet"), (5, "not yet")):
        folder, flaw = checkpoints.find(3, attempt)
        assert flaw is None
        assert folder is not None
        assert (folder / "optimizer" / "moments.bin").read_text() == text
    assert checkpoints.find(3, 0) == (None, None)
    assert checkpoints.find(4, 1) == (None, None)
    checkpoints.save(4, state("four"), attempt=2, also_keep=[(3, 2)])
    assert checkpoints.find(3, 1) == (None, None), "the newer one has been reported meanwhile"


@pytest.mark.parametrize(("damage", "flaw"), DAMAGE.values(), ids=DAMAGE.keys())
def test_find_returns_the_flaw_of_a_damaged_checkpoint(
    checkpoints: Checkpoints, damage: Callable[[Path], object], flaw: str
) -> None:
    path = checkpoints.save(7, state("seven"), attempt=0).parent
    damage(path)
    assert checkpoints.find(7, 1) == (path / "state", flaw)
    assert checkpoints.find(7, 1, verify=False) == (path / "state", None)


def test_checkpoint_of_an_older_version_has_attempt_0(checkpoints: Checkpoints) -> None:
    path = checkpoints.save(7, state("seven"), attempt=3).parent
    line = (path / "manifest").read_bytes().rpartition(b"\n")[0].replace(b'"attempt": 3, ', b"")
    (path / "manifest").write_bytes(b"%s\n%08x" % (line, zlib.crc32(line)))
    assert checkpoints.find(7, 1) == (path / "state", None)


# --- partial checkpoints


def test_a_partial_checkpoint_does_not_replace_that_of_its_step(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for step in (6, 7):
        checkpoints.save(step, lambda folder: (folder / "state").write_text("whole"), attempt=1)
    for text in ("first", "second"):
        checkpoints.save(7, lambda folder, text=text: (folder / "state").write_text(text), attempt=1, partial=True)  # type: ignore[misc]
    newest = checkpoints.load()
    assert newest.folder is not None
    assert (newest.step, newest.partial, (newest.folder / "state").read_text()) == (7, True, "second")
    model, flaw = checkpoints.find(7, 1)
    assert model is not None
    assert ((model / "state").read_text(), flaw) == ("whole", None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-0000000007", "step-0000000007.2"]


def test_the_next_whole_step_keeps_the_partial_one_before_it(tmp_path: Path) -> None:
    # A worker that is killed before it reports step 8 resumes in the middle of step 8 again.
    checkpoints = Checkpoints(tmp_path)
    write = lambda folder: (folder / "state").write_text("x")  # noqa: E731
    checkpoints.save(7, write, attempt=1)
    checkpoints.save(7, write, attempt=1, partial=True)
    checkpoints.save(8, write, attempt=1, also_keep=[(7, 1)])
    assert checkpoints.load().step == 8
    assert checkpoints.load(at_most=7).partial
    assert checkpoints.find(7, 1)[0] is not None
    checkpoints.save(9, write, attempt=1)
    assert checkpoints.steps() == [8, 9]


def test_a_partial_checkpoint_of_the_first_step_is_of_step_0(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(0, lambda folder: (folder / "state").write_text("x"), attempt=1, partial=True)
    found = checkpoints.load(at_most=0)
    assert (found.step, found.partial, found.folder is not None) == (0, True, True)
    assert checkpoints.find(0, 1) == (None, None)


def test_a_damaged_partial_checkpoint_falls_back_to_its_whole_step(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    write = lambda folder: (folder / "state").write_text("x")  # noqa: E731
    checkpoints.save(7, write, attempt=1)
    (checkpoints.save(7, write, attempt=1, partial=True) / "state").write_text("y")
    found = checkpoints.load()
    assert (found.step, found.partial) == (7, False)
    assert len(found.passed_over) == 1
