#!/usr/bin/env python3
"""Converts a small Hugging Face checkpoint to GGUF with the keys, tensor names and layouts of llama.cpp's converter.

    golden_to_gguf.py CHECKPOINT_DIR OUT.gguf [--type f32|f16|bf16|q8_0|q4_0|...]

A test oracle: it shares no code with the product's converter and holds the whole model in memory. Where a checkpoint says what
llama.cpp's files cannot, the key that src/models reads is written. Needs gguf (0.19) and numpy.
"""
import argparse
import json
import math
import pathlib
import struct
import sys
from dataclasses import dataclass, field

import gguf
import numpy as np

# Element types of a checkpoint. BF16 is the upper half of a float32.
NUMPY_TYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}

MODEL_TENSORS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
LAYER_TENSORS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
# Norms on both sides of each branch: the norm after attention is no longer the one before the feed-forward.
SANDWICH_TENSORS = {
    **LAYER_TENSORS,
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


class Config:
    """config.json, where a key that is needed and missing is named."""

    def __init__(self, values, path):
        self.values, self.path = values, path

    def __getitem__(self, key):
        value = self.values.get(key)
        if value is None:
            sys.exit(f"{self.path}: {key}: key is missing")
        return value

    def get(self, key, otherwise=None):
        value = self.values.get(key)
        return otherwise if value is None else value

    @property
    def head_dim(self):
        return self.get("head_dim", self["hidden_size"] // self["num_attention_heads"])

    @property
    def rope(self):
        """The rotary parameters, of the layers that see all where kinds of layers have their own."""
        parameters = self["rope_parameters"]
        return parameters.get("full_attention", parameters)


# Keys. Each function returns {key without the architecture: value}; a value's Python type chooses its type in the file.


def shared_keys(config):
    keys = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": config.rope["rope_theta"],
        "vocab_size": config["vocab_size"],
    }
    if config.get("head_dim"):
        keys |= {"attention.key_length": config.head_dim, "attention.value_length": config.head_dim}
    return keys | rope_keys(config)


def rope_keys(config):
    rope = config.rope
    keys = {"rope.dimension_count": int(config.head_dim * rope.get("partial_rotary_factor", 1.0))}
    kind = rope.get("rope_type", "default")
    if kind == "linear":
        keys |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
    elif kind == "yarn":
        keys |= yarn_keys(rope)
    elif kind == "longrope":
        keys |= {"rope.scaling.type": "longrope"}
    elif kind not in ("default", "llama3"):  # llama3 is a tensor: llama3_factors
        sys.exit(f"{config.path}: rope_type: {kind} is unknown")
    return keys


def yarn_keys(rope):
    keys = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": float(rope["factor"]),
        "rope.scaling.original_context_length": rope["original_max_position_embeddings"],
    }
    for name, key in {"attention_factor": "yarn_attn_factor", "beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow",
                      "mscale_all_dim": "yarn_log_multiplier"}.items():
        if rope.get(name) is not None:
            keys[f"rope.scaling.{key}"] = float(rope[name])
    # llama.cpp's files cannot say this: it always rounds the ramp's ends.
    if rope.get("truncate") is False:
        keys["rope.scaling.yarn_truncate"] = False
    return keys


def window_keys(config, period):
    """The window, and which layers have it where that is not the architecture's `period` (all but each period-th)."""
    keys = {"attention.sliding_window": config["sliding_window"]}
    windowed = [kind == "sliding_attention" for kind in config["layer_types"]]
    if windowed != [(i + 1) % period != 0 for i in range(len(windowed))]:
        keys["attention.sliding_window_pattern"] = windowed
    return keys


def gemma2_keys(config):
    return window_keys(config, 2) | {
        "attn_logit_softcapping": float(config["attn_logit_softcapping"]),
        "final_logit_softcapping": float(config["final_logit_softcapping"]),
        # Not written by llama.cpp, which derives a scale from sizes.
        "attention.scale": config["query_pre_attn_scalar"] ** -0.5,
    }


