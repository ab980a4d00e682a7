"""The systemd unit of the service: accepted, little exposed, and with settings that there are."""

from __future__ import annotations

import re
from ipaddress import ip_network
from pathlib import Path

import pytest
import typer.main

from advisor.settings import Settings
from api.cli import app
from tests.packaging.units import PACKAGING, judged, read, verified

UNIT = PACKAGING / "cotenant.service"
AGENT = PACKAGING / "cotenant-profiler.service"
ENVIRONMENT = PACKAGING / "cotenant.env"


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    assert verified(tmp_path, UNIT) == ""


def test_it_is_little_exposed_and_what_is_open_is_known() -> None:
    level, faults = judged(UNIT)
    assert level < 1.0
    assert faults == {
        "RootDirectory=/RootImage=",  # Python and its libraries are the host's
        "RestrictAddressFamilies=~AF_UNIX",  # PostgreSQL's socket
        "RestrictAddressFamilies=~AF_(INET|INET6)",
        "PrivateNetwork=",
        "IPAddressDeny=",  # but for this machine's own addresses
        "ProcSubset=",  # the metrics of the process itself
        "DeviceAllow=",  # the clock of ProtectClock=, to be read
    }


def test_it_reaches_this_machine_only_until_an_administrator_says_more() -> None:
    unit = read(UNIT)
    assert (unit["IPAddressDeny"], unit["IPAddressAllow"]) == (("any",), ("localhost",))
    assert re.search(r"^COTENANT_LISTEN=127\.0\.0\.1:", ENVIRONMENT.read_text(), re.MULTILINE)


@pytest.mark.parametrize(("page", "unit"), [("operations.md", UNIT), ("profiler.md", AGENT)], ids=["service", "agent"])
def test_the_drop_in_of_the_guide_opens_what_it_names(tmp_path: Path, page: str, unit: Path) -> None:
    guide = (PACKAGING.parent / "docs" / page).read_text(encoding="utf-8")
    (shown,) = re.findall(rf"```ini\n(# /etc/systemd/system/{unit.name}\.d/network\.conf\n.*?)```", guide, re.DOTALL)
    drop_in = tmp_path / "network.conf"
    drop_in.write_text(shown)
    assert verified(tmp_path, unit, drop_in) == ""
    addresses = " ".join(read(unit, drop_in)["IPAddressAllow"]).split()
    assert addresses[0] == "localhost"
    assert [ip_network(address) for address in addresses[1:]]


def test_memory_is_bounded_and_who_hits_the_bound_is_replaced_alone() -> None:
    unit = read(UNIT)
    assert re.fullmatch(r"\d+G", unit["MemoryMax"][-1])
    assert unit["OOMPolicy"] == ("continue",)


def test_the_example_names_settings_and_options_that_there_are() -> None:
    lines = [line.lstrip("#") for line in ENVIRONMENT.read_text().splitlines() if re.match(r"#?[A-Z]+", line)]
    pairs = dict(line.split("=", 1) for line in lines if "=" in line and " " not in line.partition("=")[0])
    options = pairs.pop("COTENANT_SERVE_OPTIONS").split()
    names = {name.removeprefix("COTENANT_").lower() for name in pairs if name.startswith("COTENANT_")}
    assert {"database", "state_dir", "listen"} <= names <= set(Settings.model_fields)
    serve = typer.main.get_command(app).load("serve")  # type: ignore[attr-defined]
    assert {option for option in options if option.startswith("--")} <= {o for p in serve.params for o in p.opts}


def test_it_has_the_time_to_end_that_it_needs() -> None:
    from api.serving import GRACE_S

    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
    (drain,) = re.findall(r"^COTENANT_DRAIN_S=(\d+)$", ENVIRONMENT.read_text(), re.MULTILINE)
    assert int(seconds) > int(drain) + GRACE_S
