"""One request: plan, charge, shuffle, epochs, release."""

from dbdp.sessions.errors import ChargedError as ChargedError
