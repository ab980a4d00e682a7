"""Notes which packets of loss probes came, when they were read and when the kernel had them."""

from __future__ import annotations

import random
import struct
from array import array
from functools import partial

from profiler.probes import framing
from profiler.probes.datagrams import GapWatch, Inbox, prepare_receiver
from profiler.probes.services import ServedSession
from profiler.probes.throughput_buckets import pack

HEADER = struct.Struct("!Q")  # the number of the packet
LEAST_BYTES = 64
MOST_PACKETS = 2_000_000  # their report is 48 MB
_BUFFER = 1 << 20  # bytes: room for a second of probes, so that loss is the path's


def serve(served: ServedSession) -> None:
    """Parameters `packet_bytes` and `drop_one_in`. Any command ends it once 0.2 s were quiet.

    With `drop_one_in` it ignores one packet in so many, by chance: a known loss, by which estimates can be judged.
    """
    packet = framing.whole(served.parameters, "packet_bytes", 600, LEAST_BYTES, 65_507)
    rare = framing.whole(served.parameters, "drop_one_in", 0, 0, MOST_PACKETS)
    chance = random.Random()  # noqa: S311 - which packets, not a secret
    numbers, read, arrived = array("q"), array("q"), array("q")
    with served.datagrams(partial(prepare_receiver, buffer_bytes=_BUFFER)) as end:
        served.ready(end.getsockname()[1])
        served.meet(end)
        inbox = Inbox(end)
        with GapWatch() as watch:
            while len(numbers) < MOST_PACKETS:
                taken = inbox.take()
                if taken is None:
                    if inbox.finished(served.channel.socket):
                        break
                    continue
                block, read_ns, arrived_ns = taken
                for start in range(0, len(block) - LEAST_BYTES + 1, packet):
                    if rare and chance.randrange(rare) == 0:
                        continue
                    (number,) = HEADER.unpack_from(block, start)
                    numbers.append(number & (1 << 62) - 1)
                    read.append(read_ns)
                    arrived.append(arrived_ns)
    served.channel.receive(1.0)
    answer = {"dropped": inbox.dropped, "kernel_times": inbox.kernel_times, **watch.summary()}
    served.channel.send(answer, pack((len(numbers), *numbers, *read, *arrived)))
