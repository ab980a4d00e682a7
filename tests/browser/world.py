"""Services to look at: a small cloud with all that can happen, a thousand hosts, long names, nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import uvicorn

from advisor.domain import (
    PLAN_KINDS,
    TOKEN_SCOPES,
    Growth,
    Host,
    Instance,
    Inventory,
    PlacementRequest,
    PlanRequest,
    Recommendation,
    TokenScope,
    WhatIf,
)
from advisor.offline import load_instances, load_inventory
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from profiler.observed import MetricSample
from tests.models import made_models

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "cloud.yaml"
_WINDOWS = 60  # of two minutes each: the samples of two hours
_METRICS = {  # a web server's, as it might be
    "event": 9000.0,
    "switch": 5200.0,
    "pages_exchanged": 5100.0,
    "execution": 3900.0,
    "pages_per_execution": 1.3,
    "cpu": 62.0,
    "waiting": 6.0,
    "block": 32.0,
}


@dataclass(frozen=True, slots=True)
class Service:
    """Where it listens, what may be asked there, and the secrets of its tokens by scope."""

    url: str
    advisor: Advisor
    secrets: dict[str, str]


def small(folder: Path) -> AbstractContextManager[Service]:
    """The example cloud with samples, placements and their outcomes, three models and plans; it asks for tokens."""
    # What was placed stays there while the tests run.
    return _service(folder, lambda advisor: fill(advisor, folder), scopes=TOKEN_SCOPES, reserve_s=3600)


def large(folder: Path, hosts: int = 1000) -> AbstractContextManager[Service]:
    """So many hosts with three instances each, and no token: open to this machine."""
    example = load_inventory(EXAMPLE)
    names = [workload.name for workload in example.workloads if not workload.name.startswith("bubble")]
    made = tuple(Host(f"host-{n:04}", "lxc", 8, 65536, platform="lab-2cpu") for n in range(hosts))
    there = tuple(
        Instance(f"vm-{n:05}", host=made[n // 3].id, vcpus=1 + n % 3, memory_mb=4096, workload=names[n % len(names)])
        for n in range(3 * hosts)
    )
    return _service(folder, lambda advisor: _put(advisor, Inventory(made, there, example.workloads)))


def strange(folder: Path, *, empty: bool = False) -> AbstractContextManager[Service]:
    """What is hard to show: names of 64 characters, a crowded host, no samples, a stale plan; or nothing; no token."""
    return _service(folder, (lambda _: None) if empty else _crowd)


def demonstrated(folder: Path) -> AbstractContextManager[Service]:
    """The example cloud as a demonstration, which shows by itself what is new; no token."""
    demonstration = "Demonstration: a second is two minutes."
    return _service(folder, lambda advisor: _put(advisor, load_inventory(EXAMPLE)), demonstration)


@contextmanager
def _service(
    folder: Path,
    fill_in: Callable[[Advisor], None],
    demonstration: str = "",
    scopes: Sequence[TokenScope] = (),
    **more: float,
) -> Iterator[Service]:
    """A service with what is filled in, and a token of each of these scopes."""
    database = f"sqlite:///{folder}/cloud.sqlite3"
    settings = Settings.model_validate(
        {"database": database, "state_dir": folder, "rate_limit": 1000, "rate_burst": 5000, **more}
    )
    with Advisor(settings) as advisor:
        fill_in(advisor)
        tokens = advisor.access.tokens
        secrets: dict[str, str] = {
            scope: tokens.create(f"{scope} token", scope, lasts=None, host="h1" if scope == "act" else "")[1]
            for scope in scopes
        }
        with _listening(advisor, settings, demonstration) as url:
            yield Service(url, advisor, secrets)


def _put(advisor: Advisor, cloud: Inventory) -> None:
    advisor.inventory.put(cloud, mode="replace", generation=None)


def _crowd(advisor: Advisor) -> None:
    example = load_inventory(EXAMPLE)
    kinds = [replace(one, name=_long(one.name)) for one in example.workloads if not one.name.startswith("bubble")]
    labels = {"zone": _long("zone"), "owner": _long("owner")}
    made = tuple(
        Host(_long(f"host-{n}"), "lxc", 8, 65536, platform="lab-2cpu", labels=labels, enabled=n != 3) for n in range(4)
    )
    there = tuple(
        Instance(
            _long(f"vm-{n}"),
            host=made[n % 12 // 9].id,
            vcpus=2,
            memory_mb=2048,
            workload=kinds[n % len(kinds)].name,
            min_throughput_ratio=0.9,
        )
        for n in range(12)
    )
    _put(advisor, Inventory(made, there, tuple(kinds)))
    new_vm = Instance(_long("newcomer"), vcpus=4, memory_mb=2048, workload=kinds[0].name, min_throughput_ratio=0.9)
    advisor.placements.place(PlacementRequest(new_vm, commands=True, dry_run=True))
    advisor.plans.make(PlanRequest("rebalance", keep_ratio=0.9, commands=True, time_limit_s=3.0))
    advisor.inventory.put_host(replace(made[1], labels={}))


def _long(name: str) -> str:
    """A name of 64 characters, without a place to break."""
    return f"{name}-".ljust(64, "0")


def strange_pages(advisor: Advisor) -> Sequence[tuple[str, str]]:
    """Pages of the strange service, and of the empty one, as a name and a path."""
    common = (
        ("where", "/"),
        ("cloud", "/cloud"),
        ("instances", "/instances?sort=-memory"),
        ("alarms", "/alarms"),
        ("worth", "/worth"),
        ("audit", "/audit"),
        ("placements", "/placements?which=all"),
        ("models", "/models"),
    )
    hosts, instances = advisor.inventory.hosts(limit=1).items, advisor.inventory.instances(limit=1).items
    if not hosts:
        return (*common, ("plans", "/plans"), ("answer", "/?id=a&vcpus=1&memory_mb=512"))
    return (
        *common,
        ("answer", f"/?id={_long('asked')}&vcpus=4&memory_mb=2048&min_throughput_ratio=0.9"),
        ("nowhere", f"/?id={_long('asked')}&vcpus=4000&memory_mb=2048"),
        ("instance-asked", f"/?instance={instances[0].id}"),
        ("filter", "/cloud?label=wrong&name=none"),
        ("filter-instances", "/instances?label=wrong&only=none"),
        ("host", f"/hosts/{hosts[0].id}"),
        ("instance", f"/instances/{instances[0].id}"),
        ("placement", f"/placements/{advisor.outcomes.page(which='all', limit=1).items[0].recommendation.id}"),
        ("plan", f"/plans/{advisor.plans.page().items[0].id}"),
        ("unknown", f"/hosts/{'x' * 64}"),
    )


def fill(advisor: Advisor, folder: Path) -> None:
    """Everything that the small cloud has."""
    cloud = load_inventory(EXAMPLE)
    _put(advisor, cloud)
    for instance in cloud.instances[:4]:
        advisor.telemetry.ingest(list(_samples(instance)))
    _models(advisor, folder)
    shop = load_instances(EXAMPLES / "shop-7.yaml")[0]
    for number, off in enumerate((0.0, -0.02, -0.4)):
        asked = advisor.placements.place(
            PlacementRequest(replace(shop, id=f"shop-{70 + number}"), commands=True)
        ).recommendation
        _tell(advisor, asked, off)
    advisor.placements.place(PlacementRequest(replace(shop, id="shop-79"), commands=True))
    more = tuple(replace(shop, id=f"more-{number}") for number in range(3))
    for plan in (
        PlanRequest("admit", more, commands=True),
        PlanRequest("rebalance", keep_ratio=0.9, commands=True),
        PlanRequest("evacuate", empty=("h4",), keep_ratio=0.5, commands=True),
        PlanRequest("consolidate", keep_ratio=0.6),
        PlanRequest("capacity", more[:1], growth=Growth(0.2, 2.0, 12)),
        PlanRequest("what_if", what_if=WhatIf(remove=("h2",)), keep_ratio=0.6),
        PlanRequest("right_size"),
        PlanRequest("tune", commands=True),
        PlanRequest("repair"),
    ):
        advisor.plans.make(replace(plan, time_limit_s=3.0))


def _samples(instance: Instance) -> Iterator[MetricSample]:
    now = time.time()
    for window in range(_WINDOWS):
        for place, (metric, level) in enumerate(_METRICS.items()):
            value = level * (1 + 0.3 * ((window * (place + 3)) % 17) / 17)
            at_s = now - 120 * (_WINDOWS - window)
            yield MetricSample(instance.host or "", instance.id, "instance", metric, value, at_s)


def _models(advisor: Advisor, folder: Path) -> None:
    trained = made_models.fit(folder)
    for version, off in (("m-good", 0.02), ("m-fair", 0.06), ("m-bad", 0.2)):
        advisor.models.register(made_models.make(trained, folder / "made", version, off))
    advisor.models.activate("m-fair")
    advisor.models.activate("m-good")
    advisor.models.shadow("m-fair")


def _tell(advisor: Advisor, asked: Recommendation, off: float) -> None:
    """Report the outcome: every instance reaches what was expected, the new VM `off` more."""
    best = asked.candidates[0]
    ratios = {one.instance: one.throughput_ratio.expected for one in best.neighbours}
    ratios[best.new_vm.instance] = max(best.new_vm.throughput_ratio.expected + off, 0.05)
    advisor.outcomes.record(asked.id, best.host, ratios)


@contextmanager
def _listening(advisor: Advisor, settings: Settings, demonstration: str = "") -> Iterator[str]:
    """The application on a free port of this machine, in a thread."""
    app = create_app(advisor, settings, demonstration)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(10)
            app.state.lanes.close()


def pages(advisor: Advisor) -> Sequence[tuple[str, str]]:
    """Every page of the small service as a name and a path."""
    reported = advisor.outcomes.page(which="reported", limit=1).items[0].recommendation.id
    made = {entry.kind: entry.id for entry in advisor.plans.page().items}
    return (
        ("where", "/"),
        ("where-answer", "/?id=shop-8&workload=web-1k&vcpus=1&memory_mb=2048&min_throughput_ratio=0.9&service=latency"),
        ("where-instance", "/?instance=render-1"),
        ("where-wrong", "/?id=a%20b&vcpus=0&memory_mb=x"),
        ("cloud", "/cloud"),
        ("cloud-sorted", "/cloud?sort=-memory_mb"),
        ("instances", "/instances"),
        ("alarms", "/alarms"),
        ("worth", "/worth"),
        ("audit", "/audit"),
        ("host", "/hosts/h4"),
        ("instance", "/instances/media-1"),
        ("placements", "/placements"),
        ("placement", f"/placements/{reported}"),
        ("models", "/models"),
        ("model", "/models/m-good"),
        ("model-activate", "/models/m-bad/confirm?change=activate"),
        ("plans", "/plans"),
        *((f"plan-new-{kind}", f"/plans/new?kind={kind}") for kind in ("admit", "evacuate", "what_if")),
        *((f"plan-{kind}", f"/plans/{made[kind]}") for kind in PLAN_KINDS),
        ("plan-compare", f"/plans/compare?a={made['evacuate']}&b={made['consolidate']}"),
        ("docs", "/docs"),
        ("missing", "/nowhere"),
    )
