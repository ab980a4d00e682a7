"""One running OpenStack: made in a folder of its own, started, asked, and gone with everything it started."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import openstack

from openstack_lab import install, places
from openstack_lab.places import DATABASES, Places, Sections
from openstack_lab.processes import Processes, answers, listens

INSIDE = Path(__file__).resolve().parent / "inside"
BIN = install.VENV / "bin"
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
        """As the administrator, or as somebody that a test has made with `add_user`."""
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

    def add_user(self, name: str, role: str) -> None:
        """Somebody with one role in the administrator's project."""
        identity = self.connect().identity
        user = identity.create_user(name=name, password=self.places.password, domain_id="default")
        project = identity.find_project("admin", ignore_missing=False)
        identity.assign_project_role_to_user(project, user, identity.find_role(role, ignore_missing=False))

    def boot(self, name: str, flavor: str, **more: object) -> str:
        """Ask for a server; its id, at once."""
        compute = self.connect().compute
        found = compute.find_flavor(flavor, ignore_missing=False)
        return str(compute.create_server(name=name, image_id=IMAGE, flavor_id=found.id, networks="none", **more).id)

    def placed(self, servers: Iterable[str], *, seconds: float = 300.0) -> dict[str, str]:
        """The host of each server once all are active; RuntimeError with Nova's reason when one cannot be."""
        compute, found = self.connect().compute, dict[str, str]()

        def all_there() -> bool:
            for name in set(servers) - found.keys():
                server = compute.get_server(name)
                if server.status == "ERROR":
                    raise RuntimeError(f"server {name}: {(server.fault or {}).get('message')}")
                if server.status == "ACTIVE":
                    found[name] = server.compute_host
            return found.keys() >= set(servers)

        self.processes.wait_for("servers", all_there, seconds=seconds)
        return found

    def delete_servers(self) -> None:
        """All of them, and wait until Nova has let go of what they held; one whose deletion failed is deleted again."""
        compute = self.connect().compute
        asked: set[str] = set()

        def empty() -> bool:
            there = list(compute.servers(all_projects=True))
            for server in there:
                if server.id not in asked or (server.status == "ERROR" and server.task_state is None):
                    compute.delete_server(server)
                    asked.add(server.id)
            return not there

        self.processes.wait_for("an empty cloud", empty)

    def restart_scheduler(self, sections: Sections) -> None:
        """With these options beside nova.conf's own."""
        if "scheduler" in self.processes.names:
            self.processes.stop("scheduler")
        extra = places.write_scheduler(self.places, sections)
        log = self.processes.log("scheduler")
        before = log.stat().st_size if log.exists() else 0
        argv = (str(BIN / "nova-scheduler"), *self._nova_conf, "--config-file", str(extra))
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
            argv = (
                str(BIN / "python"),
                str(INSIDE / "computes.py"),
                str(listing),
                *self._nova_conf,
                "--config-file",
                str(own),
            )
            self.processes.start(f"computes-{number}", argv)
        cloud = self.connect()
        self.processes.wait_for(
            f"{len(wanted)} hypervisors",
            lambda: set(wanted) <= {one.name for one in cloud.compute.hypervisors()},
            seconds=600,
        )

    @property
    def _nova_conf(self) -> tuple[str, ...]:
        return ("--config-file", str(self.places.etc("nova.conf")))


@contextmanager
def openstack_lab(logs: Path, nova: Sections | None = None) -> Iterator[OpenStackLab]:
    """A fresh control plane without computes; its logs stay in `logs`, all else goes when it ends.

    `nova` are further options of nova.conf.
    """
    install.prepare()
    folder = Path(tempfile.mkdtemp(prefix="cotenant-openstack-"))
    folder.chmod(0o711)  # MariaDB runs as somebody else where this runs as root
    made = Places(folder)
    lab = OpenStackLab(made, Processes(logs))
    try:
        places.write_all(made, nova or {})
        made.etc(".").chmod(0o700)
        _start_mariadb(lab)
        _start_rabbitmq(lab)
        _make_databases(lab)
        _start_services(lab)
        yield lab
    finally:
        lab.processes.stop_all()
        shutil.rmtree(folder)


def _start_mariadb(lab: OpenStackLab) -> None:
    """As nobody where this runs as root, for it refuses root."""
    user = "nobody" if os.geteuid() == 0 else None
    data = lab.places.folder / "mariadb"
    data.mkdir(mode=0o700)
    if user:
        os.chown(data, pwd.getpwnam(user).pw_uid, -1)
    secret = data / "init.sql"
    secret.write_text(
        f"ALTER USER root@localhost IDENTIFIED BY '{lab.places.password}';\n"
        f"CREATE OR REPLACE USER root@'127.0.0.1' IDENTIFIED BY '{lab.places.password}';\n"
        "GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n"
        + "".join(f"CREATE DATABASE {name} CHARACTER SET utf8mb3;\n" for name in DATABASES)
    )
    if user:
        os.chown(secret, pwd.getpwnam(user).pw_uid, -1)
    argv = (
        "mariadb-install-db", "--no-defaults", f"--datadir={data}/data", "--skip-test-db",
        "--auth-root-authentication-method=normal",
    )  # fmt: skip
    with lab.processes.log("mariadb-install").open("ab") as out:
        subprocess.run(argv, check=True, stdout=out, stderr=out, user=user)
    argv = (
        "mariadbd", "--no-defaults", f"--datadir={data}/data", f"--socket={data}/socket", f"--pid-file={data}/pid",
        f"--port={lab.places.ports['mariadb']}", "--bind-address=127.0.0.1", "--skip-log-bin", "--skip-name-resolve",
        "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--innodb-buffer-pool-size=128M",
        "--innodb-log-file-size=16M", "--max-connections=1000", "--performance-schema=0", f"--init-file={secret}",
    )  # fmt: skip
    lab.processes.start("mariadb", argv, user=user)
    lab.processes.wait_for("MariaDB", lambda: listens(lab.places.ports["mariadb"]))


