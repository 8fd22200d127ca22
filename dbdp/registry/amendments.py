"""What the owner of a dataset may do later, on record: a new budget, a corrected declaration, a public time of answers.

It runs in the server, as dbdp_owner. privacy.md §13: a budget never changes. A renewal is another registration of
the same table, with odometers of its own, and what is promised over all of them adds up. A declaration is of public
facts: correcting it touches neither the budget nor the models that were released, which keep their own.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dbdp import checks
from dbdp.registry import registering
from dbdp.registry.datasets import check_kind
from dbdp.registry.registration import Registration
from dbdp.registry.spending import rights
from dbdp.sessions.server import ServerSession
from dbdp.sessions.session import Row

_LONGEST = 86_400  # seconds, a day
_LABEL_KINDS = ("positive", "negative", "classes", "label_bounds")


def renew(session: ServerSession, name: str, reason: str, epsilon: float | None, delta: float | None) -> None:
    """End the budget of a dataset and begin a new one, of the same role's dataset, whoever renews it.

    Raises
    ------
    ValueError
        If there is no such dataset, or no reason, or the new budget cannot be, or the table is gone or empty.
    PermissionError
        If the role neither registered the dataset nor is a member of the role that did, or the table is another's.
    """
    former = _own(session, name, "renew its budget", reason)
    present = _registration(former)
    renewed = replace(
        present,
        epsilon=present.epsilon if epsilon is None else epsilon,
        delta=present.delta if delta is None else delta,
    )
    types = registering.check_source(session, renewed)
    registering.end(session, former["id"])
    renewal = registering.Renewal(former["id"], reason, former["registered_by"], former["answer_seconds"])
    registering.enter(session, renewed, types, renewal)


def answer_at_multiples(session: ServerSession, name: str, reason: str, seconds: int | None) -> None:
    """Have the server answer at whole multiples of so many seconds after each charge, or, without, at once.

    What it was before is kept in dbdp.former_answer_time.

    Raises
    ------
    ValueError
        If there is no such dataset, or no reason, or nothing changes, or the number is not from 1 to a day's.
    PermissionError
        As `renew`.
    """
    if seconds is not None:
        checks.whole("seconds", seconds, 1, _LONGEST, "or give null, to answer at once")
    present = _own(session, name, "set when it answers", reason)
    if seconds == present["answer_seconds"]:
        raise ValueError(f"dataset {name!r} answers so already; give what changes")
    session.query(
        "insert into dbdp.former_answer_time (dataset_id, seconds, reason) values ($1, $2::int4, $3)",
        present["id"],
        present["answer_seconds"],
        reason,
    )
    session.query("update dbdp.dataset set answer_seconds = $2::int4 where id = $1", present["id"], seconds)


def redeclare(session: ServerSession, name: str, reason: str, corrections: Mapping[str, Any]) -> None:
    """Correct what was declared of a dataset; what it was before is kept in dbdp.former_declaration.

    Raises
    ------
    ValueError
        If there is no such dataset, or no reason, or nothing changes, or the declaration is not sound.
    PermissionError
        As `renew`.
    """
    present = _own(session, name, "redeclare it", reason)
    corrected = _corrected(_registration(present), corrections)
    if corrections.get("features") is not None:
        corrected = corrected.coded(present["rows"])
    declared = corrected.declaration.to_json()
    if declared == present["declaration"]:
        raise ValueError(f"dataset {name!r} is declared so already; give what changes")
    types = registering.check_source(session, corrected)
    session.query(
        "insert into dbdp.former_declaration (dataset_id, declaration, column_types, reason) "
        "values ($1, $2::json, $3::json, $4)",
        present["id"],
        present["declaration"],
        present["column_types"],
        reason,
    )
    session.query(
        "update dbdp.dataset set declaration = $2::json, column_types = $3::json where id = $1",
        present["id"],
        declared,
        json.dumps(types),
    )


def _corrected(present: Registration, corrections: Mapping[str, Any]) -> Registration:
    """Return a registration with features, or the label's values, replaced by those that are given."""
    given = {name: value for name, value in corrections.items() if value is not None}
    without: dict[str, Any] = dict.fromkeys(_LABEL_KINDS) if given.keys() & set(_LABEL_KINDS) else {}
    return replace(present, **without | given)


def _registration(row: Row) -> Registration:
    """Return the registration that the catalogue's row of a dataset has; its budget is one of ε."""
    stated = ("name", "source", "epsilon", "delta", "mode", "unit", "max_rows")
    return Registration(**{name: row[name] for name in stated}, **json.loads(row["declaration"]))


def _own(session: ServerSession, name: str, act: str, reason: str) -> Row:
    """Return the catalogue's row of a dataset that this role may amend, with a reason."""
    found = rights.registered(session, name, action=act)
    if not reason.strip():
        raise ValueError("reason is empty; say in a few words why, for the record")
    if not check_kind(session, found["source_oid"]):
        raise ValueError(f"table {found['source_name']} of dataset {name!r} was dropped; call dbdp.drop_dataset")
    registering.check_opened(session, found["source"])
    return found
