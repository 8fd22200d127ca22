"""Names of models: a name belongs to the role that used it first, on one dataset, and counts its versions.

A version is reserved with the charge of its training, before a row is read, so that storing the model cannot be
refused after it. Names are unique in the database, as those of datasets are, whoever sees them: otherwise a stranger's
model could be found by an application that predicts by name. This module runs in the server, as dbdp_owner.
"""

from typing import Any, NamedTuple

from dbdp import checks
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.spending import identities, spelling
from dbdp.sessions.errors import LOCK_NOT_AVAILABLE
from dbdp.sessions.server import SpiSession
from dbdp.sessions.session import Session

_MOST_WAIT = "2000"  # milliseconds that a reservation waits for another transaction's


class Version(NamedTuple):
    """A version of a name; None and None for a model without a name."""

    name: str | None = None  # the name
    version: int | None = None  # its number, from 1

    @property
    def facts(self) -> dict[str, Any]:
        """The version as entries of a receipt."""
        return {} if self.name is None else {"name": self.name, "model_version": self.version}


UNNAMED = Version()
_RESERVE = """
insert into dbdp.model_name (name, folded, dataset, registered_by, registered_by_id)
select $1, $3, d.name, d.registered_by, d.registered_by_id
from dbdp.dataset as d
where d.id = $2
on conflict do nothing
"""
_NEXT = """
update dbdp.model_name as n
set versions = n.versions + 1
from dbdp.dataset as d
where n.name = $1
and d.id = $2
and n.owned_by_id = any (dbdp_internal.own_roles())
and (n.dataset, n.registered_by_id) = (d.name, d.registered_by_id)
returning n.versions as version
"""
_ALIKE = "select n.name, n.folded from dbdp.model_name as n where n.name = $1 or n.folded = $2 or n.folded is null"
_OWN_DATASET = (
    "select n.dataset from dbdp.model_name as n where n.name = $1 and n.owned_by_id = any (dbdp_internal.own_roles())"
)


def reserve(session: SpiSession, dataset: RegisteredDataset, name: Any) -> Version:
    """Reserve the next version of a name for the caller's training; called before the charge.

    The first use inserts the name, and each locks its row until the transaction ends, so that two transactions never
    have the same version, and none waits for the other after its charge.
    """
    if name is None:
        return UNNAMED
    checks.model_name(name)
    try:
        with session.setting("lock_timeout", _MOST_WAIT):
            _check_spelling(session, name)
            session.query(_RESERVE, name, dataset.id, spelling.folded(name))
            rows = session.query(_NEXT, name, dataset.id)
    except Exception as error:  # plpy's exceptions have names in the server only
        if session.failure(error)[0] != LOCK_NOT_AVAILABLE:
            raise
        raise ValueError(
            f"name {name!r} is being used by a training in another transaction; train again when it has ended"
        ) from None
    if rows:
        return Version(name, rows[0]["version"])
    if own := session.query(_OWN_DATASET, name):
        raise ValueError(f"name {name!r} is of models of dataset {own[0]['dataset']!r}; choose another name")
    _check_spelling(session, name)  # another transaction's, which was first
    raise ValueError(f"name {name!r} belongs to another role; choose another name")


def _check_spelling(session: SpiSession, name: str) -> None:
    """Raise ValueError for a new name that people could take for another, or not see; an old one stays usable."""
    others = {row["name"]: row["folded"] for row in session.query(_ALIKE, name, spelling.folded(name))}
    if name in others:
        return
    spelling.check(name)
    if any((form or spelling.folded(other)) == spelling.folded(name) for other, form in others.items()):
        raise ValueError(
            f"name {name!r} differs from a name in use by the case of its letters only; write it as that, or choose "
            "another name"
        )


def reserved(session: SpiSession, ledger: int) -> Version:
    """Return the version that a charge reserved; none if a model has it already."""
    rows = session.query(
        "select l.model_name as name, l.model_version as version from dbdp.ledger as l where l.id = $1 and not exists "
        "(select from dbdp.model as m where (m.name, m.version) = (l.model_name, l.model_version))",
        ledger,
    )
    return Version(**rows[0]) if rows else UNNAMED


def number(session: Session, model: int | str) -> int:
    """Return the number of a model that the caller may predict with, by its number, name or `name@version`."""
    if isinstance(model, int):
        return model
    found: int | None = session.query("select dbdp_internal.model_number($1) as number", model)[0]["number"]
    if found is None:
        names = session.query("select distinct m.name from dbdp.model as m where m.name is not null")
        raise ValueError(checks.no_model(model, [row["name"] for row in names]))
    return found


def is_name(model: int | str) -> bool:
    """Return whether a model is referred to by its name alone, which includes later versions."""
    return isinstance(model, str) and "@" not in model and not model.isdigit()


_NAMED = """
select dbdp_internal.role_name(n.owned_by_id, n.owned_by)::text as owned_by,
       n.owned_by_id = any (dbdp_internal.own_roles()) or n.registered_by_id = any (dbdp_internal.own_roles()) as own
from dbdp.model_name as n
where n.name = $1
"""


def check_own(session: SpiSession, name: str, *, action: str) -> None:
    """Raise ValueError if the caller sees no model of the name, PermissionError if it may not grant it."""
    rows = session.query(_NAMED, name)
    if not rows or not rows[0]["own"]:
        number(session, name)
        raise PermissionError(
            f"name {name!r} belongs to {rows[0]['owned_by']}; only that role, or the one that registered its dataset, "
            f"may {action}"
        )


def grant(session: SpiSession, name: str, role: str) -> None:
    """Let a role predict with all models of a name; raises as `check_own` does."""
    check_own(session, name, action="grant prediction with it")
    session.query("insert into dbdp.name_grant (name, role) values ($1, $2::name) on conflict do nothing", name, role)


def revoke(session: SpiSession, name: str, role: str) -> None:
    """End a role's right to predict with the models of a name; raises as `check_own` does."""
    check_own(session, name, action="revoke prediction with it")
    sql = f"delete from dbdp.name_grant where name = $1 and {identities.NAMED} returning name"
    if not session.query(sql, name, role):
        raise ValueError(f"role {role!r} was not granted prediction by the name {name!r}; see dbdp.prediction_grants")
