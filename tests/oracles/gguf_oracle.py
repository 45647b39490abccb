#!/usr/bin/env python3
"""Compares our GGUF and safetensors readers and writers with the Python packages.

    gguf_oracle.py --gguf-test build/release/src/gguf/gguf_test [MODEL.gguf | MODEL.safetensors ...]

Files made here, and those named, are copied through our reader and writer (tests GgufOracle.*); the
packages must read the same values and bytes from both. Needs: gguf, safetensors, numpy.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file


def write_gguf(path, alignment):
    """Every value type, and a tensor of every type the package knows."""
    writer = gguf.GGUFWriter(path, "oracle")
    if alignment != 32:
        writer.add_custom_alignment(alignment)
    for bits in (8, 16, 32, 64):
        getattr(writer, f"add_uint{bits}")(f"max.u{bits}", 2**bits - 1)
        getattr(writer, f"add_int{bits}")(f"min.i{bits}", -(2 ** (bits - 1)))
    writer.add_float32("f32", 0.1)
    writer.add_float64("f64", 0.1)
    writer.add_bool("yes", True)
    writer.add_string("text", "caf\u00e9 \U0001f999\n")
    writer.add_array("words", ["a", "", "\u00fc\u00fc"])
    writer.add_array("integers", [-1, 2, 3])
    writer.add_array("floats", [0.5, -2.0])
    writer.add_array("flags", [True, False])
    writer.add_array("nested", [["a", "b"], ["c"]])
    random = np.random.default_rng(1)
    for kind, (block, size) in gguf.GGML_QUANT_SIZES.items():
        data = random.integers(0, 256, (3, 2 * size), dtype=np.uint8)
        writer.add_tensor(f"t.{kind.name}", data, raw_shape=data.shape, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_content(path):
    reader = gguf.GGUFReader(path)
    fields = {
        name: (field.types, [field.parts[i].tobytes() for i in field.data])
        for name, field in reader.fields.items()
        if not name.startswith("GGUF.")
    }
    tensors = [(t.name, t.tensor_type, t.shape.tolist(), t.data.tobytes()) for t in reader.tensors]
    return fields, tensors


def write_safetensors(path):
    random = np.random.default_rng(2)
    kinds = ["bool", "uint8", "int8", "uint16", "int16", "float16", "uint32", "int32", "float32",
             "uint64", "int64", "float64"]
    tensors = {f"t.{kind}": random.integers(0, 2, (2, 3)).astype(kind) for kind in kinds}
    tensors["empty"] = np.zeros((0, 4), np.float32)
    tensors["single"] = np.array(3.0, np.float32)
    save_file(tensors, path, metadata={"format": "np", "quote": 'a"b\n'})


def safetensors_content(path):
    # Read as raw bytes through slices would lose BF16: the header and bytes say all.
    import json
    import struct

    raw = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + size])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], entry["shape"], raw[8 + size + begin:8 + size + end])
    with safe_open(path, "np") as opened:  # the package's own checks
        assert set(opened.keys()) == set(tensors)
        assert (opened.metadata() or {}) == metadata
    return metadata, tensors


def copy(program, kind, source, target):
    environment = dict(os.environ)
    environment[f"LOCKSTEP_ORACLE_{kind}_IN"] = str(source)
    environment[f"LOCKSTEP_ORACLE_{kind}_OUT"] = str(target)
    test = {"GGUF": "CopiesAGgufFile", "SAFETENSORS": "CopiesASafetensorsFile"}[kind]
    run = subprocess.run([program, f"--gtest_filter=GgufOracle.{test}"], env=environment,
                         capture_output=True, text=True)
    if run.returncode != 0 or not target.exists():
        sys.exit(f"{source}: the copy failed\n{run.stdout}{run.stderr}")


def compare(program, source, folder):
    if source.suffix == ".gguf":
        kind, content = "GGUF", gguf_content
    else:
        kind, content = "SAFETENSORS", safetensors_content
    target = folder / f"copy{source.suffix}"
    target.unlink(missing_ok=True)
    copy(program, kind, source, target)
    if content(source) != content(target):
        sys.exit(f"{source}: the copy differs")
    print(f"{source.name}: equal")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gguf-test", required=True, help="the built test program gguf_test")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        made = [folder / f"made{alignment}.gguf" for alignment in (8, 32, 256)]
        for path, alignment in zip(made, (8, 32, 256)):
            write_gguf(path, alignment)
        made.append(folder / "made.safetensors")
        write_safetensors(made[-1])
        for source in made + arguments.files:
            compare(arguments.gguf_test, source, folder)


if __name__ == "__main__":
    main()
