"""Identities: which role a restored right belongs to, once somebody confirms it (sql/schema/7-identities.sql).

This module runs in the server, as dbdp_owner. A superuser decides about every former role. The owner of a table decides
about roles that concern its own tables only, and only that a role is the one of the same name.
"""

from dbdp.checks import nearest
from dbdp.sessions.server import SpiSession
from dbdp.sessions.session import Row, Session

# The grants to $2: to the role that has this name now, or as views show it; or to one that had it and is gone.
NAMED = """(
    dbdp_internal.role_name(role_id, role) = $2::name or role = $2::name and dbdp_internal.role_of(role_id) is null
)"""
_UNCONFIRMED = """
select f.role_name::pg_catalog.text as name
from dbdp.former_role as f
where f.role_name = coalesce($1::pg_catalog.name, session_user)
and f.confirmed_at is null
"""
_IS_SUPERUSER = "select pg_has_role(session_user, 'dbdp_owner', dbdp_internal.membership()) as may"


def check_confirmed(session: SpiSession, role: str | None = None) -> None:
    """Raise PermissionError if a role, by default the caller, may be one of a restored dump, and nobody decided yet.

    Otherwise one role would have two identities, and an allowance for each.
    """
    if text := waiting(session, role):
        raise PermissionError(text)


def waiting(session: Session, role: str | None = None) -> str | None:
    """Return the message about a role, by default the caller, if nobody confirmed it; else None."""
    rows = session.query(_UNCONFIRMED, role)
    return _message(rows[0]["name"]) if rows else None


def _message(role: str) -> str:
    return (
        f"this database was restored from a dump, and nobody confirmed that role {role!r} is the {role!r} of the dump; "
        f"have a superuser call dbdp.confirm_role('{role}') if it is, or dbdp.retire_role('{role}') if not"
    )


# A superuser may also give the rights of a role that was dropped to another one.
_FORMER = """
select i.identity::text as identity, i.role_name::text as role_name
from dbdp.identities as i
where i.role is null
and (i.is_unconfirmed and i.role_name = $1::name or i.identity = $1::name and (i.is_unconfirmed or $2))
"""
_LISTED = "select u.role_name::text as role_name from dbdp.unconfirmed_roles as u order by u.role_name"


def _former(session: SpiSession, name: str) -> Row:
    """Return a former role by its name or identity; raise an error if none waits, or the caller may not decide."""
    is_superuser = session.query(_IS_SUPERUSER)[0]["may"]
    rows = session.query(_FORMER, name, is_superuser)
    if not rows:
        similar = nearest(name, [row["role_name"] for row in session.query(_LISTED)])
        raise ValueError(f"role {name!r} does not wait for confirmation; see dbdp.unconfirmed_roles{similar}")
    if len(rows) > 1:
        listed = ", ".join(repr(row["identity"]) for row in rows)
        raise ValueError(f"{len(rows)} former roles have the name {name!r}; pass an identity: {listed}")
    if not is_superuser and session.query(_ELSEWHERE, rows[0]["identity"]):
        raise PermissionError(f"role {name!r} concerns tables of other owners too; only a superuser may confirm it")
    return rows[0] | {"is_superuser": is_superuser}


# A use of an identity on a dataset of a table that is not the caller's.
_ELSEWHERE = """
select
from dbdp.identity_uses as u
where u.identity = $1::name
and not exists (
    select
    from dbdp.dataset as d
    join pg_class as c on c.oid = d.source
    where d.id = u.dataset_id
    and pg_has_role(session_user, c.relowner, dbdp_internal.membership())
)
limit 1
"""
_ROLE = """
select r.oid::int8 as oid,
       exists (select from dbdp.identities as i where i.role = r.oid)
           or exists (select from dbdp.former_role as f where f.role = r.oid) as is_known
from pg_roles as r
where r.rolname = $1::name
"""
_DECIDE = """
insert into dbdp.former_role as f (identity, role, confirmed_by, confirmed_at)
values ($1::name, $2::oid, session_user, now())
on conflict (identity) do update
set role = excluded.role, confirmed_by = excluded.confirmed_by, confirmed_at = excluded.confirmed_at
where f.role is null
"""


def confirm(session: SpiSession, former: str, role: str | None) -> None:
    """Give a role the rights of a former one; by default the role of the same name."""
    row = _former(session, former)
    chosen = role or row["role_name"] or former
    if not row["is_superuser"] and chosen != row["role_name"]:
        raise PermissionError(f"role {chosen!r} is not {row['role_name']!r}; only a superuser may confirm another name")
    found = session.query(_ROLE, chosen)
    if not found:
        raise ValueError(
            f"role {chosen!r} does not exist; create it first, or pass role => another one, or call "
            f"dbdp.retire_role('{former}')"
        )
    if found[0]["is_known"]:
        raise ValueError(
            f"role {chosen!r} has rights in this database already; create a role without (create role … nologin), "
            f"confirm that one, and grant it to {chosen}"
        )
    session.query(_DECIDE, row["identity"], found[0]["oid"])


def retire(session: SpiSession, former: str) -> None:
    """Record that no role is a former one: its rights end for good; raises as `confirm` does."""
    session.query(_DECIDE, _former(session, former)["identity"], None)
