"""ec2-network-2010: what guests saw of CPU, network and loss, by the probes of the lab's campaign `probes`.

A small instance of that cloud is here one capped to half of a CPU, alone on it, for the cap is what the paper found and
its neighbours are unknown; a medium one has a CPU of its own. The rule is the same for every probe. The lab puts no
hypervisor below a container: gaps are those of the cap's period of 100 ms.
"""

from __future__ import annotations

from research.findings.claim_registry import number, order
from research.findings.claim_values import Values, first, gain, less, over
from research.findings.lab_runs import LabRun, LabRuns
from research.findings.verdicts import Region, above

SMALL_CAP = 50.0
OWN_BURST_MB = 0.131  # between two pauses of the paced sender (section III-A)
TENS_OF_MS = Region(10.0, 100.0)  # of a clock and not of a machine: the scheduler's periods are what is compared


def small(lab: LabRuns, probe: str) -> list[LabRun]:
    """Runs of a probe in a small instance."""
    return lab.runs(probe, kind="solo", where=lambda run: run.run.startswith(f"solo:{probe}.cap{SMALL_CAP:g}:"))


def medium(lab: LabRuns, probe: str) -> list[LabRun]:
    """Runs of a probe alone on a CPU of its own."""
    return lab.runs(probe, kind="solo", where=lambda run: run.run.startswith(f"solo:{probe}:"))


def _of(runs: list[LabRun], name: str, scale: float = 1.0) -> Values | None:
    return over(runs, first(name, scale))


def _quotient(runs: list[LabRun], name: str, base: str) -> Values | None:
    return over(runs, lambda run: gain(run.members[0].reached.get(name), run.members[0].reached.get(base)))


number("E1", "small-share", "small-share-ceiling")(lambda lab: _of(small(lab, "cpu-share"), "share"))
number("E1", "medium-share")(lambda lab: _of(medium(lab, "cpu-share"), "share"))
number("E1", "normal-iteration")(lambda lab: _of(medium(lab, "cpu-share"), "iteration_median", 1e-3))
number("E1", "gap-size", unit="ms", agree=TENS_OF_MS)(lambda lab: _of(small(lab, "cpu-share"), "median_gap"))


@number("E2", "small-tcp-median", "tcp-in-most-cases", "tcp-in-all-cases")
def small_tcp(lab: LabRuns) -> Values | None:
    return _of(small(lab, "tcp"), "throughput")


@number("E2", "small-udp-median")
def small_udp(lab: LabRuns) -> Values | None:
    return _of(small(lab, "udp"), "throughput")


number("E2", "medium-tcp-median")(lambda lab: _of(medium(lab, "tcp"), "throughput"))
number("E2", "medium-udp-median")(lambda lab: _of(medium(lab, "udp"), "throughput"))
order("E2", "small-order")(lambda lab: {"tcp": small_tcp(lab), "udp": small_udp(lab)})
number("E2", "quiet-spells", unit="ms", agree=TENS_OF_MS)(lambda lab: _of(small(lab, "tcp"), "quiet_longest"))


number("E2", "no-retransmissions", unit="segments", agree=Region(high=0.0))(
    lambda lab: _of(small(lab, "tcp"), "retransmits")
)


number("E3", "burst-data-max", "driver-domain-buffer")(lambda lab: _of(small(lab, "udp"), "buffer_burst", 1e-6))
# what arrives at once is a burst of the network only beyond the sender's own chunk of 128 KB
number("E3", "burst-above-line-rate", unit="MB", agree=above(OWN_BURST_MB))(
    lambda lab: _of(small(lab, "udp"), "buffer_burst", 1e-6)
)
number("E4", "propagation")(lambda lab: _of(medium(lab, "rtt"), "min"))


number("E4", "usual-rtt")(lambda lab: _of(medium(lab, "rtt"), "median"))
number("E4", "small-max-rtt")(lambda lab: _of(small(lab, "rtt"), "max"))
number("E4", "medium-max-rtt")(lambda lab: _of(medium(lab, "rtt"), "max"))
number("E4", "small-max-over-propagation")(lambda lab: _quotient(small(lab, "rtt"), "max", "min"))
number("E4", "small-stdev-over-propagation")(lambda lab: _quotient(small(lab, "rtt"), "stdev", "min"))
number("E4", "bare-metal-propagation-over-stdev")(lambda lab: _quotient(medium(lab, "rtt"), "min", "stdev"))
number("E5", "high-frequency")(lambda lab: _of(small(lab, "loss"), "frequency"))
number("E5", "normal-frequency")(lambda lab: _of(medium(lab, "loss"), "frequency"))


# How many probes are lost is no finding here: the campaign drops one packet in so many on purpose.
@number("E5", "false-positives", unit="points of estimate above probes lost")
def false_positives(lab: LabRuns) -> Values | None:
    def excess(run: LabRun) -> float | None:
        reached = run.members[0].reached
        return gain(less(reached.get("frequency"), reached.get("probe_loss")), 100.0)

    return over(small(lab, "loss"), excess)
