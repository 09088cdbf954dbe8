"""Tests of the output of attempts in files of limited size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import fill
from thriftune.engines.worker import MARK
from thriftune.engines.worker_output import WorkerOutput
from thriftune.store import output_files
from thriftune.store.output_files import (
    OutputPiece,
    OutputReader,
    OutputWriter,
    attempts_with_output,
    output_pieces,
    read_output,
    store_piece,
)
from thriftune.training.run import Run

PART = 100


@pytest.fixture
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_files, "PART_BYTES", PART)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "output").glob("*"))


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "output").iterdir())


# --- files ------------------------------------------------------------------------------------------------


def test_short_output_is_one_file(tmp_path: Path) -> None:
    writer = OutputWriter(tmp_path, 2)
    assert writer.write(b"loading\n") is None
    assert writer.write("café\n".encode()) is None
    assert read_output(tmp_path, 2) == "loading\ncafé\n", "it can be read while the trial prints"
    writer.close()
    assert names(tmp_path) == ["2.log"]
    assert attempts_with_output(tmp_path) == [2]
    assert read_output(tmp_path, 1) == ""


def test_an_attempt_without_output_has_no_file(tmp_path: Path) -> None:
    writer = OutputWriter(tmp_path, 1)
    writer.write(b"")
    writer.close()
    assert names(tmp_path) == []
    assert attempts_with_output(tmp_path) == []
    assert attempts_with_output(tmp_path / "gone") == []


def test_workers_of_one_trial_have_files_of_their_own(tmp_path: Path) -> None:
    OutputWriter(tmp_path, 1).write(b"first\n")
    OutputWriter(tmp_path, 1, 2).write(b"third\n")
    assert names(tmp_path) == ["1-rank2.log", "1.log"]
    assert [read_output(tmp_path, 1, rank) for rank in (0, 1, 2)] == ["first\n", "", "third\n"]
    assert attempts_with_output(tmp_path, 2) == [1]


@pytest.mark.usefixtures("_small_parts")
def test_long_output_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    writer = OutputWriter(tmp_path, 1)
    lines = [f"line {number:03}\n" for number in range(200)]
    for line in lines:
        writer.write(line.encode())
    text = read_output(tmp_path, 1)
    assert size(tmp_path) <= PART * (1 + output_files.LAST_PARTS)
    head, between, tail = text.partition("\n[... 1,500 bytes are left out ...]\n")
    assert between
    printed = "".join(lines)
    assert printed.startswith(head)
    assert printed.endswith(tail)
    assert len(head) == PART
    assert len(head) + 1500 + len(tail) == len(printed)


@pytest.mark.usefixtures("_small_parts")
def test_other_files_in_the_folder_are_ignored(tmp_path: Path) -> None:
    OutputWriter(tmp_path, 1).write(b"mine\n")
    (tmp_path / "output" / "model.log").write_text("the trial's own")
    (tmp_path / "output" / "1.log.bak").write_text("a person's")
    assert attempts_with_output(tmp_path) == [1]
    assert read_output(tmp_path, 1) == "mine\n"


def test_output_that_is_not_text_is_shown(tmp_path: Path) -> None:
    OutputWriter(tmp_path, 1).write(b"\xff\xfe ok\n")
    assert read_output(tmp_path, 1) == "\ufffd\ufffd ok\n"


@given(chunks=st.lists(st.binary(max_size=350), max_size=12), looks=st.sets(st.integers(0, 11)))
def test_a_following_reader_names_all_that_it_leaves_out(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], looks: set[int]
) -> None:
    folder = tmp_path_factory.mktemp("trial")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(output_files, "PART_BYTES", PART)
        writer, follower, read = OutputWriter(folder, 1), OutputReader(folder, 1), b""
        for number, chunk in enumerate(chunks):
            writer.write(chunk.replace(b"[", b"("))  # so that only lines of the reader begin with a bracket
            if number in looks:
                read += follower.read()
        read += follower.read()
        assert follower.read() == b""
        writer.close()
    printed = b"".join(chunks).replace(b"[", b"(")
    if len(printed) <= 3 * PART:
        assert read == printed
    position = 0
    for number, part in enumerate(read.split(b"[... ")):
        text = part
        if number:
            left_out, _, text = part.partition(b" bytes are left out ...]\n")
            position += int(left_out.replace(b",", b""))
        # A line break may come before the reader's own line.
        assert printed[position:].startswith(text) or printed[position:].startswith(text[:-1])
        position += len(text) if printed[position:].startswith(text) else len(text) - 1
    assert len(printed) - position in (0, 1)


def test_output_is_left_out_while_the_disk_is_full(small_disk: Path) -> None:
    writer = OutputWriter(small_disk, 1)
    assert writer.write(b"before\n") is None
    ballast = fill(small_disk)
    for _ in range(10):
        error = writer.write(bytes(PART * 100))
    assert error is not None
    assert error.strerror == "No space left on device"
    ballast.unlink()
    assert writer.write(b"after\n") is None
    writer.close()
    text = read_output(small_disk, 1)
    assert text.startswith("before\n")
    assert text.endswith(" bytes are left out ...]\nafter\n")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("a file of the trial's")
    writer = OutputWriter(tmp_path, 1)
    for _ in range(2):
        assert isinstance(writer.write(b"loss=1\n"), OSError)


# --- copies on another machine ----------------------------------------------------------------------------

PRINTED = st.lists(st.integers(0, 250), max_size=12)


@given(written=PRINTED, read_bytes=st.integers(1, 300), every=st.integers(1, 4))
def test_a_copy_has_all_that_the_reader_found(
    written: list[int], read_bytes: int, every: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A slow reader misses what the writer has removed. Reader and copy are made anew in between."""
    here, copy = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("copy")
    pieces: list[OutputPiece] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output_files, "PART_BYTES", PART)
        writer, reader = OutputWriter(here, 1), OutputReader(here, 1)
        printed = b""
        for number, count in enumerate(written):
            text = bytes((len(printed) + each) % 251 for each in range(count))
            printed += text
            assert writer.write(text) is None
            if number % every == 0:
                pieces.append(OutputPiece(7, 1, 0, *reader.read_piece(read_bytes)))
                assert store_piece(copy, pieces[-1]) is None
        writer.close()
        for piece in output_pieces(here, 7, read_bytes):
            assert printed[piece.begins :].startswith(piece.data)
            assert store_piece(copy, piece) is None  # as after a kill: also pieces that were stored before
        stored = _stored(copy)
    assert all(printed[begins:].startswith(data) for begins, data in stored)
    assert sum(len(data) for _, data in stored) <= PART * (1 + output_files.LAST_PARTS)
    ends = [begins + len(data) for begins, data in stored]
    assert (ends[-1] if ends else 0) == len(printed)
    if printed:
        assert stored[0] == (0, printed[:PART])


