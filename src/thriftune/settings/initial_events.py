"""Turn enqueued configurations, known results and attributes into a study's first events."""

from __future__ import annotations

from thriftune.settings.known_results import known_results
from thriftune.state.attributes import checked_attributes
from thriftune.state.enqueued import checked_configs
from thriftune.state.events import AttributeSet, Enqueued, Event
from thriftune.state.spec import Spec


def initial_events(spec: Spec, at: float, *, enqueue: object, known: object, attrs: object) -> list[Event]:
    """Return the events of these settings of tune(), checked, all at the time `at`.

    A study that has an event already ignores it, so that a script can be run again.
    """
    return [
        *(AttributeSet(at, name, value) for name, value in checked_attributes(attrs).items()),
        *known_results(spec.space, spec.needed_metrics, at, known),
        *(Enqueued(at, config) for config in checked_configs(spec.space, enqueue)),
    ]
