"""Statistics for Prometheus, for a role of the database that names itself in each request."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import PlainTextResponse
from fastapi.security import HTTPBasic, HTTPBasicCredentials

from dbdp.interfaces.web.accounts.visits import services_of
from dbdp.interfaces.web.views import exposition
from dbdp.interfaces.web.views.refusals import Denied, Refusal

router = APIRouter()
_NAMED = HTTPBasic(realm="dbdp", auto_error=False)
_CHALLENGE = {"WWW-Authenticate": 'Basic realm="dbdp"'}
_STATISTICS = """
select s.period, s.dataset, s.charges, s.releases, s.failures, s.unfinished, s.total_seconds, s.max_seconds,
       extract(epoch from s.last_charge)::float8 as last_charge,
       extract(epoch from s.last_release)::float8 as last_release,
       s.spent_share, s.unrecorded_share
from dbdp.stat_datasets as s
order by s.period
"""


@router.get("/metrics")
def metrics(
    request: Request, named: Annotated[HTTPBasicCredentials | None, Depends(_NAMED)] = None
) -> PlainTextResponse:
    """Return the rows of `dbdp.stat_datasets` that the role may see, in Prometheus' text format 0.0.4."""
    if named is None:
        return PlainTextResponse("Send a role of the database and its password as basic_auth.", 401, _CHALLENGE)
    services = services_of(request)
    services.failures.count(named.username)
    try:
        services.server.sign_in(named.username, named.password)
        with services.server.acting(named.username, named.password) as database:
            rows = database.query(_STATISTICS)
    except Denied:
        return PlainTextResponse("The server rejects this role or its password.", 401, _CHALLENGE)
    except Refusal as refusal:
        services.failures.uncount(named.username)
        return PlainTextResponse(f"{refusal.title}: {refusal.text}", refusal.status)
    services.failures.uncount(named.username)
    return PlainTextResponse(exposition.text(rows), media_type=exposition.MEDIA_TYPE)