def _stored(folder: Path) -> list[tuple[int, bytes]]:
    """Return (position, contents) of each file of attempt 1."""
    files = []
    for path in (folder / "output").glob("*.log"):
        begins = path.name.removeprefix("1").removesuffix(".log").strip(".")
        files.append((int(begins or 0), path.read_bytes()))
    return sorted(files)


def test_each_worker_of_an_attempt_has_a_copy(tmp_path: Path) -> None:
    for rank, attempt in ((0, 1), (2, 1), (0, 2)):
        OutputWriter(tmp_path / "here", attempt, rank).write(f"{attempt} {rank}".encode())
    for piece in output_pieces(tmp_path / "here", 7):
        store_piece(tmp_path / "copy", piece)
    assert names(tmp_path / "copy") == ["1-rank2.log", "1.log", "2.log"]
    assert read_output(tmp_path / "copy", 1, 2) == "1 2"


def test_a_copy_that_misses_its_beginning_says_so(tmp_path: Path) -> None:
    store_piece(tmp_path, OutputPiece(7, 1, 0, 5, b"world\n"))
    assert read_output(tmp_path, 1) == "\n[... 5 bytes are left out ...]\nworld\n"


def test_a_copy_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("a file")
    assert isinstance(store_piece(tmp_path, OutputPiece(7, 1, 0, 0, b"hello")), OSError)


# --- by worker --------------------------------------------------------------------------------------------


def run(folder: Path, trial: int, attempt: int = 1) -> Run:
    return Run(trial, attempt, {}, 0, ("loss",), None, 7, str(folder / str(trial)), 2)


@pytest.mark.parametrize("length", [1, 7, len(MARK) - 1, len(MARK), 1000])
def test_output_is_cut_at_the_marks_however_it_arrives(length: int, tmp_path: Path) -> None:
    output = WorkerOutput()
    for trial in (0, 1):  # the second is given before anything of the first was read
        output.expect(run(tmp_path, trial))
    assert not output.begun
    printed = b"warming up\n" + MARK + b"zero\x1e\n" + MARK + b"one" + MARK[:5]
    for start in range(0, len(printed), length):
        assert output.take(printed[start : start + length]) is None
    assert output.begun
    assert output.tail == "one" + MARK[:5].decode()
    output.close()
    assert read_output(tmp_path / "0", 1) == "zero\x1e\n"
    assert read_output(tmp_path / "1", 1) == "one" + MARK[:5].decode()


def test_each_worker_of_a_trial_writes_its_own_file(tmp_path: Path) -> None:
    output = WorkerOutput()
    output.expect(replace(run(tmp_path, 0, attempt=3), rank=1))
    output.take(MARK + b"second worker")
    assert names(tmp_path / "0") == ["3-rank1.log"]
    assert read_output(tmp_path / "0", 3, 1) == "second worker"


def test_a_mark_that_a_trial_prints_is_its_output(tmp_path: Path) -> None:
    output = WorkerOutput()
    output.expect(run(tmp_path, 0))
    output.take(MARK + b"a" + MARK + b"b")
    assert read_output(tmp_path / "0", 1) == "a" + MARK.decode() + "b"
    output.expect(run(tmp_path, 1))
    assert not output.begun
    assert output.take(MARK + b"c") is None
    assert (output.tail, read_output(tmp_path / "1", 1)) == ("c", "c")


def test_errors_name_the_run(tmp_path: Path) -> None:
    (tmp_path / "3").write_text("in the way")
    output = WorkerOutput()
    output.expect(run(tmp_path, 3))
    trouble = output.take(MARK + b"text")
    assert trouble is not None
    assert trouble[0].trial == 3
    assert isinstance(trouble[1], OSError)
    assert output.tail == "text", "the end is kept for the case that the attempt fails"
