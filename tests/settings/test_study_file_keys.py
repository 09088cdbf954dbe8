"""Unknown keys of a study file, and values of a wrong type, are errors that name the key."""

from __future__ import annotations

from typing import Any

import pytest

from thriftune.common.setting_kinds import FLAG, whole_number
from thriftune.errors import SettingError
from thriftune.settings.study_file_keys import check_key

KINDS = {"count": whole_number(1), "on": FLAG}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("cuont", 1, "cuont: unknown; did you mean count?"),
        ("zzz", 1, "zzz: unknown; it may have count, on"),
        ("count", "1", "count: '1' must be a whole number"),
        ("count", True, "count: True must be a whole number"),
    ],
)
def test_keys_of_tables_are_checked(key: str, value: Any, message: str) -> None:
    check_key("count", 3, KINDS)
    check_key("on", False, KINDS)
    with pytest.raises(SettingError) as error:
        check_key(key, value, KINDS)
    assert str(error.value) == message
