"""`probe-plan` on files: the table, JSON, the campaign that the lab accepts, and one sentence for every mistake."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from typer.testing import Result

from lab.campaign import read_campaign
from lab.progress import OVERHEAD_S
from lab.schedule import expand
from tests.api import cli_runs

CLOUD = """
hosts:
  - {id: h1, kind: lxc, platform: lab, pcpus: 1, memory_mb: 8192}
  - {id: h2, kind: lxc, platform: lab, pcpus: 1, memory_mb: 8192}
  - {id: h3, kind: KIND, platform: OTHER, pcpus: 1, memory_mb: 8192}
instances:
  - {id: a, host: h1, workload: cpu, memory_mb: 10}
  - {id: b, host: h2, workload: memory, memory_mb: 10}
  - {id: c, host: h3, workload: THIRD, memory_mb: 10}
  - {id: d, host: h3, workload: cpu, memory_mb: 10}
workloads:
  - {name: cpu, metrics: {cpu: 70}}
  - {name: memory, metrics: {cpu: 60, mem_bw_mb_s: 5000}}
  - {name: mail, metrics: {cpu: 65, waiting: 5}}
"""
MAIL = """
name: ours
workloads: {mail: {kind: web, size_kb: 10}, cpu: {kind: cpu}, memory: {kind: memory, block_mb: 8}}
pinnings: {same: {cpus: ["0"]}}
"""


@pytest.fixture(autouse=True)
def _files(_empty_folder: None) -> None:
    _cloud("cpu")
    Path("n.yaml").write_text("[{id: n, vcpus: 1, workload: cpu, memory_mb: 10}]", encoding="utf-8")
    Path("mail.yaml").write_text(MAIL, encoding="utf-8")


def _cloud(third: str, kind: str = "lxc", platform: str = "lab") -> None:
    text = CLOUD.replace("THIRD", third).replace("KIND", kind).replace("OTHER", platform)
    Path("cloud.yaml").write_text(text, encoding="utf-8")


def run(*arguments: str) -> Result:
    return cli_runs.run("probe-plan", "cloud.yaml", *arguments)


def reported(result: Result) -> str:
    """The one sentence on standard error."""
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line


def test_the_plan_is_a_table_then_the_decisions_then_one_sentence() -> None:
    result = run("--instance", "n.yaml")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split("  ")[0] == "rank"
    assert re.match(
        r" +1  cpu \+ (cpu|memory) +same +h\d.* n: h\d -> h\d .*\d+%  +0\.\d{4} +\d+\.\d +\d+\.\d", lines[1]
    )
    assert any(re.match(r"n +h\d +\d+%", line) for line in lines)
    assert re.search(
        r"^\d+ pairs in \d+ of 60 minutes lower the expected regret of 1 decisions from 0\.\d+ to 0\.\d+; ", lines[-3]
    )
    assert lines[-2] == "A run takes 26.5 s, 20 s of them measured; 3 rounds of each."
    assert lines[-1] == ("Answered by the analytic model; no learned model was used.")


def test_every_instance_is_decided_about_unless_some_are_named() -> None:
    assert {one["instance"] for one in json.loads(run("--json").stdout)["decisions"]} == {"a", "b", "c", "d"}
    named = json.loads(run("--json", "--instance", "a", "--instance", "n.yaml").stdout)
    assert {one["instance"] for one in named["decisions"]} == {"a", "n"}


def test_json_has_every_figure_and_what_was_asked() -> None:
    found = json.loads(run("--json", "--budget", "30m", "--rounds", "2", "--seconds-per-run", "10").stdout)
    assert found["request"] == {
        "budget_s": 1800.0, "seconds_per_run": 10, "rounds": 2, "pinnings": ["same", "different", "shared"],
        "objective": "worst", "seed": 1,
    }  # fmt: skip
    assert (found["model_version"], found["model_origin"]) == ("analytic", "analytic")
    step = found["steps"][0]
    assert set(step) == {"pair", "hosts", "turns", "probability", "gain", "seconds", "cumulative_s"}
    assert step["seconds"] % (2 * 16.5) == 0
    assert found["seconds"] == found["steps"][-1]["cumulative_s"] <= 1800
    assert found["sentence"].endswith(".")
    assert (found["campaign"], found["not_in_campaign"]) == (None, None)


def test_the_campaign_is_one_that_the_lab_accepts_and_takes_no_longer_than_the_plan_says() -> None:
    _cloud("mail")
    found = json.loads(run("--json", "--campaign", "next.yaml", "--workload-file", "mail.yaml").stdout)
    campaign = read_campaign(Path("next.yaml"))
    assert (found["campaign"], found["not_in_campaign"]) == ("next.yaml", [])
    assert (campaign.name, campaign.platform, campaign.seconds, campaign.repeats.least) == ("next", "lab", 20, 3)
    pairs = {tuple(member.workload for member in group.members) for group in campaign.groups}
    assert pairs == {(step["pair"]["first"], step["pair"]["second"]) for step in found["steps"]}
    run_s = campaign.seconds + campaign.warmup_s + OVERHEAD_S
    assert run_s == found["run_s"]
    assert len(expand(campaign)) * campaign.repeats.least * run_s <= found["seconds"]


def test_what_the_lab_cannot_run_stays_in_the_plan_and_is_named() -> None:
    _cloud("mail")
    result = run("--campaign", "next.yaml")
    assert "mail" in result.stdout.split("decision")[0]
    assert re.search(r"Not in the campaign: .*mail.* \(same\): how to run mail is not known; define it", result.stdout)
    assert result.stdout.endswith("Campaign written to next.yaml.\n")
    assert "mail" not in read_campaign(Path("next.yaml")).workloads


def test_a_campaign_is_for_one_kind_of_host() -> None:
    _cloud("memory", kind="kvm", platform="vms")
    file = Path("cloud.yaml")
    file.write_text(file.read_text(encoding="utf-8").replace("{id: d, host: h3", "{id: d, host: h1"), encoding="utf-8")
    found = json.loads(run("--json", "--campaign", "next.yaml", "--instance", "n.yaml").stdout)
    campaign = read_campaign(Path("next.yaml"))
    assert {(step["pair"]["kind"]) for step in found["steps"]} == {"lxc", "kvm"}
    wanted = {"container": "kvm hosts of platform vms", "qemu": "lxc hosts of platform lab"}[campaign.instances]
    assert all(wanted in reason for reason in found["not_in_campaign"])
    assert found["not_in_campaign"]


def test_where_the_lab_can_run_nothing_no_file_is_written() -> None:
    Path("n.yaml").write_text("{id: n, vcpus: 1, workload: mail, memory_mb: 10}", encoding="utf-8")
    result = run("--campaign", "next.yaml", "--instance", "n.yaml")
    assert result.stdout.endswith("No campaign was written: the lab has nothing to run.\n")
    assert not Path("next.yaml").exists()


def test_nothing_worth_measuring_is_a_normal_answer() -> None:
    result = run(
        "--instance", "n.yaml", "--pinning", "different"
    )  # on hosts with one CPU no instance has one of its own
    assert result.exit_code == 0
    assert "Nothing is worth measuring" in result.stdout
    assert "rank" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--budget", "soon"), "cotenant: budget 'soon' is not a duration of up to 30 days; write 90s, 45m or 2h"),
        (("--budget", "٣m"), "cotenant: budget '٣m' is not a duration of up to 30 days; write 90s, 45m or 2h"),
        (("--pinning", "same,near"), "cotenant: --pinning 'near' is none of same, different, shared"),
        (("--instance", "x"), "cotenant: --instance x: there is no such file, and no instance of that name"),
        (
            ("--workload-file", "cloud.yaml"),
            "cotenant: cloud.yaml: workloads must be a mapping of names to values; a campaign file that the lab "
            "accepts is needed",
        ),
    ],
)
def test_every_mistake_is_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    assert reported(run(*arguments)) == sentence


def test_a_campaign_that_cannot_be_written_says_so() -> None:
    result = run("--campaign", "no/next.yaml")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == (
        f"cotenant: the campaign cannot be written: folder {Path('no').resolve()} does not exist"
    )


def test_a_campaign_takes_the_place_of_no_pipe_or_device() -> None:
    os.mkfifo("next.yaml")
    result = run("--campaign", "next.yaml")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == (
        "cotenant: the campaign cannot be written to next.yaml: it is not a regular file; name another"
    )
    assert Path("next.yaml").is_fifo()


def test_a_campaign_is_written_where_a_link_leads() -> None:
    Path("kept.yaml").write_text("", encoding="utf-8")
    Path("next.yaml").symlink_to("kept.yaml")
    assert run("--campaign", "next.yaml").exit_code == 0
    assert Path("next.yaml").is_symlink()
    assert "workloads" in Path("kept.yaml").read_text(encoding="utf-8")
