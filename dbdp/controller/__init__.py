"""The controller: runs one request, in the order plan, charge, shuffle, epochs, release."""

from dbdp.sessions.errors import ChargedError as ChargedError
