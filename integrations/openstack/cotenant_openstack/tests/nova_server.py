"""Nova's API as far as live migrations need it, on the rows of a recorded cloud, for the real openstacksdk.

Servers, hypervisors and services are those that a real Nova answered with (tests/openstack/recording.py). Calls that
change something answer as the API reference has them: 202 for a migration, whose end shows in the server alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cotenant_openstack.tests.openstack_replay import Replay

from tests.servers.local_http import QuietHandler, on_loopback

API = "/nova/v2.1"
ABSENT = 404, {"itemNotFound": {"code": 404, "message": "it is not there"}}
Answer = tuple[int, Any]


class Nova(Replay):
    """A migration is over after `asks_left` questions about its server."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        pages = [one["body"] for one in self.recording["scenes"]["whole"] if one["method"] == "GET"]
        self.servers = {row["id"]: dict(row) for page in pages for row in page.get("servers", [])}
        self.hypervisors = [json.loads(json.dumps(row)) for page in pages for row in page.get("hypervisors", [])]
        self.migrations: list[dict[str, Any]] = []
        self.asks_left = 3
        self.fails = ""  # what its action says where a migration fails
        self.codes: dict[str, int] = {}  # by method and the last part of a path
        self.begins_all_the_same = False  # although the answer is an error

    def of(self, host: str) -> dict[str, Any]:
        """A server that runs there."""
        here = (row for row in self.servers.values() if row["OS-EXT-SRV-ATTR:host"] == host)
        return next(row for row in here if row["status"] == "ACTIVE")

    def ask(self, method: str, path: str, body: Any) -> Answer | None:
        """None = as recorded."""
        parts = path.partition("?")[0].removeprefix(API).strip("/").split("/")
        if not path.startswith(API):
            return None
        if (code := self.codes.get(f"{method} {parts[-1]}")) and not self.begins_all_the_same:
            return code, {"computeFault": {"code": code, "message": "it does not work"}}
        match method, parts:
            case "GET", [""]:
                link = {"rel": "self", "href": f"{self.url}{API}/"}
                version = {"id": "v2.1", "status": "CURRENT", "version": "2.96", "min_version": "2.1", "links": [link]}
                return 200, {"version": version}
            case "GET", ["os-hypervisors", "detail"]:
                return 200, {"hypervisors": self.hypervisors}
            case "PUT", ["os-services", service]:
                return self.serve(service, body)
            case _, ["servers", server, *_] if server not in self.servers:
                return ABSENT
            case "GET", ["servers", server]:
                self.pass_on(server)
                return 200, {"server": self.servers[server]}
            case "POST", ["servers", server, "action"]:
                answer = self.migrate(server, body["os-migrateLive"])
                code = self.codes.get("POST action", 0)
                return (code, {"computeFault": {"code": code, "message": "lost"}}) if code else answer
            case "GET", ["servers", server, "migrations"]:
                return 200, {
                    "migrations": [one for one in self.migrations if one["left"] and one["server_uuid"] == server]
                }
            case "DELETE", ["servers", server, "migrations", number]:
                self.end(self.migrations[int(number) - 1], "it was aborted")
                return 202, {}
            case "GET", ["servers", server, "os-instance-actions"]:
                ended = [one for one in self.migrations if one["server_uuid"] == server and not one["left"]]
                actions = [{"action": "live-migration", "message": one["why"], "request_id": "r"} for one in ended]
                return 200, {"instanceActions": actions[::-1]}
        return None

    def migrate(self, server: str, asked: dict[str, Any]) -> Answer:
        row = self.servers[server]
        if asked["host"] not in {one["service"]["host"] for one in self.hypervisors}:
            return 400, {"badRequest": {"code": 400, "message": f"Compute host {asked['host']} could not be found."}}
        if row["status"] != "ACTIVE":
            message = f"Cannot 'os-migrateLive' instance {server} while it is in vm_state {row['status'].lower()}"
            return 409, {"conflictingRequest": {"code": 409, "message": message}}
        assert (asked["block_migration"], asked.get("force", False)) == ("auto", False), "the scheduler checks the host"
        row |= {"status": "MIGRATING", "OS-EXT-STS:task_state": "migrating"}
        number, left = len(self.migrations), self.asks_left
        made = {"id": number + 1, "server_uuid": server, "dest_host": asked["host"], "left": left, "why": None}
        self.migrations.append(made)
        return 202, {}

    def pass_on(self, server: str) -> None:
        for one in self.migrations:
            if one["server_uuid"] == server and one["left"]:
                one["left"] -= 1
                if not one["left"]:
                    self.end(one, self.fails)

    def end(self, migration: dict[str, Any], why: str) -> None:
        migration |= {"left": 0, "why": why or None}
        row = self.servers[migration["server_uuid"]]
        row |= {"status": "ACTIVE", "OS-EXT-STS:task_state": None}
        if not why:
            there = migration["dest_host"]
            row |= {"OS-EXT-SRV-ATTR:host": there, "OS-EXT-SRV-ATTR:hypervisor_hostname": there}

    def serve(self, service: str, body: dict[str, Any]) -> Answer:
        row = next(one for one in self.hypervisors if one["service"]["id"] == service)
        row["status"] = body["status"]
        row["service"]["disabled_reason"] = body.get("disabled_reason")
        return 200, {"service": {"id": service, "status": body["status"], "host": row["service"]["host"]}}


@contextmanager
def serving() -> Iterator[Nova]:
    """On a free port of loopback."""

    class Handler(QuietHandler):
        nova: Nova
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            sent = self.request_body()
            answer = self.nova.ask(self.command, self.path, json.loads(sent) if sent else None)
            if answer is None:
                status, text = self.nova.answer(self.command, self.path)
            else:
                status, text = answer[0], json.dumps(answer[1])
            token = {"X-Subject-Token": "replayed"} if self.command == "POST" else {}
            self.reply(status, text.encode(), {"Content-Type": "application/json", **token})

        do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - the names that http.server calls

    with on_loopback(Handler) as server:
        Handler.nova = Nova(f"http://127.0.0.1:{server.server_port}")
        yield Handler.nova
