"""Rights: which roles may train on a dataset, with which guarantee of their own, and which may predict.

This module runs in the server, as dbdp_owner, and checks the rights of the role that logged in (`session_user`). For a
role without a right, a dataset or a model looks as if it did not exist.
"""

from typing import Any

from dbdp.registry import datasets
from dbdp.registry.spending import identities, names, odometers
from dbdp.sessions.server import SpiSession
from dbdp.sessions.session import Row

_REGISTERED = """
select d.id,
       d.name,
       d.source::text as source,
       d.source::oid::int8 as source_oid,
       d.source_name,
       dbdp_internal.role_name(d.registered_by_id, d.registered_by)::text as registered_by,
       d.id in (select o.id from dbdp.own_datasets as o) as own,
       d.declaration::text as declaration,
       d.column_types::text as column_types,
       d.rows, d.unit, d.max_rows, d.answer_seconds, d.capacity, d.place,
       d.epsilon, d.delta, d.mode, d.rdp_order, d.charge_limit, d.leak_limit
from dbdp.dataset as d
where d.name = $1
and d.dropped_at is null
and d.id in (select o.id from dbdp.open_datasets as o)
"""


def registered(session: SpiSession, name: str, *, action: str) -> Row:
    """Return the row of a dataset that the caller's role registered; `action` is what only that role may do."""
    rows = session.query(_REGISTERED, name)
    if not rows:
        raise datasets.unknown(session, name)
    if not rows[0]["own"]:
        raise PermissionError(f"dataset {name!r} belongs to {rows[0]['registered_by']}; only that role may {action}")
    return rows[0]


# A role that is granted the right again has its former row, and so what it has spent.
_NEW_ALLOWANCE = """
insert into dbdp.allowance (dataset_id, role) values ($1, $2::name) on conflict do nothing returning id
"""
# The row is locked, so that nothing is charged to the allowance until its new limits and order are in force.
_LOCKED_ALLOWANCE = """
select a.id, coalesce(a.rdp_order, d.rdp_order) as rdp_order
from dbdp.allowance as a
join dbdp.dataset as d on d.id = a.dataset_id
where a.dataset_id = $1
and a.role_id = dbdp_internal.identity_of($2::name)
for no key update of a
"""
_GRANT_TRAINING = """
update dbdp.allowance
set epsilon = $2::float8,
    delta = $3::float8,
    rdp_order = $4::float8,
    charge_limit = $5::int8,
    leak_limit = $6::int8,
    granted_by = default,
    granted_at = default,
    revoked_at = null
where id = $1
"""


def grant_training(session: SpiSession, name: str, role: str, epsilon: float | None) -> None:
    """Let a role train on a dataset; with an ε, all its releases together are (ε, δ)-DP by themselves.

    The order of its charges is chosen while nothing is spent, and fixed from the first charge on: an order that was
    chosen after a release is not sound (privacy.md §13).
    """
    row = registered(session, name, action="grant training on it")
    _check_role(session, role)
    for new in session.query(_NEW_ALLOWANCE, row["id"], role):
        odometers.create(session, odometers.OF_ALLOWANCE, new["id"])
    allowance = session.query(_LOCKED_ALLOWANCE, row["id"], role)[0]
    is_unspent = odometers.read(session, allowance["id"], odometers.OF_ALLOWANCE) == (0, 0)
    order = None if is_unspent else allowance["rdp_order"]
    limits: list[Any] = [None, order, None, None]
    if epsilon is not None:
        own = datasets.budget_of(row).allowance(epsilon, order)
        limits = [own.delta, own.order, own.charge_limit, own.leak_limit]
    session.query(_GRANT_TRAINING, allowance["id"], epsilon, *limits)
    _warn_without(session, role, "dbdp_analyst", "train")


