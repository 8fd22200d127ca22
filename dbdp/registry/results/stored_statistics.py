"""Released statistics: how they are stored, so that nobody pays twice for one, and how they are found again."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbdp.learning.rows.encoding import HEADER_BYTES
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.results import models
from dbdp.sessions.server import SpiSession
from dbdp.sessions.session import Session


@dataclass(frozen=True)
class StoredStatistic:
    """A released statistic: its noisy coordinates, before any post-processing, and what they are of."""

    id: int  # its number in dbdp.statistics
    noisy: np.ndarray  # (d,)
    receipt: dict[str, Any]


def record(
    session: SpiSession, dataset: RegisteredDataset, noisy: np.ndarray, receipt: dict[str, Any]
) -> StoredStatistic:
    """Write a statistic to dbdp.model (in the server, as dbdp_owner), and return it."""
    stored = models.insert(session, dataset, receipt, None, None, None, noisy.tolist())
    return StoredStatistic(stored["id"], noisy, stored["receipt"])


_QUESTION = ("algorithm", "columns", "by", "measures", "margins", "cohort")  # entries of a plan that say what is asked
_OF_DATASET = """
select m.id, m.receipt::pg_catalog.text as receipt
from dbdp.model as m
where m.dataset_id = $1
and m.is_summary
order by m.id desc
"""


def answering(session: Session, dataset: RegisteredDataset, plan: dict[str, Any]) -> dict[str, int]:
    """Return the newest statistic that answers the question of a plan and that the caller may use, as an entry."""
    asked = json.loads(json.dumps({name: plan.get(name) for name in _QUESTION}))
    for row in session.query(_OF_DATASET, dataset.id):
        receipt = json.loads(row["receipt"])
        if {name: receipt.get(name) for name in _QUESTION} == asked:
            return {"stored": row["id"]}
    return {}


_LOAD = """
select m.receipt::pg_catalog.text as receipt, dbdp_internal.array_bytes(m.parameters) as numbers
from dbdp.model as m
join dbdp.statistics as s on s.id = m.id
where m.id = $1
"""


def load(session: Session, number: int, *kinds: str) -> StoredStatistic:
    """Return a released statistic of one of some kinds, with the caller's rights."""
    rows = session.query(_LOAD, number)
    if not rows:
        raise ValueError(f"statistic {number} does not exist; see dbdp.statistics")
    receipt = json.loads(rows[0]["receipt"])
    if (kind := receipt["algorithm"]) not in kinds:
        raise ValueError(
            f"statistic {number} is of kind {kind!r}, not {' or '.join(kinds)}; call dbdp.statistic_{kind}({number})"
        )
    return StoredStatistic(number, np.frombuffer(rows[0]["numbers"], np.float64, offset=HEADER_BYTES), receipt)
