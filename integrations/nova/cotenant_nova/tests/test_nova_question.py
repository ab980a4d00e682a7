"""What Nova asks as a question to Cotenant: the flavor's words, and nothing that the service would refuse."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cotenant_nova import question as question_module
from cotenant_nova.answer import Answer
from cotenant_nova.flavors import cpu_shares, described
from cotenant_nova.question import question
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain import Host, Instance, Inventory, WorkloadProfile, codec
from advisor.inventories.reading import CpuShares
from advisor.service import Advisor
from advisor.settings import Settings
from api.schemas.placements import PlacementBody

SPECS: dict[str, Any] = {
    "cotenant:workload": "web-1k", "cotenant:service": "latency", "cotenant:load": "0.5",
    "cotenant:min_throughput_ratio": "0.9", "cotenant:max_latency_ratio": "2", "cotenant:max_time_short": "0.01",
    "cotenant:exclusive": "true",
    "quota:cpu_quota": "25000", "quota:cpu_period": "50000", "quota:cpu_shares": "200",
    "quota:vif_outbound_average": "12500", "quota:disk_read_bytes_sec": "10000000",
    "quota:disk_write_bytes_sec": "5000000",
}  # fmt: skip
UUID = "11111111-2222-3333-4444-555555555555"


class Spec(SimpleNamespace):
    """As nova.objects.RequestSpec, of which a field that was never set cannot be read."""

    def __contains__(self, name: str) -> bool:
        return hasattr(self, name)

    def get_scheduler_hint(self, name: str) -> object:
        found = self.scheduler_hints.get(name)
        return found[0] if isinstance(found, list) and len(found) == 1 else found


def spec(specs: dict[str, Any] | None = None, **more: object) -> Spec:
    flavor = SimpleNamespace(vcpus=4, memory_mb=8192, extra_specs=specs)
    return Spec(instance_uuid=UUID, flavor=flavor, **more)


def test_a_plain_flavor_says_what_it_holds() -> None:
    assert question(spec(), ["h1", "h2"], "worst") == {
        "instance": {"id": UUID, "vcpus": 4, "memory_mb": 8192},
        "hosts": ["h1", "h2"], "objective": "worst", "limit": 20, "explain": False, "mitigate": False,
    }  # fmt: skip


def test_extra_specs_are_limits_and_what_is_accepted() -> None:
    assert question(spec(SPECS), ["h1"], "total")["instance"] == {
        "id": UUID, "vcpus": 4, "memory_mb": 8192, "workload": "web-1k", "service": "latency", "load": 0.5,
        "min_throughput_ratio": 0.9, "max_latency_ratio": 2.0, "max_time_short": 0.01, "exclusive": True,
        "isolation": {
            "cap_percent": 200.0, "weight": 512, "disk_limit_mb_s": 15.0,
            "network": {"mode": "dedicated", "rate_mbit": 100.0},
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("specs", "image", "dedicated"),
    [
        ({"hw:cpu_policy": "dedicated"}, None, 4),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "2-3"}, None, 2),
        ({"resources:PCPU": "3"}, None, 3),
        ({}, "dedicated", 4),
        ({"hw:cpu_policy": "shared"}, "dedicated", None),
        ({}, None, None),
    ],
)
def test_dedicated_cpus_of_flavor_and_image_are_asked_for(
    specs: dict[str, str], image: str | None, dedicated: int | None
) -> None:
    properties = Spec(get={"hw_cpu_policy": image}.get)
    asked = question(spec(specs, image=Spec(properties=properties)), ["h1"], "worst")
    assert asked["instance"].get("dedicated_vcpus") == dedicated
    PlacementBody.model_validate(asked).to_domain()


def test_a_hint_wins_over_the_flavor() -> None:
    asked = question(spec(SPECS, scheduler_hints={"cotenant:workload": ["batch"]}), ["h1"], "worst")
    assert asked["instance"]["workload"] == "batch"
    asked = question(spec(SPECS, scheduler_hints={}), ["h1"], "worst")
    assert asked["instance"]["workload"] == "web-1k"


def test_a_host_that_needs_other_settings_is_refused_and_not_held_for_the_server(tmp_path: Path) -> None:
    """A cap on the new VM would keep the resident's limit there; Nova sets none."""
    cloud = Inventory(
        hosts=(Host(id="h1", kind="kvm", pcpus=16, memory_mb=65_536.0),),
        instances=(Instance("strict", 12, 1024.0, host="h1", workload="big", min_throughput_ratio=0.9),),
        workloads=(WorkloadProfile("big", {"cpu": 1200.0}), WorkloadProfile("hog", {"cpu": 600.0})),
    )
    flavor = SimpleNamespace(vcpus=6, memory_mb=4096, extra_specs={"cotenant:workload": "hog"})
    asked = question(Spec(instance_uuid=UUID, flavor=flavor), ["h1"], "worst")
    with Advisor(Settings(database=f"sqlite:///{tmp_path}/one.sqlite3", state_dir=tmp_path)) as advisor:
        advisor.inventory.put(cloud, mode="replace", generation=None)
        reported = advisor.placements.place(PlacementBody.model_validate(asked).to_domain()).recommendation
        assert Answer.of(codec.answer_values(reported)).passes(["h1"]) == []
        assert advisor.cloud.vitals().pending == 0
        mended = advisor.placements.place(
            PlacementBody.model_validate({**asked, "mitigate": True}).to_domain()
        ).recommendation
        assert (mended.candidates[0].mitigation[-1].satisfies, advisor.cloud.vitals().pending) == (True, 1)


def test_a_host_whose_name_is_no_id_is_not_asked_about() -> None:
    assert question(spec(), ["h1", "h 2", "", "ü"], "worst")["hosts"] == ["h1"]


@pytest.mark.parametrize("value", ["", "x", "nan", "inf", "-1", "1e999", "0", None, [], "99999999999999999999"])
@pytest.mark.parametrize("name", [name for name in SPECS if name != "cotenant:workload"])
def test_a_property_that_makes_no_sense_does_not_keep_a_server_from_being_placed(name: str, value: object) -> None:
    PlacementBody.model_validate(question(spec({name: value}), ["h1"], "worst")).to_domain()


def test_the_file_about_flavors_needs_no_package_of_cotenant() -> None:
    tree = ast.parse((Path(question_module.__file__).parent / "flavors.py").read_text(encoding="utf-8"))
    imported = {one.module for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)} | {
        name.name for one in ast.walk(tree) if isinstance(one, ast.Import) for name in one.names
    }
    assert {str(name).partition(".")[0] for name in imported} <= sys.stdlib_module_names


KEYS = st.sampled_from(
    [*SPECS, "quota:disk_total_bytes_sec", "hw:cpu_policy", "hw:cpu_dedicated_mask", "resources:PCPU"]
)
VALUES = st.one_of(
    st.sampled_from([*SPECS.values(), "0.001", "-0", "1e308", "TRUE", "dedicated", "mixed", "0-1,^1"]),
    st.text(max_size=4),
    st.none(),
)


@given(st.dictionaries(KEYS, VALUES), st.integers(1, 64))
def test_what_a_flavor_says_is_what_the_service_takes(specs: dict[str, Any], vcpus: int) -> None:
    shares, isolation = cpu_shares(specs), described(specs, vcpus).get("isolation", {})
    assert isolation.get("weight") == (None if shares is None else CpuShares(shares).weight(None))
    PlacementBody.model_validate(question(spec(specs), ["h1"], "worst")).to_domain()
