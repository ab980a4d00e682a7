"""CPU time of short commands from start to end, beside a Python that does nothing.

Each round runs every command once, in turn, so that what else the machine does falls on all of them alike.
`python -m research.benchmarks.command_start [--rounds N]` prints the median, the least and the most CPU seconds (user
and system).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START = "import sys; from {} import main; sys.exit(main())"
SERVER, PROFILER, LAB = (START.format(name) for name in ("api.cli", "profiler.cli", "lab.cli"))
COMMANDS = {
    "python -c pass (control)": ("pass",),
    "cotenant --help": (SERVER, "--help"),
    "cotenant where": (SERVER, "where", "examples/cloud.yaml", "--instance", "examples/shop-7.yaml"),
    "cotenant demo": (SERVER, "demo"),
    "cotenant serve --help": (SERVER, "serve", "--help"),
    "cotenant models --help": (SERVER, "models", "--help"),
    "cotenant-profiler --help": (PROFILER, "--help"),
    "cotenant-lab --help": (LAB, "--help"),
}


def cpu_s(arguments: Sequence[str]) -> float:
    """User and system seconds of one `python -c`, its own and of the children it waited for."""
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", *arguments], os.environ, file_actions=silent)
    _, status, used = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)} failed")
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    os.chdir(ROOT)
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for at in range(rounds + 1):
        for name, arguments in COMMANDS.items():
            used = cpu_s(arguments)
            if at:  # the first round fills caches of the file system and of compiled modules
                seconds[name].append(used)
    width = max(map(len, COMMANDS))
    print(f"{'CPU seconds':{width}}  median  least   most")
    for name, all_of in seconds.items():
        print(f"{name:{width}}  {statistics.median(all_of):6.3f} {min(all_of):6.3f} {max(all_of):6.3f}")


if __name__ == "__main__":
    main()
