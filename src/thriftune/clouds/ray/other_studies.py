"""Who else uses this cluster, and what of it is theirs? What studies leave word of for each other in its notes.

A study notes every few seconds what it wants, and, when that changes, which nodes it has rented. The second note
stays when its driver goes, so that the next one finds its machines; the first one grows old, and a study whose
note is old is not there: its nodes are for whoever comes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from thriftune.clouds.ray.cluster import Cluster
from thriftune.clouds.ray.sharing import Want, needs, shares, workers_that_fit

REFRESH_SECONDS = 2.0
FRESH_SECONDS = 10.0
"""So many seconds after its last word a study counts as gone."""

_STUDIES, _MACHINES = "studies/", "machines/"


@dataclass(frozen=True, slots=True)
class Rented:
    """A machine that is a node which a study has for itself. `released`: it had, and waits for its end."""

    node: str
    offer: str
    price_per_hour: float
    since: float
    released: bool = False


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another study that is there."""

    want: Want  # of what is everybody's: so much for each trial, with all its workers
    nodes: frozenset[str]  # that are its own


class Neighbours:
    def __init__(self, cluster: Cluster, study_id: str) -> None:
        self._cluster = cluster
        self.study_id = study_id
        self._told: tuple[float, str] = (float("-inf"), "")  # when, and what

    def tell(self, now: float, want: Want) -> None:
        """What this study wants; noted when it is new, and again and again."""
        at, before = self._told
        body = json.dumps({"worker": needs(want.worker), "workers": want.workers})
        if body != before or not 0 <= now - at < REFRESH_SECONDS:
            self._told = now, body
            note = json.dumps({"at": now, **json.loads(body)})
            self._cluster.note(_STUDIES + self.study_id, note.encode())

    def leave(self) -> None:
        self._cluster.erase(_STUDIES + self.study_id)

    def keep(self, machines: Mapping[str, Rented]) -> None:
        """Which machines this study has rented."""
        if machines:
            body = json.dumps({machine: asdict(rented) for machine, rented in machines.items()})
            self._cluster.note(_MACHINES + self.study_id, body.encode())
        else:
            self._cluster.erase(_MACHINES + self.study_id)

    def kept(self) -> dict[str, Rented]:
        """Which machines this study has rented, in an earlier process perhaps."""
        key = _MACHINES + self.study_id
        return _machines(self._cluster.noted(key).get(key))

    def others(self, now: float) -> dict[str, Neighbour]:
        """By id, those that are there."""
        machines = self._cluster.noted(_MACHINES)
        found = {}
        for key, note in self._cluster.noted(_STUDIES).items():
            study_id = key.removeprefix(_STUDIES)
            said = _read(note)
            if study_id == self.study_id or not said or abs(now - said["at"]) > FRESH_SECONDS:
                continue
            own = _machines(machines.get(_MACHINES + study_id)).values()
            want = Want(said["worker"], said["workers"])
            found[study_id] = Neighbour(want, frozenset(rented.node for rented in own if not rented.released))
        return found


def fair_share(
    total: Mapping[str, float], study_id: str, want: Want, others: Mapping[str, Neighbour]
) -> tuple[int | None, str]:
    """Of what is everybody's, how many trials' room is this study's, and why; None: as many as find room."""
    wanting = {name: other.want for name, other in others.items() if other.want.workers}
    if not wanting:
        return None, "no other study wants any"
    everybody = {**wanting, study_id: want}
    found = shares(total, everybody)
    if all(
        found[name] >= min(each.workers, workers_that_fit(total, each.worker)) for name, each in everybody.items()
    ):
        return None, "there is room for all studies"
    count = f"{len(wanting)} other studies" if len(wanting) > 1 else "1 other study"
    names = sorted(name.partition("/")[0] for name in wanting)  # what follows it only tells it from its namesakes
    return found[study_id], f"{count}: {', '.join(names)}"


def _machines(note: bytes | None) -> dict[str, Rented]:
    return {machine: Rented(**said) for machine, said in _read(note).items()}


def _read(note: bytes | None) -> dict[str, Any]:
    """Empty: there is none."""
    return dict(json.loads(note)) if note else {}
