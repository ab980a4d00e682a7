"""What tc shows is read as the settings that commands of Cotenant give it, and no other words reach tc.

What it shows here was recorded of iproute2 6.1 on Linux 6.18.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from advisor.changes.controller import ChangeFailed
from advisor.changes.traffic import Traffic
from advisor.domain import Change, Command, Host, Instance, IsolationSettings, Rollout
from advisor.errors import InvalidInput
from advisor.render import commands
from profiler.observed import NetworkSettings

HOST = Host("h1", "kvm", pcpus=2, memory_mb=4096, nic_mbit=1000, labels={"uplink": "up0"})
GUEST = Instance("shop", labels={"mac": "52:54:00:ab:cd:01"})
SHOWN = {
    "qdisc": '[{"kind":"htb","handle":"1:","root":true,"refcnt":3,"options":{"r2q":10,"default":"0x2"}},'
    '{"kind":"pfifo","handle":"1a2b:","parent":"1:1a2b","options":{"limit":1000}}]',
    "class": "class htb 1:1 root rate 1Gbit ceil 1Gbit linklayer ethernet burst 125000b/1 mpu 0b cburst 125000b/1 mpu "
    "0b level 7 \nclass htb 1:1a2b parent 1:1 leaf 1a2b: prio 1 quantum 1514 rate 1234Kbit ceil 10Mbit linklayer "
    "ethernet burst 1513b/1 mpu 0b cburst 1512b/1 mpu 0b level 0 \n",
    "filter": '[{"parent":"1:","protocol":"all","pref":6699,"kind":"u32","chain":0},{"parent":"1:","protocol":"all",'
    '"pref":6699,"kind":"u32","chain":0,"options":{"fh":"800::800","order":2048,"key_ht":"800","bkt":"0","flowid":'
    '"1:1a2b","not_in_hw":true,"match":{"value":"525400ab","mask":"ffffffff","offmask":"","off":-8},"match":{"value":'
    '"cd010000","mask":"ffff0000","offmask":"","off":-4}}}]',
}
CLASS = "parent 1:1 rate 1234000 ceil 10000000 burst 1514 cburst 1514 prio 1 quantum 1514"


def rollout_of(traffic: Traffic, host: Host, rendered: Sequence[Command], now: datetime) -> Rollout:
    changes: list[Change] = []
    for command in rendered:
        meant = traffic.meaning(host, command)
        changes.append(
            Change(len(changes), host.id, "shop", meant.kind, "traffic", meant.target, meant.before, meant.after)
        )
    return Rollout("r", now, "local", "p1", tuple(changes))


def shows(argv: Sequence[str]) -> str:
    return SHOWN[next(word for word in argv if word in SHOWN)]


def change(name: str, before: str, after: str, target: str = "up0", host: str = "h1") -> Change:
    return Change(0, host, "shop", "tc", "traffic", target, {name: before}, {name: after})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("root", "htb 1: default 2"),
        ("leaf 1:1a2b", "1a2b: pfifo"),
        ("leaf 1:2", ""),
        ("class 1:1", "parent 1: rate 1000000000 ceil 1000000000 burst 125000 cburst 125000"),
        ("class 1:1a2b", CLASS.replace("burst 1514 cburst 1514", "burst 1513 cburst 1512")),
        ("class 1:77", ""),
        ("filter 6699", "52:54:00:ab:cd:01 1:1a2b"),
        ("filter 1", ""),
    ],
)
def test_what_is_shown_is_read_in_the_words_of_commands(name: str, text: str) -> None:
    assert Traffic(frozenset({"h1"}), shows).read(change(name, "", "")) == {name: text}


def test_numbers_that_the_kernel_rounds_mean_the_same_and_others_do_not() -> None:
    traffic = Traffic(frozenset({"h1"}), shows)
    shown = CLASS.replace("burst 1514 cburst 1514", "burst 1513 cburst 1512")
    assert traffic.same("class 1:1a2b", shown, CLASS)
    assert traffic.same("class 1:1", CLASS.partition(" prio")[0], CLASS), "tc shows no more of an inner class"
    for other in (CLASS.replace("10000000", "10200000"), CLASS.replace("prio 1", "prio 0"), "", CLASS[:10]):
        assert not traffic.same("class 1:1a2b", CLASS, other)


def test_an_undo_writes_the_numbers_that_were_planned_for_where_they_are_what_was_read() -> None:
    asked: list[Sequence[str]] = []

    def run(argv: Sequence[str]) -> str:
        asked.append(argv)
        return shows(argv) if "show" in argv else ""

    read = CLASS.replace("burst 1514 cburst 1514", "burst 1513 cburst 1512")
    one = change("class 1:1a2b", CLASS, CLASS.replace("10000000", "20000000"))
    Traffic(frozenset({"h1"}), run).write(one, {"class 1:1a2b": read})
    wanted = "rate 1234000bit ceil 10000000bit burst 1514b cburst 1514b prio 1 quantum 1514"
    assert " ".join(asked[-1]) == f"tc class change dev up0 parent 1:1 classid 1:1a2b htb {wanted}"


def test_commands_that_are_rendered_are_understood_and_others_are_not() -> None:
    traffic = Traffic(frozenset({"h1"}), shows)
    network = IsolationSettings(network=NetworkSettings("dedicated", 100))
    made = commands(HOST, GUEST, IsolationSettings(), network, neighbours=())
    changes = rollout_of(traffic, HOST, made, datetime(2026, 1, 1, tzinfo=UTC)).changes
    assert {one.target for one in changes} == {"up0"}
    assert all(text == "" for one in changes for text in one.before.values())
    for argv in (
        ("tc", "qdisc", "replace", "dev", "up0", "root", "handle", "1:", "htb", "default", "2"),
        ("tc", "qdisc", "add", "dev", "up0", "root", "handle", "1:", "netem", "delay", "9s"),
        (
            "tc",
            "class",
            "add",
            "dev",
            "up0",
            "parent",
            "1:1",
            "classid",
            "1:zz",
            "htb",
            "rate",
            "1mbit",
            "ceil",
            "1mbit",
        ),
        ("sh", "-c", "true"),
    ):
        with pytest.raises((InvalidInput, ChangeFailed)):
            traffic.meaning(HOST, Command("tc", argv, argv))


@pytest.mark.parametrize(
    "one",
    [
        change("root", "", "htb 1: default 2; reboot"),
        change("class 1:1 dev lo", "", CLASS),
        change("filter 9", "", "52:54:00:ab:cd:01 1:1 action drop"),
        change("root", "", "htb 1: default 2", target="-batch"),
        change("root", "", "htb 1: default 2", host="h2"),
    ],
)
def test_a_ledger_that_was_edited_reaches_neither_another_host_nor_other_words(one: Change) -> None:
    def run(argv: Sequence[str]) -> str:
        assert "show" in argv, "nothing is changed"
        return "[]"

    with pytest.raises(InvalidInput):
        Traffic(frozenset({"h1"}), run).write(one, dict(one.after))
