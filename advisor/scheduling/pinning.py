"""The instance to be placed as arrays beside the residents of hosts, and the few pinnings worth predicting there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.domain import Instance, PlacementRequest, WorkloadProfile
from advisor.snapshot import ClusterSnapshot, share_promised
from models.arrays import Bools, Floats, Hashes, Ints
from models.data.scene import ProfileTable, SceneBatch, slot_values
from models.data.topology import given_own_cpus
from models.physics.demands import cpu_spread
from profiler.observed import Host, Pinning


def profile_row(snapshot: ClusterSnapshot, request: PlacementRequest) -> tuple[ProfileTable, int | None, bool]:
    """The profile table, the new VM's row in it (None = look it up by name), and whether it has no profile."""
    if request.profile is not None and request.profile.known:
        # a row of its own, so that residents with the same workload name keep their profile
        profile = replace(request.profile, name=request.profile.name or request.instance.id)
        table = snapshot.scenes.table.with_profile(profile)
        return table, len(table.values) - 1, False
    table = snapshot.scenes.table
    return table, None, table.row(request.instance.workload) == 0


def with_own_profile(request: PlacementRequest) -> Instance:
    """The new VM with its own profile, where it has one, as its workload."""
    profile = own_profile(request)
    return request.instance if profile is None else replace(request.instance, workload=profile.name)


def own_profile(request: PlacementRequest) -> WorkloadProfile | None:
    """The new VM's own profile under the name that it has once the new VM is placed, None = it has none."""
    if request.profile is None or not request.profile.known:
        return None
    # No id holds a blank, so this name hides no workload of that name.
    return replace(request.profile, name=f"pending {request.instance.id}", platform="")


def rows_by_host(
    snapshot: ClusterSnapshot, hosts: Ints, instance: Instance, table: ProfileTable, row: int | None
) -> Ints:
    """The new VM's row of the table on each host: `row`, or its workload's profile on the host's platform."""
    if row is not None:
        return np.full(len(hosts), row)
    platforms = snapshot.scenes.platform[hosts]
    rows = np.full(len(hosts), table.row(instance.workload))
    for platform, workload in table.rows:
        if platform and workload == instance.workload:
            rows[platforms == platform] = table.row(workload, platform)
    return rows


def without_new_vm(
    snapshot: ClusterSnapshot, request: PlacementRequest, hosts: Ints, table: ProfileTable
) -> SceneBatch:
    """The hosts at these positions without the instance in question, which may run on one of them."""
    base = snapshot.scenes.take(hosts)
    base = base if base.table is table else replace(base, table=table)
    own_places = snapshot.where(request.instance.id)
    if not own_places:
        return base
    present = base.present.copy()
    for host, slot in own_places:
        present[hosts == host, slot] = False
    return replace(base, present=present)


def new_vm_slot(
    base: SceneBatch, snapshot: ClusterSnapshot, hosts: Ints, instance: Instance, row: int | None
) -> dict[str, Any]:
    """The new VM as slot values for every scene, unpinned; (S,) arrays, affinity (S, P)."""
    anywhere = base.shared[0] if len(base) else np.zeros(base.shared.shape[1], dtype=bool)
    values = slot_values(instance, 0, anywhere, base.table.subject(instance))
    count = len(base)
    filled = {name: np.broadcast_to(value, (count, *np.shape(value))).copy() for name, value in values.items()}
    filled |= {"profile": rows_by_host(snapshot, hosts, instance, base.table, row), "affinity": base.shared.copy()}
    return filled


def limits_of(snapshot: ClusterSnapshot, hosts: Ints, new_vm: Instance, slots: int) -> Floats:
    """The lowest accepted T/B on each host, the new VM in the last of `slots`; (H, N), nan = none."""
    return _with_new_vm(snapshot, snapshot.min_ratio, hosts, new_vm.id, new_vm.min_throughput_ratio, slots)


