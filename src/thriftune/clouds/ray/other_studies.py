"""Share a Ray cluster among several studies.

Each study writes two notes to the cluster's key-value store. The first note contains the number of workers that
the study wants. The study renews it every few seconds. If it is old, the study counts as ended, and other
studies may rent its nodes. The second note contains the nodes that the study has rented. It is written when
these change. It stays when the driver ends, so that the next driver finds the study's machines again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from thriftune.clouds.ray.cluster import Cluster
from thriftune.clouds.ray.sharing import Want, needs, shares, workers_that_fit

REFRESH_SECONDS = 2.0
"""How often a study renews the note of what it wants."""

FRESH_SECONDS = 10.0
"""A study counts as ended if the note of what it wants is older than this. It is several times REFRESH_SECONDS."""

_STUDIES, _MACHINES = "studies/", "machines/"


@dataclass(frozen=True, slots=True)
class RentedNode:
    """A node that a study has rented.

    - `node`: the id of the node.
    - `offer`: the name of its node type.
    - `since`: the start of billing, in unix seconds.
    - `released`: the study has released it, but it still runs.
    """

    node: str
    offer: str
    price_per_hour: float
    since: float
    released: bool = False


@dataclass(frozen=True, slots=True)
class OtherStudy:
    """Another study that uses the cluster now."""

    want: Want  # the shared nodes that it wants; one Want.worker is all workers of a trial
    nodes: frozenset[str]  # ids of the nodes that it has rented and not released


class StudyNotes:
    """Writes the notes of one study to the cluster's store, and reads those of others."""

    def __init__(self, cluster: Cluster, study_id: str) -> None:
        self._cluster = cluster
        self.study_id = study_id
        self._written: tuple[float, str] = (float("-inf"), "")  # (time, text) of the last note of write_want()

    def write_want(self, now: float, want: Want) -> None:
        """Write what this study wants, if this has changed or the note must be renewed."""
        written_at, written = self._written
        body = json.dumps({"worker": needs(want.worker), "workers": want.workers})
        if body != written or not 0 <= now - written_at < REFRESH_SECONDS:
            self._written = now, body
            note = json.dumps({"at": now, **json.loads(body)})
            self._cluster.write_note(_STUDIES + self.study_id, note.encode())

    def delete_want(self) -> None:
        """Delete the note of what this study wants.

        Called when the study does not use the cluster any more.
        """
        self._cluster.delete_note(_STUDIES + self.study_id)

    def write_rented(self, machines: Mapping[str, RentedNode]) -> None:
        """Write which machines this study has rented."""
        if machines:
            body = json.dumps({machine: asdict(rented) for machine, rented in machines.items()})
            self._cluster.write_note(_MACHINES + self.study_id, body.encode())
        else:
            self._cluster.delete_note(_MACHINES + self.study_id)

    def read_rented(self) -> dict[str, RentedNode]:
        """Return the machines that this study has rented, by id.

        They include machines that an earlier driver has rented.
        """
        key = _MACHINES + self.study_id
        return _rented_nodes(self._cluster.read_notes(key).get(key))

    def others(self, now: float) -> dict[str, OtherStudy]:
        """Return the other studies that use the cluster now, by id."""
        machine_notes = self._cluster.read_notes(_MACHINES)
        others = {}
        for key, note in self._cluster.read_notes(_STUDIES).items():
            study_id = key.removeprefix(_STUDIES)
            contents = _parsed(note)
            if study_id == self.study_id or not contents or abs(now - contents["at"]) > FRESH_SECONDS:
                continue
            rented = _rented_nodes(machine_notes.get(_MACHINES + study_id)).values()
            want = Want(contents["worker"], contents["workers"])
            others[study_id] = OtherStudy(want, frozenset(each.node for each in rented if not each.released))
        return others


def fair_share(
    total: Mapping[str, float], study_id: str, want: Want, others: Mapping[str, OtherStudy]
) -> tuple[int | None, str]:
    """Return how many trials this study may run on the shared nodes, and why.

    The number is None if it is not limited.

    - `total`: the resources of the shared nodes.
    - `want`: the request of this study.
    """
    wanting = {name: other.want for name, other in others.items() if other.want.workers}
    if not wanting:
        return None, "no other study wants any"
    wants = {**wanting, study_id: want}
    granted = shares(total, wants)
    if all(
        granted[name] >= min(each.workers, workers_that_fit(total, each.worker)) for name, each in wants.items()
    ):
        return None, "there is room for all studies"
    count = f"{len(wanting)} other studies" if len(wanting) > 1 else "1 other study"
    names = sorted(name.partition("/")[0] for name in wanting)  # the rest of an id only makes it unique
    return granted[study_id], f"{count}: {', '.join(names)}"


def _rented_nodes(note: bytes | None) -> dict[str, RentedNode]:
    return {machine: RentedNode(**fields) for machine, fields in _parsed(note).items()}


def _parsed(note: bytes | None) -> dict[str, Any]:
    """Return the contents of a note; empty if there is no note."""
    return dict(json.loads(note)) if note else {}
