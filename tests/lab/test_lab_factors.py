"""Campaign files beyond the basics: driver CPUs, whole VMs, repeats, time grids, crossed factors, combinations."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.campaign import GuestSettings, Repeats, Temporal, Volume, read_campaign
from lab.dry_run import estimate_campaign
from lab.errors import CampaignError
from lab.schedule import expand, profile_keys
from profiler.observed import NetworkSettings
from tests.examples import examples
from tests.lab.campaign_texts import BASE, Read

EXAMPLE = Path(__file__).parents[2] / "examples" / "factors.yaml"

FIELDS = (
    "groups", "temporal", "guests", "instances", "narrow", "most_rounds", "line_mbit", "seconds", "rounds", "warmup_s",
    "seed", "link_mbit", "volume", "host_cap_percent", "routers", "workloads", "pairs", "pinnings",
)  # fmt: skip
KEYS = ("members", "combinations", "cross", "pinnings", "size", "of", "count", "load", "network", "every_min", "hours")


def test_the_example_of_factors_crosses_what_it_says() -> None:
    campaign = read_campaign(EXAMPLE)
    forms = Counter(group.pinning.name for group in campaign.groups)
    assert forms == {"same": 3 + 6 + 3 + 4, "driven": 3, "free": 3 + 4}
    assert len(expand(campaign)) == len({run.run for run in expand(campaign)})


@pytest.mark.parametrize("path", sorted((EXAMPLE.parent / "campaigns").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_campaign_of_the_examples_can_be_read(path: Path) -> None:
    names = [run.run for run in expand(read_campaign(path))]
    assert len(names) == len(set(names)) > 0


def test_every_dataset_of_the_lab_is_made_by_one_of_the_examples() -> None:
    campaigns = list(map(read_campaign, (*EXAMPLE.parent.glob("campaigns/*.yaml"), EXAMPLE.parent / "neighbours.yaml")))
    journals = sorted((EXAMPLE.parents[1] / "datasets").glob("*/journal.jsonl"))
    assert len(journals) > 10
    for journal in journals:
        name = journal.parent.name
        own = max((one for one in campaigns if name.startswith(one.name)), key=lambda one: len(one.name))
        entries = map(json.loads, journal.read_text(encoding="utf-8").splitlines())
        measured = {entry["run"] for entry in entries if entry.get("kind") in ("group", "solo")}
        assert measured <= {run.run for run in expand(own)}, name
        assert measured, name


def test_a_driver_domain_has_cpus_of_its_own_and_is_part_of_the_place_that_solo_runs_share(read: Read) -> None:
    text = BASE.replace(
        'different: {cpus: ["0", "1"], clients: own}', 'driven: {cpus: ["0", "0"], clients: "1", driver: "1"}'
    )
    campaign = read(text)
    assert [form.driver for form in campaign.pinnings] == [None, (1,)]
    runs = expand(campaign)
    drivers = {run.run: {entry.driver for entry in run.placed} for run in runs}
    assert drivers["same:cpu:cpu"] == {None}
    assert drivers["driven:cpu:cpu"] == {(1,)}
    assert drivers["solo:web:0:1:driver1"] == {(1,)}


def test_members_may_share_a_set_of_cpus(read: Read) -> None:
    campaign = read(BASE.replace('["0", "1"], clients: own', '["0-1"], clients: "0-1"'))
    (run,) = [run for run in expand(campaign) if run.run == "different:cpu:cpu"]
    assert [entry.cpus for entry in run.placed] == [(0, 1), (0, 1)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {"instances": "container", "guests": GuestSettings(), "repeats": Repeats(3, 3), "temporal": None}),
        (
            "instances: qemu\nguests: {memory_mb: 512, accelerator: tcg, vhost: off}",
            {"instances": "qemu", "guests": GuestSettings(512, "tcg", "off")},
        ),
        ("narrow: 0.03\nmost_minutes: 90", {"repeats": Repeats(3, 30, 0.03, 90.0)}),
        ("narrow: 0.03\nmost_rounds: 8", {"repeats": Repeats(3, 8, 0.03)}),
        ("temporal: {every_min: 10, hours: 150}", {"temporal": Temporal(10.0, 150.0)}),
        ("line_mbit: 10\nqueue_packets: 50", {"line_mbit": 10.0, "queue_packets": 50, "routers": 0}),
        ("routers: 3", {"routers": 3}),
        (
            "volume: {mb_s: 60, requests_s: 1500}\nhost_cap_percent: 120",
            {"volume": Volume(60.0, 1500.0), "host_cap_percent": 120.0},
        ),
        ("volume: {mb_s: 60}", {"volume": Volume(60.0, None), "host_cap_percent": None}),
    ],
)
def test_a_campaign_is_what_its_fields_say(read: Read, text: str, wanted: dict[str, object]) -> None:
    campaign = read(f"{BASE}{text}\n")
    assert {name: getattr(campaign, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("rounds", "minutes", "wanted"),
    [
        (None, None, Repeats(3, 8, 0.03, 90.0)),
        (10, None, Repeats(10, 10, 0.03, 90.0)),
        (2, 5.0, Repeats(2, 8, 0.03, 5.0)),
    ],
)
def test_a_call_may_ask_for_other_repeats_than_the_file(
    read: Read, rounds: int | None, minutes: float | None, wanted: Repeats
) -> None:
    campaign = read(BASE + "narrow: 0.03\nmost_rounds: 8\nmost_minutes: 90\n")
    assert campaign.repeated(rounds, minutes).repeats == wanted
    assert campaign.repeated(rounds, minutes).fingerprint == campaign.fingerprint


def test_crossed_factors_make_every_combination_once(read: Read) -> None:
    cross = "{load: [0.3, 1.0], cap_percent: [50, none], of: 0}"
    campaign = read(BASE + f"groups: [{{members: [web, cpu], cross: {cross}, pinnings: [same]}}]")
    labels = {tuple(member.label for member in group.members) for group in campaign.groups}
    assert labels == {("web.load0.3.cap50", "cpu"), ("web.load0.3", "cpu"), ("web.cap50", "cpu"), ("web", "cpu")}
    assert len(campaign.groups) == 4


@pytest.mark.parametrize(
    ("of", "labels"),
    [
        ("all", [("web.load0.5", "cpu.load0.5"), ("web", "cpu")]),
        ("each", [("web.load0.5", "cpu.load0.5"), ("web.load0.5", "cpu"), ("web", "cpu.load0.5"), ("web", "cpu")]),
        ("1", [("web", "cpu.load0.5"), ("web", "cpu")]),
        ("[0, 1]", [("web.load0.5", "cpu.load0.5"), ("web", "cpu")]),
    ],
)
def test_a_factor_varies_members_together_or_each_by_itself(read: Read, of: str, labels: list[tuple[str, str]]) -> None:
    text = f"groups: [{{members: [web, cpu], cross: {{load: [0.5, 1.0], of: {of}}}, pinnings: [same]}}]"
    assert [tuple(member.label for member in group.members) for group in read(BASE + text).groups] == labels


def test_several_entries_of_cross_are_crossed_with_each_other_and_with_pinnings(read: Read) -> None:
    cross = "[{weight: [256, 1024], of: 0}, {network: [none, {mode: shared, rate_mbit: 500}], of: 1}]"
    campaign = read(BASE + f"groups: [{{members: [cpu, web], cross: {cross}}}]")
    assert len(campaign.groups) == 2 * 2 * 2
    networks = {group.members[1].settings.network for group in campaign.groups}
    assert networks == {None, NetworkSettings("shared", 500.0)}
    assert {group.members[1].label for group in campaign.groups} == {"web.nonet", "web.shared500"}


def test_combinations_are_chosen_from_the_workloads_and_crossed_like_listed_members(read: Read) -> None:
    more = "".join(f"  w{number}: {{kind: cpu}}\n" for number in range(6))
    text = BASE.replace("pinnings:\n", more + "pinnings:\n", 1)
    group = (
        "{combinations: {size: 3, of: [w0, w1, w2, w3, w4, w5], count: 7}, cross: {load: [0.5, 1.0]}, pinnings: [same]}"
    )
    campaign = read(text + f"groups: [{group}]")
    assert len(campaign.groups) == 14
    assert {len(set(group.members)) for group in campaign.groups} == {3}
    assert campaign.groups == read(text + f"groups: [{group}]").groups


def test_profiles_are_of_workloads_as_they_are_defined_and_of_their_part_loads(read: Read) -> None:
    members = "[{workload: cpu, cap_percent: 50}, {workload: web, load: 0.5}]"
    campaign = read(BASE + f"groups: [{{members: {members}, pinnings: [different]}}]")
    assert profile_keys(campaign) == {"solo:cpu:0", "solo:web:0:1", "solo:web.load0.5:0:1"}
    solos = {run.run for run in expand(campaign) if run.kind == "solo"}
    assert solos == profile_keys(campaign) | {"solo:cpu.cap50:0", "solo:web.load0.5:1:1"}


def test_a_group_of_one_is_measured_alone(read: Read) -> None:
    campaign = read(BASE + "groups: [{members: [cpu], cross: {cap_percent: [25, 50]}, pinnings: [same]}]")
    runs = expand(campaign)
    assert {run.kind for run in runs} == {"solo"}
    assert {run.run for run in runs} == {"solo:cpu:0", "solo:cpu.cap25:0", "solo:cpu.cap50:0"}
    assert estimate_campaign(campaign, []).sentences()[0] == "campaign test: no groups"


def test_a_changed_time_grid_makes_other_rounds(read: Read) -> None:
    changed = [read(BASE + f"temporal: {{every_min: {every}, hours: 1}}").fingerprint for every in (5, 10)]
    assert len(set(changed)) == 2


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("instances: docker", r"instances must be one of container, .*xen, not 'docker'"),
        ("guests: {accelerator: hvf}", r"guests\.accelerator must be one of auto, kvm, tcg"),
        ("guests: {memory: 1}", r"guests\.memory is not known here"),
        ("most_rounds: 9", r"most_rounds needs narrow"),
        ("warmup_s: -1", r"warmup_s must be at least 0 and at most 3,600, not -1"),
        ("volume: {requests_s: 100}", r"volume\.mb_s is missing"),
        ("volume: {mb_s: 60, requests_s: 0.2}", r"volume\.requests_s must be at least 1 "),
        ("volume: {mb_s: 1.0e-9}", r"volume\.mb_s must be at least 0\.01 "),
        ("volume: {mb_s: 60}\ninstances: qemu", r"volume needs instances: container"),
        ("host_cap_percent: 120\ninstances: native", r"host_cap_percent needs instances: container"),
        ("narrow: 0.03\nmost_rounds: 2", r"most_rounds must not be below rounds, which is 3"),
        ("warmup_most_s: 0.5", r"warmup_most_s must not be below warmup_s, which is 1"),
        ("narrow: 0.1\ntemporal: {every_min: 1, hours: 1}", r"temporal and narrow exclude each other"),
        ("temporal: {every_min: 0, hours: 1}", r"temporal\.every_min must be above 0"),
        ("temporal: {every_min: 0.001, hours: 10000}", r"temporal has more than 100000 rounds"),
        ("groups: [{members: [cpu, cpu], cross: {}}]", r"groups\[0\]\.cross names no factor \(one of load, cap"),
        ("groups: [{members: [cpu, cpu], cross: {speed: [1]}}]", r"groups\[0\]\.cross\.speed is not known here"),
        ("groups: [{members: [cpu, cpu], cross: {load: 1}}]", r"groups\[0\]\.cross\.load must be a list"),
        ("groups: [{members: [cpu, cpu], cross: {load: [2]}}]", r"groups\[0\]\.members\[0\]\.load must be above 0"),
        ("groups: [{members: [cpu, cpu], cross: {load: [.nan]}}]", r"members\[0\]\.load must be a number, not 'nan'"),
        ("groups: [{members: [cpu, cpu], cross: {load: [-1]}}]", r"members\[0\]\.load must be above 0"),
        ("groups: [{members: [cpu, cpu], cross: {load: [1, 1.0]}}]", r"groups\[0\]\.cross\.load lists a value twice"),
        ("groups: [{members: [cpu, cpu], cross: {weight: [none, null]}}]", r"cross\.weight lists a value twice"),
        (
            "groups: [{members: [cpu, cpu], cross: [{load: [0.5]}, {load: [1.0], of: 0}]}]",
            r"groups\[0\]\.cross varies the same factor of a member twice",
        ),
        ("groups: [{members: [cpu, cpu], cross: {weight: [1.5]}}]", r"weight must be a whole number, not 1\.5"),
        ("groups: [{members: [cpu, cpu], cross: {load: [1], of: 2}}]", r"cross\.of must be all, each, or .* 0 to 1"),
        ("groups: [{members: [cpu, cpu], cross: [{load: [1]}, 3]}]", r"groups\[0\]\.cross\[1\] must be a mapping"),
        ("groups: [{cross: {load: [1]}}]", r"groups\[0\] must have either members or combinations"),
        ("groups: [{combinations: {size: 3}}]", r"groups\[0\]\.combinations size 3 is not between 2 and the 2"),
        ("groups: [{combinations: {size: 2, count: 9}}]", r"count 9 is above the 1 combinations"),
        ("groups: [{combinations: {size: 2, of: [cpu, gpu]}}]", r"combinations\.of names 'gpu', which is not under"),
        ("pairs: none", r"groups names no members that share a host"),
    ],
)  # fmt: skip
def test_a_mistake_in_repeats_or_factors_is_named(read: Read, more: str, message: str) -> None:
    with pytest.raises(CampaignError, match=r"campaign\.yaml: .*" + message):
        read(BASE + more + "\n")


def test_too_many_crossed_groups_are_refused_before_they_are_made(read: Read) -> None:
    many = list(range(1, 101))
    with pytest.raises(CampaignError, match="cross makes more than 20000 groups"):
        read(BASE + f"groups: [{{members: [cpu, cpu], cross: {{weight: {many}, cap_percent: {many}, of: each}}}}]")


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5))
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
)


@settings(max_examples=examples(400))
@given(st.sampled_from(FIELDS), anything)
def test_any_structure_is_taken_or_refused_by_name(
    tmp_path_factory: pytest.TempPathFactory, field: str, value: object
) -> None:
    document = {**yaml.load(BASE, yaml.CSafeLoader), field: value}
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    try:
        read_campaign(path)
    except CampaignError as error:
        assert str(path) in str(error)
