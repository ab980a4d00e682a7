"""Figures of a real control plane with nothing, the extender and the plug-in, as JSON lines:
python -m tests.kubernetes.measure [crowds] [many] [faults]

The newest Kubernetes is measured that is built. `crowds` (where 200 pods go, and what that costs) waits for answers, so
that other work on the machine changes no place; `many` is the same on 1,000 nodes. `faults` (how long pods wait) has
the times that are shipped. Words name some.
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
from typing import Any, Literal

from tests.kubernetes.build_control_plane import plugin, versions
from tests.kubernetes.lab import Lab, cpu_s, laboratory, mix, oversubscribed, pod, standing_still, wait
from tests.kubernetes.tap import answering
from tests.servers.running import Running

By = Literal["plain", "extender", "plug-in"]
_VERSION = versions()[0]
_PODS = 200
_ATTEMPT = "scheduler_scheduling_attempt_duration_seconds"
_PATIENCE_S = 120.0
_ASKING: tuple[By, By] = ("extender", "plug-in")


def say(case: str, **figures: object) -> None:
    print(json.dumps({"case": case, "kubernetes": _VERSION, **figures}), flush=True)


def schedule(lab: Lab, by: By) -> Running:
    """Run what places the pods; the process that does."""
    if by == "plug-in":
        lab.schedule_with_plugin()
        assert lab.cluster.plugin is not None
        return lab.cluster.plugin
    if by == "extender":
        lab.schedule()
    else:
        lab.cluster.schedule(None)
    assert lab.cluster.scheduler is not None
    return lab.cluster.scheduler


def crowd(lab: Lab, nodes: int, by: By) -> None:
    """200 pods of five kinds at once."""
    lab.fresh(nodes)
    scheduler, kinds = schedule(lab, by), mix(_PODS, "p", 1)
    warm = mix(5, "warm", 2)  # connections, caches and code
    lab.burst(warm, **_more(by))
    lab.cluster.wipe()
    wait(lambda: not lab.instances())
    before, service_s, scheduler_s = _attempts(lab, by), lab.cpu_s(), cpu_s(scheduler)
    begun = time.monotonic()
    placed = lab.burst(kinds, **_more(by))
    took_s = time.monotonic() - begun
    tried, tried_s = (now - then for now, then in zip(_attempts(lab, by), before, strict=True))
    say(
        f"{_PODS} pods on {nodes} nodes, {by}",
        pods_per_s=round(_PODS / took_s, 1),
        attempt_ms=round(1000 * tried_s / max(tried, 1), 2),
        service_cpu_ms_per_pod=round(1000 * (lab.cpu_s() - service_s) / _PODS, 1),
        scheduler_cpu_ms_per_pod=round(1000 * (cpu_s(scheduler) - scheduler_s) / _PODS, 1),
        oversubscribed=len(oversubscribed(placed, kinds)),
        without_advice=_skipped(lab, by),
    )


def two_at_once(lab: Lab) -> None:
    """Half of a crowd is placed by the second scheduler with the plug-in, half by the first one with the extender."""
    assert lab.plugin is not None
    lab.fresh(40)
    schedule(lab, "plug-in")
    lab.schedule()
    kinds = mix(_PODS, "p", 5)
    lab.cluster.create(
        pod(name, kind, **_more("plug-in" if number % 2 else "extender"))
        for number, (name, kind) in enumerate(kinds.items())
    )
    placed = lab.cluster.wait_bound(kinds)
    over, unadvised = len(oversubscribed(placed, kinds)), sum(_skipped(lab, by) for by in _ASKING)
    say("two schedulers at once, 40 nodes", oversubscribed=over, without_advice=unadvised)


def again(lab: Lab, by: By) -> None:
    """All deleted, and others at once."""
    lab.fresh(40)
    schedule(lab, by)
    lab.burst(mix(_PODS, "a", 3), **_more(by))
    lab.cluster.wipe()
    kinds = mix(_PODS, "b", 4)
    placed = lab.burst(kinds, **_more(by))
    over = len(oversubscribed(placed, kinds))
    say(f"200 deleted, 200 others at once, {by}", oversubscribed=over, without_advice=_skipped(lab, by))


@contextmanager
def fault(lab: Lab, name: str, by: By) -> Iterator[None]:
    if name in {"500", "garbage", "hang"}:
        with answering(name) as url:  # type: ignore[arg-type]
            if by == "plug-in":
                lab.schedule_with_plugin(url)
            else:
                lab.cluster.schedule(url)
            yield
        return
    if by == "plug-in":
        lab.schedule_with_plugin()
    else:
        wrong = lab.service.url.replace("http://", "http://any:cot_no@")
        lab.cluster.schedule(wrong if name == "401" else lab.extender)
    lab.burst({"first": "quiet"}, **_more(by))
    if name == "kill -9":
        lab.service.kill()
    with standing_still(lab.service.running) if name == "SIGSTOP" else nullcontext():
        yield
    if name == "kill -9":
        lab.service.start()


def delays(lab: Lab, name: str, by: By) -> None:
    """Ten pods that ask and ten that do not, one after another, each timed by its creator."""
    lab.fresh(10)
    with fault(lab, name, by):
        time.sleep(6)  # what was late before does not count any more
        seconds: dict[bool, list[float]] = {True: [], False: []}
        for number in range(20):
            asks = number % 2 == 0
            body = pod(f"{'asks' if asks else 'plain'}-{number}", "quiet" if asks else None, asks=asks, **_more(by))
            seconds[asks].append(lab.cluster.seconds_to_bind(body))
    say(f"{name}, {by}", **_times(seconds))


def hung_crowd(lab: Lab, by: By) -> None:
    """20 that ask and 20 that do not, at once, while the service stands still."""
    lab.fresh(10)
    with fault(lab, "SIGSTOP", by):
        time.sleep(6)
        bodies = [pod(f"p-{number:02}", None if number % 2 else "quiet", **_more(by)) for number in range(40)]
        begun = time.monotonic()
        lab.cluster.create(bodies)
        lab.cluster.wait_bound([one["metadata"]["name"] for one in bodies])
        took_s = time.monotonic() - begun
    say(f"40 pods at once while the service stands still, {by}", all_bound_after_s=round(took_s, 1))


def restart(lab: Lab, by: By) -> None:
    """A pod after another while the service ends and starts again."""
    lab.fresh(10)
    schedule(lab, by)
    lab.burst({"first": "quiet"}, **_more(by))

    def bound(name: str, count: int) -> list[float]:
        return [lab.cluster.seconds_to_bind(pod(f"{name}-{at}", "quiet", **_more(by))) for at in range(count)]

    seconds = bound("before", 3)
    lab.service.running.stop()
    seconds += bound("away", 3)
    lab.service.start()
    seconds += bound("after", 5)
    say(f"restart, {by}", most_s=round(max(seconds), 2), median_s=round(statistics.median(seconds), 3))


def preemption(lab: Lab, by: By) -> None:
    """Six full nodes; a third streamer that must keep its speed would be refused wherever one leaves."""
    names = lab.fresh(6)
    schedule(lab, by)
    low, high = f"low-{by}", f"high-{by}"
    for name, value in ((low, 10), (high, 1000)):
        lab.cluster.priority(name, value)
    full = [pod(f"low-{at}", "stream", cpu="32", nodeName=names[at // 2], priorityClassName=low) for at in range(12)]
    lab.cluster.create(full)
    wait(lambda: len(lab.instances()) == 12)
    limit = {"cotenant.io/min-throughput-ratio": "0.95"}
    lab.cluster.create([pod("high", "stream", cpu="32", priorityClassName=high, annotations=limit, **_more(by))])
    time.sleep(30)
    say(f"preemption, {by}", victims=12 - sum(one["metadata"]["name"].startswith("low") for one in lab.cluster.pods()))


def _more(by: By) -> dict[str, Any]:
    """What a pod says beside its kind, so that it is placed by this."""
    ways: dict[By, dict[str, Any]] = {
        "plain": {"asks": False}, "extender": {}, "plug-in": {"schedulerName": "cotenant"},
    }  # fmt: skip
    return ways[by]


def _attempts(lab: Lab, by: By) -> tuple[float, float]:
    """How many there were to schedule a pod, and the seconds of all of them."""
    count, total = (lab.cluster.metric(f"{_ATTEMPT}_{what}", plugin=by == "plug-in") for what in ("count", "sum"))
    return count, total


def _skipped(lab: Lab, by: By) -> int:
    """Pods that went on without an answer since the scheduler was started."""
    if by == "plug-in":
        return int(lab.pods("unadvised"))
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
    only = sys.argv[1:] or ["crowds", "many", "faults"]
    asking: tuple[By, ...] = _ASKING if plugin(_VERSION) else _ASKING[:1]
    for some, cases in (("crowds", _crowds), ("many", _many)):
        if some in only:
            with tempfile.TemporaryDirectory() as folder, laboratory(_VERSION, Path(folder), _PATIENCE_S) as lab:
                cases(lab, asking)
    if "faults" in only:
        with tempfile.TemporaryDirectory() as folder, laboratory(_VERSION, Path(folder)) as lab:
            _faults(lab, asking)


def _crowds(lab: Lab, asking: tuple[By, ...]) -> None:
    for nodes in (40, 100):
        for by in ("plain", *asking):
            crowd(lab, nodes, by)
    for by in asking:
        again(lab, by)
        preemption(lab, by)
    if len(asking) > 1:
        two_at_once(lab)


def _many(lab: Lab, asking: tuple[By, ...]) -> None:
    for by in ("plain", *asking):
        crowd(lab, 1000, by)


def _faults(lab: Lab, asking: tuple[By, ...]) -> None:
    for by in asking:
        for name in ("none", "SIGSTOP", "kill -9", "500", "garbage", "hang", *(["401"] if by == "extender" else [])):
            delays(lab, name, by)
        hung_crowd(lab, by)
        restart(lab, by)


if __name__ == "__main__":
    main()
