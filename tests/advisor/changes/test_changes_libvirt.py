"""Domains are read and changed by virsh. The virsh here is a stand-in that prints as libvirt 9.0 does (virsh(1))."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from advisor.changes.controller import ChangeFailed, Gone
from advisor.changes.libvirt import Libvirt
from advisor.domain import Change, Command, Host, Instance, IsolationSettings
from advisor.errors import InvalidInput
from advisor.render import commands
from profiler.observed import Pinning

HOST = Host("kvm01", "kvm", pcpus=4, memory_mb=4096, labels={"cgroup_version": "2"})
URI = "qemu+ssh://kvm01/system"
RULE = "----------------------"


class Virsh:
    """One domain `shop` with two vCPUs."""

    def __init__(self) -> None:
        self.texts = {
            "vcpupin 0": "0-3", "vcpupin 1": "0-3", "emulatorpin": "0-3", "cpu_shares": "100", "vcpu_period": "100000",
            "vcpu_quota": "17592186044415", "total_bytes_sec": "0",
        }  # fmt: skip
        self.asked: list[list[str]] = []

    def __call__(self, argv: Sequence[str], patience_s: float = 0.0) -> str:
        assert list(argv[:3]) == ["virsh", "--connect", URI]
        command, domain, words = argv[3], argv[5], list(argv[6:])
        assert argv[4] == "--domain"
        self.asked.append(list(argv[3:]))
        if domain != "shop":
            raise Gone(f"virsh: error: failed to get domain '{domain}'")
        options = dict(pairwise(words))
        match command:
            case "vcpupin":
                name = f"vcpupin {options['--vcpu']}"
                if "--cpulist" in options:
                    self.texts[name] = options["--cpulist"]
                    return ""
                return f" VCPU   CPU Affinity\n{RULE}\n {options['--vcpu']}      {self.texts[name]}\n\n"
            case "emulatorpin":
                if "--cpulist" in options:
                    self.texts["emulatorpin"] = options["--cpulist"]
                    return ""
                return f"emulator: CPU Affinity\n{RULE}\n       *: {self.texts['emulatorpin']}\n\n"
            case "blkdeviotune":
                if "--total-bytes-sec" in options:
                    self.texts["total_bytes_sec"] = options["--total-bytes-sec"]
                    return ""
                return f"total_bytes_sec: {self.texts['total_bytes_sec']}\nread_bytes_sec : 0\nwrite_bytes_sec: 0\n"
        if "--set" in options:
            name, _, text = options["--set"].partition("=")
            self.texts[name] = text
        shown = ("cpu_shares", "vcpu_period", "vcpu_quota")
        return "Scheduler      : posix\n" + "".join(f"{name:<15}: {self.texts[name]}\n" for name in shown)


def changes(executor: Libvirt, wanted: IsolationSettings) -> list[Change]:
    instance = Instance("shop", vcpus=2, host="kvm01", labels={"disk": "vda"})
    found: list[Change] = []
    for command in commands(HOST, instance, IsolationSettings(), wanted):
        meaning = executor.meaning(HOST, command)
        found.append(
            Change(len(found), "kvm01", "shop", meaning.kind, "libvirt", meaning.target, meaning.before, meaning.after)
        )
    return found


@pytest.mark.parametrize(
    ("wanted", "kinds"),
    [
        (IsolationSettings(weight=512), ["weight"]),
        (IsolationSettings(cap_percent=100.0), ["cap"]),
        (IsolationSettings(disk_limit_mb_s=20.0), ["disk"]),
        (IsolationSettings(pinning=Pinning(((1,), (2, 3)))), ["pin", "pin"]),
    ],
)
def test_what_is_rendered_is_set_read_back_and_brought_back(wanted: IsolationSettings, kinds: list[str]) -> None:
    virsh = Virsh()
    before = dict(virsh.texts)
    executor = Libvirt({"kvm01": URI}, virsh)
    made = changes(executor, wanted)
    assert [change.kind for change in made] == kinds
    for change in made:
        former = dict(executor.read(change))
        assert all(executor.same(name, former[name], text) for name, text in change.before.items())
        executor.write(change, change.after)
        found = executor.read(change)
        assert all(executor.same(name, found[name], text) for name, text in change.after.items())
        executor.write(change, {name: text for name, text in former.items() if name != "vcpu_quota"})
        if "vcpu_quota" in former:
            executor.write(change, {"vcpu_quota": former["vcpu_quota"]})
    assert virsh.texts == before


def test_a_pin_to_everywhere_is_every_cpu_of_the_host() -> None:
    executor = Libvirt({"kvm01": URI}, Virsh())
    (first, _) = changes(executor, IsolationSettings(pinning=Pinning(((1,), (2, 3)))))
    assert (first.before, first.after) == ({"vcpupin 0": "0-3"}, {"vcpupin 0": "1"})


def test_a_domain_that_is_gone_and_a_host_without_a_connection_are_said_so() -> None:
    executor = Libvirt({"kvm01": URI}, Virsh())
    (change,) = changes(executor, IsolationSettings(weight=512))
    with pytest.raises(Gone):
        executor.read(replace(change, target="other"))
    with pytest.raises(InvalidInput, match="COTENANT_APPLY_URIS"):
        Libvirt({}, Virsh()).read(change)


def test_a_setting_that_virsh_does_not_show_is_no_success() -> None:
    executor = Libvirt({"kvm01": URI}, lambda argv, patience_s: "Scheduler      : posix\n")
    (change,) = changes(Libvirt({"kvm01": URI}, Virsh()), IsolationSettings(weight=512))
    with pytest.raises(ChangeFailed):
        executor.read(change)


@pytest.mark.parametrize(
    "argv",
    [
        ("virsh", "destroy", "--domain", "shop"),
        ("virsh", "schedinfo", "--domain", "shop", "--live", "--set", "global_period=1"),
        ("virsh", "schedinfo", "--domain", "shop", "--live", "--set", "cpu_shares=1;reboot"),
        ("virsh", "vcpupin", "--domain", "shop", "--vcpu", "0", "--live", "--cpulist", "--config"),
        ("virsh", "migrate", "--live", "--domain", "shop", "--desturi", "qemu+ssh://x/system"),
        ("sh", "-c", "true"),
    ],
)
def test_only_settings_that_advice_sets_are_carried_out(argv: tuple[str, ...]) -> None:
    virsh = Virsh()
    with pytest.raises(InvalidInput):
        Libvirt({"kvm01": URI}, virsh).meaning(HOST, Command("virsh", argv, argv))
    assert virsh.asked == []


def test_a_ledger_that_was_edited_gets_no_further() -> None:
    virsh = Virsh()
    executor = Libvirt({"kvm01": URI}, virsh)
    (change,) = changes(executor, IsolationSettings(weight=512))
    for wrong in (
        replace(change, target="--help"),
        replace(change, after={"cpu_shares": "1 --config"}),
        replace(change, after={"memory": "1"}),
    ):
        with pytest.raises(InvalidInput):
            executor.write(wrong, wrong.after)
    assert virsh.asked == []
