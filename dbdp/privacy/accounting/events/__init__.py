"""Events (the mechanism of a release), their costs, and how the ledger stores them."""

from dbdp.privacy.accounting.events.bounds import *
from dbdp.privacy.accounting.events.codec import *
from dbdp.privacy.accounting.events.combined import *
from dbdp.privacy.accounting.events.event import *
from dbdp.privacy.accounting.events.single import *
