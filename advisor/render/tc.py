"""Network settings → one HTB tree on the uplink with a class per instance, for every kind of host.

tc shapes what leaves a device. What leaves vifX.Y or vnetN goes *to* the guest, so what a guest sends is shaped on the
uplink, where it leaves the host and where instances compete. Its frames are recognised by their source MAC address,
which is known before the instance starts and stays after a restart, as vif and tap names do not.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from advisor.domain import Command
from advisor.render.change import Phase, SettingsChange, Step, backwards, only_said
from advisor.render.names import MAC, UPLINK, mac_address, uplink_name
from models.physics.demands import UNSHAPED_SHARE
from profiler.observed import Host, Instance, NetworkSettings

ROOT, WHOLE, REST = "1:", "1:1", "1:2"  # the qdisc, the line, and everything that has no class of its own
FIRST_MINOR, MINORS = 0x10, 0xFFE0
# tc-htb(8): at least the MTU; sch_htb warns above 200000; without it quantum is rate/10, out of range from 16 Mbit/s on
MIN_QUANTUM, MAX_QUANTUM = 1514, 60_000
UNKNOWN_LINE_MBIT = 1e9  # only to tell whether anything is wanted at all


@dataclass(frozen=True, slots=True)
class ClassRates:
    """An HTB class's rate and ceil in kbit/s, the finest that is rendered."""

    rate: int
    ceil: int

    @classmethod
    def of(cls, rate_mbit: float, ceil_mbit: float) -> ClassRates:
        rate = max(1, round(rate_mbit * 1000))
        return cls(rate, max(rate, round(ceil_mbit * 1000)))


def shape(network: NetworkSettings | None, line_mbit: float) -> ClassRates | None:
    """None = no class; `shared` may borrow up to its ceil (else the line), `dedicated` keeps to its rate."""
    if network is None or network.mode == "none" or network.rate_mbit is None:
        return None
    if network.mode == "dedicated":
        return ClassRates.of(network.rate_mbit, network.rate_mbit)
    return ClassRates.of(network.rate_mbit, network.ceil_mbit or line_mbit)


def is_shaped(network: NetworkSettings | None) -> bool:
    """Whether an instance with these settings has a class."""
    return shape(network, UNKNOWN_LINE_MBIT) is not None


def on_uplink(host: Host, uplink: str | None) -> bool:
    """Whether the host's uplink can be shaped: its interface and its speed are known."""
    return host.nic_mbit is not None and uplink_name(host, uplink) is not None


def class_minor(instance_id: str) -> int:
    """The minor number of the instance's class, from its name alone; also the preference of its filter.

    Two names may meet (1 in 65504): `tc class add` then says that the class exists, and changes nothing.
    """
    return FIRST_MINOR + zlib.crc32(instance_id.encode()) % MINORS


def steps(change: SettingsChange, uplink: str | None, neighbours: Sequence[Instance] | None) -> Iterator[Step]:
    """The class of one instance, with the tree around it where it is the first or the last one on the uplink."""
    line, device = change.host.nic_mbit, uplink_name(change.host, uplink)
    now, then = (shape(settings.network, line or UNKNOWN_LINE_MBIT) for settings in (change.current, change.desired))
    if change.desired.network is None or now == then:
        return
    if line is None or device is None:
        lacks = f"label {UPLINK} on host {change.host.id}" if line else f"nic_mbit of host {change.host.id}"
        what = "the interface to the network" if line else "the speed of its uplink"
        yield only_said("tc", f"network limits hold on the uplink: needs {lacks} ({what})", needs=lacks)
        return
    others = [other.settings.network for other in neighbours or () if other.id != change.instance.id]
    alone = not any(shape(network, line) for network in others)
    tree, own = _tree(device, line), _Class(device, change.instance)
    if now and then:
        loosens = then.rate >= now.rate and then.ceil >= now.ceil
        yield Step(Phase.LOOSEN if loosens else Phase.TIGHTEN, own.changed(now, then))
    elif then:
        entering = (*tree, *own.made(then)) if alone else own.made(then)
        lacks = f"label {MAC} on instance {change.instance.id}"
        yield from (Step(Phase.TIGHTEN, command, needs="" if command.argv else lacks) for command in entering)
    elif now:
        # Without knowing the neighbours the tree stays: to take it down would lift their limits too.
        leaving = backwards(own.made(now)) + (backwards(tree) if alone and neighbours is not None else ())
        yield from (Step(Phase.LOOSEN, command) for command in leaving)