def latency_limits_of(snapshot: ClusterSnapshot, hosts: Ints, new_vm: Instance, slots: int) -> Floats:
    """The highest accepted latency ratio on each host, as in `limits_of`; (H, N), nan = none."""
    return _with_new_vm(snapshot, snapshot.max_latency, hosts, new_vm.id, new_vm.max_latency_ratio, slots)


def short_limits_of(snapshot: ClusterSnapshot, hosts: Ints, new_vm: Instance, slots: int) -> Floats:
    """The longest accepted part of the time short of CPU on each host, as in `limits_of`; (H, N), nan = none."""
    return _with_new_vm(snapshot, snapshot.max_short, hosts, new_vm.id, new_vm.max_time_short, slots)


def _with_new_vm(
    snapshot: ClusterSnapshot, limits: Floats, hosts: Ints, name: str, limit: float | None, slots: int
) -> Floats:
    with_new_vm = np.full((len(hosts), slots), np.nan)
    with_new_vm[:, : limits.shape[1]] = limits[hosts]
    for host, slot in snapshot.where(name):
        with_new_vm[hosts == host, slot] = np.nan
    with_new_vm[:, -1] = np.nan if limit is None else limit
    return with_new_vm


def used_share(snapshot: ClusterSnapshot, request: PlacementRequest, hosts: Ints) -> Floats:
    """`share_promised` with the new VM on each host, which may run there already; (H,)."""
    used = snapshot.used_vcpus[hosts] + request.instance.vcpus
    for host, slot in snapshot.where(request.instance.id):
        used[hosts == host] -= snapshot.residents[host][slot].vcpus
    shares = np.asarray(used / snapshot.scenes.pcpus[hosts])
    for row, at in enumerate(hosts.tolist()):
        if snapshot.hosts[at].isolated_cpus or snapshot.hosts[at].dedicated_cpus:
            others = [one for one in snapshot.residents[at] if one.id != request.instance.id]
            shares[row] = share_promised(snapshot.hosts[at], [*others, request.instance])
    return shares


# What the next place on each host is worth to those that are yet to come; arrays only.

SOFT = 0.02  # of a score: differences this small are not known, so that a place has no sharp price
ROUNDS, SETTLED = 60, 1e-4  # the most rounds of the iteration, and how little prices move when it ends


def prices(scores: Floats, places: Floats, arrivals: Floats) -> Floats:
    """The price (G,) of a place on each kind of host, in units of a score.

    `scores` (G, K) says how well an arrival of each class would do there, `places` (G,) how many hosts of the kind
    have a place, at least one, and `arrivals` (K,) how many of each class are expected, above 0, together at most as
    many as there are places.

    If every instance to come were placed at once, so that the sum of scores is the highest, a place would have a shadow
    price: what the sum would lose without it. It is 0 where places of that kind are left over. This is the assignment
    problem with an entropy term (Cuturi, NIPS 2013), which Sinkhorn's iteration solves, for places that may stay empty;
    to go by such prices is bid-price control (Talluri and van Ryzin, Management Science 44, 1998).
    """
    price = np.zeros(len(places))
    with np.errstate(divide="ignore"):
        wanted, there = np.log(arrivals), np.log(places)[:, None]
    for _ in range(ROUNDS):
        gain = _log_sum((scores - price[:, None]) / SOFT + there, axis=0) - wanted  # what a class gets at these prices
        former, price = price, np.maximum(SOFT * _log_sum(scores / SOFT - gain, axis=1), 0.0)
        if np.abs(price - former).max() < SETTLED:
            break
    return price


def _log_sum(values: Floats, axis: int) -> Floats:
    """The logarithm of the sum of the exponentials."""
    most = values.max(axis=axis, keepdims=True)
    return np.asarray(np.squeeze(most, axis) + np.log(np.exp(values - most).sum(axis=axis)))


