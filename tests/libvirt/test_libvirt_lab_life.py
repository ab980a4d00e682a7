"""Guests and daemons that come, go, hang and change while they are read; settings as virsh makes them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.processes import wait_until
from profiler.backends import BackendError
from profiler.backends.libvirt.backend import LibvirtBackend
from profiler.backends.sources import LiveSource
from profiler.collectors import Drop
from profiler.names import instance_id
from profiler.observed import Instance
from tests.libvirt.guests import Lab
from tests.libvirt.measuring import during, open_backend, over

pytestmark = pytest.mark.libvirt

REPOSITORY = Path(__file__).parents[2]
GIVES_UP_WITHIN_S = 6.0
UNPRIVILEGED = "65534"


def test_guests_are_listed_with_what_they_have(lab: Lab, backend: LibvirtBackend) -> None:
    listed = backend.list_instances()
    assert [one.id for one in listed] == sorted(instance_id(guest.name) for guest in lab.guests)
    assert all((one.vcpus, one.memory_mb, one.host) == (1, 96.0, "lab-host") for one in listed)


def test_free_guests_have_no_settings_but_the_default_weight(lab: Lab, backend: LibvirtBackend) -> None:
    settings = backend.read_isolation(Instance("shop"))
    assert settings.weight in (256, None)  # None where libvirt has no cpu controller
    assert (settings.pinning, settings.cap_percent, settings.disk_limit_mb_s) == (None, None, None)


def test_settings_that_virsh_makes_are_read(lab: Lab, backend: LibvirtBackend) -> None:
    guest, virsh = lab.guests[1], lab.daemon.virsh
    schedule = ("schedinfo", *guest.arguments, "--live")
    tune = ("blkdeviotune", *guest.arguments, "--device", "vda", "--live", "--total-bytes-sec")
    try:
        virsh("vcpupin", *guest.arguments, "--vcpu", "0", "--live", "--cpulist", "1")
        virsh(*schedule, "--set", "cpu_shares=2048", "--set", "vcpu_period=100000", "--set", "vcpu_quota=40000")
        virsh(*tune, "2000000")
        settings = backend.read_isolation(Instance(instance_id(guest.name)))
        assert str(settings.pinning) == "0:1"
        assert (settings.cap_percent, settings.disk_limit_mb_s) == (40.0, 2.0)
        assert settings.weight == (512 if Path("/sys/fs/cgroup/cpu/machine").exists() else 5243)
        lab.ask(guest, "cgi-bin/spin?4")
        time.sleep(0.3)
        assert 5 < over(backend, 2.0).of(guest, "cpu") < 46  # a cap is a limit, not a promise
    finally:
        virsh("vcpupin", *guest.arguments, "--vcpu", "0", "--live", "--cpulist", "r")
        virsh(*schedule, "--set", "cpu_shares=1024", "--set", "vcpu_quota=-1")
        virsh(*tune, "0")


def test_a_bandwidth_that_virsh_sets_is_read_in_mbit(lab: Lab, backend: LibvirtBackend) -> None:
    guest = lab.guests[0]
    tune = ("domiftune", *guest.arguments, "--interface", guest.tap, "--live", "--outbound")
    try:
        lab.daemon.virsh(*tune, "1000,2000,256")
    except LabError as error:
        pytest.skip(f"this kernel cannot shape a tap as libvirt asks: {str(error)[-120:]}")
    try:
        network = backend.read_isolation(Instance("shop")).network
        assert network is not None
        assert (network.mode, network.rate_mbit, network.ceil_mbit) == ("shared", 8.0, 16.0)
    finally:
        lab.daemon.virsh(*tune, "0")


def test_a_guest_that_is_destroyed_between_readings_is_dropped(lab: Lab, backend: LibvirtBackend) -> None:
    brief = lab.add("brief")
    window = during(backend, lambda: lab.destroy(brief))
    assert window.collected.drops == (Drop("brief", "vanished"),)
    assert window.of(lab.guests[0], "cpu") >= 0
    assert {absence.instance for absence in window.collected.absences} == set()


def test_a_guest_that_is_started_anew_is_another_one(lab: Lab, backend: LibvirtBackend) -> None:
    brief = lab.add("brief")
    try:

        def restart() -> None:
            lab.destroy(brief)
            lab.add("brief")

        window = during(backend, restart)
        assert window.second.vanished == ("brief",)
        assert window.collected.drops == (Drop("brief", "vanished"),)
        assert "brief" in backend.read_counters().instances
    finally:
        lab.destroy(lab.guests[-1])


@pytest.mark.measured
def test_a_paused_guest_stands_still_and_stays_listed(lab: Lab, backend: LibvirtBackend) -> None:
    guest = lab.guests[0]
    lab.daemon.virsh("suspend", *guest.arguments)
    try:
        window = over(backend, 1.0)
        assert window.of(guest, "cpu") < 1
        assert window.of(guest, "block") > 98
    finally:
        lab.daemon.virsh("resume", *guest.arguments)


@pytest.mark.measured
def test_a_killed_libvirtd_is_an_error_within_seconds_and_a_new_one_is_found(lab: Lab, backend: LibvirtBackend) -> None:
    before = backend.read_counters()
    lab.daemon.kill()
    began = time.monotonic()
    with pytest.raises(BackendError, match=r"libvirt at .* cannot be read"):
        backend.read_counters()
    assert time.monotonic() - began < GIVES_UP_WITHIN_S
    lab.daemon.start()
    after = backend.read_counters()
    assert set(after.instances) == set(before.instances)
    assert after.vanished == ()  # the guests went on, and so do their counters


@pytest.mark.measured
def test_a_libvirtd_that_hangs_is_an_error_within_seconds_each_time(lab: Lab, backend: LibvirtBackend) -> None:
    backend.read_counters()
    with lab.daemon.hanging():
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(BackendError, match="gave no answer in"):
                backend.read_counters()
            assert time.monotonic() - began < GIVES_UP_WITHIN_S
    assert set(backend.read_counters().instances) == {instance_id(guest.name) for guest in lab.guests}


@pytest.mark.measured
def test_a_backend_that_is_made_while_libvirtd_hangs_says_so_and_ends(lab: Lab) -> None:
    with lab.daemon.hanging():
        began = time.monotonic()
        with pytest.raises(BackendError, match="gave no answer in"):
            open_backend(lab)
        assert time.monotonic() - began < 2 * GIVES_UP_WITHIN_S


def test_a_guest_without_a_pid_file_is_found_by_its_command_line(lab: Lab) -> None:
    """As outside of the lab's mount namespace, where /run/libvirt is not the lab's."""
    backend = open_backend(lab, LiveSource())
    try:
        window = over(backend, 0.5)
        assert all(window.of(guest, "waiting") >= 0 for guest in lab.guests)
    finally:
        backend.close()


def _left_of(directory: str) -> list[str]:
    """The lab's folder, processes that name it, and control groups of its guest."""
    found = [directory] if Path(directory).exists() else []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if directory in cmdline.read_text(errors="replace"):
                found.append(str(cmdline))
    return found + [str(path) for path in Path("/sys/fs/cgroup").glob("*/machine/*kept*")]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_lab_however_it_ends(how: signal.Signals) -> None:
    script = Path(__file__).with_name("kept.py")
    started = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, start_new_session=True,
    )  # fmt: skip
    assert started.stdout is not None
    directory = started.stdout.readline().strip()
    assert len(_left_of(directory)) > 2
    started.send_signal(how)
    started.wait(30)
    started.stdout.close()
    assert wait_until(lambda: _left_of(directory) == [], 20)


def test_an_unprivileged_user_reads_everything_that_needs_no_privileges(lab: Lab) -> None:
    """Without KVM that is all eight metrics: the kernel's counts and libvirt's read-only socket are for all users."""
    as_account = ["setpriv", f"--reuid={UNPRIVILEGED}", f"--regid={UNPRIVILEGED}", "--clear-groups", sys.executable]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"}
    script = str(Path(__file__).with_name("as_nobody.py"))
    able = subprocess.run([*as_account, "-c", "import profiler.backends, libvirt"], env=environment, check=False)
    if able.returncode != 0:
        pytest.skip("an unprivileged user may not run this Python from where it is installed")
    done = subprocess.run(
        [*as_account, script, lab.uri], capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert set(said["instances"]) == {instance_id(guest.name) for guest in lab.guests}
    assert all(not absent for absent in said["absent"].values()), said
