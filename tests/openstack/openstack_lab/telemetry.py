"""OpenStack's telemetry for a running lab: Aetos before a Prometheus, and Gnocchi; both check tokens with Keystone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from keystoneauth1.session import Session

from tests.openstack.openstack_lab import places
from tests.openstack.openstack_lab.install import BIN
from tests.openstack.openstack_lab.processes import answers
from tests.openstack.openstack_lab.starting import add_endpoint, add_service_user, run_application

if TYPE_CHECKING:
    from tests.openstack.openstack_lab.lab import OpenStackLab

# As Ceilometer makes them (gnocchi_resources.yaml, gnocchi_client.py).
POLICY = {
    "name": "ceilometer-low-rate",
    "aggregation_methods": ["mean", "rate:mean"],
    "back_window": 0,
    "definition": [{"granularity": "5 minutes", "timespan": "30 days"}],
}
TYPES = {
    "instance": {"display_name": {"type": "string", "required": False}},
    "instance_network_interface": {"instance_id": {"type": "uuid", "required": True}},
    "instance_disk": {"instance_id": {"type": "uuid", "required": True}},
}


def start_aetos(lab: OpenStackLab, prometheus_port: int) -> None:
    """Metric storage in the catalogue."""
    places.write_aetos(lab.places, prometheus_port)
    add_service_user(lab, "aetos")
    run_application(lab, "aetos", threads=4)
    lab.processes.wait_for("Aetos", lambda: answers(lab.places.url("aetos")))
    add_endpoint(lab, "aetos", "metric-storage", lab.places.url("aetos"))


def start_gnocchi(lab: OpenStackLab) -> Session:
    """Metric in the catalogue, with the types that Ceilometer would make; the administrator's session."""
    places.write_gnocchi(lab.places)
    add_service_user(lab, "gnocchi")
    home = {"HOME": str(lab.places.etc("home"))}
    with lab.processes.log("gnocchi-upgrade").open("ab") as out:
        argv = (str(BIN / "gnocchi-upgrade"),)
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, **home})
    run_application(lab, "gnocchi", threads=4)
    lab.processes.start("gnocchi-metricd", (str(BIN / "gnocchi-metricd"),), env=home)
    lab.processes.wait_for("Gnocchi", lambda: answers(lab.places.url("gnocchi")))
    add_endpoint(lab, "gnocchi", "metric", lab.places.url("gnocchi"))
    session: Session = lab.connect().session
    _post(session, "/archive_policy", POLICY)
    for name, attributes in TYPES.items():
        _post(session, "/resource_type", {"name": name, "attributes": attributes})
    return session


def store_in_gnocchi(
    session: Session, kind: str, identity: str, meters: Mapping[str, Iterable[tuple[int, float]]], **attributes: str
) -> None:
    """Make a resource whose meters have these readings (s, total)."""
    asked = {name: {"archive_policy_name": POLICY["name"]} for name in meters}
    made = _post(session, f"/resource/{kind}", {"id": identity, "metrics": asked, **attributes})
    for name, readings in meters.items():
        rows = [{"timestamp": datetime.fromtimestamp(at, UTC).isoformat(), "value": value} for at, value in readings]
        _post(session, f"/metric/{made['metrics'][name]}/measures", rows)


def is_processed(session: Session) -> bool:
    """Whether metricd has worked through everything that was sent."""
    reported = session.get("/v1/status?details=false", endpoint_filter={"service_type": "metric"}).json()
    return bool(reported["storage"]["summary"]["measures"] == 0)


def _post(session: Session, path: str, body: object) -> Any:
    answer = session.post(f"/v1{path}", json=body, endpoint_filter={"service_type": "metric"})
    return answer.json() if answer.content else None
