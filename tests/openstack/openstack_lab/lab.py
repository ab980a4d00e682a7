"""One running OpenStack: made in a folder of its own, started, asked, and gone with everything it started."""

from __future__ import annotations

import json
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import openstack

from tests.openstack.openstack_lab import install, places, starting
from tests.openstack.openstack_lab.places import Places, Sections
from tests.openstack.openstack_lab.processes import Processes

INTEGRATION = install.REPOSITORY / "integrations" / "nova"
IMAGE = "11111111-1111-4111-8111-111111111111"  # the one that inside/standins.py knows
HOSTS_PER_PROCESS = 50
Hosts = Mapping[str, Mapping[str, int]]  # name -> vcpus, memory_mb, pcpus (dedicated ones among the vcpus)


@dataclass(frozen=True)
class OpenStackLab:
    """A control plane with simulated computes."""

    places: Places
    processes: Processes

    def connect(self, user: str = "admin", project: str = "admin") -> openstack.connection.Connection:
        """As the administrator, or as a user that a test has made with `add_user`."""
        auth = {
            "auth_url": self.places.auth_url,
            "username": user,
            "password": self.places.password,
            "project_name": project,
            "user_domain_id": "default",
            "project_domain_id": "default",
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # openstacksdk warns of what it will no longer do itself
            return openstack.connect(load_yaml_config=False, load_envvars=False, auth=auth, region_name="RegionOne")

    def environment(self, user: str = "admin", project: str = "admin") -> dict[str, str]:
        """The same for a command, as OS_* variables."""
        return {
            "OS_AUTH_URL": self.places.auth_url,
            "OS_USERNAME": user,
            "OS_PASSWORD": self.places.password,
            "OS_PROJECT_NAME": project,
            "OS_USER_DOMAIN_ID": "default",
            "OS_PROJECT_DOMAIN_ID": "default",
            "OS_REGION_NAME": "RegionOne",
        }

    def add_user(self, name: str, role: str, project: str = "admin") -> None:
        """A user with one role in a project, the administrator's as a rule."""
        identity = self.connect().identity
        user = identity.create_user(name=name, password=self.places.password, domain_id="default")
        found = identity.find_project(project, ignore_missing=False)
        identity.assign_project_role_to_user(found, user, identity.find_role(role, ignore_missing=False))

    def boot(self, name: str, flavor: str, **more: object) -> str:
        """Ask for a server; its id, at once."""
        compute = self.connect().compute
        found = compute.find_flavor(flavor, ignore_missing=False)
        return str(compute.create_server(name=name, image_id=IMAGE, flavor_id=found.id, networks="none", **more).id)

    def placed(self, servers: Iterable[str], *, seconds: float = 600.0) -> dict[str, str]:
        """The host of each server once all are active; RuntimeError with Nova's reason when one cannot be."""
        compute, wanted, found = self.connect().compute, set(servers), dict[str, str]()

        def all_there() -> bool:
            for server in compute.servers(all_projects=True):  # one question for all: a slow machine has more to do
                if server.id in wanted and server.status == "ERROR":
                    raise RuntimeError(f"server {server.id}: {(server.fault or {}).get('message')}")
                if server.id in wanted and server.status == "ACTIVE":
                    found[server.id] = server.compute_host
            return found.keys() >= wanted

        self.processes.wait_for("servers", all_there, seconds=seconds)
        return found

    def migrate(self, server: str, *, seconds: float = 600.0) -> str:
        """Move a running server to where Nova likes; its new host once Nova calls the migration completed.

        RuntimeError with what Nova says instead when it has ended otherwise: the server is active again then, too.
        """
        compute = self.connect().compute
        compute.live_migrate_server(server, host=None, block_migration="auto")
        reported: list[str] = []

        def ended() -> bool:
            reported[:] = [
                f"{one.status} from {one.source_compute} to {one.dest_compute}" for one in _of(compute, server)
            ]
            if reported and reported[0].startswith(("error", "failed", "cancelled")):
                raise RuntimeError(f"the migration of {server} is reported as {reported[0]}")
            return bool(reported) and reported[0].startswith("completed")

        self.processes.wait_for("the migration", ended, seconds=seconds)
        return self.placed([server])[server]

    def delete_servers(self, *servers: str) -> None:
        """These, or all, and wait until Nova has let go of what they held; who fails to be deleted is deleted again."""
        compute = self.connect().compute
        asked: set[str] = set()

        def gone() -> bool:
            there = [one for one in compute.servers(all_projects=True) if not servers or one.id in servers]
            for server in there:
                if server.id not in asked or (server.status == "ERROR" and server.task_state is None):
                    compute.delete_server(server)
                    asked.add(server.id)
            return not there

        self.processes.wait_for("the end of servers", gone, seconds=600)

    def restart_scheduler(self, sections: Sections) -> None:
        """With these options beside nova.conf's own."""
        if "scheduler" in self.processes.names:
            self.processes.stop("scheduler")
        extra = places.write_scheduler(self.places, sections)
        log = self.processes.log("scheduler")
        before = log.stat().st_size if log.exists() else 0
        argv = (str(install.BIN / "nova-scheduler"), *self.nova_conf, "--config-file", str(extra))
        self.processes.start("scheduler", argv, env={"PYTHONPATH": str(INTEGRATION)})
        self.processes.wait_for("the scheduler", lambda: b"Starting scheduler node" in log.read_bytes()[before:])

    def add_computes(self, hosts: Hosts) -> None:
        """Start nova-compute services and wait until Nova lists them."""
        wanted = list(hosts)
        for first in range(0, len(wanted), HOSTS_PER_PROCESS):
            some = {name: hosts[name] for name in wanted[first : first + HOSTS_PER_PROCESS]}
            number = sum(name.startswith("computes") for name in self.processes.names)
            listing = self.places.etc(f"hosts-{number}.json")
            listing.write_text(json.dumps(some))
            own = places.write_computes(self.places, number)
            (self.places.folder / f"computes-{number}" / "compute_id").write_text(str(uuid.uuid4()))
            program = (str(install.BIN / "python"), str(install.INSIDE / "computes.py"), str(listing))
            self.processes.start(f"computes-{number}", (*program, *self.nova_conf, "--config-file", str(own)))
        cloud = self.connect()
        self.processes.wait_for(
            f"{len(wanted)} hypervisors",
            lambda: set(wanted) <= {one.name for one in cloud.compute.hypervisors()},
            seconds=600,
        )

    @property
    def nova_conf(self) -> tuple[str, ...]:
        """The options with which each of Nova's programs finds its configuration."""
        return ("--config-file", str(self.places.etc("nova.conf")))


@contextmanager
def openstack_lab(logs: Path, nova: Sections | None = None) -> Iterator[OpenStackLab]:
    """A fresh control plane without computes; its logs stay in `logs`, all else goes when it ends.

    `nova` are further options of nova.conf.
    """
    install.prepare()
    folder = Path(tempfile.mkdtemp(prefix="cotenant-openstack-"))
    folder.chmod(0o711)  # MariaDB runs as another user where this runs as root
    made = Places(folder)
    lab = OpenStackLab(made, Processes(logs))
    try:
        places.write_all(made, nova or {})
        made.etc(".").chmod(0o700)
        starting.start(lab)
        yield lab
    finally:
        lab.processes.stop_all()
        shutil.rmtree(folder)


def _of(compute: openstack.compute.v2._proxy.Proxy, server: str) -> list[openstack.compute.v2.migration.Migration]:
    """Migrations of a server, the newest first."""
    return sorted(compute.migrations(server_id=server), key=lambda one: str(one.created_at), reverse=True)
