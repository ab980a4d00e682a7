"""A question to a running service has the words of the same question on a file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.domain import Instance, PlacementRequest, codec, recommendation_from_json
from tests.api.cli_runs import run
from tests.api.sample_answer import answer
from tests.profiler.api_double import Double, Reply, serving
from tests.servers.fixtures import sqlite_with_cloud
from tests.servers.service import Service

CLOUD = Path(__file__).parent / "cloud.yaml"
SCENE = """
host: {kind: xen, pcpus: 2, memory_mb: 4096, driver_cpus: "0"}
instances:
- {id: one, vcpus: 1, workload: web}
- {id: two, vcpus: 1, workload: hog}
- {id: three, vcpus: 1, demand: {cpu: 0.4}}
workloads: [{name: web, metrics: {cpu: 60, driver_domain.cpu: 30}}, {name: hog, metrics: {cpu: 100}}]
"""
SHOP = "{id: shop-7, vcpus: 2, memory_mb: 4096, workload: web-1k, min_throughput_ratio: 0.8}"


@pytest.fixture(autouse=True)
def _files(_empty_folder: None) -> None:
    Path("shop.yaml").write_text(SHOP, encoding="utf-8")
    Path("plain.yaml").write_text("{id: plain, vcpus: 4, memory_mb: 4096}", encoding="utf-8")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    started = Service(sqlite_with_cloud(folder / "c.sqlite3", CLOUD), folder, forked=True).start()
    yield started
    started.running.stop()


def plain(shown: str) -> str:
    """Without what each answer has of its own: its id, and when it was given."""
    return re.sub(r'"(id|created_at|snapshot_age_s|time|since|until)": [^,\n]+', r'"\1": ""', shown)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--instance", "shop.yaml"),
        ("--instance", "shop.yaml", "--explain", "--commands"),
        ("--instance", "shop.yaml", "--json"),
        ("--instance", "plain.yaml", "--hosts", "h3,h4", "--objective", "pack", "--limit", "1"),
        ("--instance", "batch-1", "--explain"),
        ("--instance", "mystery", "--json"),
        ("--like", "files-1"),
        ("--instance", "plain.yaml", "--like", "files-1", "--json"),
    ],
)
def test_where_says_the_same_by_a_service_as_by_a_file(running: Service, arguments: tuple[str, ...]) -> None:
    by_file, by_service = run("where", str(CLOUD), *arguments), run("where", "--server", running.url, *arguments)
    assert (by_service.exit_code, by_service.stderr) == (0, "")
    assert plain(by_service.stdout) == plain(by_file.stdout)


STATE = (
    ("slowing", "h3"),
    ("obtained", "batch-2"),
    ("doctor",),
    ("score",),
    ("score", "h3"),
    ("score", "--vm", "batch-2"),
    ("worth",),
    ("profile", "batch-2"),
    ("models", "list"),
    ("models", "show", "analytic"),
    ("models", "gate", "analytic"),
    ("models", "history"),
    ("models", "quality"),
    ("models", "show", "nope"),
    ("plans", "list"),
    ("plans", "show", "nope"),
    ("changes", "list"),
    ("changes", "show", "nope"),
)


@pytest.mark.parametrize("asked", STATE, ids=" ".join)
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_state_is_shown_by_a_service_as_by_its_database(
    running: Service, asked: tuple[str, ...], more: tuple[str, ...], tmp_path: Path
) -> None:
    database = sqlite_with_cloud(tmp_path / "same.sqlite3", CLOUD)
    by_database = run(*asked, "--database", database, *more)
    by_service = run(*asked, "--server", running.url, *more)
    assert by_service.exit_code == by_database.exit_code
    assert (plain(by_service.stdout), by_service.stderr) == (plain(by_database.stdout), by_database.stderr)
    both = run(*asked, "--server", running.url, "--database", database)
    assert (both.exit_code, both.stdout) == (2, "")


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_predict_says_the_same_by_a_service_as_by_itself(running: Service, more: tuple[str, ...]) -> None:
    Path("scene.yaml").write_text(SCENE, encoding="utf-8")
    by_service = run("predict", "scene.yaml", "--server", running.url, *more)
    assert (by_service.exit_code, by_service.stderr) == (0, "")
    assert by_service.stdout == run("predict", "scene.yaml", *more).stdout


def test_a_scene_may_name_instances_that_the_service_knows(running: Service) -> None:
    head = "host: {id: x, kind: kvm, pcpus: 4, memory_mb: 65536}\ninstances: "
    Path("scene.yaml").write_text(f"{head}[{{id: shop-3}}, {{id: batch-1}}]", encoding="utf-8")
    answered = run("predict", "scene.yaml", "--server", running.url, "--json")
    assert answered.exit_code == 0, answered.output
    assert [effect["instance"] for effect in json.loads(answered.stdout)["effects"]] == ["shop-3", "batch-1"]
    assert run("predict", "scene.yaml").exit_code == 2
    Path("scene.yaml").write_text(f"{head}[{{id: new}}]", encoding="utf-8")
    assert run("predict", "scene.yaml", "--server", running.url).exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("--add", "shop.yaml", "--commands"),
        ("--empty", "h3", "--commands", "--undo"),
        ("--kind", "rebalance", "--movable", "batch-1", "--max-moves", "1"),
        ("--kind", "consolidate"),
        ("--growth", "2", "--months", "2", "--add", "shop.yaml"),
        ("--what-if", "imagined.yaml"),
        ("--kind", "right_size"),
        ("--kind", "tune", "--commands", "--undo"),
    ],
)
def test_a_plan_says_the_same_by_a_service_as_by_a_file(running: Service, arguments: tuple[str, ...]) -> None:
    Path("imagined.yaml").write_text("pinning: own", encoding="utf-8")
    by_file, by_service = run("plan", str(CLOUD), *arguments), run("plan", "--server", running.url, *arguments)
    assert (by_service.exit_code, by_service.stderr, by_file.exit_code) == (0, "", 0)
    assert by_service.stdout == by_file.stdout


PINNED = """
hosts:
- {id: calm, kind: kvm, pcpus: 4, memory_mb: 8192}
- {id: kvm01, kind: kvm, pcpus: 4, memory_mb: 8192, cpu_ids: "0-1,8-9", labels: {name: r1-kvm01, cgroup_version: "1"}}
- {id: kvm02, kind: kvm, pcpus: 4, memory_mb: 8192}
instances:
- {id: a, host: kvm01, vcpus: 1, memory_mb: 1024, demand: {cpu: {mean: 0.6}}, pinning: "0:8"}
- {id: b, host: kvm01, vcpus: 1, memory_mb: 1024, demand: {cpu: {mean: 0.6}}, pinning: "0:8"}
- {id: c, host: kvm02, vcpus: 4, memory_mb: 1024, demand: {cpu: {mean: 2.6}}, pinning: "0:2|1:2|2:2|3:2"}
"""


@pytest.fixture(scope="module")
def pinned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("pinned")
    (folder / "pinned.yaml").write_text(PINNED, encoding="utf-8")
    started = Service(sqlite_with_cloud(folder / "c.sqlite3", folder / "pinned.yaml"), folder, forked=True).start()
    yield started
    started.running.stop()


@pytest.mark.parametrize(
    ("asked", "hosts"),
    [
        (("kvm01", "--commands", "--undo"), ["kvm01"]),
        (("r1-kvm01",), ["kvm01"]),
        (("kvm01,calm", "--objective", "total"), ["kvm01"]),
        (("--all", "--commands"), ["kvm02", "kvm01"]),  # on kvm02 is the instance that is worst off
        (("calm",), []),
    ],
)
def test_a_tuning_says_the_same_by_a_service_as_by_a_file_the_worst_host_first(
    pinned: Service, asked: tuple[str, ...], hosts: list[str]
) -> None:
    Path("pinned.yaml").write_text(PINNED, encoding="utf-8")
    by_file, by_service = run("tune", "pinned.yaml", *asked), run("tune", "--server", pinned.url, *asked)
    assert (by_service.exit_code, by_service.stderr, by_file.exit_code) == (0, "", 0)
    assert by_service.stdout == by_file.stdout
    reported = json.loads(run("tune", "--server", pinned.url, *asked, "--json").stdout)
    assert (reported["kind"], list(dict.fromkeys(step["host"] for step in reported["steps"]))) == ("tune", hosts)


def test_a_host_that_the_service_does_not_know_cannot_be_tuned(pinned: Service) -> None:
    refused = run("tune", "--server", pinned.url, "kvm09")
    assert (refused.exit_code, "HOST: there is no host kvm09" in refused.output + refused.stderr) == (2, True)


def test_hosts_that_a_change_would_make_better_are_offered_by_a_service_as_by_a_file(pinned: Service) -> None:
    Path("pinned.yaml").write_text(PINNED, encoding="utf-8")
    asked = ("--instance", "plain.yaml", "--explain", "--commands")
    by_file, by_service = run("where", "pinned.yaml", *asked), run("where", "--server", pinned.url, *asked)
    assert plain(by_service.stdout) == plain(by_file.stdout)
    assert "If settings there change first: The ranked hosts need none of this." in by_file.stdout
    without = run("where", "--server", pinned.url, *asked, "--no-tune").stdout
    assert "If settings there change first" not in without
    assert by_file.stdout.startswith(without[: without.index("\nWhy")])


@pytest.mark.usefixtures("undrawn")
def test_a_plan_of_a_service_is_printed_and_reported_like_that_of_a_file(running: Service) -> None:
    arguments = ("--empty", "h3", "--json", "--report", "report")
    reported = json.loads(run("plan", "--server", running.url, *arguments).stdout)
    assert reported["generation"] > 0
    assert {**reported, "generation": None, "id": "", "created_at": ""} == {
        **json.loads(run("plan", str(CLOUD), "--empty", "h3", "--json").stdout), "id": "", "created_at": "",
    }  # fmt: skip
    assert "h3" in Path("report", "index.html").read_text("utf-8")


@pytest.mark.usefixtures("undrawn")
def test_a_report_of_a_service_is_that_of_its_cloud(running: Service) -> None:
    reported = run("report", "--server", running.url, "--out", "reports", "--kind", "consolidate")
    assert (reported.exit_code, reported.stderr) == (0, "")
    assert (
        reported.stdout.splitlines()[0]
        == run("report", str(CLOUD), "--out", "of-file", "--kind", "consolidate").stdout.splitlines()[0]
    )
    (page,) = Path("reports").glob("*/index.html")
    assert "h3" in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--server", "http://127.0.0.1:1", str(CLOUD)), "are two clouds; give one"),
        (("--server", "http://127.0.0.1:1", "--database", "sqlite:///x"), "are two clouds; give one"),
        (("--server", "http://127.0.0.1:1", "--model", "."), "--model goes with a file"),
        (("--token-file", "t"), "--token-file goes with --server"),
        (("--server", "http://127.0.0.1:1"), "cannot be asked: nothing listens there"),
    ],
)
def test_a_report_that_cannot_be_asked_for_is_one_sentence(arguments: tuple[str, ...], words: str) -> None:
    reported = run("report", "--out", "reports", *arguments)
    assert (reported.exit_code != 0, reported.stdout, len(reported.stderr.splitlines())) == (True, "", 1)
    assert words in reported.stderr


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"items": [], "next_cursor": "a"}', "gives the same page of hosts again and again"),
        (b'{"items": "hosts", "next_cursor": null}', "something that is no inventory"),
        (b"[]", "something that is no page of hosts"),
        (b'{"items": [], "next_cursor": null}', "something that is no plan"),
    ],
)
def test_a_service_that_answers_nonsense_ends_in_one_sentence(double: Double, body: bytes, words: str) -> None:
    double.welcome = Reply(200, body)
    reported = run("plan", "--server", double.url, "--kind", "rebalance")
    assert (reported.exit_code != 0, reported.stdout, len(reported.stderr.splitlines())) == (True, "", 1)
    assert words in reported.stderr


def test_a_plan_that_a_service_refuses_names_the_option(running: Service) -> None:
    refused = run("plan", "--server", running.url, "--empty", "nowhere")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == run("plan", str(CLOUD), "--empty", "nowhere").stderr


def test_the_service_may_be_named_by_the_environment(running: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTENANT_SERVER", running.url)
    assert "shop-7 should go to h" in run("where", "--instance", "shop.yaml").stdout
    assert "shop-7 should go to h" in run("where", str(CLOUD), "--instance", "shop.yaml").stdout  # a file wins


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give an inventory file, or a service with --server or COTENANT_SERVER"),
        ((str(CLOUD), "--server", "http://127.0.0.1:1"), "are two clouds; give one"),
        ((str(CLOUD), "--token-file", "t"), "--token-file goes with --server"),
        (("--server", "ftp://x"), "'ftp://x' is no URL"),
        (("--server", "http://127.0.0.1:1"), "http://127.0.0.1:1 cannot be asked: nothing listens there"),
        (("--server", "http://cotenant.invalid", "--token-file", "t"), "token file"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(arguments: tuple[str, ...], words: str) -> None:
    reported = run("where", *arguments, "--instance", "shop.yaml")
    assert (reported.exit_code != 0, reported.stdout, len(reported.stderr.splitlines())) == (True, "", 1)
    assert words in reported.stderr


def test_what_the_service_refuses_is_reported_in_its_words(running: Service) -> None:
    assert "there is no instance ghost" in run("where", "--server", running.url, "--instance", "ghost").stderr
    assert "there is no instance ghost" in run("where", "--server", running.url, "--like", "ghost").stderr


@pytest.fixture
def double() -> Iterator[Double]:
    with serving() as found:
        yield found


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(200, body=b"<html>"), "answers 200 and is no Cotenant"),
        (Reply(200, body=b"{}"), "answers with something that is no recommendation"),
        (Reply(503, body=b'{"detail": "busy"}'), "refuses with 503: busy"),
        (Reply(401, body=b'{"detail": "a valid token is needed"}'), "refuses with 401: a valid token is needed"),
        (Reply(302, body=b'{"detail": "elsewhere"}'), "refuses with 302"),
    ],
)
def test_a_service_that_does_not_answer_as_one_is_one_sentence(double: Double, reply: Reply, words: str) -> None:
    double.welcome = reply
    reported = run("where", "--server", double.url, "--instance", "shop.yaml")
    assert (reported.exit_code, reported.stdout, len(reported.stderr.splitlines())) == (1, "", 1)
    assert words in reported.stderr


def test_an_instance_that_a_service_tells_wrongly_is_one_sentence(double: Double) -> None:
    double.welcome = Reply(200, body=b"{}")
    reported = run("where", "--server", double.url, "--instance", "shop-7")
    assert (reported.exit_code, reported.stdout) == (1, "")
    assert reported.stderr == f"cotenant: {double.url} answers with something that is no instance\n"


@pytest.mark.parametrize("name", ["shop-7", "model", "mitigation", "isolation"])
def test_an_answer_is_read_as_it_was_decided_whatever_instances_are_called(name: str) -> None:
    request = PlacementRequest(Instance("shop-7"), commands=True)
    decided = answer(request)
    best = decided.candidates[0]
    decided = replace(
        decided, candidates=(replace(best, changes=dict.fromkeys([*best.changes, name], best.isolation)),)
    )
    read = recommendation_from_json(codec.answer_values(decided), request)
    assert codec.answer_values(read) == codec.answer_values(decided)
    assert read.candidates[0].changes == decided.candidates[0].changes
