"""A real Keystone on SQLite, from a virtual environment that has it, with projects and users as a test needs them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.servers.running import NotInstalled, Running, answers, free_port, own_folder

VENV = Path(os.environ.get("COTENANT_TEST_KEYSTONE_VENV", "var/openstack-lab/venv")).absolute()
PASSWORD = "hush-hush"
_SERVE = """
import sys
from wsgiref.simple_server import WSGIRequestHandler, make_server
port = int(sys.argv[1])
sys.argv = ["keystone"]
from tests.servers.keystone.server.wsgi import initialize_public_application
WSGIRequestHandler.log_message = lambda *_: None
make_server("127.0.0.1", port, initialize_public_application()).serve_forever()
"""


@dataclass(frozen=True)
class Keystone:
    """Where it listens; `admin` is the user that bootstrapping makes, with the role admin in the project admin."""

    url: str
    server: Running

    def token(self, user: str, project: str) -> str:
        """A token of a user for a project, as any client gets one."""
        who = {"name": user, "password": PASSWORD, "domain": {"id": "default"}}
        scope = {"project": {"name": project, "domain": {"id": "default"}}}
        asked = {"identity": {"methods": ["password"], "password": {"user": who}}, "scope": scope}
        answer = httpx.post(f"{self.url}/auth/tokens", json={"auth": asked}, timeout=30)
        answer.raise_for_status()
        return answer.headers["X-Subject-Token"]

    def add_project(self, name: str) -> str:
        """Its id."""
        return self._make("project", {"name": name, "domain_id": "default"})

    def add_user(self, name: str, project_id: str, role: str) -> str:
        """A user with a role in a project; its id."""
        user_id = self._make("user", {"name": name, "password": PASSWORD, "domain_id": "default"})
        roles = httpx.get(f"{self.url}/roles", params={"name": role}, headers=self._admin(), timeout=30).json()["roles"]
        granted = f"{self.url}/projects/{project_id}/users/{user_id}/roles/{roles[0]['id']}"
        httpx.put(granted, headers=self._admin(), timeout=30).raise_for_status()
        return user_id

    def revoke(self, token: str) -> None:
        """End a token before its time."""
        headers = {**self._admin(), "X-Subject-Token": token}
        httpx.delete(f"{self.url}/auth/tokens", headers=headers, timeout=30).raise_for_status()

    def _make(self, noun: str, wanted: Mapping[str, object]) -> str:
        answer = httpx.post(f"{self.url}/{noun}s", json={noun: wanted}, headers=self._admin(), timeout=30)
        answer.raise_for_status()
        return str(answer.json()[noun]["id"])

    def _admin(self) -> dict[str, str]:
        return {"X-Auth-Token": self.token("admin", "admin")}


@contextmanager
def keystone() -> Iterator[Keystone]:
    """NotInstalled when the virtual environment has no Keystone."""
    python, manage = VENV / "bin" / "python", VENV / "bin" / "keystone-manage"
    if not manage.exists():
        raise NotInstalled(f"there is no Keystone in {VENV.name}: `make test-openstack` installs one")
    folder, port = own_folder("keystone"), free_port()
    try:
        url = f"http://127.0.0.1:{port}/v3"
        (folder / "keystone.conf").write_text(
            f"[database]\nconnection = sqlite:///{folder}/keystone.sqlite3\n"
            f"[fernet_tokens]\nkey_repository = {folder}/fernet\n"
            f"[credential]\nkey_repository = {folder}/credential\n"
            "[identity]\npassword_hash_rounds = 4\n",
            encoding="utf-8",
        )
        environment = {**os.environ, "OS_KEYSTONE_CONFIG_DIR": str(folder), "PYTHONWARNINGS": "ignore"}
        for step in (
            ["db_sync"],
            ["fernet_setup", "--keystone-user", str(os.geteuid()), "--keystone-group", str(os.getegid())],
            ["bootstrap", "--bootstrap-password", PASSWORD, "--bootstrap-admin-url", url],
        ):
            command = [str(python), str(manage), "--config-file", str(folder / "keystone.conf"), *step]
            subprocess.run(command, check=True, capture_output=True, env=environment, timeout=300)
        served = [str(python), "-c", _SERVE, str(port)]
        server = Running(served, lambda: answers(port), folder / "log", drop=False, environment=environment)
        server.start()
        try:
            yield Keystone(url, server)
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