def gemma3_keys(config):
    return window_keys(config, 6) | {
        "rope.freq_base_swa": float(config["rope_parameters"]["sliding_attention"]["rope_theta"]),
        "attention.scale": config["query_pre_attn_scalar"] ** -0.5,
    }


def phi3_keys(config):
    keys = {
        "rope.scaling.original_context_length": config["original_max_position_embeddings"],
        "attention.sliding_window": config.get("sliding_window", 0),
    }
    factor = longrope_attention_factor(config)
    return keys | ({"rope.scaling.attn_factor": factor} if factor is not None else {})


def mistral3_keys(config):
    # The length is the rotary scaling's original context.
    return {"attention.temperature_scale": float(config.rope["llama_4_scaling_beta"])}


def granite_keys(config):
    return {
        "attention.scale": float(config["attention_multiplier"]),
        "embedding_scale": float(config["embedding_multiplier"]),
        "residual_scale": float(config["residual_multiplier"]),
        "logit_scale": float(config["logits_scaling"]),
    }


# Tensors that no checkpoint has: what scaled rotary frequencies are divided by, [pairs].


def llama3_factors(config):
    rope = config.rope
    if rope.get("rope_type") != "llama3":
        return {}
    dims = int(config.head_dim * rope.get("partial_rotary_factor", 1.0))
    frequency = rope["rope_theta"] ** (-np.arange(0, dims, 2, dtype=np.float64) / dims)
    turns = rope["original_max_position_embeddings"] * frequency / (2 * math.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return {"rope_freqs.weight": 1 / ((1 - kept) / rope["factor"] + kept)}


def longrope_factors(config):
    if config.rope.get("rope_type") != "longrope":
        return {}
    return {f"rope_factors_{kind}.weight": np.array(config.rope[f"{kind}_factor"]) for kind in ("long", "short")}


def longrope_attention_factor(config):
    rope = config.rope
    if rope.get("rope_type") != "longrope":
        return None
    original = config["original_max_position_embeddings"]
    stretch = config["max_position_embeddings"] / original
    return math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 else 1.0


@dataclass
class Architecture:
    name: str  # general.architecture
    # Neighbouring elements of a head turn together; checkpoints pair element i with i + half.
    pairs: bool = False
    gemma_norms: bool = False  # the checkpoint's norms are weights less 1
    tensors: dict = field(default_factory=lambda: LAYER_TENSORS)
    keys: callable = lambda config: {}
    extra_tensors: callable = llama3_factors


ARCHITECTURES = {
    "LlamaForCausalLM": Architecture("llama", pairs=True),
    "Qwen2ForCausalLM": Architecture("qwen2"),
    "Qwen3ForCausalLM": Architecture("qwen3"),
    "Gemma2ForCausalLM": Architecture("gemma2", gemma_norms=True, tensors=SANDWICH_TENSORS, keys=gemma2_keys),
    "Gemma3ForCausalLM": Architecture("gemma3", gemma_norms=True, tensors=SANDWICH_TENSORS, keys=gemma3_keys),
    "Phi3ForCausalLM": Architecture("phi3", keys=phi3_keys, extra_tensors=longrope_factors),
    "Ministral3ForCausalLM": Architecture("mistral3", pairs=True, keys=mistral3_keys),
    "GraniteForCausalLM": Architecture("granite", pairs=True, keys=granite_keys),
}


def read_checkpoint(path):
    """{name: float32 array}."""
    raw = path.read_bytes()
    (header_bytes,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + header_bytes])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
        values = np.frombuffer(raw[begin:end], NUMPY_TYPES[entry["dtype"]])
        if entry["dtype"] == "BF16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        tensors[name] = values.astype(np.float32).reshape(entry["shape"])
    return tensors


def gguf_name(name, architecture):
    stem, kind = name.rsplit(".", 1)
    if stem in MODEL_TENSORS:
        return f"{MODEL_TENSORS[stem]}.{kind}"
    prefix = "model.layers."
    if stem.startswith(prefix):
        layer, part = stem.removeprefix(prefix).split(".", 1)
        if part in architecture.tensors:
            return f"blk.{layer}.{architecture.tensors[part]}.{kind}"
    sys.exit(f"{name}: no place for this tensor in {architecture.name}")


