"""Released networks: as data, and as scorers of the bytes of an array or of a row.

A row is packed for its prediction as it was for the training, by the same code: scaled, clipped, projected,
rounded to float32. What packing makes a zero row of has no prediction.

Shapes: parameters (P,) as in `dbdp.learning.networks.networks`, a packed row (1, stride).
"""

import struct
from base64 import b64decode
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from dbdp.learning.networks.networks import Network
from dbdp.learning.rows.encoding import HEADER_BYTES, ColumnEncoder, RandomProjection, VectorEncoder
from dbdp.registry.declarations import Declaration

Packer = Callable[[bytes], np.ndarray | None]
_FLOAT8, _FLOAT4 = 701, 700  # PostgreSQL's numbers of the types
_LABEL = struct.pack("<i", 1)  # of a row to be scored: any that a training takes
_ELEMENT = struct.Struct("<8xi")  # an array's header, as far as the type of its elements


def as_data(network: Network, projection: RandomProjection | None) -> dict[str, Any]:
    """Return network and projection as data, for `parsed`."""
    return network.as_data() | {"projection": asdict(projection) if projection else None}


def parsed(data: dict[str, Any]) -> tuple[Network, RandomProjection | None]:
    """Return the network and the projection of `as_data`.

    Raises
    ------
    ValueError
        If the data describes none.
    """
    network = Network.from_data(data)
    projection = data.get("projection")
    try:
        return network, RandomProjection(**projection) if projection else None
    except TypeError:
        raise ValueError(f"{str(projection)[:200]} describes no projection; give dimension and seed") from None


def check(declaration: Declaration, network: Network, projection: RandomProjection | None) -> None:
    """Raise ValueError for a network that is none of such a dataset; of public facts alone."""
    if declaration.kind == "real":
        raise ValueError(f"label {declaration.label!r} is a number, networks are for classes; leave network out")
    inputs = (projection.dimension + declaration.intercept) if projection else declaration.dimension
    expected = inputs, declaration.outputs, declaration.intercept
    found = network.inputs, network.outputs, network.intercept
    if found != expected:
        raise ValueError(
            f"the network has inputs, outputs and intercept {found}; the dataset's are {expected}: name it again"
        )
    if network.channels and (projection or not declaration.vector):
        raise ValueError("a cnn reads the pixels of one array column, as they are; choose mlp for other features")


class NetworkScorer:
    """The decision of a network: the score of the label +1, or the number of the class with the largest score.

    It is called with bytes that `pack` makes a packed row of. No packed row, and a score that is no
    number, give None. Classes count from 0, and the first of equal ones is taken.
    """

    def __init__(self, network: Network, parameters: np.ndarray, classes: list[str], pack: Packer) -> None:
        self.classes = classes
        self._network = network
        self._parameters = parameters
        self._pack = pack

    def __call__(self, features: bytes) -> float | None:
        row = self._pack(features)
        if row is None or row[0, -1] == 0.0:
            return None
        scores = self._network.scores(self._parameters, row)[0]
        if not np.isfinite(scores).all():
            return None
        return float(np.argmax(scores) if self.classes else scores[0])


def scorer(
    declaration: Declaration,
    data: dict[str, Any],
    parameters: str,
    packer: Callable[[Declaration, RandomProjection | None], Packer],
) -> NetworkScorer:
    """Return the scorer of a network; its parameters are the bytes of an array, in base64.

    Raises
    ------
    ValueError
        If the data is no network of such rows and classes, or the parameters are not its own: whoever may
        predict may pass any description.
    """
    network, projection = parsed(data)
    check(declaration, network, projection)
    vector = np.frombuffer(b64decode(parameters), np.float64, offset=HEADER_BYTES)
    if len(vector) != network.parameters:
        raise ValueError(f"{len(vector)} parameters are given; the network has {network.parameters}: describe it again")
    return NetworkScorer(network, vector, list(declaration.classes), packer(declaration, projection))


def array_packer(declaration: Declaration, projection: RandomProjection | None) -> Packer:
    """Return what packs the bytes of a float8[] or float4[]."""
    vector = declaration.vector
    if vector is None:
        raise AssertionError("a declaration of columns has no array")
    encoders = {
        number: VectorEncoder(vector.length, vector.norm_bound, declaration.intercept, element, projection=projection)
        for number, element in ((_FLOAT8, "<f8"), (_FLOAT4, "<f4"))
    }

    def pack(features: bytes) -> np.ndarray | None:
        if len(features) < HEADER_BYTES:
            return None
        encoder, raw = encoders.get(*_ELEMENT.unpack_from(features)), _LABEL + features
        return encoder.rows(raw) if encoder and len(raw) == encoder.record_bytes else None

    return pack


def column_packer(
    read: Callable[[bytes], list[float] | None],
) -> Callable[[Declaration, RandomProjection | None], Packer]:
    """Return a packer of rows; `read` gives the columns' numbers: a category's place, -1 for none, NaN for a null."""

    def packer(declaration: Declaration, projection: RandomProjection | None) -> Packer:
        encoder = ColumnEncoder(
            declaration.numeric,
            tuple(tuple(map(float, range(len(each.categories)))) for each in declaration.categorical),
            declaration.intercept,
            projection=projection,
        )
        head = _LABEL + struct.pack("<5i", 1, 0, _FLOAT8, encoder.length, 1)

        def pack(record: bytes) -> np.ndarray | None:
            numbers = read(record)
            return None if numbers is None else encoder.rows(head + np.array(numbers, np.float64).tobytes())

        return pack

    return packer
