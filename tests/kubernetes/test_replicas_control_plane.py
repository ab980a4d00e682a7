"""Two replicas of the service on one PostgreSQL: kube-scheduler's plug-in asks both, and they are restarted in turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.kubernetes.lab import Lab, mix, oversubscribed, wait
from tests.kubernetes.tap import forwarding
from tests.servers.nginx import nginx
from tests.servers.running import NotInstalled
from tests.servers.service import Service

NODES = 100  # which take 500 of a mix's pods; those that come later are quiet
MOST_S = 1.0  # by which a restart may delay a pod


class Waves:
    """Ten pods of five kinds, and when they are bound ten more; a thread of its own."""

    def __init__(self, lab: Lab) -> None:
        self.kinds: dict[str, str] = {}
        self.seconds: list[float] = []  # that the last pod of each wave took
        self.failed: Exception | None = None
        self._lab = lab
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def go_on(self, more: int = 3) -> int:
        """Wait for so many further waves; how many there are then."""
        aim = len(self.seconds) + more
        wait(lambda: len(self.seconds) >= aim or self.failed, 300)
        assert self.failed is None, self.failed
        return len(self.seconds)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            while not self._stopping.is_set():
                number = len(self.seconds)
                kinds = mix(10, f"w{number:03}", number)
                if len(self.kinds) >= 5 * NODES:
                    kinds = dict.fromkeys(kinds, "quiet")
                begun = time.monotonic()
                self._lab.burst(kinds, schedulerName="cotenant")
                self.kinds |= kinds
                self.seconds.append(time.monotonic() - begun)
                self._stopping.wait(0.3)
        except (AssertionError, OSError) as error:  # reported by `go_on`
            self.failed = error


@contextmanager
def each_question_to_the_next(ports: Sequence[int]) -> Iterator[str]:
    """nginx as docs/operations.md has it."""
    try:
        with nginx(ports) as balancer:
            yield balancer.url
    except NotInstalled as error:
        pytest.skip(str(error))


def balanced(by: str, services: Sequence[Service]) -> AbstractContextManager[str]:
    ports = [one.port for one in services]
    return forwarding(ports) if by == "connection" else each_question_to_the_next(ports)


def test_a_placement_on_one_replica_counts_in_the_answers_of_the_other(
    replicas: tuple[Lab, Sequence[Service]],
) -> None:
    """Nodes take just one of each heavy kind, so that one placement that the other replica missed would show."""
    lab, services = replicas
    lab.fresh(40)
    with balanced("question", services) as url:
        lab.schedule_with_plugin(url)
        kinds = mix(200, "p", 1)
        placed = lab.burst(kinds, schedulerName="cotenant")
        assert lab.pods("unadvised") == 0
        assert oversubscribed(placed, kinds) == []


@pytest.mark.parametrize("by", ["connection", "question"])
def test_a_rolling_restart_delays_no_pod_and_leaves_none_without_advice(
    replicas: tuple[Lab, Sequence[Service]], by: str
) -> None:
    lab, services = replicas
    lab.fresh(NODES)
    with balanced(by, services) as url:
        lab.schedule_with_plugin(url)
        lab.burst({"first": "quiet"}, schedulerName="cotenant")
        waves = Waves(lab)
        try:
            undisturbed = waves.go_on()
            for service in services:
                service.running.stop()
                waves.go_on(1)  # the other one answers
                service.start()
                waves.go_on()
        finally:
            waves.stop()
        assert lab.pods("unadvised") == 0
        placed = lab.cluster.wait_bound(waves.kinds)
        assert oversubscribed(placed, waves.kinds) == []
        assert max(waves.seconds[undisturbed:]) <= max(waves.seconds[:undisturbed]) + MOST_S, waves.seconds
        wait(lambda: {name: node for name, node in lab.on().items() if name in placed} == placed)