def interleave_halves(rows, heads):
    """Rows of each head from (first half, second half) to pairs of neighbours."""
    halves = rows.reshape(heads, 2, -1, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def convert_tensor(name, values, config, architecture):
    if architecture.pairs and ".self_attn.q_proj." in name:
        values = interleave_halves(values, config["num_attention_heads"])
    if architecture.pairs and ".self_attn.k_proj." in name:
        values = interleave_halves(values, config["num_key_value_heads"])
    if architecture.gemma_norms and name.endswith("norm.weight"):
        values = values + np.float32(1)
    return values


def add_tensor(writer, name, values, kind):
    """Matrices in type `kind`, or F16 where rows are not whole blocks; vectors as F32."""
    types = gguf.GGMLQuantizationType
    values = values.astype(np.float32)
    if values.ndim < 2:
        kind = types.F32
    elif values.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] != 0:
        kind = types.F16
    writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)


def add_keys(writer, architecture, keys):
    for key, value in keys.items():
        key = f"{architecture}.{key}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)


def add_tokenizer(writer, folder, config):
    """A byte-level BPE with GPT-2's pre-tokenizer, as the checkpoints here have it."""
    described = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    if described["model"]["type"] != "BPE" or described["pre_tokenizer"]["type"] != "ByteLevel":
        sys.exit(f"{folder}: tokenizer.json: expected a byte-level BPE")
    special = {token["id"]: token for token in described["added_tokens"]}
    texts = {id: text for text, id in described["model"]["vocab"].items()}
    texts |= {id: token["content"] for id, token in special.items()}
    types = gguf.TokenType
    tokens, kinds = [], []
    for id in range(config["vocab_size"]):
        tokens.append(texts.get(id, f"[PAD{id}]"))
        kind = types.UNUSED if id not in texts else types.NORMAL
        if id in special:
            kind = types.CONTROL if special[id]["special"] else types.USER_DEFINED
        kinds.append(int(kind))
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in described["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["pad_token_id"])
    writer.add_add_bos_token(bool(settings.get("add_bos_token", False)))
    if settings.get("chat_template"):
        writer.add_chat_template(settings["chat_template"])


def convert(folder, out, kind):
    path = folder / "config.json"
    config = Config(json.loads(path.read_text(encoding="utf-8")), path)
    name = config["architectures"][0]
    if name not in ARCHITECTURES:
        sys.exit(f"{path}: architectures: expected one of {', '.join(ARCHITECTURES)}, found {name}")
    architecture = ARCHITECTURES[name]
    writer = gguf.GGUFWriter(out, architecture.name)
    writer.add_name(folder.name)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    prefix = "ALL" if kind == gguf.GGMLQuantizationType.F32 else "MOSTLY"
    writer.add_file_type(gguf.LlamaFileType[f"{prefix}_{kind.name}"])
    add_keys(writer, architecture.name, shared_keys(config) | architecture.keys(config))
    add_tokenizer(writer, folder, config)
    tensors = read_checkpoint(folder / "model.safetensors")
    for name, values in architecture.extra_tensors(config).items():
        add_tensor(writer, name, values, kind)
    for name, values in tensors.items():
        add_tensor(writer, gguf_name(name, architecture), convert_tensor(name, values, config, architecture), kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=pathlib.Path, help="folder with config.json, model.safetensors, tokenizer.json")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--type", default="f32", help="of matrices: f32, f16, bf16, q8_0, ... (default f32)")
    arguments = parser.parse_args()
    name = arguments.type.upper()
    if name not in gguf.GGMLQuantizationType.__members__:
        sys.exit(f"--type: expected a type of weights, found {arguments.type}")
    # Whole or not at all.
    temporary = arguments.out.with_suffix(".part")
    convert(arguments.checkpoint, temporary, gguf.GGMLQuantizationType[name])
    temporary.replace(arguments.out)


if __name__ == "__main__":
    main()
