"""Released networks, as data and as scorers of the bytes of an array or of a row.

A row is packed for prediction by the same code as for training: scaled, clipped, projected, rounded to float32. A row
that packing replaces by a zero row has no prediction.

Shapes: parameters (P,) as in `dbdp.learning.networks.architecture`, a packed row (1, stride).
"""

import struct
from base64 import b64decode
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from dbdp.learning.rows.encoding import HEADER_BYTES, ColumnEncoder, RandomProjection, VectorEncoder
from dbdp.registry.declarations import Declaration

if TYPE_CHECKING:
    from dbdp.learning.networks.architecture import Network

Packer = Callable[[bytes], np.ndarray | None]
_FLOAT8, _FLOAT4 = 701, 700  # PostgreSQL's oids of the types
_LABEL = struct.pack("<i", 1)  # of a row to be scored: any label that training accepts
_ELEMENT = struct.Struct("<8xi")  # an array's header, as far as the type of its elements


def as_data(network: "Network", projection: RandomProjection | None) -> dict[str, Any]:
    """Return a network and its projection as data; `parsed` is the inverse."""
    return network.as_data() | {"projection": asdict(projection) if projection else None}


def parsed(data: dict[str, Any]) -> tuple["Network", RandomProjection | None]:
    """Return the network and the projection that `as_data` described."""
    from dbdp.learning.networks.architecture import Network  # only a model that is one needs it

    network = Network.from_data(data)
    projection = data.get("projection")
    try:
        return network, RandomProjection(**projection) if projection else None
    except TypeError:
        raise ValueError(f"{str(projection)[:200]} does not describe a projection; give dimension and seed") from None


def check(declaration: Declaration, network: "Network", projection: RandomProjection | None) -> None:
    """Raise ValueError unless the network fits the dataset's declaration."""
    if declaration.kind == "real":
        raise ValueError(f"label {declaration.label!r} is a number, and networks are for classes; leave network out")
    inputs = (projection.dimension + declaration.intercept) if projection else declaration.dimension
    expected = inputs, declaration.outputs, declaration.intercept
    present = network.inputs, network.outputs, network.intercept
    if present != expected:
        raise ValueError(
            f"the network has inputs, outputs and intercept {present}, the dataset needs {expected}; choose a network "
            "of that shape"
        )
    if network.channels and (projection or not declaration.vector):
        raise ValueError("a cnn reads the pixels of one array column without projection; choose mlp for other features")


class NetworkScorer:
    """The decision of a network: the score of the label +1, or the number of the class with the largest score.

    Classes count from 0; of equal scores the first class wins. A row that cannot be packed and a score that is not
    finite give None.

    Parameters have the shape (P,); classes are empty for a binary label. `pack` converts the bytes of an array or a row
    to a packed row, shape (1, stride), or None.
    """

    def __init__(self, network: "Network", parameters: np.ndarray, classes: list[str], pack: Packer) -> None:
        self.classes = classes
        self._network = network
        self._parameters = parameters
        self._pack = pack

    def __call__(self, features: bytes) -> float | None:
        """Return the decision for the bytes of an array or a row."""
        scores = self._scores(features)
        if scores is None:
            return None
        return float(np.argmax(scores) if self.classes else scores[0])

    def probabilities(self, features: bytes) -> list[float] | None:
        """Return the probability of each class: the softmax of the scores."""
        scores = self._scores(features)
        if scores is None:
            return None
        exponentials = np.exp(scores - scores.max())
        probabilities: list[float] = (exponentials / exponentials.sum()).tolist()
        return probabilities

    def _scores(self, features: bytes) -> np.ndarray | None:
        row = self._pack(features)
        if row is None or row[0, -1] == 0.0:
            return None
        scores: np.ndarray = self._network.scores(self._parameters, row)[0]
        return scores if np.isfinite(scores).all() else None


def scorer(
    declaration: Declaration,
    data: dict[str, Any],
    parameters: str,
    packer: Callable[[Declaration, RandomProjection | None], Packer],
) -> NetworkScorer:
    """Return the scorer of a network.

    `data` is the network as `as_data` describes it, `parameters` the bytes of their array in base64. `packer` returns
    the function that packs a row.
    """
    network, projection = parsed(data)
    check(declaration, network, projection)
    vector = np.frombuffer(b64decode(parameters), np.float64, offset=HEADER_BYTES)
    if len(vector) != network.parameters:
        raise ValueError(
            f"{len(vector)} parameters do not fit the network; pass {network.parameters}, the number that it has"
        )
    return NetworkScorer(network, vector, list(declaration.classes), packer(declaration, projection))


def packed(declaration: Declaration, numbers: np.ndarray, projection: RandomProjection | None) -> np.ndarray:
    """Return many rows packed as for a training, for `Network.scores`.

    Numbers, float64, shape (n, columns), are those of the columns, with a category's place among the declared ones, -1
    for none; or arrays (n, length). Declaration and projection are the network's. Packed rows are float32, shape (n,
    stride).
    """
    encoder: VectorEncoder | ColumnEncoder = _column_encoder(declaration, projection)
    if declaration.vector:
        encoder = _vector_encoder(declaration, projection, "<f8")
    values = np.ascontiguousarray(numbers, np.float64)
    head = np.frombuffer(_LABEL + struct.pack("<5i", 1, 0, _FLOAT8, values.shape[1], 1), np.uint8)
    records = np.hstack([np.tile(head, (len(values), 1)), values.view(np.uint8)])
    return encoder.rows(records.tobytes())


def _vector_encoder(declaration: Declaration, projection: RandomProjection | None, element: str) -> VectorEncoder:
    vector = declaration.vector
    if vector is None:
        raise AssertionError("a declaration of columns has no array")
    return VectorEncoder(vector.length, vector.norm_bound, declaration.intercept, element, projection=projection)


def _column_encoder(declaration: Declaration, projection: RandomProjection | None) -> ColumnEncoder:
    """Return the encoder of rows whose categories are numbered from 0."""
    return ColumnEncoder(
        declaration.numeric,
        tuple(tuple(map(float, range(each.width))) for each in declaration.categorical),
        declaration.intercept,
        projection=projection,
    )


def array_packer(declaration: Declaration, projection: RandomProjection | None) -> Packer:
    """Return the function that packs the bytes of a float8[] or float4[]."""
    encoders = {
        number: _vector_encoder(declaration, projection, element)
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
    """Return a packer of rows; `read` returns the columns' numbers: a category's index, -1 for none, NaN for null."""

    def packer(declaration: Declaration, projection: RandomProjection | None) -> Packer:
        encoder = _column_encoder(declaration, projection)
        head = _LABEL + struct.pack("<5i", 1, 0, _FLOAT8, encoder.length, 1)

        def pack(record: bytes) -> np.ndarray | None:
            numbers = read(record)
            return None if numbers is None else encoder.rows(head + np.array(numbers, np.float64).tobytes())

        return pack

    return packer
