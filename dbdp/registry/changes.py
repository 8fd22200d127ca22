"""Later changes to a dataset, on record: a new budget, a corrected declaration, public answer times, a capacity.

This module runs in the server, as dbdp_owner; the reason of each change is recorded. A budget never changes (privacy.md
§13): a renewal is another registration of the same table, with odometers of its own, and the guarantees of all
registrations add up. A declaration states public facts: correcting it changes neither the budget nor the released
models, which have their own copy.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dbdp import checks
from dbdp.registry import places, register
from dbdp.registry.datasets import check_kind
from dbdp.registry.registration import Registration, check_capacity
from dbdp.registry.spending import rights
from dbdp.sessions.server import SpiSession
from dbdp.sessions.session import Row

_LONGEST = 86_400  # seconds, a day
_LABEL_KINDS = ("positive", "negative", "classes", "label_bounds")


def renew(
    session: SpiSession,
    name: str,
    reason: str,
    epsilon: float | None,
    delta: float | None,
    capacity: int | None = None,
) -> None:
    """End the budget of a dataset and begin a new one; a null ε, δ or capacity stays, and so does the owner."""
    former = _own(session, name, "renew its budget", reason)
    _check_is_table(former)
    present = _registration(former)
    renewed = replace(
        present,
        epsilon=present.epsilon if epsilon is None else epsilon,
        delta=present.delta if delta is None else delta,
        capacity=present.capacity if capacity is None else capacity,
    )
    if capacity is not None:
        check_capacity(capacity)
    types = register.check_source(session, renewed)
    register.end(session, former["id"])
    renewal = register.Renewal(former["id"], reason, former["answer_seconds"])
    register.enter(session, renewed, types, renewal)


_PLACE = """
update dbdp.dataset
set place = $2, digest = $3, capacity = null
where id = $1
and registered_in = pg_current_xact_id_if_assigned()
and capacity = rows
and place is null
returning id
"""


def place(session: SpiSession, name: str, place: str, digest: str) -> None:
    """State where the rows of a new dataset are, whose table is empty; their number is the capacity, now public."""
    places.parts(place)
    places.check_digest(digest)
    row = rights.registered(session, name, action="state where its rows are")
    if not session.query(_PLACE, row["id"], place, digest):
        raise ValueError(
            f"dataset {name!r} was not registered in this transaction with the number of its rows as capacity, and "
            "without a unit; register files by Database.on_spark(spark).register_dataset"
        )


def _check_is_table(row: Row) -> None:
    """Raise ValueError for a dataset whose rows are elsewhere: their number is public, and fixed with the files."""
    if row["place"] is not None:
        raise ValueError(
            f"dataset {row['name']!r} has its rows at {row['place']!r}, and their number is fixed; register other "
            "files as a separate dataset"
        )


def answer_at_multiples(session: SpiSession, name: str, reason: str, seconds: int | None) -> None:
    """Make the server answer at multiples of `seconds` after each charge; None: as soon as it can.

    The former value is recorded in dbdp.former_answer_time.
    """
    if seconds is not None:
        checks.whole("seconds", seconds, 1, _LONGEST, "or give null, to answer at once")
    present = _own(session, name, "set when it answers", reason)
    if seconds == present["answer_seconds"]:
        raise ValueError(f"dataset {name!r} has this answer time already; choose another number of seconds, or null")
    session.query(
        "insert into dbdp.former_answer_time (dataset_id, seconds, reason) values ($1, $2::int4, $3)",
        present["id"],
        present["answer_seconds"],
        reason,
    )
    session.query("update dbdp.dataset set answer_seconds = $2::int4 where id = $1", present["id"], seconds)


def raise_capacity(session: SpiSession, name: str, reason: str, capacity: int) -> None:
    """Raise the capacity of a dataset; its budget, its allowances and its models stay.

    The former capacity, null for a fixed number of rows, is recorded in dbdp.former_capacity. Proof (privacy.md §18).
    Every release is planned for the capacity of its time, and covers one record replaced, added or removed in the table
    of its time; tables whose histories differ in one record differ in at most one at each of these times. So the
    charges add up as before. Releases of a fixed number of rows cover one record replaced, so that the whole budget
    covers no more than that.

    Raise ValueError if the dataset does not exist, the reason is empty, or the capacity is not above the present one
    (nor below a fixed number of rows). Raise PermissionError as `renew`.
    """
    check_capacity(capacity)
    present = _own(session, name, "raise its capacity", reason)
    _check_is_table(present)
    slots_of_one = present["max_rows"] or 1
    least = present["rows"] // slots_of_one + (present["capacity"] is not None)
    if capacity < least:
        raise ValueError(
            f"capacity = {capacity} must be at least {least} for dataset {name!r}: a lower one would leave out rows "
            "that training has read until now; to start again with it call dbdp.renew_budget with this capacity"
        )
    session.query(
        "insert into dbdp.former_capacity (dataset_id, capacity, rows, reason) values ($1, $2::int8, $3::int8, $4)",
        present["id"],
        present["capacity"],
        present["rows"],
        reason,
    )
    register.warn_of_size(session, _registration(present).declaration, capacity * slots_of_one)
    session.query(
        "update dbdp.dataset set capacity = $2::int8, rows = $3::int8 where id = $1",
        present["id"],
        capacity,
        capacity * slots_of_one,
    )


def redeclare(session: SpiSession, name: str, reason: str, corrections: Mapping[str, Any]) -> None:
    """Correct fields of a dataset's `Registration`, None leaves one; the former ones go to dbdp.former_declaration.

    The types of the columns are recorded as they are now, also where nothing else changes.
    """
    present = _own(session, name, "redeclare it", reason)
    corrected = _corrected(_registration(present), corrections)
    if corrections.get("features") is not None:
        corrected = corrected.coded(present["rows"])
    declared, types = corrected.declaration.to_json(), register.check_source(session, corrected)
    if declared == present["declaration"] and types == json.loads(present["column_types"]):
        raise ValueError(f"dataset {name!r} has this declaration already; pass a value that differs")
    register.warn_of_codes(session, corrected.declaration, types)
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
    """Return a registration with the corrections that are not None; a new label value replaces the label's kind."""
    changed = {name: value for name, value in corrections.items() if value is not None}
    cleared: dict[str, Any] = dict.fromkeys(_LABEL_KINDS) if changed.keys() & set(_LABEL_KINDS) else {}
    return replace(present, **cleared | changed)


def _registration(row: Row) -> Registration:
    """Return the registration in a dataset's row of the catalogue; its budget is stated as ε and δ."""
    stated = ("name", "source", "epsilon", "delta", "mode", "unit", "max_rows", "capacity")
    present = Registration(**{name: row[name] for name in stated}, **json.loads(row["declaration"]))
    own = row["rdp_order"] is not None and not math.isclose(row["rdp_order"], present.budget.order or 0, rel_tol=1e-6)
    return replace(present, rdp_order=row["rdp_order"]) if own else present


def _own(session: SpiSession, name: str, act: str, reason: str) -> Row:
    """Return a dataset's row of the catalogue; raise ValueError or PermissionError unless this role may amend it."""
    row = rights.registered(session, name, action=act)
    if not reason.strip():
        raise ValueError("reason is empty; write in a few words why, for the record")
    if not check_kind(session, row["source_oid"]):
        raise ValueError(f"table {row['source_name']} of dataset {name!r} was dropped; call dbdp.drop_dataset")
    register.check_opened(session, row["source"])
    return row
