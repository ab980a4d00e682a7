"""Many nova-compute services in one process. Usage: computes.py HOSTS.json [nova's arguments].

Each has a host name, RPC queues, service record, node and resource provider of its own, as that many processes would
have; only the process is shared. HOSTS.json: {host: {"vcpus": n, "memory_mb": n, "pcpus": n}}; pcpus are the dedicated
ones among its CPUs.
"""

from nova import monkey_patch

monkey_patch.patch(backend="threading")

import concurrent.futures  # noqa: E402 - nova must be first
import json  # noqa: E402
import os  # noqa: E402
import shlex  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
import threading  # noqa: E402
import types  # noqa: E402
import uuid  # noqa: E402
from pathlib import Path  # noqa: E402

import nova.conf  # noqa: E402
import nova.db.main.api  # noqa: E402
import nova.virt  # noqa: E402
import os_brick  # noqa: E402
import os_resource_classes  # noqa: E402
import os_vif  # noqa: E402
from nova import config, objects, service, utils  # noqa: E402
from nova.compute import rpcapi as compute_rpcapi  # noqa: E402
from nova.conductor import rpcapi as conductor_rpcapi  # noqa: E402
from nova.objects import base as objects_base  # noqa: E402
from nova.virt import fake  # noqa: E402
from oslo_log import log as logging  # noqa: E402
from oslo_privsep import priv_context  # noqa: E402

CONF = nova.conf.CONF
HOSTS = {}
LOCAL_GB = 4000


class LabDriver(fake.FakeDriver):
    """Nova's fake driver with given capacity and stable node ids; it says QEMU, as libvirt's driver does."""

    capabilities = dict(fake.FakeDriver.capabilities, supports_pcpus=True)  # noqa: RUF012 - nova's own way

    def init_host(self, host):
        """The host is known only now."""
        self.capacity = HOSTS[host]
        self.vcpus, self.memory_mb, self.local_gb = self.capacity["vcpus"], self.capacity["memory_mb"], LOCAL_GB
        self.resources = fake.Resources(self.vcpus, self.memory_mb, LOCAL_GB)
        super().init_host(host)

    def get_available_resource(self, nodename):
        """As the hypervisor would tell."""
        found = super().get_available_resource(nodename)
        cpus = self.capacity["vcpus"]
        topology = {"topology": {"cells": 1, "sockets": 1, "cores": cpus // 2 or 1, "threads": 2 if cpus > 1 else 1}}
        found.update(
            uuid=_uuid(nodename),
            disk_available_least=LOCAL_GB - found["local_gb_used"],
            hypervisor_type="QEMU",
            cpu_info=json.dumps({"arch": "x86_64", "model": "lab", **topology}),
        )
        return found

    def get_nodenames_by_uuid(self, refresh=False):
        """Stable over restarts."""
        return {_uuid(name): name for name in self.get_available_nodes()}

    def update_provider_tree(self, provider_tree, nodename, allocations=None):
        """Placement learns of dedicated CPUs too."""
        super().update_provider_tree(provider_tree, nodename, allocations=allocations)
        inventory = dict(provider_tree.data(nodename).inventory)
        dedicated = self.capacity.get("pcpus", 0)
        if dedicated:
            shared = self.capacity["vcpus"] - dedicated
            inventory[os_resource_classes.VCPU] |= {"total": shared, "max_unit": shared}
            inventory[os_resource_classes.PCPU] = {
                "total": dedicated, "max_unit": dedicated, "min_unit": 1, "step_size": 1, "allocation_ratio": 1.0,
                "reserved": 0,
            }  # fmt: skip
        provider_tree.update_inventory(nodename, inventory)

    def get_host_uptime(self):
        """Nova's fake driver has none, which nova logs as an error."""
        return " 00:00:00 up 1 day,  0 users,  load average: 0.00, 0.00, 0.00"


def _uuid(name):
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"lab.{name}"))


def main():
    """Start them all, then wait for SIGTERM."""
    HOSTS.update(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    # nova imports its driver as nova.virt.NAME
    nova.virt.lab = sys.modules["nova.virt.lab"] = types.ModuleType("nova.virt.lab")
    nova.virt.lab.LabDriver = LabDriver
    config.parse_args(["nova-compute", *sys.argv[2:]])
    logging.setup(CONF, "nova")
    priv_context.init(root_helper=shlex.split(utils.get_root_helper()))
    objects.register_all()
    os_brick.setup(CONF)
    os_vif.initialize()
    nova.db.main.api.DISABLE_DB_ACCESS = True
    objects_base.NovaObject.indirection_api = conductor_rpcapi.ConductorAPI()
    objects.Service.enable_min_version_cache()
    services = []
    for host in HOSTS:
        CONF.set_override("host", host)
        services.append(
            service.Service.create(
                host=host, binary="nova-compute", topic=compute_rpcapi.RPC_TOPIC, topic_alt=compute_rpcapi.RPC_TOPIC_ALT
            )
        )
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        for started in [pool.submit(one.start) for one in services]:
            started.result()
    print("started", len(services), flush=True)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    stop.wait()
    os._exit(0)  # its threads would go on for long


main()
