"""Network settings as limits that drop what is too much (libvirt's tap, Neutron, Nova, Xen's vif)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from advisor.render.change import more
from profiler.observed import NetworkSettings

# Neutron's rule for TCP (config-qos.rst): with less a policed flow cannot grow into its rate. A burst below one frame
# of 1500 bytes lets nothing pass under OVN; libvirt's policer takes frames of up to 64 KiB.
BURST_SHARE, MIN_BURST_KBIT, MIN_BURST_KBYTE = 0.8, 12, 64


@dataclass(frozen=True, slots=True)
class Policed:
    """The most that an instance may send, in kbit/s."""

    kbit_s: int

    @property
    def kbyte_s(self) -> int:
        """Kilobytes of 1000 bytes per second, as libvirt and Nova count."""
        return max(1, round(self.kbit_s / 8))

    @property
    def burst_kbit(self) -> int:
        """What may be sent at once, in kbit."""
        return max(MIN_BURST_KBIT, math.ceil(BURST_SHARE * self.kbit_s))

    @property
    def burst_kbyte(self) -> int:
        """The same in kilobytes for libvirt's policer."""
        return max(MIN_BURST_KBYTE, math.ceil(self.burst_kbit / 8))


def policed(network: NetworkSettings | None) -> Policed | None:
    """The limit: `dedicated` keeps to its rate, `shared` may borrow up to its ceil; None = no limit."""
    if network is None or network.mode == "none":
        return None
    most = network.rate_mbit if network.mode == "dedicated" else network.ceil_mbit
    return None if most is None else Policed(max(1, round(most * 1000)))


def loosens(now: Policed | None, then: Policed | None) -> bool:
    """Whether more may be sent afterwards."""
    return more(None if now is None else now.kbit_s, None if then is None else then.kbit_s)
