"""Domains of libvirt within what a host allows; virsh is a stand-in that prints as libvirt 9.0 does (virsh(1))."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from profiler.acting.allowed import Allowed, SettingRefused
from profiler.acting.domains import DomainSettings

ALLOWED = Allowed(("*",), 60, (64.0, 2048.0), (50.0, float("inf")), frozenset({2, 3}), 10.0)


class Virsh:
    """What was asked; one schedinfo is shown."""

    def __init__(self) -> None:
        self.asked: list[Sequence[str]] = []

    def __call__(self, argv: Sequence[str], patience_s: float) -> str:
        self.asked.append(argv)
        return (
            "Scheduler      : posix\ncpu_shares     : 100\nvcpu_period    : 100000\nvcpu_quota     : 17592186044415\n"
        )


@pytest.fixture
def virsh() -> Virsh:
    return Virsh()


@pytest.fixture
def domains(virsh: Virsh, monkeypatch: pytest.MonkeyPatch) -> DomainSettings:
    monkeypatch.setattr("profiler.acting.group_files.find_mounts", lambda source: {"unified": "/sys/fs/cgroup"})
    return DomainSettings("qemu:///system", virsh)


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        ({"cpu_shares": "400"}, True),  # 1024 of 256, by version 2 of control groups
        ({"cpu_shares": "900"}, False),
        ({"cpu_shares": "20"}, False),
        ({"vcpu_period": "100000", "vcpu_quota": "50000"}, True),
        ({"vcpu_period": "100000", "vcpu_quota": "17592186044415"}, True),
        ({"vcpu_period": "100000", "vcpu_quota": "-1"}, True),
        ({"vcpu_period": "100000", "vcpu_quota": "1000"}, False),
        ({"vcpu_quota": "50000"}, False),
        ({"vcpupin 0": "2-3", "emulatorpin": "3"}, True),
        ({"vcpupin 0": "0-3"}, False),
        ({"vcpupin 0": "r"}, False),
        ({"outbound 52:54:00:12:34:56": "1250,1250,64"}, True),
        ({"outbound 52:54:00:12:34:56": "0"}, True),
        ({"outbound 52:54:00:12:34:56": "1,1,1"}, False),
        ({"outbound 52:54:00:12:34:56": "1250,1,64"}, False),  # its peak is a hundredth
        ({"outbound 52:54:00:12:34:56": "1250,1250,1"}, False),  # takes no whole frame
        ({"outbound 52:54:00:12:34:56": "1250"}, False),
        ({"outbound 52:54:00:12:34:56": "1250,1250"}, False),
        ({"outbound 52:54:00:12:34:56": "-"}, False),
        ({"total_bytes_sec vda": "1"}, False),
        ({"memory": "1"}, False),
    ],
    ids=str,
)
def test_bounds_hold_for_domains(domains: DomainSettings, settings: Mapping[str, str], *, allowed: bool) -> None:
    if allowed:
        ALLOWED.check(domains, "shop", settings)
    else:
        with pytest.raises(SettingRefused):
            ALLOWED.check(domains, "shop", settings)


def test_settings_are_read_and_written_by_lists_of_arguments(domains: DomainSettings, virsh: Virsh) -> None:
    assert domains.read("shop", ["cpu_shares"]) == {"cpu_shares": "100"}
    domains.write("shop", {"cpu_shares": "400", "vcpupin 1": "2"})
    start = ["virsh", "--connect", "qemu:///system"]
    assert [list(argv) for argv in virsh.asked] == [
        [*start, "schedinfo", "--domain", "shop", "--live"],
        [*start, "schedinfo", "--domain", "shop", "--live", "--set", "cpu_shares=400"],
        [*start, "vcpupin", "--domain", "shop", "--vcpu", "1", "--live", "--cpulist", "2"],
    ]


@pytest.mark.parametrize("domain", ["", "-x", "--help", "0", "7"])
def test_a_name_that_virsh_takes_for_something_else_is_refused(
    domains: DomainSettings, virsh: Virsh, domain: str
) -> None:
    with pytest.raises(SettingRefused):
        domains.write(domain, {"cpu_shares": "400"})
    assert virsh.asked == []


@pytest.mark.parametrize("text", ["1;reboot", "", "1 2", "$(reboot)", "-\n"])
def test_a_text_that_is_none_is_refused(domains: DomainSettings, virsh: Virsh, text: str) -> None:
    with pytest.raises(SettingRefused):
        domains.write("shop", {"cpu_shares": text})
    assert virsh.asked == []
