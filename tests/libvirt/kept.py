"""Starts a guest, says where the lab is, and keeps it until it is killed: for a test of what is left then."""

from __future__ import annotations

import signal
import time

from tests.libvirt.guests import guests

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored
    with guests(0, accelerator="tcg") as lab:
        lab.add("kept", paused=True)
        print(lab.daemon.directory, flush=True)
        time.sleep(600)
