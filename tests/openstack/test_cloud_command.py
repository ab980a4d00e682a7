"""`openstack cotenant` finds the service in Keystone's catalogue and the server's size in Nova's flavor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tests.openstack.served import REPOSITORY

if TYPE_CHECKING:
    from tests.openstack.openstack_lab.lab import OpenStackLab
    from tests.openstack.served import Service


def test_candidates_for_a_flavor_are_asked_of_the_service_in_the_catalogue(
    lab: OpenStackLab, service: Service, environment: Mapping[str, str], tmp_path: Path
) -> None:
    from tests.openstack.openstack_lab.install import BIN
    from tests.openstack.openstack_lab.starting import add_endpoint

    add_endpoint(lab, "cotenant", "cotenant", f"http://127.0.0.1:{service.port}")
    compute = lab.connect().compute
    made = compute.create_flavor(name="asked", vcpus=4, ram=4096, disk=1)
    compute.create_flavor_extra_specs(made, {"cotenant:workload": "busy-asked"})
    service.put("/v1/workloads/busy-asked", {"metrics": {"cpu": 380.0}})
    crowded = {"vcpus": 16, "memory_mb": 1024.0, "host": "h050", "workload": "busy-asked"}
    service.put("/v1/inventory", {"mode": "merge", "instances": [{"id": f"r{at}", **crowded} for at in range(3)]})
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps")
    paths = [str(REPOSITORY / one) for one in ("packaging/client", "integrations/openstackclient")]
    subprocess.run((*pip, "--no-build-isolation", "--target", str(tmp_path), *paths), check=True)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path), **environment}
    words = ("cotenant", "candidate", "list", "--flavor", "asked", "--host", "h050", "--host", "h051", "-f", "json")
    done = subprocess.run((str(BIN / "openstack"), *words), env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [one["Host"] for one in json.loads(done.stdout)] == ["h051", "h050"]
