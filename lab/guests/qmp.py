"""QEMU's own protocol, as far as the lab needs it: one command, one answer (QEMU: docs/interop/qmp-spec)."""

from __future__ import annotations

import json
import socket
from typing import Any

from lab.errors import RunError

_ANSWER_WITHIN_S = 20.0
_MOST = 4 << 20


class Qmp:
    """A connection to one QEMU; every method raises RunError when QEMU refuses, hangs or is gone."""

    def __init__(self, connection: socket.socket, name: str) -> None:
        self._connection = connection
        self._name = name
        self._rest = b""
        self._greeted = False
        connection.settimeout(_ANSWER_WITHIN_S)

    def vcpu_threads(self) -> list[int]:
        """Host threads of the vCPUs, in their order."""
        answer = self.do("query-cpus-fast")
        try:
            threads = sorted((int(cpu["cpu-index"]), int(cpu["thread-id"])) for cpu in answer)
        except (TypeError, KeyError, ValueError):
            raise RunError(f"QEMU of guest {self._name} does not say which threads are its vCPUs") from None
        return [thread for _, thread in threads]

    def disk_bytes(self) -> int:
        """Bytes that the guest read from its drives and wrote to them."""
        try:
            stats = [drive["stats"] for drive in self.do("query-blockstats")]
            return sum(int(stat["rd_bytes"]) + int(stat["wr_bytes"]) for stat in stats)
        except (TypeError, KeyError, ValueError):
            raise RunError(f"QEMU of guest {self._name} does not say what its drives carried") from None

    def do(self, command: str) -> Any:
        """Carry a command out and return what QEMU answers."""
        try:
            if not self._greeted:
                self._line()  # QEMU greets with its version and abilities
                self._greeted = True
                self._ask("qmp_capabilities")
            return self._ask(command)
        except (OSError, ValueError) as error:
            raise RunError(f"QEMU of guest {self._name} does not answer {command}: {error}") from None

    def close(self) -> None:
        self._connection.close()

    def _ask(self, command: str) -> Any:
        self._connection.sendall(json.dumps({"execute": command}).encode() + b"\n")
        while True:
            answer = self._line()
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise ValueError(str(answer["error"].get("desc", "refused")))

    def _line(self) -> dict[str, Any]:
        while b"\n" not in self._rest:
            data = self._connection.recv(65536)
            if not data or len(self._rest) > _MOST:
                raise ConnectionResetError("it hung up")
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        answer = json.loads(line)
        if not isinstance(answer, dict):
            raise ValueError("no QMP object")  # noqa: TRY004 - QEMU's answer is wrong, not our argument
        return answer
