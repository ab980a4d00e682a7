"""OpenStack Watcher for a running lab, with Cotenant's strategies installed as an operator would."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.openstack.openstack_lab import places
from tests.openstack.openstack_lab.install import BIN, REPOSITORY
from tests.openstack.openstack_lab.processes import answers
from tests.openstack.openstack_lab.starting import add_endpoint, add_service_user, run_application

if TYPE_CHECKING:
    from tests.openstack.openstack_lab.lab import OpenStackLab

DISTRIBUTIONS = ("packaging/client", "integrations/watcher")
ENDED = {"FAILED", "SUCCEEDED", "CANCELLED"}


def install_strategies(folder: Path) -> None:
    """Client and strategies with their entry points, beside what the lab's environment has."""
    argv = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps")
    paths = [str(REPOSITORY / one) for one in DISTRIBUTIONS]
    subprocess.run((*argv, "--no-build-isolation", "--target", str(folder), *paths), check=True)


def start_watcher(lab: OpenStackLab, folder: Path, cotenant: Mapping[str, object]) -> None:
    """API, decision engine and applier; `folder` has the strategies, `cotenant` their options."""
    places.write_watcher(lab.places, {"cotenant": cotenant})
    (lab.places.folder / "watcher").mkdir(exist_ok=True)
    add_service_user(lab, "watcher")
    config, env = str(lab.places.etc("watcher.conf")), {"PYTHONPATH": str(folder)}
    with lab.processes.log("watcher-db").open("ab") as out:
        argv = (str(BIN / "watcher-db-manage"), "--config-file", config, "create_schema")
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, **env})
    for name in ("decision-engine", "applier"):
        lab.processes.start(f"watcher-{name}", (str(BIN / f"watcher-{name}"), "--config-file", config), env=env)
    run_application(lab, "watcher", threads=4, more={"LAB_CONFIG": config, **env})
    lab.processes.wait_for("Watcher", lambda: answers(lab.places.url("watcher")))
    add_endpoint(lab, "watcher", "infra-optim", lab.places.url("watcher"))
    lab.processes.wait_for("strategies", lambda: "cotenant_rebalance" in _names(ask(lab, "GET", "/v1/strategies")))


def audit(lab: OpenStackLab, goal: str, strategy: str, **parameters: object) -> dict[str, Any]:
    """Make an audit and wait until it has ended."""
    asked = {"audit_type": "ONESHOT", "goal": goal, "strategy": strategy, "parameters": parameters}
    made = ask(lab, "POST", "/v1/audits", asked)
    return _ended(lab, f"/v1/audits/{made['uuid']}")


def action_plan(lab: OpenStackLab, audit_uuid: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The action plan of an audit, and its actions whole."""
    (plan,) = ask(lab, "GET", f"/v1/action_plans?audit_uuid={audit_uuid}")["action_plans"]
    actions = ask(lab, "GET", f"/v1/actions/detail?action_plan_uuid={plan['uuid']}")["actions"]
    return plan, actions


def carry_out(lab: OpenStackLab, plan: str) -> dict[str, Any]:
    """Let the applier run an action plan, and wait until it has ended."""
    ask(lab, "PATCH", f"/v1/action_plans/{plan}", [{"op": "replace", "path": "/state", "value": "PENDING"}])
    return _ended(lab, f"/v1/action_plans/{plan}")


def ask(lab: OpenStackLab, method: str, path: str, body: object = None) -> Any:
    """Watcher's API as the administrator."""
    sent: dict[str, Any] = {} if body is None else {"json": body}
    where = {"service_type": "infra-optim"}
    return lab.connect().session.request(path, method, endpoint_filter=where, microversion="1.3", **sent).json()


def _ended(lab: OpenStackLab, path: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def ended() -> bool:
        found.update(ask(lab, "GET", path))
        return found["state"] in ENDED

    lab.processes.wait_for(path, ended, seconds=600)
    return found


def _names(listing: Mapping[str, Iterable[Mapping[str, Any]]]) -> set[str]:
    return {one["name"] for one in listing["strategies"]}