MAX_PER_HOST = 4  # options per host, including `unpinned`
# Of options with equal scores the first is taken.
NAMES = ("as asked", "as it is", "unpinned", "quiet CPUs", "whole cores", "one node", "guest CPUs")
FREE = "unpinned"  # the option without pins
KEPT = "as it is"  # the pinning that a resident has where it is, which needs no command


@dataclass(frozen=True, slots=True)
class PinningOption:
    """One way to pin the new VM on every host.

    `affinity` (S, P); `usable` (S,) = it is a distinct choice there; `pins` False = it needs no command; `given` is the
    new VM's own pinning where the option is that.
    """

    name: str
    affinity: Bools
    usable: Bools
    pins: bool
    given: Pinning | None = None


def options(
    scenes: SceneBatch, new_vm: Instance, hosts: Sequence[Host], may_gain: Bools | None = None
) -> tuple[PinningOption, ...]:
    """Pinning options of the new VM on the host of each scene, at most four per host; unusable ones are left out.

    An existing pinning is the only option. Otherwise: `unpinned`; `quiet CPUs`: as many pCPUs as vCPUs, those with the
    least CPU demand (LATENCY section 4, N11); `whole cores`: the quietest cores with all threads, for latency-sensitive
    instances; `one node`: the quietest NUMA node that is large enough; `guest CPUs`: all pCPUs except the driver
    domain's, where it has its own. Only `unpinned` includes the driver domain's pCPUs, and only it and `guest CPUs`
    include pCPUs that a pinned resident has to itself. None includes isolated and dedicated pCPUs: what the former are
    kept free for is not known. An instance with dedicated vCPUs is not pinned here: whoever runs the host gives it
    pCPUs of its own. Of options that differ only in equivalent pCPUs the first is kept. Where pins are known to gain
    nothing, not `may_gain` (S,), only `unpinned` is left; None = they may everywhere.

    Which pCPUs are siblings is as the host says, else by their numbers (profiler.host_kinds).
    """
    count = len(scenes)
    may_gain = np.ones(count, dtype=bool) if may_gain is None else may_gain
    pinning = new_vm.settings.pinning
    if pinning is not None and any(pinning.cpus):
        fixed = np.stack([_as_asked(host, pinning, shared) for host, shared in zip(hosts, scenes.shared, strict=True)])
        return (PinningOption("as asked", fixed, np.ones(count, dtype=bool), pins=True, given=pinning),)
    free = PinningOption(FREE, scenes.shared, np.ones(count, dtype=bool), pins=False)
    if new_vm.dedicated_vcpus or not may_gain.any():  # whoever runs the host chooses pCPUs of its own for the former
        return (free,)
    scenes = given_own_cpus(scenes)
    places = _PcpuPlaces.of(scenes)
    minds_latency = new_vm.service == "latency" or new_vm.max_latency_ratio is not None
    choices = [replace(free, affinity=scenes.shared)]
    for name, affinity in (
        ("quiet CPUs", places.quiet(new_vm.vcpus)),
        *((("whole cores", places.whole_cores(new_vm.vcpus)),) if minds_latency else ()),
        ("one node", places.one_node(new_vm.vcpus)),
        ("guest CPUs", places.guest & (places.guest.sum(axis=1) >= new_vm.vcpus)[:, None]),
    ):
        choices.append(PinningOption(name, affinity, affinity.any(axis=1) & may_gain, pins=True))
    return _distinct_options(choices, places)


def _as_asked(host: Host, pinning: Pinning, shared: Bools) -> Bools:
    """Where a pinning puts an instance on a host, (P,): pCPUs that the host lacks are left out."""
    fixed = np.zeros(len(shared), dtype=bool) if all(pinning.cpus) else shared.copy()
    fixed[host.places(pinning.named)] = True
    return fixed


def taken(choices: Sequence[PinningOption], rows: Ints) -> tuple[PinningOption, ...]:
    """The options of some of the scenes: what they are in a scene does not depend on the others."""
    some = (replace(one, affinity=one.affinity[rows], usable=one.usable[rows]) for one in choices)
    return tuple(one for one in some if one.usable.any() or not one.pins)


