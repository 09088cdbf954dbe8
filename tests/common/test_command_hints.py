"""Tests of the command lines that messages suggest."""

from __future__ import annotations

import shlex
from collections.abc import Callable

import pytest

from thriftune.common.command_hints import delete_hint, resume_hint, show_hint, stop_hint
from thriftune.errors import StudyDamaged
from thriftune.store.messages import busy
from thriftune.store.protocol import DriverInfo

URL = "s3://bucket/tuning?region=eu-west-1&endpoint=http://127.0.0.1:9000"


@pytest.mark.parametrize("hint", [resume_hint, stop_hint, delete_hint, show_hint])
def test_a_shell_reads_the_store_as_one_word(hint: Callable[[str, str], str]) -> None:
    assert shlex.split(hint("digits", URL))[-2:] == ["--store", URL]


def test_errors_quote_the_store() -> None:
    driver = DriverInfo(pid=1, host="node", since=0.0)
    assert stop_hint("digits", URL) in busy("digits", URL, driver)
    assert delete_hint("digits", URL) in str(StudyDamaged("digits", URL, "its log has a gap"))
