"""Where one running lab lives: its folder, its ports and its secrets, and the configuration files made of them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.openstack.openstack_lab.install import VENV
from tests.openstack.openstack_lab.processes import free_ports

PORTS = (
    "keystone", "placement", "nova", "standins", "mariadb", "rabbitmq", "rabbitmq_peers", "epmd", "aetos", "gnocchi",
    "watcher",
)  # fmt: skip
# Keystone alone is content with SQLite.
DATABASES = ("nova_api", "nova", "nova_cell0", "placement", "gnocchi", "watcher")
Sections = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True)
class Places:
    """A folder of the lab's own, free ports on loopback, and one password for everything in it."""

    folder: Path
    ports: Mapping[str, int] = field(default_factory=lambda: dict(zip(PORTS, free_ports(len(PORTS)), strict=True)))
    password: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    def url(self, name: str, path: str = "") -> str:
        return f"http://127.0.0.1:{self.ports[name]}{path}"

    @property
    def auth_url(self) -> str:
        return self.url("keystone", "/v3")

    def etc(self, name: str) -> Path:
        return self.folder / "etc" / name

    def mariadb(self, database: str) -> str:
        return f"mysql+pymysql://root:{self.password}@127.0.0.1:{self.ports['mariadb']}/{database}?charset=utf8"


def write_all(places: Places, nova: Sections) -> None:
    """The configuration of every service; `nova` are further options of Nova."""
    places.etc("keystone").mkdir(parents=True)
    _write(places.etc("keystone/keystone.conf"), _keystone(places))
    _write(places.etc("placement.conf"), _placement(places))
    common = _nova(places)
    _write(places.etc("nova.conf"), {name: {**options, **nova.get(name, {})} for name, options in common.items()})
    places.etc("api-paste.ini").write_text((VENV / "etc" / "nova" / "api-paste.ini").read_text())
    places.etc("rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{places.ports['rabbitmq']}\n"
        f"default_user = lab\ndefault_pass = {places.password}\n"
        "disk_free_limit.absolute = 50MB\n"
    )


def write_scheduler(places: Places, sections: Sections) -> Path:
    """What the scheduler reads beside nova.conf; anew for each start."""
    path = places.etc("scheduler.conf")
    _write(path, sections)
    return path


def write_aetos(places: Places, prometheus_port: int) -> None:
    """Aetos before a Prometheus of loopback."""
    sections: Sections = {
        "DEFAULT": {"auth_mode": "keystone"},
        "prometheus": {"host": "127.0.0.1", "port": prometheus_port},
        "keystone_authtoken": {"www_authenticate_uri": places.auth_url, **_service(places, "aetos")},
    }
    _write_at_home(places, "aetos", sections)


def write_gnocchi(places: Places) -> None:
    """Gnocchi with its index in MariaDB and what it stores in files."""
    files = {"driver": "file", "file_basepath": places.folder / "gnocchi"}
    sections: Sections = {
        "DEFAULT": {"coordination_url": f"file://{places.folder}/gnocchi-locks", "parallel_operations": 1},
        "api": {"auth_mode": "keystone"},
        "indexer": {"url": places.mariadb("gnocchi")},
        "storage": files,
        "incoming": files,
        "metricd": {"workers": 1, "metric_processing_delay": 1},
        "keystone_authtoken": {"www_authenticate_uri": places.auth_url, **_service(places, "gnocchi")},
    }
    _write_at_home(places, "gnocchi", sections)


def write_watcher(places: Places, sections: Sections) -> None:
    """Watcher that reads Nova every five seconds, as it gets no notifications; `sections` are further options."""
    common: Sections = {
        "DEFAULT": {"transport_url": _broker(places), "state_path": places.folder / "watcher"},
        "database": {"connection": places.mariadb("watcher")},
        "keystone_authtoken": {"www_authenticate_uri": places.auth_url, **_service(places, "watcher")},
        "watcher_clients_auth": _service(places, "watcher"),
        "oslo_concurrency": {"lock_path": places.folder / "locks"},
        "oslo_messaging_rabbit": {"heartbeat_in_pthread": False},
        "collector": {"collector_plugins": "compute"},
        "watcher_cluster_data_model_collectors.compute": {"period": 5},
        "nova": {"migration_interval": 0.5, "migration_max_retries": 1000},
    }
    _write(places.etc("watcher.conf"), {**common, **sections})


