"""MNIST, all 60,000 images of it, learned in the database: slow, and skipped where the images are not at hand."""

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from chance import sometimes, usually

from dbdp.algorithms import Request
from dbdp.interfaces.python.client.connecting import connect

pytestmark = pytest.mark.slow
DECLARED = json.dumps({"x": {"length": 784, "norm": 9.2}})
REGISTER = "select dbdp.register_dataset('digits', 'digits', 'y', features => %s, classes => %s, mode => 'basic', "


def read(name: str, offset: int) -> np.ndarray:
    path = Path(os.environ.get("DBDP_DATA", "../shared/data")) / "mnist" / name
    if not path.is_file():
        pytest.skip(f"{path} is not at hand; set DBDP_DATA")
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=offset)


def images(part: str) -> tuple[np.ndarray, np.ndarray]:
    pixels = read(f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 784)
    return np.round(pixels / 255.0, 4), read(f"{part}-labels-idx1-ubyte.gz", 8)


@pytest.fixture(scope="module")
def digits(server_url: str) -> Iterator[psycopg.Connection]:
    """Tables digits, registered, and held_out."""
    parts = {"digits": images("train"), "held_out": images("t10k")}
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute("create schema pictures; grant usage on schema pictures to dbdp_owner")
        connection.execute("set search_path = pictures, public")
        for table, (pixels, labels) in parts.items():
            connection.execute(f"create table {table} (x float4[], y int)")
            with connection.cursor().copy(f"copy {table} from stdin") as copy:
                for row, label in zip(pixels.tolist(), labels.tolist(), strict=True):
                    copy.write_row(("{" + ",".join(map(repr, row)) + "}", label))
        classes = [str(digit) for digit in range(10)]
        connection.execute(REGISTER + "epsilon => 1000, delta => 1e-3)", (DECLARED, classes))
        yield connection
        connection.execute("select dbdp.drop_dataset('digits'); drop schema pictures cascade")


def accuracy(connection: psycopg.Connection, request: Request) -> float:
    """Share of the held-out digits that a model of this request recognises."""
    model = connect(connection).train("digits", request)
    sql = "select avg((dbdp.predict_class(%s, x) = y::text)::int)::float8 from held_out"
    return connection.execute(sql, (model.id,)).fetchone()[0]


def test_digits_are_recognised_in_50_coordinates(digits):
    """As Wu et al. 2017 have it: 784 → 50, one against the rest, strongly convex."""
    request = Request(
        2.0, 1e-6, projection_dimension=50, projection_seed=2017, algorithm="bolt_on", regularisation=1e-3, epochs=10
    )
    assert usually(lambda: accuracy(digits, request) > 0.7)  # 0.78; ten classes have 0.1 each


NETWORKS: dict[str, tuple[str, dict[str, Any], float]] = {
    "dp_sgd": ("mlp:64", {"epochs": 5, "batch_size": 500}, 0.87),  # 0.90 at ε = 3
    "dp_adam": ("mlp:64", {"epochs": 5, "batch_size": 500}, 0.89),  # 0.92
    "rrpsgd": ("mlp:64", {"epochs": 5, "batch_size": 500}, 0.6),  # 0.90, or less after few of its 600 updates
    "dp_blsgd": ("mlp:64", {"batch_size": 600}, 0.75),  # 0.83
}


@pytest.mark.parametrize("algorithm", NETWORKS)
def test_a_network_with_noise_in_every_update_recognises_digits(digits, algorithm):
    network, options, floor = NETWORKS[algorithm]
    request = Request(3.0, 1e-5, algorithm=algorithm, network=network, **options)
    repeated = sometimes if algorithm == "rrpsgd" else usually
    assert repeated(lambda: accuracy(digits, request) > floor)


def test_the_convolutions_of_the_paper_recognise_digits(digits):
    """Two convolutions, pooling and a dense layer: 0.90 at ε = 3."""
    request = Request(3.0, 1e-5, algorithm="dp_sgd", network="cnn:6,16:64", epochs=4, batch_size=600)
    assert usually(lambda: accuracy(digits, request) > 0.86)