def _start_rabbitmq(lab: OpenStackLab) -> None:
    ports, home = lab.places.ports, lab.places.folder / "rabbitmq"
    home.mkdir()
    lab.processes.start("epmd", ("epmd", "-port", str(ports["epmd"]), "-address", "127.0.0.1"))
    lab.processes.wait_for("epmd", lambda: listens(ports["epmd"]))
    env = {
        "HOME": str(home),
        "RABBITMQ_NODENAME": "lab@localhost",
        "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
        "RABBITMQ_LOG_BASE": str(home / "log"),
        "RABBITMQ_CONFIG_FILE": str(lab.places.etc("rabbitmq.conf")),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
        "RABBITMQ_PID_FILE": str(home / "pid"),
        "RABBITMQ_NODE_PORT": str(ports["rabbitmq"]),
        "RABBITMQ_DIST_PORT": str(ports["rabbitmq_peers"]),
        "ERL_EPMD_PORT": str(ports["epmd"]),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    lab.processes.start("rabbitmq", (str(install.rabbitmq_server()),), env=env)
    lab.processes.wait_for("RabbitMQ", lambda: listens(ports["rabbitmq"]))


def _make_databases(lab: OpenStackLab) -> None:
    """All at once: each is busy for a while with its own."""
    where = lab.places
    env = {**os.environ, "OS_BOOTSTRAP_PASSWORD": where.password}
    wanted = {
        "keystone": (str(where.etc("keystone/keystone.conf")), where.auth_url),
        "placement": (str(where.etc("placement.conf")),),
        "nova": (str(where.etc("nova.conf")),),
    }

    def make(name: str) -> None:
        argv = (str(BIN / "python"), str(INSIDE / "databases.py"), name, *wanted[name])
        with lab.processes.log(f"databases-{name}").open("ab") as out:
            subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env)

    with ThreadPoolExecutor() as pool:
        list(pool.map(make, wanted))


def _start_services(lab: OpenStackLab) -> None:
    """Conductor and scheduler end at once where they cannot authenticate or find Placement, so those come first."""
    where, run = lab.places, lab.processes
    _gunicorn(lab, "keystone", threads=8)
    run.wait_for("Keystone", lambda: answers(where.url("keystone")))
    _seed(lab)
    run.start("standins", (str(BIN / "python"), str(INSIDE / "standins.py"), str(where.ports["standins"])))
    _gunicorn(lab, "placement", threads=8)
    run.wait_for("Placement", lambda: answers(where.url("placement")))
    run.start("conductor", (str(BIN / "nova-conductor"), *lab._nova_conf))
    _gunicorn(lab, "nova", threads=16)
    run.wait_for("Nova's API", lambda: answers(where.url("nova")))


def _gunicorn(lab: OpenStackLab, name: str, *, threads: int) -> None:
    etc = lab.places.etc(".")
    env = {
        "LAB_SERVICE": name,
        "OS_KEYSTONE_CONFIG_DIR": str(etc / "keystone"),
        "OS_PLACEMENT_CONFIG_DIR": str(etc),
        "OS_NOVA_CONFIG_DIR": str(etc),
    }
    argv = (
        str(BIN / "gunicorn"), "--no-control-socket", "-k", "gthread", "-w", "1", "--threads", str(threads),
        "-b", f"127.0.0.1:{lab.places.ports[name]}", "--keep-alive", "30", "--timeout", "120",
        "--chdir", str(INSIDE), "wsgi:application",
    )  # fmt: skip
    lab.processes.start(name, argv, env=env)


def _seed(lab: OpenStackLab) -> None:
    """The users and endpoints of the services."""
    where = lab.places
    identity = lab.connect().identity
    project = identity.create_project(name="service", domain_id="default")
    roles = {role.name: role for role in identity.roles()}
    for name in ("admin", "service"):
        if name not in roles:
            roles[name] = identity.create_role(name=name)
    for name in ("nova", "placement"):
        user = identity.create_user(name=name, password=where.password, domain_id="default")
        for role in ("admin", "service"):
            identity.assign_project_role_to_user(project, user, roles[role])
    urls = {
        ("nova", "compute"): where.url("nova", "/v2.1"),
        ("placement", "placement"): where.url("placement"),
        ("glance", "image"): where.url("standins", "/image"),
        ("neutron", "network"): where.url("standins", "/network"),
    }
    for (name, kind), url in urls.items():
        service = identity.create_service(name=name, type=kind)
        for interface in ("public", "internal", "admin"):
            identity.create_endpoint(service_id=service.id, interface=interface, url=url, region_id="RegionOne")
