"""The two packers: compiled, and its reference in NumPy."""

import pytest
from numpy_kernel import kernel


@pytest.fixture(scope="module", params=[False, True], ids=["reference", "compiled"])
def packer(request):
    """Every claim is made for both packers."""
    with kernel(compiled=request.param):
        yield
