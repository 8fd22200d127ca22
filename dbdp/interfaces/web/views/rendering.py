"""Pages from templates: every value is escaped, and a name that is not there is an error."""

from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from dbdp.interfaces.web.views.refusals import Refusal


def number(value: float | Decimal | None) -> str:
    """Write a number for a reader: whole ones in full, others to four digits."""
    if value is None:
        return "–"
    found = float(value)
    if abs(found) < 1e15 and found == int(found):
        return f"{found:,.0f}"
    return f"{found:.4g}".replace("e-0", "e-")


def percent(share: float) -> str:
    """Write a share; what is there is never written as nothing, nor almost all as all."""
    if 0 < share < 0.001:
        return "under 0.1 %"
    if 0.999 < share < 1:
        return "over 99.9 %"
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def moment(value: datetime) -> str:
    """Write a moment to the minute, in UTC."""
    return f"{value:%Y-%m-%d %H:%M} UTC"


def link(path: str, **given: Any) -> str:
    """Return the address of a page, with what is given in its query."""
    asked = {name: value for name, value in given.items() if value not in (None, "")}
    return f"{path}?{urlencode(asked)}" if asked else path


_ENVIRONMENT = Environment(
    loader=PackageLoader("dbdp.interfaces.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters.update(number=number, percent=percent, moment=moment)
_ENVIRONMENT.globals["link"] = link


def page(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a template; who is signed in is known from the request."""
    session = getattr(request.state, "session", None)
    text = _ENVIRONMENT.get_template(template).render(path=request.url.path, session=session, **values)
    return HTMLResponse(text, status)


def refused(request: Request, refusal: Refusal) -> HTMLResponse:
    """Render a refusal."""
    response = page(request, "refused.html", status=refusal.status, refusal=refusal)
    if refusal.retry_after is not None:
        response.headers["Retry-After"] = str(refusal.retry_after)
    return response
