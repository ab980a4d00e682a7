"""How a lab's programs are started: the database, the broker, and OpenStack's services in an order that they bear."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tests.openstack.openstack_lab import install
from tests.openstack.openstack_lab.install import BIN, INSIDE
from tests.openstack.openstack_lab.places import DATABASES
from tests.openstack.openstack_lab.processes import answers, listens

if TYPE_CHECKING:
    from tests.openstack.openstack_lab.lab import OpenStackLab


def start(lab: OpenStackLab) -> None:
    """All but scheduler and computes, whose options differ by test; CalledProcessError or RuntimeError on failure."""
    _start_mariadb(lab)
    _start_rabbitmq(lab)
    _make_databases(lab)
    _start_services(lab)


def _start_mariadb(lab: OpenStackLab) -> None:
    """As `nobody` where this runs as root, for it refuses root."""
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
    install = (
        "mariadb-install-db", "--no-defaults", f"--datadir={data}/data", "--skip-test-db",
        "--auth-root-authentication-method=normal",
    )  # fmt: skip
    with lab.processes.log("mariadb-install").open("ab") as out:
        subprocess.run(install, check=True, stdout=out, stderr=out, user=user)
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
    run_application(lab, "keystone", threads=8)
    run.wait_for("Keystone", lambda: answers(where.url("keystone")))
    _seed(lab)
    run.start("standins", (str(BIN / "python"), str(INSIDE / "standins.py"), str(where.ports["standins"])))
    run_application(lab, "placement", threads=8)
    run.wait_for("Placement", lambda: answers(where.url("placement")))
    run.start("conductor", (str(BIN / "nova-conductor"), *lab.nova_conf))
    run_application(lab, "nova", threads=16)
    run.wait_for("Nova's API", lambda: answers(where.url("nova")))


def run_application(lab: OpenStackLab, name: str, *, threads: int, more: Mapping[str, str] | None = None) -> None:
    """Start a WSGI application that inside/wsgi.py knows, with `more` in its environment."""
    etc = lab.places.etc(".")
    env = {
        "LAB_SERVICE": name,
        "HOME": str(etc / "home"),
        "OS_KEYSTONE_CONFIG_DIR": str(etc / "keystone"),
        "OS_PLACEMENT_CONFIG_DIR": str(etc),
        "OS_NOVA_CONFIG_DIR": str(etc),
        **(more or {}),
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
    identity.create_project(name="service", domain_id="default")
    there = {role.name for role in identity.roles()}
    for name in {"admin", "service"} - there:
        identity.create_role(name=name)
    for name in ("nova", "placement"):
        add_service_user(lab, name)
    add_endpoint(lab, "nova", "compute", where.url("nova", "/v2.1"))
    add_endpoint(lab, "placement", "placement", where.url("placement"))
    add_endpoint(lab, "glance", "image", where.url("standins", "/image"))
    add_endpoint(lab, "neutron", "network", where.url("standins", "/network"))


def add_service_user(lab: OpenStackLab, name: str) -> None:
    """The account by which a service checks tokens."""
    identity = lab.connect().identity
    project = identity.find_project("service", ignore_missing=False)
    user = identity.create_user(name=name, password=lab.places.password, domain_id="default")
    for role in ("admin", "service"):
        identity.assign_project_role_to_user(project, user, identity.find_role(role, ignore_missing=False))


def add_endpoint(lab: OpenStackLab, name: str, kind: str, url: str) -> None:
    """A service in the catalogue."""
    identity = lab.connect().identity
    service = identity.create_service(name=name, type=kind)
    for interface in ("public", "internal", "admin"):
        identity.create_endpoint(service_id=service.id, interface=interface, url=url, region_id="RegionOne")
