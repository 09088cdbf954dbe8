"""How does it stand? What a person sees while a study runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Self

from thriftune.driver import View
from thriftune.engines import Doing
from thriftune.history import History
from thriftune.spec import Spec


def make_view(spec: Spec, progress: bool | None) -> View:
    return Silent()


class Silent:
    def update(self, history: History, doing: Sequence[Doing], now: float) -> None:
        pass

    def say(self, message: str) -> None:
        print(message, file=sys.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass
