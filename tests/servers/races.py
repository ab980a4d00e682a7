"""Replicas of the service on one database that race for the last place of a host, and who won."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.servers.service import Service

PLACE_MB = 1024.0


def host(number: int) -> str:
    return f"h{number}"


def places(count: int) -> dict[str, object]:
    """An inventory of so many hosts, each of which has memory for one VM."""
    hosts = [{"id": host(number), "kind": "kvm", "pcpus": 4, "memory_mb": PLACE_MB} for number in range(count)]
    return {"mode": "replace", "hosts": hosts, "instances": []}


def winners(replicas: Sequence[Service], races: int) -> list[list[int]]:
    """For each race, by the host of its number, the replicas that gave it away: all are asked at the same moment."""
    begun = threading.Barrier(len(replicas))
    given: list[list[int]] = [[] for _ in range(races)]

    def run(at: int) -> None:
        for number in range(races):
            name = f"vm-{number}-{at}"
            body = {
                "instance": {"id": name, "vcpus": 1, "memory_mb": PLACE_MB - 24},
                "hosts": [host(number)],
                "explain": False,
            }
            begun.wait(120)
            answer = replicas[at].ask("POST", "/v1/placements", body)
            if answer.status != 200:
                begun.abort()
                raise AssertionError(f"race {number}: {answer.status} {answer.body}")
            if answer.body["candidates"]:
                given[number].append(at)

    with ThreadPoolExecutor(len(replicas)) as threads:
        for each in [threads.submit(run, at) for at in range(len(replicas))]:
            each.result()
    return given
