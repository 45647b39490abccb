#!/usr/bin/env python3
"""Files between Lockstep and llama.cpp, both ways, on reference checkpoints.

    bench/interop.py --peer SOURCE --peer-build FOLDER [--goldens FOLDER] [NAME...]

Each checkpoint (a folder with config.json, model.safetensors and reference.safetensors, which holds `tokens` and `logits`) is converted
to f32 by both converters, and both files run by both engines:

    ours/ours     our file here        relative difference of the logits from the reference, which is the norm of the difference over
    ours/peer     our file there       the norm, and the share of positions whose first token is the reference's
    peer/ours     their file here
    peer/peer     their file there

SOURCE is llama.cpp's source (convert_hf_to_gguf.py, whose requirements the Python of --python has), FOLDER where it was built with
static libraries, as bench/peer.py says. What either refuses is printed in place of figures.
"""

import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent
WAYS = ("ours/ours", "ours/peer", "peer/ours", "peer/peer")

# Runs their converter with the tokenizer as it is: it knows tokenizers by name and by a hash of what they make of a text, and that of
# tiny checkpoints is in no table.
CONVERT = """
import json, runpy, sys
source = sys.argv.pop(1)
sys.path[:0] = [source, source + "/gguf-py"]
import conversion, conversion.base

def set_vocab(self):
    tokenizer = json.loads((self.dir_model / "tokenizer.json").read_text())
    ids = tokenizer["model"]["vocab"]
    special = {token["id"] for token in tokenizer["added_tokens"]}
    writer = self.gguf_writer
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    size = self.hparams.get("vocab_size", len(ids))
    names = {number: name for name, number in ids.items()}
    writer.add_token_list([names.get(i, f"[PAD{i}]") for i in range(size)])
    writer.add_token_types([3 if i in special else 1 if i in names else 5 for i in range(size)])
    writer.add_token_merges([" ".join(pair) if isinstance(pair, list) else pair
                             for pair in tokenizer["model"]["merges"]])
    writer.add_eos_token_id(2)

def from_pretrained(*arguments, **options):
    raise ValueError("config.json is read as it is")

if "--raw" in sys.argv:
    sys.argv.remove("--raw")
    conversion.base.AutoConfig.from_pretrained = from_pretrained

conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
find = conversion.get_model_class
def get_model_class(*arguments, **options):
    found = find(*arguments, **options)
    found.set_vocab = set_vocab
    return found
conversion.get_model_class = get_model_class
sys.argv[0] = source + "/convert_hf_to_gguf.py"
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def windowed(config, kind="sliding_attention"):
    return [int(layer == kind) for layer in config["layer_types"]]


# Keys in the spelling of released checkpoints, where their converter knows no other. None takes a key away.
AMENDED = {
    "deepseek32": lambda c: {"first_k_dense_replace": c["mlp_layer_types"].count("dense")},
    "glm-dsa": lambda c: {"first_k_dense_replace": c["mlp_layer_types"].count("dense")},
    "glm4-moe-lite": lambda c: {"first_k_dense_replace": c["mlp_layer_types"].count("dense")},
    "mistral4": lambda c: {"architectures": ["Mistral3ForConditionalGeneration"]},
    "cohere2": lambda c: {"rotary_pct": 1.0},
    "glm5-next": lambda c: {
        "mla_use_nope": True, "first_k_dense_replace": c["mlp_layer_types"].count("dense"),
        "linear_attn_config": {"num_heads": c["linear_num_heads"], "head_dim": c["linear_head_dim"],
                               "short_conv_kernel_size": c["linear_conv_kernel_dim"],
                               "gate_lower_bound": c["linear_lower_bound"]}},
    "granite-hybrid": lambda c: {
        "layer_types": ["attention" if layer == "full_attention" else "mamba"
                        for layer in c["layer_types"]]},
    "hunyuan-moe": lambda c: {
        "moe_intermediate_size": [c["intermediate_size"]] * c["num_hidden_layers"],
        "moe_topk": [c["moe_topk"]] * c["num_hidden_layers"],
        "num_shared_expert": [1] * c["num_hidden_layers"]},
    "mellum": lambda c: {"num_nextn_predict_layers": None, "num_mtp_layers": None,
                         "mtp_num_hidden_layers": None,
                         "layer_types": c["layer_types"][:c["num_hidden_layers"]]},
    "mimo2": lambda c: {
        "swa_head_dim": c["head_dim"], "swa_num_attention_heads": c["num_attention_heads"],
        "swa_v_head_dim": c["v_head_dim"], "swa_num_key_value_heads": 2 * c["num_key_value_heads"],
        "topk_method": "noaux_tc", "hybrid_layer_pattern": windowed(c),
        "moe_layer_freq": [int(kind == "sparse") for kind in c["mlp_layer_types"]],
        "rope_theta": c["rope_parameters"]["full_attention"]["rope_theta"],
        "swa_rope_theta": c["rope_parameters"]["sliding_attention"]["rope_theta"],
        "partial_rotary_factor": 0.334, "rope_parameters": None},
    "step3.5": lambda c: {
        "rope_theta": c["rope_parameters"]["full_attention"]["rope_theta"],
        "num_attention_groups": c["num_key_value_heads"], "moe_num_experts": c["n_routed_experts"],
        "moe_top_k": c["num_experts_per_tok"], "moe_router_activation": "sigmoid",
        "norm_expert_weight": True,
        "attention_other_setting": {"num_attention_heads": c["num_sliding_attention_heads"],
                                    "num_attention_groups": c["num_key_value_heads"]},
        "partial_rotary_factors": [1.0 if on else 0.5 for on in windowed(c)],
        "moe_layers_enum": ",".join(str(i) for i, kind in enumerate(c["mlp_layer_types"])
                                    if kind == "sparse"),
        "swiglu_limits": [limit or 0.0 for limit in c["swiglu_limits"]],
        "swiglu_limits_shared": [limit or 0.0 for limit in c["swiglu_limits_shared"]]},
}

# Tensors that their converter has no place for.
LEFT_OUT = {"mellum": "mtp."}


def parse_arguments():
    parser = argparse.ArgumentParser(description="Files between Lockstep and llama.cpp.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="checkpoints (default: all)")
    parser.add_argument("--peer", required=True, metavar="SOURCE")
    parser.add_argument("--peer-build", required=True, metavar="FOLDER")
    parser.add_argument("--python", default=sys.executable, metavar="PROGRAM",
                        help="runs their converter")
    parser.add_argument("--goldens", default=str(ROOT.parent / "shared" / "goldens"),
                        metavar="FOLDER")
    parser.add_argument("--lockstep", metavar="PROGRAM",
                        default=str(ROOT / "build" / "release" / "src" / "apps" / "lockstep"))
    parser.add_argument("--keep", metavar="FOLDER", help="where the files stay")
    parser.add_argument("--ways", default=",".join(WAYS), metavar="WAY,...")
    return parser.parse_args()


def run(command, **options):
    """Refusals are raised with the last line that says something."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        telling = ([line for line in lines if "rror" in line]
                   or [line for line in lines if "expected" in line] or lines)
        raise RuntimeError(telling[-1] if telling else f"ended with code {done.returncode}")


