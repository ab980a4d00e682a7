"""Figures of a real control plane with and without the extender, as JSON lines: python -m tests.kubernetes.measure

`crowds` (where 200 pods go, and what that costs) waits for answers, so that other work on the machine changes no place.
`faults` (how long pods wait) has the times that are shipped. A word names one of both.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from tests.kubernetes.build_control_plane import VERSION, built
from tests.kubernetes.lab import Lab, laboratory, mix, oversubscribed, pod, standing_still, wait
from tests.kubernetes.tap import answering

_PODS = 200
_ATTEMPT = "scheduler_scheduling_attempt_duration_seconds"
_PATIENCE_S = 120.0


def say(case: str, **figures: object) -> None:
    print(json.dumps({"case": case, "kubernetes": VERSION, **figures}), flush=True)


def schedule(lab: Lab, *, asks: bool) -> None:
    if asks:
        lab.schedule()
    else:
        lab.cluster.schedule(None)


def crowd(lab: Lab, nodes: int, *, asks: bool) -> None:
    """200 pods of five kinds at once."""
    lab.fresh(nodes)
    schedule(lab, asks=asks)
    kinds = mix(_PODS, "p", 1)
    before, attempts, cpu_s = _scheduler(lab), lab.cluster.metric(f"{_ATTEMPT}_count"), lab.cpu_s()
    begun = time.monotonic()
    lab.cluster.create(pod(name, kind, asks=asks) for name, kind in kinds.items())
    placed = lab.cluster.wait_bound(kinds)
    took_s = time.monotonic() - begun
    tried = lab.cluster.metric(f"{_ATTEMPT}_count") - attempts
    say(
        f"{_PODS} pods on {nodes} nodes, {'asked about' if asks else 'plain'}",
        pods_per_s=round(_PODS / took_s, 1),
        attempt_ms=round(1000 * (_scheduler(lab) - before) / max(tried, 1), 2),
        service_cpu_ms_per_pod=round(1000 * (lab.cpu_s() - cpu_s) / _PODS, 1),
        oversubscribed=len(oversubscribed(placed, kinds)),
        without_advice=_skipped(lab),
    )


def again(lab: Lab) -> None:
    """All deleted, and others at once."""
    lab.fresh(40)
    lab.schedule()
    lab.burst(mix(_PODS, "a", 3))
    lab.cluster.wipe()
    kinds = mix(_PODS, "b", 4)
    placed = lab.burst(kinds)
    over = len(oversubscribed(placed, kinds))
    say("200 deleted, 200 others at once", oversubscribed=over, without_advice=_skipped(lab))


@contextmanager
def fault(lab: Lab, name: str) -> Iterator[None]:
    if name in {"500", "garbage", "hang"}:
        with answering(name) as url:  # type: ignore[arg-type]
            lab.cluster.schedule(url)
            yield
        return
    lab.cluster.schedule(lab.service.url.replace("http://", "http://any:cot_no@") if name == "401" else lab.extender)
    lab.burst({"first": "quiet"})
    if name == "kill -9":
        lab.service.kill()
    with standing_still(lab.service.running) if name == "SIGSTOP" else nullcontext():
        yield
    if name == "kill -9":
        lab.service.start()


def delays(lab: Lab, name: str) -> None:
    """Ten pods that ask and ten that do not, one after another, each timed by its creator."""
    lab.fresh(10)
    with fault(lab, name):
        time.sleep(6)  # what was late before does not count any more
        seconds: dict[bool, list[float]] = {True: [], False: []}
        for number in range(20):
            asks = number % 2 == 0
            body = pod(f"{'asks' if asks else 'plain'}-{number}", "quiet", asks=asks)
            seconds[asks].append(lab.cluster.seconds_to_bind(body))
    say(name, **_times(seconds))


def hung_crowd(lab: Lab) -> None:
    """20 that ask and 20 that do not, at once, while the service stands still."""
    lab.fresh(10)
    with fault(lab, "SIGSTOP"):
        time.sleep(6)
        bodies = [pod(f"p-{number:02}", "quiet", asks=number % 2 == 0) for number in range(40)]
        begun = time.monotonic()
        lab.cluster.create(bodies)
        lab.cluster.wait_bound([one["metadata"]["name"] for one in bodies])
        took_s = time.monotonic() - begun
    say("40 pods at once while the service stands still", all_bound_after_s=round(took_s, 1))


def restart(lab: Lab) -> None:
    """A pod after another while the service ends and starts again."""
    lab.fresh(10)
    lab.cluster.schedule(lab.extender)
    lab.burst({"first": "quiet"})
    seconds = [lab.cluster.seconds_to_bind(pod(f"before-{number}", "quiet")) for number in range(3)]
    lab.service.running.stop()
    seconds += [lab.cluster.seconds_to_bind(pod(f"away-{number}", "quiet")) for number in range(3)]
    lab.service.start()
    seconds += [lab.cluster.seconds_to_bind(pod(f"after-{number}", "quiet")) for number in range(5)]
    say("restart", most_s=round(max(seconds), 2), median_s=round(statistics.median(seconds), 3))


def preemption(lab: Lab) -> None:
    """Six full nodes; a third streamer that must keep its speed would be refused wherever one leaves."""
    names = lab.fresh(6)
    lab.schedule()
    for name, value in (("low", 10), ("high", 1000)):
        lab.cluster.priority(name, value)
    low = [pod(f"low-{at}", "stream", cpu="32", nodeName=names[at // 2], priorityClassName="low") for at in range(12)]
    lab.cluster.create(low)
    wait(lambda: len(lab.instances()) == 12)
    limit = {"cotenant.io/min-throughput-ratio": "0.95"}
    lab.cluster.create([pod("high", "stream", cpu="32", priorityClassName="high", annotations=limit)])
    time.sleep(30)
    say("preemption", victims=12 - sum(one["metadata"]["name"].startswith("low") for one in lab.cluster.pods()))


def _scheduler(lab: Lab) -> float:
    return lab.cluster.metric(f"{_ATTEMPT}_sum")


def _skipped(lab: Lab) -> int:
    """Questions that kube-scheduler, since it was started, went on without an answer to."""
    assert lab.cluster.scheduler is not None
    return lab.cluster.scheduler.log.read_text(encoding="utf-8").count("Skipping extender")


def _times(seconds: dict[bool, list[float]]) -> dict[str, Any]:
    return {
        f"{name}_{what}_s": round(of(seconds[asks]), 3)
        for asks, name in ((True, "asking"), (False, "plain"))
        for what, of in (("median", statistics.median), ("most", max))
    }


def main() -> None:
    warnings.simplefilter("ignore")  # certificates of the control plane's own
    only = sys.argv[1:] or ["crowds", "faults"]
    if "crowds" in only:
        with tempfile.TemporaryDirectory() as folder, laboratory(built(), Path(folder), _PATIENCE_S) as lab:
            for nodes in (40, 100):
                for asks in (False, True):
                    crowd(lab, nodes, asks=asks)
            again(lab)
            preemption(lab)
    if "faults" in only:
        with tempfile.TemporaryDirectory() as folder, laboratory(built(), Path(folder)) as lab:
            for name in ("none", "SIGSTOP", "kill -9", "500", "garbage", "hang", "401"):
                delays(lab, name)
            hung_crowd(lab)
            restart(lab)


if __name__ == "__main__":
    main()