def with_kept(
    choices: Sequence[PinningOption], held: PinningOption, rows: Ints, *, only: bool
) -> tuple[PinningOption, ...]:
    """The options of a resident that has the pinning `held` in the scenes `rows` already: there it may stay as it is,
    and with `only` nothing else is a choice there."""
    usable = np.zeros(len(held.usable), dtype=bool)
    usable[rows] = True
    others = [replace(option, usable=option.usable & ~usable) for option in choices] if only else choices
    return (replace(held, name=KEPT, usable=usable, pins=False), *others)


def as_pinning(option: PinningOption, scene: int, vcpus: int, host: Host) -> Pinning | None:
    """The option on the host of a scene as a Pinning, by the numbers of its pCPUs; one pCPU per vCPU where the counts
    match, else the whole set for each."""
    if option.given is not None:
        return option.given
    if not option.pins:
        return None
    cpus = tuple(host.cpus[place] for place in np.flatnonzero(option.affinity[scene]).tolist())
    if len(cpus) == vcpus:
        return Pinning(tuple((cpu,) for cpu in cpus))
    return Pinning.all_on(cpus, vcpus)


@dataclass(frozen=True, slots=True)
class _PcpuPlaces:
    """The pCPUs of S hosts, (S, P) each.

    `demand` is in CPUs; `node` and `core` (the number of its first pCPU) are the topology; `guest` = not used by the
    driver domain; `free` = also not reserved by a pinned resident; equal `alike` = interchangeable pCPUs of a host.
    """

    demand: Floats
    node: Ints
    core: Ints
    guest: Bools
    free: Bools
    alike: Hashes

    @classmethod
    def of(cls, scenes: SceneBatch) -> _PcpuPlaces:
        driver = scenes.driver_cpus & scenes.driver_pinned[:, None]
        pinned = scenes.present & scenes.pinned & (scenes.allowed <= scenes.vcpus)
        reserved = (scenes.affinity & pinned[:, :, None]).any(axis=1)
        core = scenes.core
        # pCPUs are distinguished by who may run on them and on their siblings.
        users = np.concatenate(
            [scenes.affinity & scenes.present[:, :, None], driver[:, None], scenes.shared[:, None]], axis=1
        )
        number = _splitmix64(np.arange(1, users.shape[1] + 1, dtype=np.uint64))
        user_hash: Hashes = np.where(users, number[None, :, None], np.uint64(0)).sum(axis=1, dtype=np.uint64)
        alike = _splitmix64(np.asarray(user_hash + scenes.node.astype(np.uint64), dtype=np.uint64))
        return cls(
            demand=np.round(cpu_spread(scenes), 9),  # rounding makes equal demands equal
            node=scenes.node,
            core=core,
            guest=scenes.shared & ~driver,
            free=scenes.shared & ~driver & ~reserved,
            alike=_splitmix64(np.asarray(alike + np.uint64(3) * _per_core(alike, core), dtype=np.uint64)),
        )

    def quiet(self, vcpus: int) -> Bools:
        """As many free pCPUs as vCPUs, (S, P), none where there are too few.

        The order is by demand, then node demand, quiet siblings, one per core, and number.
        """
        core_demand = _per_core(self.demand, self.core)
        thread = np.arange(self.core.shape[1]) - self.core
        return _first(vcpus, self.free, [self.demand, self._of_node(vcpus), self.node, core_demand, thread])

    def whole_cores(self, vcpus: int) -> Bools:
        """The quietest free cores with all their threads for that many vCPUs, (S, P); none without threads."""
        threads = _per_core(np.ones(self.core.shape), self.core)
        whole = (_per_core(self.free.astype(np.float64), self.core) == threads) & (threads > 1)
        first = whole & (self.core == np.arange(self.core.shape[1]))
        size = np.where(first, threads, 0).max(axis=1)
        wanted = np.ceil(vcpus / np.maximum(size, 1))
        taken = _first(wanted, first, [_per_core(self.demand, self.core), self._of_node(vcpus), self.node])
        return np.asarray(whole & np.take_along_axis(taken, self.core, axis=1))

    def one_node(self, vcpus: int) -> Bools:
        """The free pCPUs of the quietest node that has enough of them, (S, P); none where there is only one node."""
        demand = self._node_demand(vcpus)
        best = demand.argmin(axis=1)[:, None]
        fits = (self.node.max(axis=1) > 0) & np.isfinite(demand.min(axis=1))
        return np.asarray(self.free & (self.node == best) & fits[:, None])

    def _of_node(self, vcpus: int) -> Floats:
        return np.take_along_axis(self._node_demand(vcpus), self.node, axis=1)

    def _node_demand(self, vcpus: int) -> Floats:
        """Demand per guest pCPU of each node, inf where fewer than `vcpus` are free; (S, nodes)."""
        here = np.arange(int(self.node.max(initial=0)) + 1)[None, :, None] == self.node[:, None, :]
        guest = here & self.guest[:, None, :]
        fits = (here & self.free[:, None, :]).sum(axis=2) >= vcpus
        demand = np.round(np.where(guest, self.demand[:, None, :], 0.0).sum(axis=2), 9)
        return np.asarray(np.divide(demand, guest.sum(axis=2), out=np.full(fits.shape, np.inf), where=fits))


