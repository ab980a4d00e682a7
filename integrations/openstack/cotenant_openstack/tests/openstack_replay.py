"""An HTTP server that answers as a recorded cloud did (tests/openstack/recording.py), for the real openstacksdk."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import openstack

from tests.servers.local_http import QuietHandler, on_loopback

RECORDING = Path(__file__).resolve().parents[4] / "tests" / "recordings" / "openstack" / "cloud.json"
# Groups were not recorded: rows are those of Nova's API reference (microversion 2.64), two on a page.
IMAGES_PATH = "standins/image"
GROUPS_PATH = "nova/v2.1/os-server-groups"
SERVICES = ("keystone", "nova", "placement", "standins")
Answer = tuple[int, Any]
Changed = Callable[[str, Answer], Answer]  # (path, recorded answer) -> what is answered instead


class Replay:
    """One scene of the recording at a time; `changed` may put another answer in place; `asked` are the paths so far."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.recording: Mapping[str, Any] = json.loads(RECORDING.read_text(encoding="utf-8"))
        self.changed: Changed = lambda _, answer: answer
        self.asked: list[str] = []
        self.images: list[Mapping[str, Any]] = []  # which were not recorded either
        self.show("whole")

    def show(self, scene: str) -> None:
        """What is answered from now on; questions that this scene lacks are answered as in the first one."""
        every = [*self.recording["scenes"]["whole"], *self.recording["scenes"][scene]]
        self._answers = {_key(one["method"], one["url"]): (one["status"], one["body"]) for one in every}

    def answer(self, method: str, path: str) -> Answer:
        """Status and document for a request; 404 with a document that says so where nothing is recorded."""
        service, _, rest = path.lstrip("/").partition("/")
        self.asked.append(path)
        key = _key(method, f"{{{service}}}/{rest}")
        missing = 404, {"error": {"message": f"not recorded: {key}", "code": 404, "title": "Not Found"}}
        recorded = self._answers.get(key, missing)
        if f"{service}/{rest}".startswith(IMAGES_PATH):
            recorded = self._images(rest)
        if f"{service}/{rest}".startswith(GROUPS_PATH):
            recorded = self._groups(parse_qs(urlsplit(path).query))
        status, body = self.changed(f"{service}/{rest}", recorded)
        # A token that has expired long ago would be asked for anew before every question.
        text = re.sub(r'"expires_at": "[^"]*"', '"expires_at": "2999-01-01T00:00:00.000000Z"', json.dumps(body))
        for name in SERVICES:
            text = text.replace(f"{{{name}}}", f"{self.url}/{name}")
        return status, text

    def _images(self, rest: str) -> Answer:
        """Glance's versions, and its images (Image API v2: properties stand beside other fields)."""
        if rest.endswith("/images"):
            return 200, {"images": self.images}
        link = {"rel": "self", "href": f"{self.url}/{IMAGES_PATH}/v2/"}
        return 200, {"versions": [{"id": "v2.9", "status": "CURRENT", "links": [link]}]}

    def _groups(self, query: Mapping[str, list[str]]) -> Answer:
        """A page of server groups: two servers are to be apart, others only if it can be had, others together."""
        servers = self.recording["servers"]
        policies = [("g1", "anti-affinity", servers[:2]), ("g2", "soft-anti-affinity", servers[1:3]),
                    ("g3", "affinity", servers[3:5])]  # fmt: skip
        rows = [{"id": name, "name": name, "policy": policy, "rules": {}, "members": members, "project_id": "p",
                 "user_id": "u"} for name, policy, members in policies]  # fmt: skip
        first = int(query["offset"][0])
        return (200, {"server_groups": rows[first : first + 2]}) if query["all_projects"] == ["True"] else (400, {})

    def connect(self) -> Any:
        """The real client, sent here."""
        auth = {
            "auth_url": f"{self.url}/keystone/v3", "username": "admin", "password": "secret", "project_name": "admin",
            "user_domain_id": "default", "project_domain_id": "default",
        }  # fmt: skip
        return openstack.connect(load_yaml_config=False, load_envvars=False, auth=auth, region_name="RegionOne")


def _key(method: str, url: str) -> str:
    """When something changed is another time now than it was then."""
    return f"{method} {re.sub(r'changes-since=[^&]*', 'changes-since=', url)}"


class _Handler(QuietHandler):
    replay: Replay
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.request_body()
        status, text = self.replay.answer(self.command, self.path)
        token = {"X-Subject-Token": "replayed"} if self.command == "POST" else {}
        self.reply(status, text.encode(), {"Content-Type": "application/json", **token})

    do_POST = do_GET


@contextmanager
def replaying() -> Iterator[Replay]:
    """On a free port of loopback."""
    handler: Any = type("Handler", (_Handler,), {})
    with on_loopback(handler) as server:
        handler.replay = Replay(f"http://127.0.0.1:{server.server_port}")
        yield handler.replay
