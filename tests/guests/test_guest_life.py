"""What becomes of guests that fail, and of the run that has them; nothing is booted here."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.campaign import GuestSettings
from lab.errors import RunError, StopRequested
from lab.guests import pool
from lab.guests.channel import AgentChannel, GuestProgram
from lab.guests.image import BootImage
from lab.guests.qemu_command import GuestShape
from lab.instances import RunSetup
from lab.instances.virtual_machines import GuestHandle, GuestInstances
from lab.workloads import CpuWorkload, Site
from tests.guests.guest_runs import place


class _Machine:
    """A guest that comes up, but for the first one."""

    def __init__(self, shape: GuestShape, *_: object) -> None:
        self.shape = shape
        self.boot_s = float(shape.number)
        self.done: list[str] = []
        self.process = SimpleNamespace(returncode=None)

    def wait_up(self) -> None:
        if self.shape.number == 1:
            raise RunError("guest 1 did not come up")
        self.done.append("up")

    def rest(self) -> None:
        self.done.append("rests")

    def close(self) -> None:
        self.process.returncode = -9
        self.done.append("ended")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[_Machine]:
    """All guests that a test's pool makes."""
    machines: list[_Machine] = []

    def make(*how: Any) -> _Machine:
        machines.append(_Machine(*how))
        return machines[-1]

    monkeypatch.setattr(pool, "QemuGuest", make)
    monkeypatch.setattr(pool, "shared_image", lambda: BootImage(Path("/k"), Path("/i")))
    monkeypatch.setattr(pool, "choose_accelerator", lambda *_: "tcg")
    monkeypatch.setattr(pool, "call", lambda *_: "QEMU emulator version 7.2\n")
    return machines


def _pool(scratch: Path) -> pool.GuestPool:
    registry: Any = SimpleNamespace(network=str, group=str, made=lambda *_args, **_named: None)
    maker: Any = SimpleNamespace(make=lambda *_: [])
    return pool.GuestPool(registry, maker, GuestSettings(), scratch)


def test_guests_that_were_not_whole_are_ended_and_not_taken_again(tmp_path: Path, made: list[_Machine]) -> None:
    """The one that does not come up, and the one beside it, which would without its folders and its disk."""
    guests = _pool(tmp_path)
    with pytest.raises(RunError, match="did not come up"):
        guests.take([1, 1])
    assert [one.done for one in made] == [["ended"], ["ended"]]
    taken: Any = guests.take([1, 1])
    assert [one.done for one in made[2:]] == [["up", "rests"], ["up", "rests"]]
    assert list(taken) == made[2:]


def test_guests_are_kept_and_one_that_died_is_replaced_without_a_word_in_the_circumstances(
    tmp_path: Path, made: list[_Machine]
) -> None:
    """They are those of a whole campaign: a new guest's boot is not another campaign's."""
    guests = _pool(tmp_path)
    with pytest.raises(RunError):
        guests.take([1])
    taken: Any = guests.take([1, 1])
    assert guests.take([1, 1]) == taken == (made[1], made[2])
    known = guests.circumstances()
    assert (known["guest_boot_s"], known["qemu"]) == ("2.0", "QEMU emulator version 7.2")
    made[1].process.returncode = -9
    replaced: Any = guests.take([1, 1])
    assert replaced == (made[3], made[2])
    assert guests.circumstances() == known


class _OneGuest(GuestInstances):
    """A guest without work of its own, given as it is."""

    def __init__(self, guest: GuestHandle) -> None:
        registry: Any = SimpleNamespace(remove_run=lambda: None)
        maker: Any = None
        super().__init__(RunSetup(registry, (), (), guest.site.directory), maker)
        self._guest = guest

    def backend(self) -> Any:
        raise AssertionError("nothing is read here")

    def circumstances(self) -> dict[str, str]:
        return {}

    def _build(self) -> None:
        self._standing.append(self._guest)

    def _leave(self) -> None:
        """Nothing was made."""


@pytest.mark.parametrize(
    ("follows", "said"),
    [
        (None, "the agent of guest shop hung up: Kernel panic"),
        (RunError("wrk could not load the server"), "the agent of guest shop hung up: Kernel panic"),
        (StopRequested("SIGINT"), "^SIGINT$"),
    ],
)
def test_a_guest_that_is_gone_is_what_failed_the_run_but_hides_no_stop_request(
    tmp_path: Path, follows: BaseException | None, said: str
) -> None:
    ours, theirs = socket.socketpair()
    with contextlib.closing(AgentChannel(ours, "shop", lambda: "Kernel panic")) as channel:
        inside: Any = SimpleNamespace(channel=channel)
        guest = GuestHandle(place("web.1", (0,)), CpuWorkload(), Site(0, tmp_path, tmp_path, "", 1), None, 0.0, inside)
        with pytest.raises((RunError, StopRequested), match=said), _OneGuest(guest):
            guest.server = GuestProgram(channel, 1, ("nginx",))
            theirs.close()
            if follows:
                raise follows
