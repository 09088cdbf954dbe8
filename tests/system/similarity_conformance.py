"""What every similarity must do. A class that inherits this, with `make` as a parameter, tests what it makes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from thriftune.system.known_work import Work, key
from thriftune.system.similarity import SIMILARITIES, Match, Similarity

Make = Callable[[], Similarity]

COUNTERS = ("user_seconds", "system_seconds", "minor_faults", "read_bytes", "run_delay_seconds")
SETTINGS = [key(setting) for setting in ({"threads": 1}, {"threads": 2}, {"memory": "kept"}, {})]

rates = st.one_of(st.just(0.0), st.floats(1e-3, 1e10))
profiles = st.dictionaries(st.sampled_from(COUNTERS), rates)
works = st.builds(Work, profiles, st.dictionaries(st.sampled_from(SETTINGS), st.floats(0.1, 10.0)))

A_PROFILE = {"user_seconds": 0.98, "system_seconds": 0.4, "minor_faults": 91_000.0, "read_bytes": 4e8}


class SimilarityConformance:
    def test_it_can_be_given(self, make: Make) -> None:
        SIMILARITIES.check(make())

    def test_it_can_be_sent_to_another_process(self, make: Make) -> None:
        known = [Work(A_PROFILE, {SETTINGS[0]: 0.8})]
        used = make()
        answer = used.match(A_PROFILE, known)
        assert pickle.loads(pickle.dumps(used)).match(A_PROFILE, known) == answer

    def test_nothing_is_like_anything_where_nothing_is_known(self, make: Make) -> None:
        assert make().match(A_PROFILE, []) is None

    def test_the_same_again_is_alike(self, make: Make) -> None:
        known = Work(A_PROFILE, {SETTINGS[0]: 0.8})
        match = make().match(A_PROFILE, [known])
        assert match is not None
        assert match.confident
        assert match.distance == 0.0
        assert match.effects.keys() == {SETTINGS[0]}
        assert abs(match.effects[SETTINGS[0]] - 0.8) < 1e-12

    def test_what_has_no_counter_in_common_cannot_be_compared(self, make: Make) -> None:
        known = [Work({"minor_faults": 91_000.0}, {SETTINGS[0]: 0.8}), Work({}, {SETTINGS[0]: 0.8})]
        for profile in ({"cycles": 1e9}, {}, {"minor_faults": float("nan")}, {"minor_faults": float("inf")}):
            assert make().match(profile, known) is None

    @settings(deadline=None, max_examples=60)
    @given(profile=profiles, known=st.lists(works, max_size=12))
    def test_what_it_says_is_drawn_from_what_is_known(
        self, make: Make, profile: Mapping[str, float], known: list[Work]
    ) -> None:
        before = copy.deepcopy((profile, known))
        match = make().match(profile, known)
        assert (profile, known) == before, "it changes nothing"
        if match is None:
            assert not any(work.profile.keys() & profile.keys() for work in known)
            return
        assert 0.0 <= match.distance < float("inf")
        assert 0.0 < match.limit < float("inf")
        assert match.confident == (match.distance <= match.limit)
        for setting, effect in match.effects.items():
            seen = [work.effects[setting] for work in known if setting in work.effects]
            assert min(seen) * (1 - 1e-9) <= effect <= max(seen) * (1 + 1e-9)

    @settings(deadline=None, max_examples=60)
    @given(questions=st.lists(st.tuples(profiles, st.lists(works, max_size=12)), min_size=2, max_size=4))
    def test_what_it_keeps_is_only_a_cache(
        self, make: Make, questions: list[tuple[dict[str, float], list[Work]]]
    ) -> None:
        """The same answer whatever was asked before, twice, and of equal work in other objects."""
        used = make()
        questions += [(profile, questions[0][1][:3]) for profile, _ in questions]
        answers: list[Match | None] = [used.match(profile, known) for profile, known in questions]
        for (profile, known), answer in zip(questions, answers, strict=True):
            assert make().match(profile, tuple(known)) == answer
            assert used.match(profile, copy.deepcopy(known)) == answer
