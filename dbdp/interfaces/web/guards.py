"""What every request and every answer goes through, whatever page it is.

A page of another site, or of another port of this machine, may send requests here by the reader's browser. It
cannot name another host, cannot read an answer or show it in a frame, and cannot send a form: that takes the page's
own origin and the number of the session's forms.
"""

from collections.abc import Awaitable, Callable
from secrets import compare_digest

from fastapi import Request
from fastapi.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dbdp.interfaces.web.accounts.sign_ins import SignedIn
from dbdp.interfaces.web.views.refusals import Refusal

# A name that resolves to this machine always, or its address: no name of somebody else's that was made to (DNS
# rebinding). `anything.localhost` gives a page cookies of its own, which other ports of this machine do not get.
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
_MOST_DIGITS = 9  # of a length, leading zeros with them
_READING = ("GET", "HEAD")


class HeadAsGet:
    """Has a HEAD answered as a GET; the web server, which sees the request as it came, leaves the body out."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        await self._app({**scope, "method": "GET"} if is_head else scope, receive, send)


async def guard(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """Answer a request unless it comes from elsewhere or is too large, and say how the answer may be used.

    What is too large is refused before it is read, and the connection closed: the web server would otherwise read, and
    throw away, whatever the sender says is the rest of it.
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
    """Return status and text for what another page sent; a link that somebody follows is no such thing."""
    headers = request.headers
    if request.method not in _READING and headers.get("origin") != f"{request.url.scheme}://{headers.get('host')}":
        return 403, "This form was sent by another page. Open the page itself, and send it from there."
    asked = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    is_link = request.method in _READING and asked == ("navigate", "document")
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not is_link:
        return 403, "This was asked for by another page. Open the page itself."
    return None


def _oversized(request: Request) -> tuple[int, str] | None:
    """Return status and text for a body that is too long, or whose length is not said once, before it, in digits."""
    lengths, has_coding = request.headers.getlist("content-length"), "transfer-encoding" in request.headers
    if has_coding and lengths:
        return 400, "A request says how long it is, or comes in pieces; not both."
    if has_coding or not (lengths or request.method in _READING):
        return 411, "A form has to say how long it is."
    if len(lengths) > 1 or not all(length.isascii() and length.isdigit() for length in lengths):
        return 400, "The length of a request is one whole number."
    limit = 0 if request.method in _READING else LARGEST_FORM
    if any(len(length) > _MOST_DIGITS or int(length) > limit for length in lengths):
        return 413, f"A form has at most {LARGEST_FORM} bytes, a page that is only read none."
    return None


def check_form(session: SignedIn, given: str) -> None:
    """Raise Refusal unless a form carries the number of its session."""
    if not compare_digest(given.encode(), session.csrf.encode()):
        raise Refusal(
            403,
            "This form is out of date",
            "It does not belong to the present session: you signed in again meanwhile, or another page made it.",
            "Go back, load the page again, and send the form from there.",
        )