def _write_at_home(places: Places, name: str, sections: Sections) -> None:
    """Where oslo.config looks by default: in a hidden folder of $HOME."""
    folder = places.etc("home") / f".{name}"
    folder.mkdir(parents=True)
    _write(folder / f"{name}.conf", sections)


def write_computes(places: Places, number: int) -> Path:
    """What one process of computes reads beside nova.conf."""
    state = places.folder / f"computes-{number}"
    state.mkdir()
    path = places.etc(f"computes-{number}.conf")
    # With the default of 64 threads one process of 100 computes grew to thousands of threads under load.
    own = {
        "compute_driver": "lab.LabDriver",
        "state_path": state,
        "instances_path": state / "instances",
        "executor_thread_pool_size": 4,
        "default_thread_pool_size": 10,
        "report_interval": 60,
        "update_resources_interval": 600,
        "periodic_fuzzy_delay": 60,
    }
    _write(path, {"DEFAULT": own})
    return path


def _write(path: Path, sections: Sections) -> None:
    lines: list[str] = []
    for section, options in sections.items():
        lines += [f"[{section}]", *(f"{name} = {value}" for name, value in options.items())]
    path.write_text("\n".join(lines) + "\n")


def _service(places: Places, user: str) -> dict[str, object]:
    return {
        "auth_type": "password",
        "auth_url": places.auth_url,
        "username": user,
        "password": places.password,
        "project_name": "service",
        "user_domain_id": "default",
        "project_domain_id": "default",
        "region_name": "RegionOne",
    }


def _broker(places: Places) -> str:
    return f"rabbit://lab:{places.password}@127.0.0.1:{places.ports['rabbitmq']}/"


def _keystone(places: Places) -> Sections:
    keys = places.etc("keystone")
    return {
        "database": {"connection": f"sqlite:///{places.folder}/keystone.sqlite"},
        "token": {"provider": "fernet", "expiration": 86_400},
        "fernet_tokens": {"key_repository": keys / "fernet-keys"},
        "credential": {"key_repository": keys / "credential-keys"},
        "identity": {"password_hash_algorithm": "bcrypt", "password_hash_rounds": 4},
    }


def _placement(places: Places) -> Sections:
    return {
        "placement_database": {"connection": places.mariadb("placement"), "sync_on_startup": False},
        "api": {"auth_strategy": "keystone"},
        "keystone_authtoken": {"www_authenticate_uri": places.auth_url, **_service(places, "placement")},
    }


def _nova(places: Places) -> Sections:
    return {
        "DEFAULT": {
            "my_ip": "127.0.0.1",
            "host": "controller",
            "state_path": places.folder / "nova",
            "transport_url": _broker(places),
            "rootwrap_config": VENV / "etc" / "nova" / "rootwrap.conf",
            "heal_instance_info_cache_interval": -1,
            "periodic_fuzzy_delay": 0,
            "service_down_time": 600,
            "rpc_response_timeout": 240,  # a migration asks four services in turn, and a busy machine has its own pace
            "initial_cpu_allocation_ratio": 4.0,
            "initial_ram_allocation_ratio": 1.0,
        },
        "api": {"auth_strategy": "keystone", "max_limit": 1000},
        "wsgi": {"api_paste_config": places.etc("api-paste.ini")},
        "api_database": {"connection": places.mariadb("nova_api")},
        "database": {"connection": places.mariadb("nova")},
        "keystone_authtoken": {"www_authenticate_uri": places.auth_url, **_service(places, "nova")},
        "service_user": {"send_service_user_token": True, **_service(places, "nova")},
        "placement": _service(places, "placement"),
        "glance": {"region_name": "RegionOne"},
        "neutron": _service(places, "nova"),
        "cinder": {"os_region_name": "RegionOne"},
        "oslo_concurrency": {"lock_path": places.folder / "locks"},
        "oslo_messaging_rabbit": {"heartbeat_in_pthread": False},
        "conductor": {"workers": 1},
        "scheduler": {"workers": 1, "discover_hosts_in_cells_interval": 5},
        "filter_scheduler": {
            "available_filters": "nova.scheduler.filters.all_filters",
            "enabled_filters": "ComputeFilter,ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter",
        },
        "quota": {"driver": "nova.quota.NoopQuotaDriver"},
        "vnc": {"enabled": False},
    }
