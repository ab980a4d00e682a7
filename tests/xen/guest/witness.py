"""Runs in Dom0 beside the profiler: keeps raw counters of other sources, with the time, until it is asked to stop."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

_FILES = ("/proc/stat", "/proc/net/dev", "/proc/interrupts")
_RINGS = Path("/sys/kernel/debug/xen-netback")


def sample() -> dict[str, object]:
    """The monotonic time (seconds) in the middle of the reading, files by path, and what `xl list` prints."""
    began = time.monotonic()
    names = [*_FILES, *(str(path) for path in _RINGS.glob("vif*/io_ring_q*"))]
    files = {}
    for name in names:
        try:
            files[name] = Path(name).read_text()
        except OSError:  # a guest that is going away
            continue
    middle = (began + time.monotonic()) / 2
    listed = subprocess.run(["xl", "list"], capture_output=True, text=True, timeout=20, check=False).stdout
    return {"time_s": middle, "list_time_s": time.monotonic(), "files": files, "list": listed}


def main(output: Path, stop: Path, every_s: float) -> None:
    """Append one line of JSON per sample to `output` until `stop` exists."""
    with output.open("w") as lines:
        while True:
            last = stop.exists()
            lines.write(json.dumps(sample()) + "\n")
            lines.flush()
            if last:
                return
            time.sleep(every_s)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
