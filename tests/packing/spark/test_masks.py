"""Masks of blocks: no codec finds a block, or a piece of one, in another, however far it looks back."""

import bz2
import importlib.util
import lzma
import os
import zlib
from collections.abc import Callable

import numpy as np
import pytest

from dbdp.learning.rows.blocks import BLOCK_BYTES
from dbdp.packing.spark import masks
from dbdp.packing.spark.masks import Named, padded

KEY = b"k" * 32
Codec = Callable[[bytes], bytes]
# Strong codecs of the standard library: lzma looks back 32 MiB at preset 9.
CODECS: dict[str, Codec] = {
    "zlib": lambda data: zlib.compress(data, 9),
    "bz2": bz2.compress,
    "lzma": lambda data: lzma.compress(data, preset=9),
}
if importlib.util.find_spec("zstandard"):
    import zstandard

    for level in (1, 2, 3, 4, 6, 9, 12, 15, 19):
        CODECS[f"zstd {level}"] = zstandard.ZstdCompressor(level=level).compress


def blocks_of(content: bytes, how: Callable[[bytes, int], bytes], number: int = 3) -> bytes:
    return b"".join(how(content, place) for place in range(number))


def masked_now(content: bytes, place: int) -> bytes:
    return padded(content, KEY, Named("block", 0, place)).tobytes()


def masked_before(content: bytes, _place: int) -> bytes:
    """One pad for all blocks, as in version 0.3.0."""
    pad = masks._pad(KEY).view(np.uint8)
    return (np.frombuffer(content, np.uint8) ^ pad[: len(content)]).tobytes()


SIZES = {"whole blocks": BLOCK_BYTES, "parts of blocks": 100_000, "a row above a block": BLOCK_BYTES + 300_000}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.attack("compression")
def test_zero_rows_compress_no_better_than_random_bytes(codec, size):
    """A codec's own counts for random bytes differ by less than 1/1000 of their number."""
    content, compress = bytes(SIZES[size]), CODECS[codec]
    shown = blocks_of(content, masked_now)
    random = os.urandom(len(shown))
    assert abs(len(compress(shown)) - len(compress(random))) < len(shown) / 1000


@pytest.mark.parametrize("codec", [name for name in CODECS if name in ("lzma", "zstd 3", "zstd 9", "zstd 19")])
@pytest.mark.control("compression")
def test_one_pad_for_all_blocks_is_found_again(codec):
    """The control: three blocks take little more than one."""
    shown = blocks_of(bytes(BLOCK_BYTES), masked_before)
    assert len(CODECS[codec](shown)) < 0.4 * len(shown)


def test_columns_parts_and_pieces_have_masks_apart():
    """Bounds of zero rows are zeros too: by one pad they would repeat the beginning of their block."""
    zeros, first = bytes(4096), Named("block", 0, 0)
    places = (first, Named("block", 1, 0), Named("lengths", 0, 0), Named("lengths", 1, 0))
    found = [padded(zeros, KEY, place).tobytes() for place in places]
    large = padded(bytes(2 * BLOCK_BYTES), KEY, first).tobytes()
    found += [large[BLOCK_BYTES : BLOCK_BYTES + 4096], padded(zeros, b"other" * 8, first).tobytes()]
    assert len(lzma.compress(b"".join(found))) > 6 * 4096
    for one in range(6):
        for other in range(one):
            equal = np.mean(np.frombuffer(found[one], np.uint8) == np.frombuffer(found[other], np.uint8))
            assert equal < 0.03  # 1 / 256 of random bytes; 4096 of them exceed it with a probability below 1e-9


@pytest.mark.parametrize("size", [0, 1, 7, 8, 65535, 65537, BLOCK_BYTES + 9])
def test_a_mask_taken_twice_is_none(size):
    content, named = os.urandom(size), Named("lengths", 3, 7)
    once = padded(content, KEY, named)
    assert padded(once, KEY, named).tobytes() == content
    assert size < 8 or once.tobytes() != content
