"""Campaign files: what they may say, what is refused and how, and which runs they become."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from lab.campaign import read_campaign
from lab.errors import CampaignError
from lab.schedule import calibration_key, calibrations, expand, in_round, profile_keys
from tests.lab.campaign_texts import BASE, Read

EXAMPLE = Path(__file__).parents[2] / "examples" / "neighbours.yaml"


def test_the_example_measures_all_pairs_on_same_and_different_cpus_within_35_minutes() -> None:
    campaign = read_campaign(EXAMPLE)
    runs = expand(campaign)
    pairs = Counter(run.pinning for run in runs if run.kind == "group" and "shared" not in run.run)
    assert pairs == {"same": 21, "different": 21}
    assert campaign.repeats.least >= 4
    overhead_s = 0.4  # set-up and clean-up, as measured
    assert len(runs) * campaign.repeats.least * (campaign.seconds + campaign.warmup_s + overhead_s) < 35 * 60


def test_every_member_of_every_group_has_its_solo_run_in_every_round(read: Read) -> None:
    runs = expand(read(BASE))
    solos = {run.run for run in runs if run.kind == "solo"}
    assert {entry.solo_key for run in runs for entry in run.placed} == solos
    for number in (1, 2, 3):
        assert sorted(run.run for run in in_round(runs, 1, number)) == sorted(run.run for run in runs)


def test_rounds_have_different_orders_and_the_same_seed_gives_the_same(read: Read) -> None:
    runs = expand(read(BASE))
    assert in_round(runs, 1, 1) == in_round(runs, 1, 1)
    assert in_round(runs, 1, 1) != in_round(runs, 1, 2)
    assert in_round(runs, 1, 1) != in_round(runs, 2, 1)


def test_the_same_place_is_measured_alone_only_once_per_round(read: Read) -> None:
    names = [run.run for run in expand(read(BASE))]
    assert len(names) == len(set(names))
    assert "solo:cpu:0" in names  # serves `same` and the first place of `different`: it has no load generator
    assert {"solo:web:0:1", "solo:web:0:0", "solo:web:1:1"} <= set(names)


def test_own_clients_share_the_cpus_of_their_server(read: Read) -> None:
    (run,) = [run for run in expand(read(BASE)) if run.run == "different:web:web"]
    assert [(entry.cpus, entry.clients) for entry in run.placed] == [((0,), (0,)), ((1,), (1,))]


def test_profiles_come_from_the_first_place_of_the_first_pinning(read: Read) -> None:
    assert profile_keys(read(BASE)) == {"solo:web:0:1", "solo:cpu:0"}


def test_a_part_load_is_calibrated_at_saturation_first(read: Read) -> None:
    text = BASE + "groups: [{members: [{workload: web, load: 0.5}, cpu], pinnings: [same]}]"
    runs = expand(read(text))
    assert [run.run for run in calibrations(runs)] == ["calibration:web:0:1"]
    (group,) = [run for run in runs if run.kind == "group"]
    assert group.run == "same:web.load0.5:cpu"
    assert calibration_key(group.placed[0]) == "calibration:web:0:1"


def test_groups_may_be_larger_than_pairs_and_override_settings(read: Read) -> None:
    members = "[{workload: cpu, cap_percent: 50, weight: 512}, cpu, web]"
    campaign = read(BASE + f"groups: [{{members: {members}, pinnings: [same]}}]")
    (group,) = campaign.groups
    assert [member.label for member in group.members] == ["cpu.cap50.weight512", "cpu", "web"]
    assert group.members[0].settings.cap_percent == 50


def test_groups_beside_pairs_need_pairs_to_be_asked_for(read: Read) -> None:
    assert len(read(BASE + "pairs: all\ngroups: [{members: [cpu, cpu, cpu]}]").groups) == 2 * 3 + 2


def test_another_host_is_another_platform_with_a_dataset_and_a_journal_of_its_own(read: Read) -> None:
    campaign = read(BASE)
    assert campaign.measured_on(None) == campaign
    other = campaign.measured_on("xeon")
    assert (other.platform, other.name) == ("xeon", "test-xeon")
    assert len({campaign.fingerprint, other.fingerprint, campaign.measured_on("epyc").fingerprint}) == 3
    assert other.groups == campaign.groups


def test_more_rounds_or_other_notes_leave_finished_runs_valid(read: Read) -> None:
    same = read(BASE.replace("rounds: 3", "rounds: 9") + "notes: again\n")
    assert read(BASE).fingerprint == same.fingerprint
    assert read(BASE).fingerprint != read(BASE.replace("seconds: 2", "seconds: 3")).fingerprint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("seconds: 2", "seconds: two"), r"seconds must be a number, not 'two'"),
        (("seconds: 2", "seconds: 0"), r"seconds must be at least 1 and at most 86,400, not 0"),
        (("seconds: 2", "seconds: 1.5"), r"seconds must be a whole number"),
        (("seconds: 2", "seconds: .nan"), r"seconds must be a number"),
        (("seconds: 2", "seconds: 1" + "0" * 400), r"seconds must be a number, not '10000"),
        (('clients: "1"', "clients: []"), r"pinnings\.same\.clients must be a list with at least one entry"),
        (("clients: own", "clients: own, driver: -1"), r"pinnings\.different\.driver '-1' in CPU list"),
        (("rounds: 3", "rounds: true"), r"rounds must be a number"),
        (("rounds: 3", "round: 3"), r"round is not known here \(known: .*rounds"),
        (("kind: cpu", "kind: gpu"), r"workloads\.cpu\.kind must be one of .*web.*, not 'gpu'"),
        (("kind: cpu", "kind: cpu, size_kb: 1"), r"workloads\.cpu\.size_kb is not known here"),
        (("{kind: cpu}", "cpu"), r"workloads\.cpu must be a mapping"),
        (("rate_mbit: 1000", "rate_mbit: -1"), r"workloads\.web\.network\.rate_mbit must be above 0"),
        (("mode: dedicated, rate_mbit: 1000", "mode: dedicated"), r"workloads\.web\.network .*needs a rate_mbit"),
        (('["0", "0"]', '["0", "a"]'), r"pinnings\.same\.cpus 'a' in CPU list"),
        (("name: test", "name: a b"), r"name 'a b' is not 1-255"),
        (("  cpu: {kind", "  'c:u': {kind"), r"workloads\.c:u must not hold a colon"),
        (("name: test", "pairs: [[web, web, gpu]]\nname: test"), r"pairs\[0\]\[2\]\.workload 'gpu' is not under"),
        (("name: test", "pairs: [[web]]\nname: test"), r"pairs\[0\] must be a list of at least two members"),
        (("name: test", "groups: [{members: [cpu, cpu], pinnings: [x]}]\nname: test"), r"groups\[0\]\.pinnings .*'x'"),
        (("workloads:", "workloads: {}\nworkload_s:"), r"workloads must name at least one"),
    ],
)
def test_a_mistake_names_file_field_and_reason(read: Read, change: tuple[str, str], message: str) -> None:
    with pytest.raises(CampaignError, match=r"campaign\.yaml: .*" + message):
        read(BASE.replace(*change))


def test_broken_yaml_names_the_line(read: Read) -> None:
    with pytest.raises(CampaignError, match=r"campaign\.yaml, line 3: not valid YAML"):
        read("name: x\nseconds: 1\nrounds: : 2\n")


@pytest.mark.parametrize("text", ["", "[]", "42", "just text"])
def test_a_file_that_is_no_mapping_is_refused(read: Read, text: str) -> None:
    with pytest.raises(CampaignError, match="must be a mapping"):
        read(text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match=r"nothing\.yaml cannot be read"):
        read_campaign(tmp_path / "nothing.yaml")


def test_two_different_members_never_run_under_one_name(read: Read) -> None:
    text = BASE.replace("  cpu: {kind: cpu}", "  cpu: {kind: cpu}\n  cpu.cap50: {kind: cpu, max_prime: 5}")
    with pytest.raises(CampaignError, match=r"campaign\.yaml: groups make two different members .* 'cpu\.cap50'"):
        read(text + "groups: [{members: [{workload: cpu, cap_percent: 50}, web], pinnings: [same]}]")


@pytest.mark.parametrize("kind", ["game", "game-map", "probe, probe: rtt"])
def test_what_has_no_rate_has_no_part_load(read: Read, kind: str) -> None:
    text = BASE.replace("{kind: cpu}", f"{{kind: {kind}}}")
    assert read(text).members["cpu"].load == 1
    with pytest.raises(CampaignError, match=r"workloads\.cpu has load 0\.5, but work of kind (game|probe)"):
        read(text + "groups: [{members: [{workload: cpu, load: 0.5}, web], pinnings: [same]}]")
