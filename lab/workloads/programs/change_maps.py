"""Lets a game server change its map CHANGES times, and reports how long it took until it answers again.

Run as a file of its own: `python -I -S change_maps.py HOST PORT PASSWORD CHANGES COLDFILE...`; the cold files are
dropped from the page cache first. The server has a file changes.cfg with so many changes, whose last line sets its name
to `changed`. It does nothing else while it loads, so it answers only when it is done. Prints one JSON object.
"""

import json
import os
import socket
import sys
import time

_MARK = b"\xff\xff\xff\xff"  # head of every packet outside a game (Quake III's protocol)
_BEGINS_WITHIN_S = 0.05  # then it has read the command, and a question waits until the last map is loaded
_ASK_AGAIN_S = 1.1  # it answers each address once a second (ioquake3, SVC_RateLimitAddress)
_PATIENCE_S = 110.0


def drop(path: str) -> None:
    """Take a file out of the page cache."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def change(server: socket.socket, password: str) -> float:
    """Seconds from the command to the answer after the last map."""
    begin = time.perf_counter()
    server.send(_MARK + f"rcon {password} exec changes.cfg".encode())
    time.sleep(_BEGINS_WITHIN_S)
    server.send(_MARK + b"getinfo")
    server.settimeout(_ASK_AGAIN_S)
    while time.perf_counter() - begin < _PATIENCE_S:
        try:
            answer = server.recv(65_536)
        except TimeoutError:
            server.send(_MARK + b"getinfo")
            continue
        if answer.startswith(_MARK + b"infoResponse") and b"\\hostname\\changed" in answer:
            return time.perf_counter() - begin
        if answer.startswith(_MARK + b"print\nBad rconpassword"):
            sys.exit("the game server refuses the password")
    sys.exit(f"the game server changed no map within {_PATIENCE_S:.0f} s")


def main(arguments: list[str]) -> None:
    host, port, password, changes, *cold = arguments
    try:
        for path in cold:
            drop(path)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
            server.connect((host, int(port)))
            seconds = change(server, password)
    except OSError as error:
        sys.exit(f"{host}:{port} cannot be asked to change its map: {error.strerror or error}")
    os.write(1, json.dumps({"seconds": seconds, "changes": int(changes)}).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
