"""Checks of every request, and headers of every response.

A page of another site, or of another port of this machine, may send requests here through the user's browser. It
cannot name another host, read a response, show it in a frame, or send a form: a form needs this page's
own origin and the number of the session's forms.
"""

from collections.abc import Awaitable, Callable
from secrets import compare_digest

from fastapi import Request
from fastapi.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dbdp.interfaces.web.sign_in.sessions import BrowserSession
from dbdp.interfaces.web.views.page_refusals import Refusal

# Names that always resolve to this machine, and its addresses; no other name, which may be made to resolve to it (DNS
# rebinding). `anything.localhost` has cookies of its own, which other ports of this machine do not receive.
HOSTS = ["localhost", "*.localhost", "127.0.0.1", "[::1]"]
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer a browser sends forms without their origin
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
LARGEST_FORM = 64 * 1024  # bytes
_MOST_DIGITS = 9  # digits of a length, with leading zeros
_READING = ("GET", "HEAD")


class HeadAsGet:
    """Handles HEAD as GET; the web server, which still sees HEAD, leaves the body out."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application, with HEAD as GET."""
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        await self._app({**scope, "method": "GET"} if is_head else scope, receive, send)


async def guard(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """Respond to a request unless it comes from another site or is too large, with security headers.

    A request that is too large is refused before it is read, and the connection closed: the web server would otherwise
    read and discard the announced rest of it.
    """
    if why := _oversized(request):
        response: Response = PlainTextResponse(why[1], why[0], {"Connection": "close"})
    elif why := _foreign(request):
        response = PlainTextResponse(why[1], why[0])
    else:
        response = await answer(request)
    response.headers.update(HEADERS)
    return response


def _foreign(request: Request) -> tuple[int, str] | None:
    """Return status and text if another page sent the request; None otherwise, and for a link that a user follows."""
    headers = request.headers
    if request.method not in _READING and headers.get("origin") != f"{request.url.scheme}://{headers.get('host')}":
        return 403, "This form was sent by another page. Open the page itself, and send it from there."
    fetch = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    is_link = request.method in _READING and fetch == ("navigate", "document")
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not is_link:
        return 403, "This was requested by another page. Open the page itself."
    return None


def _oversized(request: Request) -> tuple[int, str] | None:
    """Return status and text if a body is too long, or its length is not declared exactly once, in digits."""
    lengths, has_coding = request.headers.getlist("content-length"), "transfer-encoding" in request.headers
    if has_coding and lengths:
        return 400, "A request has a Content-Length or a Transfer-Encoding, not both."
    if has_coding or not (lengths or request.method in _READING):
        return 411, "A form must have a Content-Length."
    if len(lengths) > 1 or not all(length.isascii() and length.isdigit() for length in lengths):
        return 400, "The Content-Length of a request must be one integer."
    limit = 0 if request.method in _READING else LARGEST_FORM
    if any(len(length) > _MOST_DIGITS or int(length) > limit for length in lengths):
        return 413, f"A form has at most {LARGEST_FORM} bytes, and a GET none."
    return None


def check_form(session: BrowserSession, csrf: str) -> None:
    """Raise Refusal unless a form has the number of its session's forms."""
    if not compare_digest(csrf.encode(), session.csrf.encode()):
        raise Refusal(
            403,
            "This form is out of date",
            "It does not belong to the present session: you opened another link meanwhile, or another page created it.",
            "Go back, load the page again, and send the form from there.",
        )
