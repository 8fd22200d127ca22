"""Who is signed in, and how often somebody may try: in this process's memory alone.

A browser holds a random number; name and password stay here, until the session is signed out, idle for too long or
too old. A restart forgets all of them.
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from dbdp.interfaces.web.views.refusals import NotSignedIn, Refusal

IDLE_SECONDS = 15 * 60
LONGEST_SECONDS = 8 * 3600
PATIENCE_SECONDS = 20
MOST_SESSIONS = 100
WINDOW_SECONDS = 5 * 60  # within it a role may fail so often, and all together
MOST_FAILURES, MOST_FAILURES_OF_ALL = 5, 20
_BITS = 256


@dataclass
class SignedIn:
    """A session.

    Attributes
    ----------
    csrf : the number that its forms carry
    began, used : seconds of the clock
    notice : what the next page shows once
    """

    role: str
    password: str = field(repr=False)
    csrf: str = field(repr=False)
    began: float
    used: float
    notice: str = ""
    _turns: Lock = field(default_factory=Lock, repr=False)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until no other request of the session is within such a block; raise Refusal if that takes too long."""
        if not self._turns.acquire(timeout=PATIENCE_SECONDS):
            raise Refusal(503, "Too much at once", "Other pages that you asked for are not done.", retry_after=10)
        try:
            yield
        finally:
            self._turns.release()

    def take_notice(self) -> str:
        """Return the notice, and forget it."""
        notice, self.notice = self.notice, ""
        return notice


class SignIns:
    """The sessions of one page; several threads may ask at once."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = Lock()
        self._sessions: dict[str, SignedIn] = {}

    def begin(self, role: str, password: str) -> str:
        """Begin a session; return its number. The oldest one ends where there are too many."""
        number, now = secrets.token_urlsafe(_BITS // 8), self._clock()
        with self._lock:
            self._forget_old()
            while len(self._sessions) >= MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[number] = SignedIn(role, password, secrets.token_urlsafe(_BITS // 8), now, now)
        return number

    def find(self, number: str | None) -> SignedIn:
        """Return the session of a number, and count it as used.

        Raises
        ------
        NotSignedIn
            If there is none, or it is over.
        """
        if not number:
            raise NotSignedIn
        with self._lock:
            self._forget_old()
            session = self._sessions.get(number)
            if session is None:
                raise NotSignedIn("You were signed out: the session was idle for 15 minutes, or is over.")
            session.used = self._clock()
            return session

    def end(self, number: str | None) -> None:
        """Forget a session, if there is one."""
        with self._lock:
            self._sessions.pop(number or "", None)

    def sweep(self) -> None:
        """Forget what is idle or old."""
        with self._lock:
            self._forget_old()

    def __len__(self) -> int:
        return len(self._sessions)

    def _forget_old(self) -> None:
        now = self._clock()
        for number, each in list(self._sessions.items()):
            if now - each.used >= IDLE_SECONDS or now - each.began >= LONGEST_SECONDS:
                del self._sessions[number]


class Failures:
    """Failed attempts to sign in, by role and in all; a role that does not exist counts like one that does."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = Lock()
        self._failed: list[tuple[float, str]] = []

    def count(self, role: str) -> None:
        """Count an attempt as failed, before it is made: many at once are no way around.

        Raises
        ------
        Refusal
            If there were too many already; this one is not made.
        """
        with self._lock:
            now = self._clock()
            self._failed = [each for each in self._failed if now - each[0] < WINDOW_SECONDS]
            of_role = [when for when, who in self._failed if who == role]
            for times, most in ((of_role, MOST_FAILURES), ([w for w, _ in self._failed], MOST_FAILURES_OF_ALL)):
                if len(times) >= most:
                    raise _too_many(times[-most] + WINDOW_SECONDS - now)
            self._failed.append((now, role))

    def forgive(self, role: str) -> None:
        """Take one attempt of a role back: it was none, or it succeeded."""
        with self._lock:
            for place in reversed(range(len(self._failed))):
                if self._failed[place][1] == role:
                    del self._failed[place]
                    return


def _too_many(seconds: float) -> Refusal:
    wait = max(1, int(seconds) + 1)
    return Refusal(
        429,
        "Too many attempts",
        f"Too many attempts to sign in failed. The next one is taken in {wait} seconds, right or wrong.",
        retry_after=wait,
    )
