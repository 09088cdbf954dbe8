"""Refuse, or warn, when the code or the data of a study has changed since its trials got their values."""

from __future__ import annotations

from collections.abc import Callable

from thriftune.errors import StudyChanged
from thriftune.launch.fingerprint import changes
from thriftune.results.loading import load_history
from thriftune.state.spec import Spec
from thriftune.state.stored_settings import ChangePolicy
from thriftune.store.protocol import Store


def check_code(
    store: Store, existing: Spec, given: Spec, on_change: ChangePolicy, say: Callable[[str], object]
) -> None:
    """Say which code or data of a study has changed since its trials got their values.

    Raise StudyChanged for changed code, unless `on_change` is "go_on". Do nothing for a study without values.
    """
    found = changes(existing.code, given.code)
    code = [*found.code, *existing.changes_of_meaning(given)]
    data = [*found.data, *existing.changes_of_data(given)]
    if not code and not data:
        return
    history = load_history(store, existing)
    count = sum(history.trials[number].value is not None for number in history.created_ids)
    if not count:
        return
    values = "1 trial has a value" if count == 1 else f"{count} trials have values"
    if code and on_change == "stop":
        raise StudyChanged(
            f"study {existing.name!r}: {values} from before a change: {'; '.join(code)}. Choose one: fresh=True "
            f"(--fresh) starts over and keeps the old study under another name; another name with "
            f"warm_start={existing.name!r} (--warm-start) learns from it; on_change='go_on' (--on-change go_on) "
            "goes on, and compares old values with new ones"
        )
    say(f"study {existing.name!r}: {values} from before a change: {'; '.join([*code, *data])}")
