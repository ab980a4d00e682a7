"""The chart for Kubernetes: what Helm makes of it is what that API takes, and asks for no more than it needs."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from typer.testing import CliRunner

from api.cli import app
from profiler.agent.http_client import parse_url
from profiler.agent.push import PushToken
from profiler.cli import _parser

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "integrations" / "kubernetes"
MODULES = ("go.mod", "go-1.36.mod")  # of the newest minor and the one before
RULES = yaml.load((ROOT / "integrations" / "prometheus" / "cotenant.rules.yml").read_bytes(), Loader=yaml.CSafeLoader)
EVERYTHING = ("agent.enabled=true", "prometheus.enabled=true", "prometheus.tokenSecret=scrape")
MOVER = ("mover.enabled=true", "mover.apply=true", "mover.evict=true", "mover.namespaces={shop,prod}")
DATABASE = ("service.database.existingSecret=postgres", "service.replicas=2")
# Of another API, whose schemas are not Kubernetes' own.
OPERATOR = "monitoring.coreos.com/v1"
Row = dict[str, Any]


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("helm", path=str(ROOT / "var" / "tools" / "usr" / "bin")) or shutil.which("helm")
    if program is None:
        pytest.skip("there is no helm: make scheduler-plugin builds it with Go")
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=300, check=False)


def rendered(*values: str, name: str = "cotenant") -> list[Row]:
    chosen = [word for value in values for word in ("--set", value)]
    done = helm("template", name, str(KUBERNETES / "chart"), "--namespace", "cotenant", *chosen)
    assert done.returncode == 0, done.stderr
    return [row for row in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if row]


def named(rows: list[Row], kind: str, name: str) -> Row:
    (found,) = [row for row in rows if (row["kind"], row["metadata"]["name"]) == (kind, name)]
    return found


@cache
def published(module: str) -> tuple[dict[str, str], Row]:
    """Which definition each kind has, and all of them, by the description of its API that a Kubernetes is released
    with. What has fields has no others: that finds what is misspelt or lies at the wrong depth."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("there is no go to get Kubernetes' description of its API with")
    version = re.search(r"k8s\.io/kubernetes (v\S+)", (KUBERNETES / "scheduler" / module).read_text())
    assert version is not None
    done = subprocess.run(
        [go, "mod", "download", "-json", f"k8s.io/kubernetes@{version[1]}"], cwd=KUBERNETES / "scheduler",
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"go could not get k8s.io/kubernetes {version[1]}")
    description = Path(json.loads(done.stdout)["Dir"]) / "api" / "openapi-spec" / "swagger.json"
    definitions: Row = json.loads(description.read_text())["definitions"]
    kinds: dict[str, str] = {}
    for name, definition in definitions.items():
        if "properties" in definition:
            definition["additionalProperties"] = False
        if definition.get("format") == "int-or-string":
            definition["type"] = ["integer", "string"]
        for one in definition.pop("x-kubernetes-group-version-kind", ()):
            kinds[f"{'/'.join(filter(None, (one['group'], one['version'])))} {one['kind']}"] = name
    return kinds, definitions


def faults(row: Row, module: str) -> list[str]:
    kinds, definitions = published(module)
    definition = kinds[" ".join((row["apiVersion"], row["kind"]))]
    checked = jsonschema_rs.validator_for({"$ref": f"#/definitions/{definition}", "definitions": definitions})
    return [f"{row['kind']} {error.instance_path}: {error.message}" for error in checked.iter_errors(row)]


@pytest.mark.parametrize("values", [(), (*EVERYTHING, *MOVER), (*EVERYTHING, *DATABASE), ("scheduler.enabled=false",)])
@pytest.mark.parametrize("module", MODULES)
def test_what_is_made_is_what_kubernetes_takes(values: tuple[str, ...], module: str) -> None:
    rows = rendered(*values)
    assert [fault for row in rows if row["apiVersion"] != OPERATOR for fault in faults(row, module)] == []
    names = [(row["kind"], row["metadata"].get("namespace"), row["metadata"]["name"]) for row in rows]
    assert len(names) == len(set(names))


def test_the_description_finds_what_is_misspelt_and_what_lies_too_deep() -> None:
    (deployment, *_) = [row for row in rendered() if row["kind"] == "Deployment"]
    deployment["spec"]["replica"] = 1
    deployment["spec"]["template"]["spec"]["containers"][0]["restartPolicie"] = "Always"
    assert len(faults(deployment, MODULES[0])) == 2
    deployment["spec"]["replicas"] = "two"
    assert any("replicas" in fault for fault in faults(deployment, MODULES[0]))


def test_no_account_may_more_than_the_work_needs() -> None:
    rows = rendered(*EVERYTHING)
    rules = [rule for row in rows if row["kind"] in ("ClusterRole", "Role") for rule in row["rules"]]
    assert sorted((rule["resources"], rule["verbs"]) for rule in rules) == [
        (["leases"], ["get", "update", "list", "watch"]),
        (["nodes", "pods"], ["list", "watch"]),
        (["virtualmachineinstances"], ["list", "watch"]),
    ]
    others = {row["roleRef"]["name"] for row in rows if row["kind"].endswith("RoleBinding")}
    assert others == {
        "cotenant-sync", "cotenant-scheduler", "system:kube-scheduler", "system:volume-scheduler",
        "extension-apiserver-authentication-reader",
    }  # fmt: skip