def revoke_training(session: SpiSession, name: str, role: str) -> None:
    """End a role's right to train on a dataset; its odometers stay."""
    row = registered(session, name, action="revoke training on it")
    ended = session.query(
        "update dbdp.allowance set revoked_at = now() "
        f"where dataset_id = $1 and {identities.NAMED} and revoked_at is null returning id",
        row["id"],
        role,
    )
    if not ended:
        raise ValueError(f"role {role!r} was not granted training on dataset {name!r}; see dbdp.allowances")


def grant_prediction(session: SpiSession, model: int | str, role: str) -> None:
    """Let a role predict with a model, by number or `name@version`, or with all models of a name."""
    _check_role(session, role)
    if names.is_name(model):
        names.grant(session, str(model), role)
        _warn_without(session, role, "dbdp_predictor", "predict")
        return
    model = names.number(session, model)
    _check_released(session, model, action="grant prediction with it")
    session.query(
        "insert into dbdp.prediction_grant (model_id, role) values ($1, $2::name) on conflict do nothing", model, role
    )
    _warn_without(session, role, "dbdp_predictor", "predict")


def revoke_prediction(session: SpiSession, model: int | str, role: str) -> None:
    """End a role's right to predict with a model, by number or `name@version`, or with all models of a name."""
    if names.is_name(model):
        names.revoke(session, str(model), role)
        return
    model = names.number(session, model)
    _check_released(session, model, action="revoke prediction with it")
    ended = session.query(
        f"delete from dbdp.prediction_grant where model_id = $1 and {identities.NAMED} returning model_id", model, role
    )
    if not ended:
        raise ValueError(f"role {role!r} was not granted prediction with model {model}; see dbdp.prediction_grants")


_LOCKED_PREDICTIONS = """
select from dbdp.prediction_grant as g
where g.model_id = $1
and g.role_id = any (dbdp_internal.own_roles())
for key share
"""
_LOCKED_NAMES = """
select from dbdp.name_grant as g
where g.name = (select m.name from dbdp.model as m where m.id = $1)
and g.role_id = any (dbdp_internal.own_roles())
for key share
"""


def lock_predictions(session: SpiSession, release: int) -> None:
    """Lock the caller's grants of prediction with a model, or of a summary, before a charge that uses it.

    A grant that was revoked since an old snapshot cannot be locked: PostgreSQL raises 40001, before anything is spent.
    """
    session.query(_LOCKED_PREDICTIONS, release)
    session.query(_LOCKED_NAMES, release)


# The policy of dbdp.model holds for dbdp_owner too.
_RELEASED = """
select dbdp_internal.role_name(m.released_by_id, m.released_by)::text as released_by,
       m.released_by_id = any (dbdp_internal.own_roles())
           or m.dataset_id in (select o.id from dbdp.own_datasets as o) as own
from dbdp.model as m
where m.id = $1
"""


def _check_released(session: SpiSession, model: int, *, action: str) -> None:
    """Raise ValueError if the caller sees no such model, PermissionError unless it released it or owns its dataset."""
    rows = session.query(_RELEASED, model)
    if not rows:
        raise ValueError(f"model {model} does not exist; see dbdp.models")
    if not rows[0]["own"]:
        raise PermissionError(
            f"model {model} was released by {rows[0]['released_by']}; only that role, or the one that registered its "
            f"dataset, may {action}"
        )


def _check_role(session: SpiSession, role: str) -> None:
    if not session.query("select from pg_roles where rolname = $1::name", role):
        raise ValueError(f"role {role!r} does not exist; create it first, or write its name as in pg_roles")
    if role == "dbdp_owner":
        raise ValueError("dbdp_owner is for the extension's functions, and nobody logs in as it; name another role")
    identities.check_confirmed(session, role)


def _warn_without(session: SpiSession, role: str, needed: str, action: str) -> None:
    """Warn the caller if a role may not call the functions that its new right is for."""
    is_member = "select pg_has_role($1::name, $2::name, dbdp_internal.membership()) as may"
    if not session.query(is_member, role, needed)[0]["may"]:
        session.warn(f"role {role!r} is not a member of {needed}, and so may not {action} yet; grant {needed} to it")
