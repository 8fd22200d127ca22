"""Render pages from templates: every value is escaped, and an undefined name is an error."""

from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from dbdp.interfaces.web.views.page_refusals import Refusal
from dbdp.privacy.accounting.budget import rounded_down


def number(value: float | Decimal | None) -> str:
    """Format a number: an integer in full, any other to four digits; “–” for None."""
    if value is None:
        return "–"
    rounded = float(value)
    if abs(rounded) < 1e15 and rounded == int(rounded):
        return f"{rounded:,.0f}"
    return f"{rounded:.4g}".replace("e-0", "e-")


def percent(share: float) -> str:
    """Format a share; never round a positive share to 0 % or one below 1 to 100 %."""
    if 0 < share < 0.001:
        return "under 0.1 %"
    if 0.999 < share < 1:
        return "over 99.9 %"
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def moment(value: datetime) -> str:
    """Format a time in UTC to the minute."""
    return f"{value:%Y-%m-%d %H:%M} UTC"


def link(path: str, **parameters: Any) -> str:
    """Return the address of a page with query parameters; empty ones are left out."""
    query = {name: value for name, value in parameters.items() if value not in (None, "")}
    return f"{path}?{urlencode(query)}" if query else path


_ENVIRONMENT = Environment(
    loader=PackageLoader("dbdp.interfaces.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters.update(number=number, percent=percent, moment=moment, rounded_down=rounded_down)
_ENVIRONMENT.globals["link"] = link


def page(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a template."""
    session = getattr(request.state, "session", None)
    text = _ENVIRONMENT.get_template(template).render(path=request.url.path, session=session, **values)
    return HTMLResponse(text, status)


def refused(request: Request, refusal: Refusal) -> HTMLResponse:
    """Render a refusal."""
    response = page(request, "refused.html", status=refusal.status, refusal=refusal)
    if refusal.retry_after is not None:
        response.headers["Retry-After"] = str(refusal.retry_after)
    return response
