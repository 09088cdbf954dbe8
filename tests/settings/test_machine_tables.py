"""A study file gives a plan its job, its profile and its machines, and every mistake in it is named."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import thriftune as tt
from thriftune import planning
from thriftune.errors import SettingError
from thriftune.market.lifetime import Exponential, Phases
from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.latency import Latency
from thriftune.planning.profile import profile_path
from thriftune.replay.simulated_engine import Curve
from thriftune.settings.machine_tables import PlanFile, clouds_of, job_of, read_plan_file
from thriftune.settings.study_file import read_study_file
from thriftune.space.objectives import parse_objectives
from thriftune.space.space import Space
from thriftune.state.spec import Spec
from thriftune.stopping import STOPPERS

BASE = """
command = ["train", "--lr", "{lr}"]
minimize = "loss"
trials = 8
max_steps = 20
[space.lr]
type = "float"
low = 1e-4
high = 0.1
"""
PROFILE = "[profile]\nseconds_per_step = {1 = 4.0, 2 = 2.2}\nstd = 0.5\n"
CLOUD = '[cloud]\nmachine = "p3.8xlarge"\n'
SPACE = Space({"x": tt.Float(0.0, 1.0)})


def read(folder: Path, text: str, **given: Any) -> PlanFile:
    path = folder / "digits.toml"
    path.write_text(text)
    return read_plan_file(path, **given)


def cloud(folder: Path, **table: Any) -> CloudProfile:
    (found,) = clouds_of(table, folder)
    return found


def study(stopping: str, trials: int | None = None, max_steps: int | None = 81, **options: Any) -> Spec:
    objectives = parse_objectives("loss", None)
    settings: Any = {"stopping": stopping, "stopping_options": options, "trials": trials, "max_steps": max_steps}
    return Spec(name="study", space=SPACE, objectives=objectives, seed=0, **settings)


def job(stopping: str, trials: int | None = None, **options: Any) -> planning.JobSpec:
    return job_of(study(stopping, trials, **options))[0]


# --- what there is to train -------------------------------------------------------------------------------


def test_halving_is_as_many_brackets_as_there_are_trials_for() -> None:
    one = planning.successive_halving(27, 1, 81, 3)
    assert job("halving") == job("halving", 27) == one
    assert job("halving", 54) == one + one
    assert job("halving", 8, n=8, min_steps=2, eta=2) == planning.successive_halving(8, 2, 81, 2)


def test_the_last_bracket_has_the_trials_that_are_left() -> None:
    assert job("halving", 27 + 9) == planning.successive_halving(27, 1, 81, 3) + planning.JobSpec.of(
        [(9, 1), (3, 3), (1, 9), (1, 68)]
    )
    assert [stage.trials for stage in job("halving", 2).stages] == [2, 1, 1, 1]


def test_hyperband_goes_through_its_brackets_by_turns() -> None:
    whole = planning.hyperband(1, 81, 3)
    trials = sum(stage.trials for stage, begins in zip(whole.stages, whole.begins, strict=True) if not begins)
    assert job("hyperband") == job("hyperband", trials) == whole
    assert job("hyperband", 2 * trials) == whole + whole
    first = planning.successive_halving(81, 1, 81, 3)
    assert job("hyperband", 81) == first
    assert job("hyperband", 82).stages[len(first.stages) :][0].trials == 1


@given(
    rule=st.sampled_from(["halving", "hyperband"]),
    trials=st.integers(1, 60),
    eta=st.integers(2, 4),
    min_steps=st.integers(1, 4),
    n=st.integers(1, 30),
)
@settings(max_examples=25, deadline=None)
def test_the_rule_itself_trains_as_many_trials_for_as_many_steps(
    rule: str, trials: int, eta: int, min_steps: int, n: int
) -> None:
    options = {"min_steps": min_steps, "eta": eta} | ({"n": n} if rule == "halving" else {})

    def curve(config: Any) -> Curve:
        return Curve(range(1, 13), [{"loss": config["x"]} for _ in range(12)], [1.0] * 12)

    came = tt.simulate(
        curve,
        space=SPACE,
        minimize="loss",
        stopping=STOPPERS.make(rule, options),
        searcher="random",
        trials=trials,
        max_steps=12,
    )
    planned = job_of(study(rule, trials, 12, **options))[0]
    assert sum(trial.step for trial in came.trials) == planned.total_steps
    ends: Counter[int] = Counter()
    for stage, begins in zip(planned.stages, planned.begins, strict=True):
        ends[begins + stage.steps] += stage.trials
        if begins:
            ends[begins] -= stage.trials
    assert Counter(trial.step for trial in came.trials) == +ends


def test_asha_is_what_is_to_be_expected_of_it() -> None:
    found, notes = job_of(study("asha", 50, 200, eta=4))
    assert found == planning.asha(50, 8, 200, 4), "the first rung is at a twenty-fifth of the steps"
    assert notes[0].startswith("asha: planned is how many trials go on from a rung on average")
    assert job("asha", 50, min_steps=2) == planning.asha(50, 2, 81, 3)


@pytest.mark.parametrize("rule", ["median", "auto", "early_curve"])
def test_where_nobody_knows_who_is_stopped_all_are_planned_to_the_end(rule: str) -> None:
    found, notes = job_of(study(rule, 10))
    assert found == planning.JobSpec.of([(10, 81)])
    assert notes == [
        f"{rule}: may stop trials early, and nobody knows which; planned is that all of them go on to step 81"
    ]


def test_without_a_rule_there_is_nothing_to_note() -> None:
    assert job_of(study("none", 10)) == (planning.JobSpec.of([(10, 81)]), [])


def test_what_a_job_must_know() -> None:
    with pytest.raises(SettingError, match="max_steps: is missing; a plan must know how many steps a trial has"):
        job_of(study("halving", 10, None))
    with pytest.raises(SettingError, match="trials: is missing; a plan must know how many there are under auto"):
        job_of(study("auto"))


# --- what can be rented -----------------------------------------------------------------------------------


def test_a_machine_of_the_catalog(tmp_path: Path) -> None:
    found = cloud(tmp_path, machine="p3.8xlarge")
    assert (found.name, found.slots, found.price_per_hour) == ("p3.8xlarge", 4, 12.24)
    assert (found.billing, found.minimum, found.survival) == ("per_instance", 60.0, None)
    other = cloud(tmp_path, machine="p3.8xlarge", slots=2, price_per_hour=10, name="mine", minimum=0, speed=2)
    assert (other.name, other.slots, other.price_per_hour, other.minimum) == ("mine", 2, 10, 0.0)
    assert other.speed == 2
    assert cloud(tmp_path, machine="c7i.large", region="us-east-1").slots == 2, "without accelerators, its cores"


def test_a_machine_by_hand(tmp_path: Path) -> None:
    found = cloud(
        tmp_path,
        name="ours",
        slots=8,
        price_per_hour=3,
        queue="2m",
        init=15,
        billing="per_function",
        minimum="1m",
        data_gb=1.5,
        data_price=0.02,
        max_machines=4,
    )
    assert found == CloudProfile(
        8, 3, Latency(120.0), Latency(15.0), "per_function", 60.0, 1.5, 0.02, "ours", None, 1.0, 4
    )


def test_latencies_may_be_recorded_or_told_by_their_moments(tmp_path: Path) -> None:
    found = cloud(tmp_path, machine="p3.8xlarge", queue=[20, 30.5, 60], init={"mean": 30, "std": 10})
    assert (found.queue_latency, found.init_latency) == (Latency.fit([20, 30.5, 60]), Latency(30, 10))
    assert cloud(tmp_path, machine="p3.8xlarge", init={"mean": 30}).init_latency == Latency(30)


def test_spot_machines(tmp_path: Path) -> None:
    lines = ["machine_type,zone,lifetime_s,end_kind,hour_of_day"]
    lines += [
        f"{kind},z,{60 * minutes},preempted,12" for kind in ("p3.8xlarge", "v100") for minutes in range(5, 40)
    ]
    (tmp_path / "lives.csv").write_text("\n".join(lines))
    spot: dict[str, Any] = {"machine": "p3.8xlarge", "spot": True, "price_per_hour": 4}
    recorded = cloud(tmp_path, **spot, lifetimes="lives.csv")
    assert (recorded.name, recorded.price_per_hour) == ("p3.8xlarge spot", 4)
    assert isinstance(recorded.survival, Phases)
    named = cloud(tmp_path, name="x", slots=1, price_per_hour=1, spot=True, lifetimes="lives.csv", type="v100")
    assert named.survival == recorded.survival
    memoryless = cloud(tmp_path, **spot, mean_lifetime="6h", slots=2)
    assert (memoryless.survival, memoryless.slots) == (Exponential(6.0), 2)
    listed = cloud(tmp_path, machine="n1-highcpu-16", spot=True, mean_lifetime=3600)
    assert listed.price_per_hour < cloud(tmp_path, machine="n1-highcpu-16").price_per_hour, (
        "the catalog's spot price"
    )
    assert cloud(tmp_path, machine="p3.8xlarge", spot=False).survival is None


MINE = {"slots": 4, "price_per_hour": 1.0}
SPOT = {**MINE, "spot": True}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"machine": "p3.8xlarg"}, "p3.8xlarg: is not in the catalog of 120 offers; did you mean p3.8xlarge"),
        ({"machine": "p3.8xlarge", "region": "mars"}, "p3.8xlarge: is not offered in mars, but in us-east-1"),
        ({"machine": 3}, "machine: 3 must be the name of a machine in the catalog, such as 'p3.8xlarge'"),
        ({"machin": "x"}, "machin: unknown; did you mean machine?"),
        ({"colour": "x"}, "colour: unknown; it may have machine, region, name,"),
        ({"slots": 4}, "price_per_hour: is missing; give it, or machine = 'NAME', one of the catalog that has it"),
        ({"price_per_hour": 4}, "slots: is missing; give it, or machine = 'NAME'"),
        ({**MINE, "region": "x"}, "region: 'x' is for a machine of the catalog; write machine = 'NAME', too"),
        ({**MINE, "slots": 0}, "slots: 0 must be a whole number, at least 1"),
        ({**MINE, "slots": 4.0}, "slots: 4.0 must be a whole number"),
        ({**MINE, "price_per_hour": True}, "price_per_hour: True must be a number"),
        ({**MINE, "price_per_hour": -1}, "price_per_hour: -1 must be a finite number, 0 or more"),
        ({**MINE, "speed": 0}, "speed: 0 must be a finite number, above 0"),
        ({**MINE, "billing": "monthly"}, "billing: 'monthly' must be one of per_instance, per_function"),
        ({**MINE, "minimum": "soon"}, "minimum: 'soon' is no duration"),
        ({**MINE, "init": "soon"}, "init: 'soon' is no duration"),
        ({**MINE, "init": -1}, "init: mean: -1.0 must be a finite number, 0 or more"),
        ({**MINE, "queue": [3]}, "queue: give at least two recorded times in seconds, each above 0"),
        ({**MINE, "queue": [3, "x"]}, "queue: [3, 'x'] must be recorded seconds, each a number"),
        ({**MINE, "queue": {"std": 3}}, "queue: {'std': 3} must have a mean, such as {mean = 30, std = 10}"),
        ({**MINE, "queue": {"mean": 3, "sdt": 1}}, "queue: sdt: unknown; did you mean std?"),
        ({**MINE, "queue": True}, "queue: True must be seconds, a list of recorded ones, or a table"),
        (SPOT, "spot: such a machine may be taken away; write either lifetimes = 'FILE' or mean_lifetime = '6h'"),
        ({**SPOT, "lifetimes": "x", "mean_lifetime": 3}, "spot: such a machine may be taken away; write either"),
        ({**SPOT, "spot": 1}, "spot: 1 must be true or false"),
        ({**SPOT, "mean_lifetime": 0}, "mean_lifetime: 0 must be above 0"),
        ({**SPOT, "mean_lifetime": "6h", "type": "x"}, "type: 'x' is of a record; write lifetimes = 'FILE' for"),
        ({**SPOT, "lifetimes": "none.csv"}, "/none.csv: cannot be read"),
        ({**SPOT, "lifetimes": "lives.csv"}, "/lives.csv has none of ''; write type = 'NAME', which may be v100"),
        (
            {**MINE, "mean_lifetime": "6h"},
            "mean_lifetime: is of machines that may be taken away; write spot = true",
        ),
        ({**MINE, "type": "x"}, "type: is of machines that may be taken away; write spot = true, too"),
        (
            {"machine": "p3.8xlarge", "spot": True, "mean_lifetime": "6h"},
            "AWS p3.8xlarge: no spot price is known; give price_per_hour=",
        ),
    ],
)
def test_mistakes_about_machines(tmp_path: Path, table: dict[str, Any], message: str) -> None:
    (tmp_path / "lives.csv").write_text(
        "machine_type,zone,lifetime_s,end_kind,hour_of_day\nv100,z,600,preempted,1\n"
    )
    with pytest.raises(SettingError) as wrong:
        clouds_of(table, tmp_path)
    assert str(wrong.value).startswith("cloud: ")
    assert message in str(wrong.value)
    with pytest.raises(SettingError) as wrong:
        clouds_of([MINE, table], tmp_path)
    assert str(wrong.value).startswith("cloud 2: ")
    assert not str(wrong.value).startswith("cloud 2: cloud")


# --- all of it --------------------------------------------------------------------------------------------


def test_a_file_that_says_all(tmp_path: Path) -> None:
    found = read(tmp_path, 'stopping = "none"\n' + BASE + PROFILE + CLOUD)
    assert found.study.name == "digits"
    assert found.job == planning.JobSpec.of([(8, 20)])
    assert found.profile == planning.Profile({1: 4.0, 2: 2.2}, std=0.5)
    assert [cloud.name for cloud in found.clouds] == ["p3.8xlarge"]
    assert found.notes == []


def test_several_kinds_of_machines(tmp_path: Path) -> None:
    text = BASE + PROFILE + '[[cloud]]\nmachine = "p3.8xlarge"\n[[cloud]]\nmachine = "p3.2xlarge"\ninit = 30\n'
    assert [cloud.name for cloud in read(tmp_path, text).clouds] == ["p3.8xlarge", "p3.2xlarge"]
    (only,) = read(tmp_path, text, machine="p3.2xlarge").clouds
    assert only.init_latency.mean == 30.0, "as the file has it"


def test_a_machine_that_the_file_does_not_have(tmp_path: Path) -> None:
    for text in (BASE + PROFILE, BASE + PROFILE + CLOUD):
        found = read(tmp_path, 'stopping = "none"\n' + text, machine="p3.16xlarge")
        assert [cloud.slots for cloud in found.clouds] == [8]
        assert found.notes[0].startswith("p3.16xlarge: the study file does not have it; planned is that such")


def test_where_the_profile_is_from(tmp_path: Path) -> None:
    """The command line, then the file, then what `thriftune profile` left beside it."""
    given, named, beside = (planning.Profile({1: seconds}) for seconds in (1.0, 2.0, 3.0))
    given.write(tmp_path / "given.json")
    (tmp_path / "sub").mkdir()
    named.write(tmp_path / "sub" / "named.json")
    beside.write(profile_path(tmp_path / "digits.toml"))
    assert (tmp_path / "digits.profile.json").exists()
    naming = 'profile = "sub/named.json"\n' + BASE + CLOUD
    assert read(tmp_path, BASE + CLOUD).profile == beside
    assert read(tmp_path, naming).profile == named
    assert read(tmp_path, naming, profile=tmp_path / "given.json").profile == given


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            BASE + PROFILE,
            "cloud: there is none; write [cloud] and in it machine = 'p3.8xlarge', or give --machine",
        ),
        (BASE + CLOUD, "profile: there is none, and no digits.profile.json; measure one with: thriftune profile "),
        ("cloud = 3\n" + BASE, "cloud: 3 must be a table of a kind of machine, or several"),
        ("cloud = [3]\n" + BASE + PROFILE, "cloud: 3 must be a table: write [[cloud]] above each kind of machine"),
        ("profile = 3\n" + BASE, "profile: 3 must be the path of a profile, or a table"),
        ('profile = "p.json"\n' + BASE + CLOUD, "/p.json: cannot be read (No such file or directory)"),
        (BASE + CLOUD + "[profile]\nstd = 1\n", "a profile must be a table with seconds_per_step"),
        (BASE + CLOUD + PROFILE.replace("std", "sdt"), "profile: sdt: unknown; the keys are checkpoint,"),
        (BASE.replace("max_steps = 20\n", "") + CLOUD + PROFILE, "max_steps: is missing; a plan must know"),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingError) as wrong:
        read(tmp_path, text)
    assert str(wrong.value).startswith(f"{tmp_path}/digits.toml: ")
    assert message in str(wrong.value)


def test_a_profile_that_was_named_on_the_command_line_is_named_in_its_error(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(json.dumps({"seconds_per_step": {"2": 1.0}}))
    with pytest.raises(SettingError, match=rf"^{tmp_path}/bad.json: seconds_per_step: must be"):
        read(tmp_path, BASE + CLOUD, profile=tmp_path / "bad.json")


def test_who_does_not_plan_ignores_what_is_for_plans(tmp_path: Path) -> None:
    path = tmp_path / "digits.toml"
    path.write_text('profile = "none.json"\n' + BASE + "[cloud]\nmachine = 'unheard-of'\n")
    assert read_study_file(path).spec.trials == 8


def test_what_is_written_wins_over_the_catalog(tmp_path: Path) -> None:
    (cloud,) = clouds_of({"machine": "p3.8xlarge", "billing": "per_function", "minimum": 0}, tmp_path)
    assert (cloud.billing, cloud.minimum, cloud.slots) == ("per_function", 0.0, 4)


# --- on a cluster -----------------------------------------------------------------------------------------

RAY = """
[cloud]
machine = "m5.xlarge"
spot = true
price_per_hour = 0.07
"""


def test_on_a_cluster_machines_are_nodes_and_slots_are_workers_that_fit(tmp_path: Path) -> None:
    engine = 'engine = {name = "ray", cpus = 2}\n'
    (kind,) = read(tmp_path, engine + BASE + PROFILE + RAY).clouds
    assert (kind.name, kind.slots, kind.price_per_hour) == ("m5.xlarge_spot", 2, 0.07)
    assert kind.survival is not None, "twelve hours on average, where nothing is said"
    assert read(tmp_path, engine + BASE + PROFILE + RAY, machine="m5.xlarge_spot").clouds == [kind]


@pytest.mark.parametrize(
    ("said", "waits"), [("", (40.0, 3.0)), ("queue = 7", (7.0, 0.0)), ("init = 5", (0.0, 5.0))]
)
def test_how_long_a_node_takes_is_the_profiles_unless_its_table_says_so(
    tmp_path: Path, said: str, waits: tuple[float, float]
) -> None:
    measured = PROFILE + "queue = 40.0\ninit = 3.0\n"
    (kind,) = read(tmp_path, BASE + measured + CLOUD + said).clouds
    assert (kind.queue_latency.mean, kind.init_latency.mean) == waits
