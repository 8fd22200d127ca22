"""The two packers: compiled, and its reference in NumPy."""

from unittest.mock import patch

import pytest

from dbdp.learning import kernels


@pytest.fixture(scope="module", params=[False, True], ids=["reference", "compiled"])
def packer(request):
    """Every claim is made for both packers."""
    if request.param and not kernels.COMPILED:
        pytest.skip("no compiled kernel: built without a compiler")
    with patch.object(kernels, "COMPILED", request.param):
        yield