def _tree(device: str, line_mbit: float) -> tuple[Command, ...]:
    """The root and the class of the rest, which keeps UNSHAPED_SHARE so that no unshaped instance is pushed aside.

    `add` and not `replace`: a qdisc that another program has set on the uplink is refused by the kernel, not
    overwritten.
    """
    whole, rest = ClassRates.of(line_mbit, line_mbit), ClassRates.of(UNSHAPED_SHARE * line_mbit, line_mbit)
    return (
        Command(
            "tc",
            ("tc", "qdisc", "add", "dev", device, "root", "handle", ROOT, "htb", "default", "2"),
            ("tc", "qdisc", "del", "dev", device, "root", "handle", ROOT, "htb"),
            f"its undo takes every limit off {device}",
        ),
        _class_added(device, ROOT, WHOLE, whole, prio=0),
        _class_added(device, WHOLE, REST, rest, prio=1),
        _leaf_added(device, REST),
    )


@dataclass(frozen=True, slots=True)
class _Class:
    """The commands for one instance's class on a device."""

    device: str
    instance: Instance

    @property
    def id(self) -> str:
        return f"{ROOT}{class_minor(self.instance.id):x}"

    @property
    def prio(self) -> int:
        """What is left over goes to latency instances first (tc-htb(8), prio)."""
        return 0 if self.instance.service == "latency" else 1

    def made(self, desired: ClassRates) -> tuple[Command, ...]:
        return (
            _class_added(self.device, WHOLE, self.id, desired, prio=self.prio),
            _leaf_added(self.device, self.id),
            self._steered(),
        )

    def changed(self, now: ClassRates, then: ClassRates) -> Command:
        start = ("tc", "class", "change", "dev", self.device, "parent", WHOLE, "classid", self.id)
        return Command("tc", (*start, *_htb(then, self.prio)), (*start, *_htb(now, self.prio)))

    def _steered(self) -> Command:
        mac, prefer = mac_address(self.instance), str(class_minor(self.instance.id))
        # u32 and no newer classifier: it also is in cut kernels, and is deleted as a whole by its preference.
        start = ("tc", "filter", "add", "dev", self.device, "parent", ROOT, "protocol", "all", "pref", prefer)
        match = (*start, "u32", "match", "ether", "src", mac or "MAC", "flowid", self.id)
        if mac is None:
            needs = f"needs label {MAC} on instance {self.instance.id}"
            note = f"class {self.id} gets no traffic before: {' '.join(match)} ({needs})"
            return Command("tc", (), (), note)
        return Command(
            "tc", match, ("tc", "filter", "del", "dev", self.device, "parent", ROOT, "protocol", "all", "pref", prefer)
        )


def _class_added(device: str, parent: str, classid: str, desired: ClassRates, *, prio: int) -> Command:
    return Command(
        "tc",
        ("tc", "class", "add", "dev", device, "parent", parent, "classid", classid, *_htb(desired, prio)),
        ("tc", "class", "del", "dev", device, "parent", parent, "classid", classid),
    )


def _leaf_added(device: str, classid: str) -> Command:
    """Without a leaf of its own a class is one FIFO, in which a sparse flow waits behind a bulk flow.

    Its handle is its class's minor number, so that undo restores the very qdisc that was there.
    """
    leaf = (device, "parent", classid, "handle", f"{classid.removeprefix(ROOT)}:", "fq_codel")
    return Command("tc", ("tc", "qdisc", "add", "dev", *leaf), ("tc", "qdisc", "del", "dev", *leaf))


def _htb(desired: ClassRates, prio: int) -> tuple[str, ...]:
    burst, cburst = _millisecond_bytes(desired.rate), _millisecond_bytes(desired.ceil)
    return (
        *(
            "htb",
            "rate",
            _rate(desired.rate),
            "ceil",
            _rate(desired.ceil),
            "burst",
            f"{burst}b",
            "cburst",
            f"{cburst}b",
        ),
        *("prio", str(prio), "quantum", str(min(burst, MAX_QUANTUM))),
    )


def _millisecond_bytes(kbit: int) -> int:
    """What the rate sends in 1 ms, at least one frame.

    tc's own default is about one frame whatever the rate, which costs 9 % of it at 3 Gbit/s; 1 ms costs nothing that
    could be measured over veth with two TCP flows (iproute2 6.1, three interleaved repeats).
    """
    return max(MIN_QUANTUM, math.ceil(kbit / 8))


def _rate(kbit: int) -> str:
    return f"{kbit}kbit" if kbit % 1000 else f"{kbit // 1000}mbit"
