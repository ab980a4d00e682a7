"""What the lab is made of: Debian's MariaDB and Erlang, RabbitMQ unpacked, and OpenStack from PyPI in its own venv."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
CACHE = REPOSITORY / "var" / "openstack-lab"
VENV = CACHE / "venv"
BIN = VENV / "bin"
INSIDE = HERE / "inside"  # what runs in that environment
RABBITMQ = CACHE / "rabbitmq"
# The server cores without the packages that would start a server of their own on this machine.
PACKAGES = (
    "mariadb-server-core", "mariadb-client-core",
    *(f"erlang-{part}" for part in (
        "base", "crypto", "eldap", "inets", "mnesia", "os-mon", "parsetools", "public-key", "runtime-tools", "ssl",
        "syntax-tools", "tools", "xmerl",
    )),
)  # fmt: skip
TOOLS = ("mariadbd", "mariadb-install-db", "my_print_defaults", "epmd", "erl")


def missing() -> str:
    """Why the lab cannot be made here, or nothing."""
    tools_there = all(shutil.which(tool) for tool in TOOLS)
    if (tools_there and _rabbitmq_there()) or (os.geteuid() == 0 and shutil.which("apt-get")):
        return ""
    return "needs root and apt-get for MariaDB and Erlang, once"


def prepare() -> None:
    """Install what is not there yet; safe to repeat. CalledProcessError when a tool fails."""
    if not all(shutil.which(tool) for tool in TOOLS):
        _apt("update", "-qq")
        _apt("install", "-y", "-qq", "--no-install-recommends", *PACKAGES)
    if not _rabbitmq_there():
        _unpack_rabbitmq()
    done = VENV / ".ready"
    wanted = (HERE / "requirements.txt").read_text()
    if not done.exists() or done.read_text() != wanted:
        subprocess.run((sys.executable, "-m", "venv", "--clear", str(VENV)), check=True)
        pip = (str(VENV / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check")
        subprocess.run((*pip, "--no-deps", "--require-hashes", "-r", str(HERE / "requirements.txt")), check=True)
        done.write_text(wanted)


def rabbitmq_server() -> Path:
    """The start script of the unpacked RabbitMQ."""
    return next(RABBITMQ.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"))


def _rabbitmq_there() -> bool:
    return any(RABBITMQ.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"))


def _unpack_rabbitmq() -> None:
    """Its package would start a broker; unpacked, it only lies there."""
    RABBITMQ.mkdir(parents=True, exist_ok=True)
    subprocess.run(("apt-get", "download", "-qq", "rabbitmq-server"), check=True, cwd=RABBITMQ)
    package = next(RABBITMQ.glob("rabbitmq-server_*.deb"))
    subprocess.run(("dpkg", "-x", package.name, "."), check=True, cwd=RABBITMQ)
    package.unlink()


def _apt(*words: str) -> None:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(("apt-get", "-o", "DPkg::Lock::Timeout=600", *words), check=True, env=env, stdout=subprocess.DEVNULL)
