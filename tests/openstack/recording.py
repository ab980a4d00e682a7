"""Records what OpenStack's services answer while a cloud is read, without what shows where and by which user it was.

Usage: python tests/openstack/recording.py FILE; starts a lab of its own with ten hosts.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from cotenant_openstack.system import OpenStack  # noqa: E402

from tests.openstack.openstack_lab.lab import OpenStackLab, openstack_lab  # noqa: E402

HOSTS = {
    **{f"h{number:02d}": {"vcpus": 16, "memory_mb": 65_536, "pcpus": 0} for number in range(1, 9)},
    "h09": {"vcpus": 32, "memory_mb": 131_072, "pcpus": 8},
    "h10": {"vcpus": 8, "memory_mb": 16_384, "pcpus": 0},
}
SPECS = {
    "web": {
        "cotenant:workload": "web-1k", "cotenant:service": "latency", "cotenant:min_throughput_ratio": "0.9",
        "quota:cpu_quota": "50000", "quota:cpu_period": "100000", "quota:cpu_shares": "200",
        "quota:vif_outbound_average": "12500", "quota:disk_total_bytes_sec": "20000000",
    },
    "pinned": {"hw:cpu_policy": "dedicated"},
    "plain": {},
}  # fmt: skip


def record(lab: OpenStackLab) -> dict[str, Any]:
    """Answers to a whole read, to one of what changed after it, and to one by an account without rights."""
    compute = lab.connect().compute
    for name, specs in SPECS.items():
        flavor = compute.create_flavor(name=name, vcpus=2, ram=2048, disk=10)
        if specs:
            compute.create_flavor_extra_specs(flavor, specs)
    rack = compute.create_aggregate(name="rack 1", availability_zone="az1")
    for host in ("h01", "h02"):
        compute.add_host_to_aggregate(rack, host)
    by_host = {service.host: service for service in compute.services(binary="nova-compute")}
    compute.disable_service(by_host["h03"], by_host["h03"].host, "nova-compute", disabled_reason="new disk")
    compute.update_service_forced_down(by_host["h04"], forced=True)
    servers = [lab.boot(f"{flavor}-{number}", flavor) for flavor in ("web", "plain") for number in range(3)]
    lab.placed(servers)
    compute.set_server_metadata(servers[5], **{"cotenant:workload": "batch"})
    compute.stop_server(servers[4])
    compute.wait_for_server(compute.get_server(servers[4]), status="SHUTOFF", interval=0.5, wait=60)
    admin = OpenStack(connection=lab.connect)
    scenes: dict[str, Any] = {}
    with recorded(lab) as scenes["whole"]:
        admin.read()
    lab.delete_servers(servers[0])
    servers.append(lab.boot("plain-3", "plain"))
    lab.placed(servers[-1:])
    with recorded(lab) as scenes["changed"]:
        admin.read()
    lab.add_user("onlooker", "reader")
    with recorded(lab) as scenes["reader"]:
        OpenStack(connection=lambda: lab.connect("onlooker")).read()
    return {"about": "see README.md", "servers": servers, "scenes": scenes}


@contextmanager
def recorded(lab: OpenStackLab) -> Iterator[list[dict[str, Any]]]:
    """What every request of this process is answered, from here on until the end."""
    found: list[dict[str, Any]] = []
    original = requests.Session.send

    def send(self: requests.Session, request: requests.PreparedRequest, **more: Any) -> requests.Response:
        response = original(self, request, **more)
        found.append(
            {
                "method": request.method,
                "url": scrubbed(lab, str(request.url)),
                "version": request.headers.get("OpenStack-API-Version"),
                "status": response.status_code,
                "body": json.loads(scrubbed(lab, response.text)) if response.text else None,
            }
        )
        return response

    requests.Session.send = send
    try:
        yield found
    finally:
        requests.Session.send = original


def scrubbed(lab: OpenStackLab, text: str) -> str:
    """Without addresses, request ids and audit ids; ids of users and projects stay, for they belong to no real user."""
    for name in ("keystone", "nova", "placement", "standins"):
        text = text.replace(lab.places.url(name), f"{{{name}}}")
    text = text.replace(lab.places.password, "secret")
    text = re.sub(r'("audit_ids": )\[[^\]]*\]', r"\1[]", text)
    return re.sub(r"req-[0-9a-f-]{36}", "req-0", text)


def main() -> None:
    """Start, record, write."""
    with tempfile.TemporaryDirectory() as logs, openstack_lab(Path(logs), nova={"api": {"max_limit": 4}}) as lab:
        lab.restart_scheduler({})
        lab.add_computes(HOSTS)
        Path(sys.argv[1]).write_text(json.dumps(record(lab), indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
