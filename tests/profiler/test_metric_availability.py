"""Which metrics a host gives: given, for some, absent with the reason, or not to be told; and the command check."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import pytest

from profiler.backends import Backend, BackendError, Counters, LxcBackend, RecordedBackend
from profiler.checks import Check
from profiler.cli import check as command
from profiler.cli import main
from profiler.collectors import collect
from profiler.definitions import DEFINITIONS
from profiler.metric_availability import NOBODY, Availability, availability, unavailable
from profiler.metrics import EIGHT
from tests.profiler.contract import MAKERS, Case
from tests.profiler.fake_host import FakeHost

NAMES = [metric.name for metric in EIGHT]
OF_INSTANCES = [metric.name for metric in EIGHT if metric.default_scope == "instance"]


def _host(*instances: str) -> FakeHost:
    host = FakeHost()
    host.version_2("empty.slice", [], 0)
    for number, name in enumerate(instances, start=10):
        host.version_2(f"lxc.payload.{name}", [number], 1_000_000)
        host.task(number, 1_000_000_000, 5, 3, 3)
    return host


def _run(host: FakeHost, *instances: str) -> None:
    """A second in which every task ran."""
    host.later()
    for number, name in enumerate(instances, start=10):
        host.version_2(f"lxc.payload.{name}", [number], 1_500_000)
        host.task(number, 1_500_000_000, 6, 9, 9)


def _by_name(first: Counters, second: Counters) -> dict[str, Availability]:
    metrics = availability(first, second, "lxc")
    assert [metric.metric for metric in metrics] == NAMES
    return {metric.metric: metric for metric in metrics}


def test_a_host_that_shows_everything_gives_all_eight(recording: Path) -> None:
    backend = RecordedBackend(recording)
    metrics = _by_name(backend.read_counters(), backend.read_counters())
    assert {metric.state for metric in metrics.values()} == {"given"}
    assert {metric.reason for metric in metrics.values()} == {""}
    assert {metric.driver_state for metric in metrics.values() if metric.scope == "instance"} == {"given"}
    assert {metrics[name].driver_state for name in ("event", "switch")} == {""}


@pytest.mark.parametrize("case", MAKERS.values(), ids=lambda case: case.name)
def test_on_every_hypervisor_what_is_not_given_has_a_reason_and_a_source(case: Case) -> None:
    host = case.source()
    backend = case.backend(host)
    first = backend.read_counters()
    case.later(host)
    second = backend.read_counters()
    given = {(sample.scope, sample.metric, sample.instance) for sample in collect(first, second).samples}
    for metric in availability(first, second, backend.name):
        assert metric.source
        assert bool(metric.reason) == (metric.state != "given")
        assert bool(metric.driver_reason) == (metric.driver_state == "absent")
        whose = sorted(second.instances) if metric.scope == "instance" else [None]
        assert (metric.state == "given") == all((metric.scope, metric.metric, name) in given for name in whose)
        assert (metric.driver_state == "given") == (("driver_domain", metric.metric, None) in given)
    backend.close()


def test_the_source_of_each_metric_is_that_of_the_definitions(recording: Path) -> None:
    backend = RecordedBackend(recording)
    metrics = _by_name(backend.read_counters(), backend.read_counters())
    assert [metrics[cell.metric].source for cell in DEFINITIONS["lxc"]] == [cell.source for cell in DEFINITIONS["lxc"]]


def test_without_an_instance_only_host_and_driver_domain_can_be_told() -> None:
    host = _host()
    backend = LxcBackend(host, host="h")
    first = backend.read_counters()
    host.later()
    metrics = _by_name(first, backend.read_counters())
    assert (metrics["event"].state, metrics["switch"].state) == ("given", "given")
    for name in OF_INSTANCES:
        assert (metrics[name].state, metrics[name].reason) == ("unknown", NOBODY)
    assert metrics["cpu"].driver_state == "given"


def test_a_metric_that_some_instances_give_is_partly_there_and_names_the_others() -> None:
    host = _host("shop", "mail")
    host.links["/proc/11/ns/net"] = "net:[1]"  # mail uses the host's own network
    backend = LxcBackend(host, host="h")
    first = backend.read_counters()
    _run(host, "shop", "mail")
    host.links["/proc/11/ns/net"] = "net:[1]"
    metrics = _by_name(first, backend.read_counters())
    assert metrics["cpu"].state == "given"
    assert metrics["pages_exchanged"].state == "partly"
    assert "host's own network" in metrics["pages_exchanged"].reason
    assert metrics["pages_exchanged"].reason.endswith("(mail)")


def test_a_metric_that_no_instance_gives_is_absent_with_the_reason() -> None:
    host = _host("shop")
    host.links["/proc/10/ns/net"] = "net:[1]"
    backend = LxcBackend(host, host="h")
    first = backend.read_counters()
    _run(host, "shop")
    host.links["/proc/10/ns/net"] = "net:[1]"
    metrics = _by_name(first, backend.read_counters())
    for name in ("pages_exchanged", "pages_per_execution"):
        assert metrics[name].state == "absent"
        assert metrics[name].reason == "it uses the host's own network, where traffic cannot be told apart"
        assert metrics[name].driver_state == "absent"
        assert "summed over the instances" in metrics[name].driver_reason


def test_a_host_whose_own_times_are_hidden_says_why_for_event_and_driver_domain() -> None:
    host = _host("shop")
    host.files["/proc/stat"] = errno.EACCES
    backend = LxcBackend(host, host="h")
    first = backend.read_counters()
    _run(host, "shop")
    metrics = _by_name(first, backend.read_counters())
    assert metrics["event"].state == "absent"
    assert "run as root" in metrics["event"].reason
    assert metrics["cpu"].state == "given"
    assert metrics["cpu"].driver_state == "absent"
    assert "run as root" in metrics["cpu"].driver_reason


def test_an_instance_that_has_just_come_is_told_with_that_reason() -> None:
    host = _host("shop", "late")
    backend = LxcBackend(host, host="h")
    first = backend.read_counters()
    _run(host, "shop", "late")
    metrics = _by_name(replace(first, instances={"shop": first.instances["shop"]}), backend.read_counters())
    assert (metrics["cpu"].state, metrics["cpu"].reason) == ("partly", "this reading was dropped (new) (late)")


def test_a_clock_that_stood_still_leaves_everything_absent() -> None:
    backend = LxcBackend(_host("shop"), host="h")
    first = backend.read_counters()
    metrics = _by_name(first, backend.read_counters())
    assert {metric.state for metric in metrics.values()} == {"absent"}
    assert {metric.reason for metric in metrics.values()} == {"this reading was dropped (clock)"}


def test_many_instances_with_one_reason_are_counted_and_not_all_listed() -> None:
    names = [f"web{number:02}" for number in range(20)]
    host = _host("shop", *names)
    backend = LxcBackend(host, host="h")
    first = backend.read_counters()
    _run(host, "shop", *names)
    second = backend.read_counters()
    first = replace(first, instances={"shop": first.instances["shop"]})
    assert _by_name(first, second)["cpu"].reason.endswith("(web00, web01, web02 and 17 more)")


def test_without_a_hypervisor_all_eight_are_absent() -> None:
    metrics = unavailable("no control groups")
    assert [metric.metric for metric in metrics] == NAMES
    assert {(metric.state, metric.reason) for metric in metrics} == {("absent", "no control groups")}


# The command. What it finds on a host is told above and in test_checks.py; here it is how it is told.


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """A host that is checked at once; what it finds can be changed."""
    found = [
        Check("swap", "ok", "none"),
        Check("turbo", "unknown", "denied", "clock", "run as root"),
        Check("SMT", "warning", "[/red] siblings", "pinning", "smt=0"),
    ]
    monkeypatch.setattr(command, "check_host", lambda: list(found))
    return found


def _serve(monkeypatch: pytest.MonkeyPatch, backend: Backend | BackendError) -> None:
    def find(_name: str) -> Backend:
        if isinstance(backend, BackendError):
            raise backend
        return backend

    monkeypatch.setattr(command, "find_backend", find)
    monkeypatch.setattr(command, "passed_over", lambda _name: [])


class _Ticking(LxcBackend):
    """A backend on a host where each reading finds that a second has passed."""

    def __init__(self, host: FakeHost, fails_at: int = 0) -> None:
        super().__init__(host, host="h")
        self.closed = False
        self._ticks = host
        self._left = fails_at

    def read_counters(self) -> Counters:
        self._left -= 1
        if self._left == 0:
            raise BackendError("libvirtd gives no answer")
        self._ticks.later()
        return super().read_counters()

    def close(self) -> None:
        self.closed = True


def test_the_document_holds_hypervisor_checks_and_metrics(
    quick: list[Check], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = _Ticking(_host("shop"))
    _serve(monkeypatch, backend)
    assert main(["check", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"hypervisor", "checks", "metrics"}
    assert document["hypervisor"] == {"backend": "lxc", "host": "h", "instances": ["shop"], "problem": ""}
    assert [check["state"] for check in document["checks"]] == ["warning", "unknown", "ok"]
    assert [metric["metric"] for metric in document["metrics"]] == NAMES
    assert backend.closed


def test_tables_show_the_worst_first_and_end_with_a_summary(
    quick: list[Check], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _serve(monkeypatch, _Ticking(_host("shop")))
    assert main(["check"]) == 0
    printed = capsys.readouterr().out
    assert printed.index("[/red] siblings") < printed.index("turbo") < printed.index("swap")
    last = printed.strip().splitlines()[-1]
    assert last.startswith(
        "1 thing distorts measurements on this host, 1 could not be seen (1 of them root could see)."
    )
    assert "1 instance (lxc)" in last


def test_strict_fails_where_something_distorts_and_only_there(
    quick: list[Check], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _serve(monkeypatch, _Ticking(_host("shop")))
    assert main(["check", "--strict", "--json"]) == 1
    quick.pop()
    assert main(["check", "--strict", "--json"]) == 0
    assert main(["check", "--strict"]) == 0
    assert "No things distort measurements" in capsys.readouterr().out


def test_a_host_without_instances_says_what_can_be_told(
    quick: list[Check], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _serve(monkeypatch, _Ticking(_host()))
    assert main(["check"]) == 0
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert "No instance runs here (lxc)" in last
    assert "event, switch" in last


@pytest.mark.parametrize("fails_at", [0, 1, 2])
def test_a_hypervisor_that_cannot_be_read_is_told_and_the_checks_stand(
    fails_at: int, quick: list[Check], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "libvirtd gives no answer"
    backend = _Ticking(_host("shop"), fails_at)
    _serve(monkeypatch, backend if fails_at else BackendError(reason))
    assert main(["check", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["hypervisor"] == {"backend": None, "host": None, "instances": [], "problem": reason}
    assert len(document["checks"]) == len(quick)
    assert {metric["state"] for metric in document["metrics"]} == {"absent"}
    assert backend.closed == (fails_at > 0)


def test_a_trace_that_somebody_reads_is_left_alone(
    quick: list[Check], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = _Ticking(_host("shop"))
    _serve(monkeypatch, backend)
    monkeypatch.setattr(command, "traced_already", lambda _source: True)
    assert main(["check", "--json"]) == 0
    assert "another xentrace runs" in json.loads(capsys.readouterr().out)["hypervisor"]["problem"]
    assert not backend.closed  # it was never asked for


def test_a_hypervisor_that_auto_passed_over_is_named(
    quick: list[Check], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _serve(monkeypatch, _Ticking(_host("shop")))
    monkeypatch.setattr(command, "passed_over", lambda _name: ["libvirt: install python3-libvirt"])
    assert main(["check"]) == 0
    assert "Passed over: libvirt: install python3-libvirt" in capsys.readouterr().out
