"""Writes src/formats/testdata/formats.bin: blocks of every weight format and what they decode to.

    python tests/oracles/formats_oracle.py [OUT]

The expected numbers come from the `gguf` package (0.19); for the formats that it lists but cannot decode they are
computed here, from the definition of the block. Needs numpy and gguf. The file holds, little-endian, one record a
format by ascending id:

    char name[8]; uint32 id, block, block_bytes, blocks;
    uint8 data[blocks * block_bytes]; float32 expected[blocks * block]
"""

import pathlib
import struct
import sys

import gguf
import numpy as np

HOSTILE_F16 = [0x7C00, 0xFC00, 0x7E01, 0xFE00, 0x0001, 0x8001, 0x03FF, 0x0000, 0x8000, 0x7BFF]
DEFAULT_OUT = pathlib.Path(__file__).parents[2] / "src/formats/testdata/formats.bin"

# Where the f16 scales of a block lie, in bytes from its start; negative from its end. IQ1_M scatters its scale.
F16_OFFSETS = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [-4, -2], "Q3_K": [-2],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [-2], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0],
    "IQ3_S": [0], "IQ1_S": [0], "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [-2], "TQ2_0": [-2], "Q1_0": [0],
}


def plain_q1_0(blocks):
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    bits = np.array([[(int(row[2 + i // 8]) >> (i % 8)) & 1 for i in range(128)] for row in blocks])
    return scale * np.where(bits == 1, np.float32(1), np.float32(-1))


def plain_q8_1(blocks):
    return blocks[:, :4].copy().view(np.float32) * blocks[:, 8:].copy().view(np.int8).astype(np.float32)


def plain_q8_k(blocks):
    return blocks[:, :4].copy().view(np.float32) * blocks[:, 4:260].copy().view(np.int8).astype(np.float32)


PLAIN = {
    "Q1_0": plain_q1_0,
    "Q8_1": plain_q8_1,
    "Q8_K": plain_q8_k,
    **{name: (lambda blocks, t=t: blocks.view(t).astype(np.float32))
       for name, t in {"I8": "<i1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "F64": "<f8"}.items()},
}


def make_blocks(name, block, block_bytes, rng):
    count = 64 if block == 1 else 24 if block < 256 else 9
    blocks = rng.integers(0, 256, (count, block_bytes), dtype=np.uint8)
    blocks[0] = 0x00
    blocks[1] = 0xFF
    for k, offset in enumerate(F16_OFFSETS.get(name, [])):
        for row in range(2, count):
            if row < count // 2 + 1:
                value = HOSTILE_F16[(row + 3 * k + block_bytes) % len(HOSTILE_F16)]
            else:
                value = np.array([rng.normal()], dtype=np.float16).view(np.uint16)[0]
            start = offset % block_bytes
            blocks[row, start:start + 2] = np.array([value], dtype="<u2").view(np.uint8)
    return blocks


def expected(kind, blocks):
    with np.errstate(all="ignore"):
        if kind.name in PLAIN:
            values = PLAIN[kind.name](blocks)
        else:
            values = gguf.dequantize(blocks, kind)
    values = np.ascontiguousarray(values, dtype="<f4").ravel()
    values[np.isnan(values)] = np.nan
    return values


def main():
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_OUT
    rng = np.random.default_rng(20)
    with out.open("wb") as file:
        for kind in sorted(gguf.GGMLQuantizationType):
            block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
            blocks = make_blocks(kind.name, block, block_bytes, rng)
            file.write(struct.pack("<8s4I", kind.name.encode(), kind, block, block_bytes, len(blocks)))
            file.write(blocks.tobytes())
            file.write(expected(kind, blocks).tobytes())


if __name__ == "__main__":
    main()
