"""Which metrics a host gives: given, for some, absent with the reason, or unknown; and the command check."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from profiler.backends import Backend, BackendError, Counters, LxcBackend, RecordedBackend
from profiler.checks import Check
from profiler.cli import check as command
from profiler.cli import main
from profiler.collectors import collect
from profiler.definitions import DEFINITIONS, NO_INSTANCE, Availability, availability, unavailable
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


def _after_a_second(host: FakeHost, *instances: str, links: Mapping[str, str] = {}) -> dict[str, Availability]:
    """The metrics of two readings, between which every task ran, with these links in /proc."""
    backend = LxcBackend(host, host="h")
    host.links |= links
    first = backend.read_counters()
    _run(host, *instances)
    host.links |= links
    return _by_name(first, backend.read_counters())


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


def test_without_an_instance_only_host_and_driver_domain_are_measured() -> None:
    metrics = _after_a_second(_host())
    assert (metrics["event"].state, metrics["switch"].state) == ("given", "given")
    for name in OF_INSTANCES:
        assert (metrics[name].state, metrics[name].reason) == ("unknown", NO_INSTANCE)
    assert metrics["cpu"].driver_state == "given"


def test_a_metric_that_some_instances_give_is_partly_there_and_names_the_others() -> None:
    mail_uses_the_hosts_own_network = {"/proc/11/ns/net": "net:[1]"}
    metrics = _after_a_second(_host("shop", "mail"), "shop", "mail", links=mail_uses_the_hosts_own_network)
    assert metrics["cpu"].state == "given"
    assert metrics["pages_exchanged"].state == "partly"
    assert "host's own network" in metrics["pages_exchanged"].reason
    assert metrics["pages_exchanged"].reason.endswith("(mail)")


def test_a_metric_that_no_instance_gives_is_absent_with_the_reason() -> None:
    metrics = _after_a_second(_host("shop"), "shop", links={"/proc/10/ns/net": "net:[1]"})
    for name in ("pages_exchanged", "pages_per_execution"):
        assert metrics[name].state == "absent"
        assert metrics[name].reason == "it uses the host's own network, where its traffic cannot be separated"
        assert metrics[name].driver_state == "absent"
        assert "summed over the instances" in metrics[name].driver_reason


def test_a_host_whose_own_times_are_hidden_says_why_for_event_and_driver_domain() -> None:
    host = _host("shop")
    host.files["/proc/stat"] = errno.EACCES
    metrics = _after_a_second(host, "shop")
    assert metrics["event"].state == "absent"
    assert "run as root" in metrics["event"].reason
    assert metrics["cpu"].state == "given"
    assert metrics["cpu"].driver_state == "absent"
    assert "run as root" in metrics["cpu"].driver_reason


@pytest.mark.parametrize(
    ("names", "listed"),
    [(["late"], "(late)"), ([f"web{number:02}" for number in range(20)], "(web00, web01, web02 and 17 more)")],
)
def test_instances_that_have_just_come_are_reported_with_that_reason_and_not_all_listed(
    names: list[str], listed: str
) -> None:
    host = _host("shop", *names)
    backend = LxcBackend(host, host="h")
    first = backend.read_counters()
    _run(host, "shop", *names)
    metrics = _by_name(replace(first, instances={"shop": first.instances["shop"]}), backend.read_counters())
    assert (metrics["cpu"].state, metrics["cpu"].reason) == ("partly", f"this reading was dropped (new) {listed}")


def test_a_clock_that_stood_still_leaves_everything_absent() -> None:
    backend = LxcBackend(_host("shop"), host="h")
    first = backend.read_counters()
    metrics = _by_name(first, backend.read_counters())
    assert {metric.state for metric in metrics.values()} == {"absent"}
    assert {metric.reason for metric in metrics.values()} == {"this reading was dropped (clock)"}


def test_without_a_hypervisor_all_eight_are_absent() -> None:
    metrics = unavailable("no control groups")
    assert [metric.metric for metric in metrics] == NAMES
    assert {(metric.state, metric.reason) for metric in metrics} == {("absent", "no control groups")}


# The command. What it finds on a host is tested above and in test_checks.py; here it is how it is shown.


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """A host that is checked at once; what is found can be changed."""
    found = [
        Check("swap", "ok", "none"),
        Check("turbo", "unknown", "denied", "clock", "run as root"),
        Check("SMT", "warning", "[/red] siblings", "pinning", "smt=0"),
    ]
    monkeypatch.setattr(command, "check_host", lambda: list(found))
    monkeypatch.setattr(command, "passed_over", lambda _name: [])
    return found


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


Checked = Callable[..., tuple[int, str]]


@pytest.fixture
def checked(checks: list[Check], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Checked:
    """Runs the command on a host with this backend; gives its exit code and output."""

    def run(backend: Backend | BackendError, *options: str) -> tuple[int, str]:
        def find(_name: str) -> Backend:
            if isinstance(backend, BackendError):
                raise backend
            return backend

        monkeypatch.setattr(command, "find_backend", find)
        return main(["check", *options]), capsys.readouterr().out

    return run


def test_the_document_holds_hypervisor_checks_and_metrics(checked: Checked) -> None:
    backend = _Ticking(_host("shop"))
    code, printed = checked(backend, "--json")
    document = json.loads(printed)
    assert code == 0
    assert set(document) == {"hypervisor", "checks", "metrics"}
    assert document["hypervisor"] == {"backend": "lxc", "host": "h", "instances": ["shop"], "problem": ""}
    assert [check["state"] for check in document["checks"]] == ["warning", "unknown", "ok"]
    assert [metric["metric"] for metric in document["metrics"]] == NAMES
    assert backend.closed


def test_tables_show_the_worst_first_and_end_with_a_summary(checked: Checked) -> None:
    code, printed = checked(_Ticking(_host("shop")))
    assert code == 0
    assert printed.index("[/red] siblings") < printed.index("turbo") < printed.index("swap")
    last = printed.strip().splitlines()[-1]
    assert last.startswith(
        "1 thing distorts measurements on this host, 1 could not be seen (1 of them root could see)."
    )
    assert "1 instance (lxc)" in last


def test_strict_fails_where_something_distorts_and_only_there(checked: Checked, checks: list[Check]) -> None:
    assert checked(_Ticking(_host("shop")), "--strict", "--json")[0] == 1
    checks.pop()
    assert checked(_Ticking(_host("shop")), "--strict", "--json")[0] == 0
    code, printed = checked(_Ticking(_host("shop")), "--strict")
    assert (code, "No things distort measurements" in printed) == (0, True)


def test_a_host_without_instances_says_what_can_be_measured(checked: Checked) -> None:
    code, printed = checked(_Ticking(_host()))
    last = printed.strip().splitlines()[-1]
    assert code == 0
    assert "No instance runs here (lxc)" in last
    assert "event, switch" in last


@pytest.mark.parametrize("fails_at", [0, 1, 2])
def test_a_hypervisor_that_cannot_be_read_is_reported_and_the_checks_stand(
    fails_at: int, checked: Checked, checks: list[Check]
) -> None:
    reason = "libvirtd gives no answer"
    backend = _Ticking(_host("shop"), fails_at)
    code, printed = checked(backend if fails_at else BackendError(reason), "--json")
    document = json.loads(printed)
    assert code == 0
    assert document["hypervisor"] == {"backend": None, "host": None, "instances": [], "problem": reason}
    assert len(document["checks"]) == len(checks)
    assert {metric["state"] for metric in document["metrics"]} == {"absent"}
    assert backend.closed == (fails_at > 0)


def test_a_trace_with_a_reader_is_left_alone(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = _Ticking(_host("shop"))
    monkeypatch.setattr(command, "traced_already", lambda _source: True)
    code, printed = checked(backend, "--json")
    assert code == 0
    assert "another xentrace runs" in json.loads(printed)["hypervisor"]["problem"]
    assert not backend.closed  # it was never asked for


def test_a_hypervisor_that_auto_passed_over_is_named(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "passed_over", lambda _name: ["libvirt: install python3-libvirt"])
    code, printed = checked(_Ticking(_host("shop")))
    assert (code, "Passed over: libvirt: install python3-libvirt" in printed) == (0, True)
