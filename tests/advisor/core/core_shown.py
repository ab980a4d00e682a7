"""What an answer shows as arrays, built the plain way: scene by scene from the answer's own words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from advisor.domain import Instance, PlacementRequest
from advisor.explanation import CandidateArrays
from advisor.scheduling import scoring
from advisor.snapshot import ClusterSnapshot
from models.data.scene import ProfileTable, build_batch
from models.physics.prior import PriorPredictor
from models.prediction import Predictor
from tests.advisor.core.core_clouds import ask


def shown_of(
    snapshot: ClusterSnapshot, question: PlacementRequest, predictor: Predictor | None = None
) -> CandidateArrays:
    """Everything that the answer to a question shows; the newcomer brings no profile of its own."""
    predictor = predictor or PriorPredictor()
    answer = ask(snapshot, replace(question, explain=False), predictor)
    newcomer = question.instance
    hosts = tuple(snapshot.hosts[snapshot.index(one.host) or 0] for one in answer.candidates)
    residents = tuple(
        tuple(one for one in snapshot.residents[snapshot.index(host.id) or 0] if one.id != newcomer.id)
        for host in hosts
    )
    most = max((len(there) for there in residents), default=0)
    nobody = Instance("nobody-there")
    scenes = build_batch(
        [
            (
                host,
                (
                    *there,
                    *([nobody] * (most - len(there))),
                    replace(newcomer, settings=replace(one.isolation, pinning=one.pinning)),
                ),
            )
            for host, there, one in zip(hosts, residents, answer.candidates, strict=True)
        ],
        ProfileTable.build(snapshot.workloads),
    )
    present = scenes.present.copy()
    for at, there in enumerate(residents):
        present[at, len(there) : most] = False
    scenes = replace(scenes, present=present)
    absent = present.copy()
    absent[:, -1] = False
    prediction = predictor.predict(scenes)
    without = predictor.predict(replace(scenes, present=absent))
    alone, short = without.throughput, without.pressure
    before, half_before = np.where(absent, alone.expected, 1.0), np.where(absent, alone.expected - alone.lower, 0.0)
    limits = np.full(present.shape, np.nan)
    for at, there in enumerate(residents):
        for slot, one in [*enumerate(there), (most, newcomer)]:
            limits[at, slot] = np.nan if one.min_throughput_ratio is None else one.min_throughput_ratio
    used = np.array(
        [
            (sum(one.vcpus for one in there) + newcomer.vcpus) / host.pcpus
            for host, there in zip(hosts, residents, strict=True)
        ]
    )
    return CandidateArrays(
        hosts=hosts,
        residents=residents,
        slots=tuple(tuple(range(len(there))) for there in residents),
        newcomer=newcomer,
        scenes=scenes,
        prediction=prediction,
        before=before,
        scores=scoring.score(
            prediction,
            present,
            before,
            limits,
            used,
            question.objective,
            half_before=half_before,
            more_short=scoring.more_short(
                prediction.time_short(), np.where(absent, without.time_short(), 0.0), scenes.profiled
            ),
        ),
        objective=question.objective,
        predictor=predictor,
        beside=question.constraints.affinity,
        headroom=tuple(one.headroom for one in answer.candidates if one.headroom),
        short_before=None if short is None else np.where(absent, short.short, 0.0),
    )
