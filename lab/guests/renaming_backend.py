"""Shows only some instances of a backend, under other names: the lab's own domains among all of a host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from profiler.backends.base import Backend, BackendError, Counters
from profiler.observed import Instance, IsolationSettings


class RenamingBackend:
    """Shows only the instances in `names`, which maps the backend's ids to the lab's."""

    def __init__(self, backend: Backend, names: Mapping[str, str]) -> None:
        self._backend = backend
        self._names = dict(names)

    @property
    def name(self) -> str:
        return self._backend.name

    @property
    def host(self) -> str:
        return self._backend.host

    def list_instances(self) -> list[Instance]:
        shown = [instance for instance in self._backend.list_instances() if instance.id in self._names]
        renamed = [replace(instance, id=self._names[instance.id]) for instance in shown]
        return sorted(renamed, key=lambda instance: instance.id)

    def read_counters(self) -> Counters:
        counters = self._backend.read_counters()
        return replace(
            counters,
            instances={self._names[name]: value for name, value in counters.instances.items() if name in self._names},
            absent={self._names.get(name, name): why for name, why in counters.absent.items()},
            vanished=tuple(self._names[name] for name in counters.vanished if name in self._names),
        )

    def read_isolation(self, instance: Instance) -> IsolationSettings:
        for theirs, ours in self._names.items():
            if ours == instance.id:
                return self._backend.read_isolation(replace(instance, id=theirs))
        raise BackendError(f"instance {instance.id} is not one of this run")

    def close(self) -> None:
        self._backend.close()
