"""Checks: each with a host on which it is fine, one on which it distorts, and one on which it cannot be decided."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.checks import RULES, Check, check_host, counters, worst_first
from profiler.checks.hypervisors import traced_already
from tests.examples import examples
from tests.profiler.check_cases import CASES, CLOCK, Case
from tests.profiler.checked_host import CPU, CheckedHost, bare_host, dom0, virtual_host
from tests.profiler.mutation import mutated

RECORDINGS = Path(__file__).parents[2].with_name("shared") / "recordings" / "xen"
HOSTS: dict[str, Callable[[], CheckedHost]] = {"bare": bare_host, "virtual": virtual_host, "dom0": dom0}


# On a virtual machine these are never fine, whatever its owner does; where the virtual host is not the case itself they
# are set aside.
NEVER_FINE_IN_A_VM = {"hypervisor below", "nested KVM", "SMT"}


def _quiet(host: str) -> dict[str, Check]:
    return HOSTS[host]().checks()


@pytest.mark.parametrize("host", HOSTS)
def test_nothing_distorts_on_a_quiet_host(host: str) -> None:
    left = {name: check for name, check in _quiet(host).items() if check.state != "ok"}
    assert set(left) == (NEVER_FINE_IN_A_VM if host == "virtual" else set())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_check_sees_its_own_cause_and_one_cause_is_one_warning(case: Case) -> None:
    host = HOSTS[case.host]()
    host.change(case.now)
    checks = host.checks(case.later)
    check = checks[case.name]
    assert (check.state, case.shows in check.value) == (case.state, True), check
    assert bool(check.distorts) == (check.state != "ok")
    assert bool(check.fix) or check.state != "warning"
    if case.state == "warning":
        warnings = {name for name, check in checks.items() if check.state == "warning"}
        assert warnings <= {case.name} | (NEVER_FINE_IN_A_VM if case.host == "virtual" else set())


def test_every_check_was_seen_fine_distorting_and_unknown() -> None:
    seen = {(case.name, case.host == "dom0", case.state) for case in CASES}
    seen |= {(name, host == "dom0", check.state) for host in HOSTS for name, check in _quiet(host).items()}
    seen |= {(name, host == "dom0", check.state) for host in HOSTS for name, check in _denied(HOSTS[host]()).items()}
    for rule in RULES:
        for state in ("ok", "warning", "unknown"):
            if (rule.name, state) in {("disk counts of groups", "ok"), ("nested KVM", "ok")}:
                continue  # fine where they do not apply
            if rule in counters.OF_HARDWARE and state != "ok":
                continue  # whatever they find distorts nothing
            where = [rule.where == "dom0"] if rule.where != "everywhere" else [False, True]
            assert any((rule.name, in_dom0, state) in seen for in_dom0 in where), f"{rule.name} was never {state}"


def _denied(host: CheckedHost, number: int = errno.EACCES) -> dict[str, Check]:
    """The checks of a host that lets nothing be read but what kind of host it is."""
    control = {path: text for path, text in host.files.items() if path == "/proc/xen/capabilities"}
    host.hidden |= {"/proc", "/sys/kernel/debug", "/sys/kernel/debug/kvm", "/sys/kernel/debug/xen-netback"}
    host.files = {**dict.fromkeys(host.files, number), **control}
    host.answers = {name: OSError(number, os.strerror(number)) for name in host.answers}
    return host.checks()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EISDIR, errno.ENOENT, errno.EINVAL])
@pytest.mark.parametrize("host", HOSTS)
def test_nothing_is_fine_where_nothing_can_be_seen(host: str, number: int) -> None:
    checks = _denied(HOSTS[host](), number)
    assert not [check for check in checks.values() if check.state == "ok"]
    if number == errno.EACCES:
        assert {check.state for check in checks.values()} == {"unknown"}
        assert len(checks) > 10
        assert all(check.fix == "run as root" for check in checks.values() if "permission denied" in check.value)


def test_what_only_root_may_see_says_so_and_is_not_taken_for_absent() -> None:
    host = bare_host()
    host.hidden.add("/sys/kernel/debug/kvm")
    check = host.checks()["KVM counters"]
    assert (check.state, check.fix) == ("unknown", "run as root")
    host.change({"/proc/1/comm": None})
    assert host.checks()["daemons that move work"].state == "unknown"


@pytest.mark.parametrize(("step_s", "state"), [(0.4, "warning"), (-3.0, "warning"), (0.0004, "ok")])
def test_a_clock_that_is_set_while_watched_is_a_warning(step_s: float, state: str) -> None:
    host = bare_host()
    host.wall_step_s = step_s
    assert host.checks()["wall clock"].state == state


def test_a_clock_that_stands_still_leaves_rates_unknown() -> None:
    checks = {check.name: check for check in check_host(bare_host(), lambda _seconds: None)}
    assert {checks[name].state for name in ("steal", "swap", "memory stalls")} == {"unknown"}


def test_a_slow_clock_is_mended_with_a_fast_one_that_is_there() -> None:
    host = bare_host()
    host.change({f"{CLOCK}/current_clocksource": "hpet\n"})
    assert host.checks()["clock source"].fix == f"echo tsc > {CLOCK}/current_clocksource"
    host.change({f"{CLOCK}/available_clocksource": "hpet acpi_pm \n"})
    assert "dmesg" in host.checks()["clock source"].fix


def test_guests_without_kvm_need_no_kvm_counters() -> None:
    host = virtual_host()
    host.change({"/proc/77/task/78/comm": "CPU 0/TCG\n", "/sys/kernel/debug/kvm/exits": None})
    assert not {"KVM counters", "nested KVM"} & set(host.checks())


def test_in_dom0_virtual_cpus_are_not_taken_for_the_hosts() -> None:
    host = dom0()
    host.change({f"{CPU}/smt/active": "1\n", f"{CPU}/cpu0/cpufreq/scaling_governor": "powersave\n"})
    checks = host.checks()
    assert checks["SMT"].state == checks["frequency governor"].state == "ok"
    assert not {"steal", "hypervisor below", "control groups"} & set(checks)


def test_a_trace_that_is_read_already_is_seen() -> None:
    host = dom0()
    assert not traced_already(host)
    host.change({"/proc/9/comm": "xentrace\n"})
    assert traced_already(host)
    assert not traced_already(bare_host())
    host.change({"/proc/1/comm": None})
    assert not traced_already(host)


def test_checks_ask_tools_only_for_what_reads() -> None:
    host = dom0()
    host.checks()
    assert sorted(host.asked) == sorted(host.answers)  # and each of them once


def test_a_tool_that_hung_is_not_asked_again() -> None:
    host = dom0()
    host.answers["xl info"] = TimeoutError(errno.ETIMEDOUT, "xl gave no answer in 5 s")
    host.answers["xl vcpu-list Domain-0"] = TimeoutError(errno.ETIMEDOUT, "xl gave no answer in 5 s")
    checks = host.checks()
    assert len([key for key in host.asked if key.startswith("xl ")]) == 1
    assert {checks[name].state for name in ("Dom0's CPUs", "Dom0's memory", "SMT", "scheduler rate limit")} == {
        "unknown"
    }
    assert checks["turbo"].state == "ok"


@pytest.mark.parametrize("text", ["9" * 300_000, "\x00" * 1000, "x\n" * 50_000, "[" * 10_000, "٣", "[/bold] [red]"])
@pytest.mark.parametrize("host", HOSTS)
def test_huge_and_strange_files_are_shown_short_and_printable(host: str, text: str) -> None:
    made = HOSTS[host]()
    capabilities = made.files.get("/proc/xen/capabilities", text)
    made.files = {**dict.fromkeys(made.files, text), "/proc/xen/capabilities": capabilities}
    made.answers = dict.fromkeys(made.answers, text)
    for check in made.checks().values():
        assert len(check.value) <= 160
        assert check.value.isprintable()


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_mutated_files_are_read_or_unknown_and_nothing_else(data: st.DataObject) -> None:
    host = HOSTS[data.draw(st.sampled_from(sorted(HOSTS)))]()
    for _ in range(data.draw(st.integers(1, 2))):
        kept: dict[str, Any] = data.draw(st.sampled_from([host.files, host.answers]))
        path = data.draw(st.sampled_from(sorted(kept)))
        kept[path] = data.draw(mutated(str(kept[path])))
    for check in host.checks().values():
        assert check.state in ("ok", "warning", "unknown")
        assert bool(check.distorts) == (check.state != "ok")


@given(st.permutations(list(range(6))))
def test_the_worst_comes_first_and_the_order_else_stays(order: list[int]) -> None:
    states = ["ok", "unknown", "warning", "ok", "warning", "unknown"]
    checks = [Check(str(number), states[number], "") for number in order]  # type: ignore[arg-type]
    sorted_checks = worst_first(checks)
    assert [check.state for check in sorted_checks] == ["warning", "warning", "unknown", "unknown", "ok", "ok"]
    for state in ("warning", "unknown", "ok"):
        kept = [check.name for check in sorted_checks if check.state == state]
        assert kept == [check.name for check in checks if check.state == state]


@pytest.mark.skipif(not RECORDINGS.is_dir(), reason="the recordings of a real Dom0 are not beside this repository")
def test_a_recorded_dom0_is_read_as_it_was_set_up() -> None:
    def text(name: str) -> str:
        return (RECORDINGS / name).read_text(encoding="utf-8", errors="replace")

    host = dom0()
    host.answers |= {
        "xl info": text("xl-info.txt"),
        "xl vcpu-list Domain-0": text("xl-vcpu-list.txt"),
        "xl sched-credit -s": text("xl-sched-credit-s.txt"),
        "xenpm get-cpufreq-para": text("xenpm-cpufreq.txt"),
        "xenpm get-cpuidle-states": text("xenpm-cpuidle.txt"),
    }
    checks = host.checks()
    assert checks["Dom0's CPUs"].value == "CPUs 0"  # booted with dom0_vcpus_pin
    assert checks["Dom0's memory"].value == "dom0_mem=640M,max:640M"
    assert (checks["scheduler rate limit"].state, checks["SMT"].state, checks["idle states"].state) == ("ok",) * 3
    assert checks["frequency governor"].state == checks["turbo"].state == "unknown"  # QEMU shows Xen no P-states


@pytest.mark.skipif(os.geteuid() != 0, reason="without root, every other test of this host shows the same")
def test_this_host_can_be_checked_without_root() -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # the interpreter's own files may be hidden from `nobody`, what is imported already is not
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            found = check_host(sleep=lambda _seconds: None)
            os.write(writing, json.dumps([[check.name, check.state] for check in found]).encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        reported = json.loads(pipe.read())
    assert os.waitpid(child, 0)[1] == 0
    names = {check.name for check in check_host(sleep=lambda _seconds: None)}
    assert {name for name, _ in reported} >= names - {"KVM counters", "nested KVM"}  # guests come and go on this host
    assert {"schedstat", "control groups", "clock source"} <= {name for name, state in reported if state != "unknown"}


def test_this_host_is_checked_in_about_a_second_and_left_alone() -> None:
    paused: list[float] = []
    checks = check_host(sleep=paused.append)
    assert sum(paused) == pytest.approx(1.0)
    assert len(checks) >= 15
