"""Makes tests/recordings/libvirt-tcg.json: three readings of two loaded guests (run as root with PYTHONPATH=.)."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from profiler.backends.sources import RecordingSource
from tests.libvirt.guests import Lab, guests
from tests.libvirt.lab_source import LabSource
from tests.libvirt.measuring import open_backend, over

RECORDING = Path(__file__).parents[1] / "recordings" / "libvirt-tcg.json"
_READINGS = 3


def record(lab: Lab, target: Path) -> None:
    """One guest serves, the other computes and writes; both have limits."""
    shop, batch = lab.guests
    lab.daemon.virsh("vcpupin", *shop.arguments, "--vcpu", "0", "--live", "--cpulist", "0")
    lab.daemon.virsh("schedinfo", *batch.arguments, "--live", "--set", "cpu_shares=512", "--set", "vcpu_quota=60000")
    lab.daemon.virsh("blkdeviotune", *batch.arguments, "--device", "vda", "--live", "--total-bytes-sec", "8000000")
    source = RecordingSource(LabSource(lab.daemon.state))
    backend = open_backend(lab, source)
    lab.ask(batch, "cgi-bin/spin?20")
    with lab.load(shop, "100k"):
        time.sleep(0.5)
        for number in range(_READINGS):
            if number:
                source.cut()
                lab.ask(batch, "cgi-bin/write?2")
                time.sleep(1.0)
            backend.read_counters()
            for instance in backend.list_instances():
                backend.read_isolation(instance)
    note = f"two guests of the libvirt lab under {lab.accelerator}: one serves 100 KB pages, one computes and writes"
    source.save(target, backend="libvirt", host="libvirt-lab", note=note)
    backend.close()


if __name__ == "__main__":
    with guests(2, names=("shop", "batch"), accelerator="tcg") as started:
        over(backend := open_backend(started), 0.2)
        backend.close()
        record(started, Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDING)