def _per_core(values: NDArray[Any], core: Ints) -> NDArray[Any]:
    """The sum of (S, P) values over each pCPU's core, for each pCPU."""
    if (core == np.arange(core.shape[1])).all():
        return values
    at = (core + core.shape[1] * np.arange(len(core))[:, None]).ravel()
    total = np.zeros(values.size, dtype=values.dtype)
    np.add.at(total, at, values.ravel())
    return np.asarray(total[at].reshape(values.shape))


def _first(count: int | Floats, allowed: Bools, keys: Sequence[Floats | Ints]) -> Bools:
    """The `count` allowed pCPUs with the smallest keys, the first key first, then the lowest; none where too few."""
    order = np.lexsort((*reversed(keys), ~allowed), axis=1)
    place = np.empty(allowed.shape, dtype=np.int64)
    np.put_along_axis(place, order, np.broadcast_to(np.arange(allowed.shape[1]), allowed.shape), axis=1)
    wanted = np.broadcast_to(np.asarray(count), len(allowed))[:, None]
    return np.asarray((place < wanted) & (allowed.sum(axis=1)[:, None] >= wanted))


def _distinct_options(options_in_order: Sequence[PinningOption], places: _PcpuPlaces) -> tuple[PinningOption, ...]:
    """The options that differ from earlier ones somewhere, at most MAX_PER_HOST on a host."""
    distinct: list[PinningOption] = []
    marks: list[Hashes] = []
    for option in options_in_order:
        neighbour_hash = _per_core(option.affinity.astype(np.uint64), places.core)
        mark = np.where(option.affinity, _splitmix64(places.alike + neighbour_hash), np.uint64(0)).sum(
            axis=1, dtype=np.uint64
        )
        usable = option.usable.copy()
        for other, other_mark in zip(distinct, marks, strict=True):
            usable &= ~other.usable | (mark != other_mark)
        choices_before = sum((other.usable.astype(int) for other in distinct), np.zeros(len(usable), dtype=int))
        usable &= choices_before < MAX_PER_HOST
        if usable.any() or not option.pins:
            distinct.append(replace(option, usable=usable))
            marks.append(mark)
    return tuple(distinct)


def _splitmix64(values: Hashes) -> Hashes:
    """The finalizer of splitmix64 (Steele et al., OOPSLA 2014): equal hashes for equal values."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
