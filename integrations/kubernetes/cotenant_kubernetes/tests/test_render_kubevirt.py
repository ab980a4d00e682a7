"""Settings of pods and guests of KubeVirt stand in their templates, so each is said with the field that holds it."""

from __future__ import annotations

import pytest

from advisor.domain import Host, Instance, IsolationSettings, Pinning
from advisor.render import commands
from profiler.observed import NetworkSettings

HOST = Host("n1", "kvm", pcpus=8, memory_mb=65_536, labels={"render": "kubernetes"})
GUEST = Instance("uid", 2, host="n1", labels={"name": "shop/web-1", "guest": "shop/web-1"})


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (IsolationSettings(cap_percent=150), "the cap of shop/web-1 is limits.cpu: 1500m"),
        (IsolationSettings(weight=512), "follows from its CPU requests"),
        (IsolationSettings(pinning=Pinning(((0,), (1,)))), "dedicatedCpuPlacement"),
        (IsolationSettings(disk_limit_mb_s=10), "limits the disk of shop/web-1"),
        (IsolationSettings(network=NetworkSettings("dedicated", 80)), "kubernetes.io/egress-bandwidth: 80000k"),
    ],
)
def test_each_setting_is_said_and_nothing_is_run(wanted: IsolationSettings, words: str) -> None:
    (only,) = commands(HOST, GUEST, IsolationSettings(), wanted)
    assert only.argv == ()
    assert words in only.note
