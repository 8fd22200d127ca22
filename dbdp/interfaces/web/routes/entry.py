"""The routes by which a browser gets a session from a one-time link, and ends it."""

from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from dbdp.interfaces.web.guards import check_form
from dbdp.interfaces.web.sign_in.visits import Visitor, services_of
from dbdp.interfaces.web.views.rendering import page

router = APIRouter(default_response_class=HTMLResponse)
FIRST_PAGE = "/overview"


@router.get("/")
def start(request: Request, token: Annotated[str, Query(max_length=100)] = "") -> HTMLResponse:
    """Begin a session if the link is valid, and lead to the first page."""
    services = services_of(request)
    if not services.links.is_valid(token):
        return RedirectResponse(FIRST_PAGE, 303)  # type: ignore[return-value]
    account = services.server.account()  # before the link is used up
    if not services.links.use(token):
        return RedirectResponse(FIRST_PAGE, 303)  # type: ignore[return-value]
    services.sessions.end(request.cookies.get(services.cookie))
    # Not a redirect: after a link from a file or another site a browser would follow it without the strict cookie.
    response = page(request, "opened.html", onward=FIRST_PAGE)
    response.headers["Refresh"] = f"0;url={FIRST_PAGE}"
    number = services.sessions.begin(account["role"], is_above=account["is_above"])
    response.set_cookie(services.cookie, number, httponly=True, samesite="strict")
    return response


@router.post("/sign-out")
def sign_out(visit: Visitor, csrf: Annotated[str, Form(max_length=1000)] = "") -> HTMLResponse:
    """End the session."""
    check_form(visit.session, csrf)
    services = services_of(visit.request)
    services.sessions.end(visit.request.cookies.get(services.cookie))
    visit.request.state.session = None
    response = page(visit.request, "link.html", why="You signed out.")
    response.delete_cookie(services.cookie, httponly=True, samesite="strict")
    return response
