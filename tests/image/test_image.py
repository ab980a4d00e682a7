"""The image that the Dockerfile builds: what is in it, how it serves, how it ends, and what outlives it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.image.containers import IMAGE, Containers, Serving, pip_configuration

ROOMY_S = 180.0
DRAIN_S = 30
ASK = """
import json, sys, urllib.error, urllib.request
method, path, body, token = sys.argv[1:]
request = urllib.request.Request("http://127.0.0.1:8080" + path, body.encode() or None, method=method,
                                 headers={"Content-Type": "application/json", "Authorization": "Bearer " + token})
try:
    answer = urllib.request.urlopen(request, timeout=30)
except urllib.error.HTTPError as error:
    answer = error
print(json.dumps([answer.status, json.loads(answer.read())]))
"""


def ask(serving: Serving, method: str, path: str, body: object = None, token: str = "") -> tuple[int, Any]:
    """Status and body of an answer; (0, None) when no service answers."""
    done = serving.python(ASK, method, path, "" if body is None else json.dumps(body), token)
    status, answer = json.loads(done.stdout) if done.returncode == 0 else (0, None)
    return status, answer


def wait_for(true: Callable[[], bool], serving: Serving) -> None:
    deadline = time.monotonic() + ROOMY_S
    while not true():
        assert time.monotonic() < deadline, serving.log()
        time.sleep(0.2)


def ready(serving: Serving) -> bool:
    return ask(serving, "GET", "/readyz")[0] == 200


@pytest.fixture(scope="module")
def token(built: Containers) -> str:
    """A token in the volume that all containers of the module share."""
    made = built.run("token", "create", "--name", "admin", "--scope", "admin")
    (text,) = re.findall(r"cot_[0-9a-f]{16}_[\w-]{43}", made.stdout)
    return str(text)


def test_it_refuses_to_listen_on_all_addresses_without_a_token(built: Containers) -> None:
    refused = built.run(database="sqlite:////tmp/empty.sqlite3")
    assert refused.returncode == 2, refused.stderr
    assert "token" in refused.stderr


def test_a_container_runs_as_an_unprivileged_user_without_capabilities_on_a_read_only_root(built: Containers) -> None:
    seen = built.shell(
        "id; cat /proc/self/status; touch /var/lib/cotenant/kept && echo kept; touch /usr/left || echo refused"
    )
    assert "uid=10001(cotenant) gid=10001(cotenant)" in seen
    assert re.search(r"^CapBnd:\s0+$", seen, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\s1$", seen, re.MULTILINE)
    assert seen.endswith("kept\nrefused\n")


def test_nothing_of_how_it_was_built_is_in_it(built: Containers) -> None:
    left = r"find / -xdev \( -name pip.conf -o -path '/run/secrets/*' -o -path '/source*' -o -path '/wheels*' \)"
    assert built.shell(left, "--user", "0:0", "--cap-add", "DAC_READ_SEARCH") == ""
    assert built.shell("python -c 'import pip' 2>&1 || true").strip().endswith("No module named 'pip'")
    described = built.podman("image", "inspect", IMAGE).stdout + built.podman("history", "--no-trunc", IMAGE).stdout
    for word, value in pip_configuration().items():
        if "://" in value:
            assert value not in described, word


def test_it_is_ready_healthy_and_answers_where_an_instance_should_go(built: Containers, token: str) -> None:
    check = json.loads(built.buildah("inspect", "--type", "image", IMAGE))["Docker"]["config"]["Healthcheck"]["Test"]
    with built.service() as serving:
        wait_for(lambda: ready(serving), serving)
        assert serving.execute(*check[1:]) == 0
        assert ask(serving, "GET", "/v1/hosts")[0] == 401
        host = {"kind": "kvm", "pcpus": 2, "memory_mb": 4096}
        assert ask(serving, "PUT", "/v1/hosts/h1", host, token)[0] in (200, 201)
        question = {"instance": {"id": "n", "vcpus": 1, "memory_mb": 1}}
        status, answer = ask(serving, "POST", "/v1/placements", question, token)
        assert (status, answer["candidates"][0]["host"]) == (200, "h1")
        assert "Traceback" not in serving.log()


def test_what_was_acknowledged_outlives_a_kill_and_the_container(built: Containers, token: str) -> None:
    with built.service() as serving:
        wait_for(lambda: ready(serving), serving)
        host = {"kind": "kvm", "pcpus": 2, "memory_mb": 4096}
        assert ask(serving, "PUT", "/v1/hosts/kept", host, token)[0] == 201
        serving.signal("KILL")
        assert serving.exit_code() == 137
    with built.service() as serving:
        wait_for(lambda: ready(serving), serving)
        assert ask(serving, "GET", "/v1/hosts/kept", token=token)[0] == 200


def test_asked_to_stop_it_reports_not_ready_and_then_ends_by_itself(built: Containers, token: str) -> None:
    with built.service(drain_s=str(DRAIN_S)) as serving:
        wait_for(lambda: ready(serving), serving)
        serving.signal("TERM")
        wait_for(lambda: not ready(serving), serving)
        status, answer = ask(serving, "GET", "/readyz")
        assert (status, answer["code"]) == (503, "service.stopping")
        assert ask(serving, "GET", "/v1/hosts", token=token)[0] == 200, "who still asks is answered"
        assert serving.exit_code() == 0
        assert "Traceback" not in serving.log()
