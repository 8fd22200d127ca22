"""Statistics for Prometheus, which sends a token in place of a session."""

from secrets import compare_digest
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import PlainTextResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from dbdp.interfaces.web.sign_in.visits import services_of
from dbdp.interfaces.web.views import exposition
from dbdp.interfaces.web.views.page_refusals import Refusal

router = APIRouter()
_SENT = HTTPBearer(auto_error=False)
_STATISTICS = """
select s.period, s.dataset, s.charges, s.releases, s.failures, s.unfinished, s.total_seconds, s.max_seconds,
       extract(epoch from s.last_charge)::float8 as last_charge,
       extract(epoch from s.last_release)::float8 as last_release,
       s.spent_share, s.unrecorded_share
from dbdp.stat_datasets_details as s
order by s.period
"""


@router.get("/metrics")
def metrics(
    request: Request, sent: Annotated[HTTPAuthorizationCredentials | None, Depends(_SENT)] = None
) -> PlainTextResponse:
    """Return the rows of `dbdp.stat_datasets` that the page's role may see, in Prometheus' text format 0.0.4."""
    services = services_of(request)
    if sent is None or not compare_digest(sent.credentials.encode(), services.metrics_token.encode()):
        return PlainTextResponse("Send the token of DBDP_METRICS_TOKEN.", 401, {"WWW-Authenticate": "Bearer"})
    try:
        with services.server.acting() as database:
            rows = database.query(_STATISTICS)
    except Refusal as refusal:
        return PlainTextResponse(f"{refusal.title}: {refusal.text}", refusal.status)
    return PlainTextResponse(exposition.text(rows), media_type=exposition.MEDIA_TYPE)
