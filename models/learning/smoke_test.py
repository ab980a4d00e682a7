"""Smoke test of an artifact: loads it and predicts once in a separate process, which may crash or hang safely.

`artifact.load` checks the files as far as that is possible. What remains runs in C code of numpy and trees.c.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

import numpy as np

from models.data.profile import WorkloadProfile
from models.data.scene import ProfileTable, SceneBatch, build_batch
from models.prediction import TARGETS
from profiler.files import sha256
from profiler.host_kinds import HOST_KINDS
from profiler.observed import Host, Instance

if TYPE_CHECKING:
    from models.prediction import Predictor

_passed: set[str] = set()  # checksums of artifacts that passed in this process and need no second test
LIMIT_S = 60.0  # of CPU time: a test takes about two seconds of it, most of them for loading libraries
STALLED_S = 120.0  # without any CPU time, which even a crowded machine gives: it hangs
_LOOK_S = 0.05
MOST_BYTES = 2 * 2**30  # of memory, the stacks of threads among it
MOST_PROFILES = 50  # profiles of the training that are tried
SECRETS = ("COTENANT_", "OS_", "PG")  # environment variables with these prefixes are not passed on


class SmokeTestError(ValueError):
    """An artifact cannot be read, or its first prediction died, took too long or was none."""


def run(artifact: Path) -> None:
    """Load `artifact` and predict a few scenes in another process, within LIMIT_S of CPU time however long that takes;
    SmokeTestError says how it failed."""
    sums = _sums(artifact)
    if sums in _passed:
        return
    environment = {name: value for name, value in os.environ.items() if not name.startswith(SECRETS)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-P", "-m", "models.learning.smoke_test", str(artifact.resolve())]
    with (
        TemporaryFile() as errors,
        subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
        ) as process,
    ):
        try:
            _await(process)
        finally:
            process.kill()
        errors.seek(0)
        last_words = errors.read().decode("utf-8", "replace").strip().splitlines()[-1:]
    if process.returncode < 0:
        name = signal.Signals(-process.returncode).name
        raise SmokeTestError(f"the process of its first prediction ended by {name}")
    if process.returncode:
        raise SmokeTestError(last_words[0][:500] if last_words else "its first prediction failed")
    if sums is not None:
        _passed.add(sums)


@dataclass(slots=True)
class ProcessProgress:
    """How a process fares by the CPU time that it has used (s) and a clock (s)."""

    used_s: float = 0.0
    changed_s: float = 0.0

    def why_not(self, used_s: float, now_s: float) -> str:
        """Why its prediction is not waited for any longer, empty = it is."""
        if used_s != self.used_s:
            self.used_s, self.changed_s = used_s, now_s
        if used_s > LIMIT_S:
            return f"its first prediction was not there after {LIMIT_S:g} s of CPU time"
        if now_s - self.changed_s > STALLED_S:
            return f"the process of its first prediction did nothing for {STALLED_S:g} s"
        return ""


def _await(process: subprocess.Popen[bytes]) -> None:
    """Wait until it ends; SmokeTestError when it takes too much CPU time, or hangs."""
    began_s = time.monotonic()
    progress = ProcessProgress(changed_s=began_s)
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_S)
            return
        now_s = time.monotonic()
        reason = progress.why_not(_used_s(process.pid, now_s - began_s), now_s)
        if reason:
            raise SmokeTestError(reason)


def _used_s(pid: int, passed_s: float) -> float:
    """CPU time of a process, `passed_s` where this system does not tell it: fields 14 and 15 of proc_pid_stat(5)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return passed_s


def _sums(artifact: Path) -> str | None:
    """A digest of the checksum file, which `load` compares with the files; None where it cannot be read."""
    try:
        return sha256(artifact / "SHA256SUMS")
    except OSError:
        return None


def predict_once(artifact: Path) -> None:
    """The same in this process."""
    from models.learning.artifact import load
    from models.learning.held_out import held_out_of

    try:
        predictor = load(artifact)
        held_out_of(artifact)  # which the gate reads next
    except ValueError as error:
        raise SmokeTestError(str(error)) from error
    scenes = _scenes(_profiles(predictor.reference))
    _check(predictor, scenes)


def _check(predictor: Predictor, scenes: SceneBatch) -> None:
    try:
        prediction = predictor.predict(scenes)
    except Exception as error:
        raise SmokeTestError(f"its first prediction failed: {type(error).__name__}: {error}") from error
    for target in TARGETS:
        band = getattr(prediction, target)
        for edge in (band.expected, band.lower, band.upper):
            if edge.shape != scenes.present.shape or not np.isfinite(edge[scenes.present]).all():
                raise SmokeTestError(f"its first prediction of {target} is not finite")


def _profiles(reference: object) -> list[WorkloadProfile]:
    """Some profiles of the training data, so that the learned parts are used."""
    if not isinstance(reference, dict):
        raise SmokeTestError("reference.json is no mapping of names to profiles")
    try:
        seen = [WorkloadProfile(name, dict(several[0])) for name, several in reference.items() if several]
    except (TypeError, ValueError, KeyError) as error:
        raise SmokeTestError(f"reference.json holds what is no profile: {error}") from error
    return seen[:MOST_PROFILES]


def _scenes(profiles: Sequence[WorkloadProfile]) -> SceneBatch:
    """Small and large hosts of each kind: with one to four known workloads, and with a known and an unknown one."""
    names: list[str | None] = [profile.name for profile in profiles] or [None]
    scenes = []
    for kind in HOST_KINDS:
        for pcpus in (2, 64):
            host = Host(f"{kind}-{pcpus}", kind, pcpus, 65536)
            for number in range(len(names)):
                together = [names[(number + at) % len(names)] for at in range(1 + number % 4)]
                scenes.append((host, [Instance(f"i{at}", workload=one) for at, one in enumerate(together)]))
            scenes.append((host, [Instance("known", workload=names[0]), Instance("unknown", vcpus=2)]))
    return build_batch(scenes, ProfileTable.build(profiles))


def main() -> None:
    """What `run` starts: ends with 0, or with 1 and a sentence on standard error."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash must not fill the disk with core dumps
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    try:
        predict_once(Path(sys.argv[1]))
    except SmokeTestError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