def test_what_moves_guests_may_change_nothing_unless_it_is_to() -> None:
    looks, moves, evicts = (
        {
            (resource, verb)
            for rule in named(rendered(*values), "ClusterRole", "cotenant-mover")["rules"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
            if verb not in ("get", "list")
        }
        for values in (MOVER[:1], MOVER[:2], MOVER[:3])
    )
    assert looks == set()
    assert moves == {("virtualmachineinstancemigrations", "create"), ("virtualmachineinstancemigrations", "delete")}
    assert evicts - moves == {("pods/eviction", "create"), ("nodes", "patch")}


def test_the_mover_s_words_are_the_command_s() -> None:
    (container,) = named(rendered(*MOVER), "Deployment", "cotenant-mover")["spec"]["template"]["spec"]["containers"]
    refused = CliRunner().invoke(app, [*container["args"], "--patience", "soon"])
    assert "--patience 'soon'" in refused.stderr  # which is looked at after all words were understood


def test_containers_are_confined() -> None:
    rows = rendered(*EVERYTHING, *MOVER)
    pods = [row["spec"]["template"]["spec"] for row in rows if row["kind"] in ("Deployment", "DaemonSet")]
    for pod in pods:
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            confined = container["securityContext"]
            assert confined["capabilities"]["drop"] == ["ALL"], container["name"]
            assert confined["readOnlyRootFilesystem"]
            assert not confined["allowPrivilegeEscalation"]
            assert confined["capabilities"].get("add", []) == (
                ["SYS_PTRACE", "DAC_READ_SEARCH"] if container["name"] == "agent" else []
            )


def test_the_scheduler_s_plug_in_gets_the_address_of_the_service() -> None:
    reported = yaml.safe_load(
        named(rendered("scheduler.name=mine"), "ConfigMap", "cotenant-scheduler")["data"]["scheduler.yaml"]
    )
    (profile,) = reported["profiles"]
    assert profile["schedulerName"] == "mine"
    assert profile["plugins"]["multiPoint"]["enabled"] == [{"name": "Cotenant", "weight": 5}]
    assert profile["pluginConfig"][0]["args"] == {
        "url": "http://cotenant.cotenant:8080", "tokenFile": "/etc/cotenant/tokens/scheduler",
        "timeout": "300ms", "rest": "5s",
    }  # fmt: skip
    assert profile["pluginConfig"][1]["args"] == {"ignoredResourceGroups": ["cotenant.io"]}


def test_tokens_are_made_that_the_service_takes() -> None:
    made = named(rendered(), "Secret", "cotenant-tokens")["data"]
    texts = {name: base64.b64decode(text).decode() for name, text in made.items()}
    assert all(re.fullmatch(r"cot_[0-9a-f]{16}_[\w-]{43}", text) for text in texts.values())
    assert len(set(texts.values())) == len(texts) == 2


@pytest.mark.parametrize(("kind", "name"), [("DaemonSet", "cotenant-agent"), ("Deployment", "cotenant-mover")])
def test_tokens_are_sent_to_the_service_inside_the_cluster(
    kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (container,) = named(rendered(*EVERYTHING, *MOVER), kind, name)["spec"]["template"]["spec"]["containers"]
    for one in container["env"]:
        if "value" in one:
            monkeypatch.setenv(one["name"], one["value"])
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("tok", encoding="utf-8")
    assert PushToken(token, parse_url("http://cotenant.cotenant:8080"))() == "tok"


def test_the_agent_s_options_are_the_agent_s() -> None:
    (container,) = named(rendered(*EVERYTHING), "DaemonSet", "cotenant-agent")["spec"]["template"]["spec"]["containers"]
    words = [word.replace("$(NODE)", "n1") for word in container["args"]]
    reported = _parser().parse_args(words).push
    assert (reported.secure, reported.host, reported.port) == (False, "cotenant.cotenant", 8080)


def test_prometheus_has_the_rules_that_are_shipped_and_one_for_the_scheduler() -> None:
    groups = named(rendered(*EVERYTHING), "PrometheusRule", "cotenant")["spec"]["groups"]
    assert groups[:-1] == RULES["groups"]
    source = (KUBERNETES / "scheduler" / "plugin" / "metrics.go").read_text()
    (series,) = re.findall(r"cotenant_scheduler_(\w+)", groups[-1]["rules"][0]["expr"])
    assert f'Name: "{series}"' in source
    assert named(rendered(*EVERYTHING, "scheduler.enabled=false"), "PrometheusRule", "cotenant")["spec"] == RULES


def test_sqlite_has_one_writer() -> None:
    done = helm("template", "cotenant", str(KUBERNETES / "chart"), "--set", "service.replicas=2")
    assert done.returncode != 0
    assert "SQLite has one writer" in done.stderr


def test_the_plain_manifests_are_what_the_chart_makes() -> None:
    shipped = [row for row in yaml.load_all((KUBERNETES / "cotenant.yaml").read_text(), Loader=yaml.CSafeLoader) if row]
    assert shipped[0]["kind"] == "Namespace"
    assert shipped[1:] == rendered("tokens.existingSecret=cotenant-tokens"), "make manifests writes it anew"


def test_the_chart_s_texts_are_in_order() -> None:
    done = helm("lint", "--strict", str(KUBERNETES / "chart"))
    assert done.returncode == 0, done.stdout