def read_tensors(path):
    types = {"I32": numpy.int32, "F32": numpy.float32}
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header, start = json.loads(file.read(size)), 8 + size
        tensors = {}
        for name, entry in header.items():
            if name == "__metadata__" or entry["dtype"] not in types:
                continue
            begin, end = entry["data_offsets"]
            file.seek(start + begin)
            numbers = numpy.frombuffer(file.read(end - begin), types[entry["dtype"]])
            tensors[name] = numbers.reshape(entry["shape"])
    return tensors


def write_without(prefix, source, target):
    """Copies a safetensors file without the tensors of a prefix."""
    data = source.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header, kept, parts = json.loads(data[8:8 + size]), {}, []
    for name, entry in header.items():
        if name == "__metadata__" or name.startswith(prefix):
            continue
        begin, end = entry["data_offsets"]
        at = sum(map(len, parts))
        parts.append(data[8 + size + begin:8 + size + end])
        kept[name] = {**entry, "data_offsets": [at, at + end - begin]}
    text = json.dumps(kept).encode()
    target.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def amended(checkpoint, folder):
    """The checkpoint as their converter knows it, under a name that it draws no conclusions from."""
    target = folder / "checkpoint"
    if target.exists():
        for path in target.iterdir():
            path.unlink()
    os.makedirs(target, exist_ok=True)
    config = json.loads((checkpoint / "config.json").read_text())
    inner = config.get("text_config", config)
    for key, value in AMENDED.get(checkpoint.name, lambda c: {})(inner).items():
        if value is None:
            inner.pop(key, None)
        else:
            inner[key] = value
    (target / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (target / name).symlink_to(checkpoint / name)
    weights = checkpoint / "model.safetensors"
    if checkpoint.name in LEFT_OUT:
        write_without(LEFT_OUT[checkpoint.name], weights, target / weights.name)
    else:
        (target / weights.name).symlink_to(weights)
    return target


class Engines:
    """Both engines: how each converts a checkpoint and computes logits."""

    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.peer_logits = folder / "peer_logits"
        source, build = pathlib.Path(arguments.peer), pathlib.Path(arguments.peer_build)
        libraries = ["src/libllama.a", "ggml/src/libggml.a", "ggml/src/libggml-cpu.a",
                     "ggml/src/libggml-base.a"]
        run(["g++", "-std=c++17", "-O1", str(ROOT / "bench" / "peer_logits.cc"),
             f"-I{source / 'include'}", f"-I{source / 'ggml' / 'include'}",
             *[str(build / library) for library in libraries], "-fopenmp", "-lpthread", "-ldl",
             "-o", str(self.peer_logits)])

    def convert_ours(self, checkpoint, path):
        # Under a name that llama.cpp draws no conclusions from.
        link = self.folder / "golden"
        link.unlink(missing_ok=True)
        link.symlink_to(checkpoint)
        run([self.arguments.lockstep, "convert", link, "-o", path, "--type", "f32"])

    def convert_peer(self, checkpoint, path):
        run([self.arguments.python, "-c", CONVERT, self.arguments.peer,
             amended(checkpoint, self.folder), "--outtype", "f32", "--outfile", path,
             *(["--raw"] if checkpoint.name in AMENDED else [])])

    def logits_ours(self, path, tokens):
        out = self.folder / "ours.safetensors"
        run([self.arguments.lockstep, "logits", "-m", path, "-o", out, "-ctk", "f32", "-ctv",
             "f32", "--tokens", ",".join(map(str, tokens))])
        return read_tensors(out)["logits"]

    def logits_peer(self, path, tokens):
        out = self.folder / "peer.logits"
        (self.folder / "tokens").write_bytes(tokens.astype(numpy.int32).tobytes())
        run([self.peer_logits, path, self.folder / "tokens", out])
        return numpy.fromfile(out, numpy.float32).reshape(len(tokens), -1)


def figures(logits, expected):
    difference = numpy.linalg.norm(logits.astype(float) - expected) / numpy.linalg.norm(expected)
    agreement = (logits.argmax(1) == expected.argmax(1)).mean()
    return f"{difference:.1e} {100 * agreement:.0f} %"


def compare(engines, checkpoint, ways):
    """One cell for each way."""
    reference = read_tensors(checkpoint / "reference.safetensors")
    files, cells = {}, []
    for way in ways:
        writer, runner = way.split("/")
        path = engines.folder / f"{checkpoint.name}.{writer}.gguf"
        try:
            if writer not in files:
                files[writer] = path
                getattr(engines, f"convert_{writer}")(checkpoint, path)
            if not path.exists():
                cells.append("no file")
                continue
            logits = getattr(engines, f"logits_{runner}")(path, reference["tokens"])
            cells.append(figures(logits, reference["logits"]))
        except RuntimeError as error:
            cells.append(str(error))
    return cells


def main():
    arguments = parse_arguments()
    ways = arguments.ways.split(",")
    checkpoints = [path for path in sorted(pathlib.Path(arguments.goldens).iterdir())
                   if (path / "reference.safetensors").exists()
                   and (not arguments.names or path.name in arguments.names)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(arguments.keep or temporary)
        os.makedirs(folder, exist_ok=True)
        engines = Engines(arguments, folder)
        print(f"| checkpoint | {' | '.join(ways)} |\n|---|{'---|' * len(ways)}")
        for checkpoint in checkpoints:
            cells = compare(engines, checkpoint, ways)
            print(f"| {checkpoint.name} | {' | '.join(cells)} |", flush=True)
            if not arguments.keep:
                for path in folder.glob("*.gguf"):
                    path.unlink()


if __name__ == "__main__":
    main()
