#!/usr/bin/env python3
"""Reference logits for every architecture, small enough to be kept here: the weights are not stored but a function of their names.

    make_goldens.py CHECKPOINTS OUT [NAME...]

CHECKPOINTS holds tiny checkpoints in the layout of Hugging Face (config.json, model.safetensors with a vocabulary of 384). For each, OUT/NAME gets
    config.json             of the checkpoint
    weights.json            {"tensors": [[name, dims, scale, offset]...], "integers": {name: [dims, numbers]}}
    reference.safetensors   tokens int32 [96], logits f32 [rows, 384] of positions ROWS, in float32 by transformers; where there is a next-token
                            block mtp.logits f32 [rows, 384] of NEXT_ROWS: row j is of the token at j + 1 and the model's normed row j
where element i of a tensor is bfloat16(offset + scale * sqrt(3) * u(name, i)), with u from -1 to 1 by SplitMix64 (Steele et al. 2014) started at
the 64-bit FNV-1a hash of the name. Scale and offset are the deviation and mean of the checkpoint's own tensor. Needs torch, transformers,
safetensors and numpy.
"""
import json
import os
import shutil
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

ROWS = [0, 1, 17, 40, 63, 95]
NEXT_ROWS = [0, 1, 17, 40, 63, 94]
TOKENS = 96


def noise(name, count):
    seed = 0xcbf29ce484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001b3 % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9e3779b97f4a7c15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1


def generate(name, dims, scale, offset):
    values = offset + scale * 3**0.5 * noise(name, int(np.prod(dims)))
    return torch.from_numpy(values.astype(np.float32)).to(torch.bfloat16).reshape(dims)


def rounded(number):
    """Three digits are enough, and shorter."""
    return float(f"{number:.3g}")


def describe(tensors):
    described, integers = [], {}
    for name, tensor in sorted(tensors.items()):
        if not tensor.dtype.is_floating_point:
            integers[name] = [list(tensor.shape), tensor.flatten().tolist()]
            continue
        values = tensor.float()
        deviation = values.std(unbiased=False) if values.numel() > 1 else torch.zeros(())
        # The mean of a matrix is chance.
        offset = values.mean().item() if values.dim() <= 1 else 0.0
        described.append([name, list(tensor.shape), rounded(deviation.item()), rounded(offset)])
    return {"tensors": described, "integers": integers}


# Parts of a next-token block, by what their names end with in either spelling.
NEXT_PARTS = {"eh_proj": "join", "fc": "join", "enorm": "token", "pre_fc_norm_embedding": "token", "hnorm": "hidden",
              "pre_fc_norm_hidden": "hidden", "shared_head.norm": "norm"}


def with_block_as_layer(config, tensors):
    """The configuration with the next-token block as one more layer, its tensors, and the parts around it; nothing without a block."""
    layers = config["num_hidden_layers"]
    own = f"model.layers.{layers}."
    as_layer, parts = {}, {}
    for name, tensor in tensors.items():
        plain = name.replace("mtp.layers.0.", own)
        stem = plain.removeprefix(own).removeprefix("mtp.").removesuffix(".weight")
        if stem in NEXT_PARTS:
            parts[NEXT_PARTS[stem]] = tensor.float()
        elif name == "mtp.norm.weight":
            parts["norm"] = tensor.float()
        else:
            as_layer[plain] = tensor
    if not parts:
        return None
    longer = dict(config, num_hidden_layers=layers + 1)
    # Windowed where the model has windows, as mellum's is.
    windowed = "sliding_attention" in config.get("layer_types", []) and config.get("sliding_window")
    for key, kind in [("layer_types", "sliding_attention" if windowed else "full_attention"), ("mlp_layer_types", "sparse"),
                      ("indexer_types", "full")]:
        if config.get(key):
            longer[key] = config[key] + [kind]
    return longer, as_layer, parts, config["sliding_window"] if windowed else None


def next_token_logits(config, tensors, tokens):
    found = with_block_as_layer(config, tensors)
    if found is None:
        return None
    longer, as_layer, parts, window = found
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(longer, file)
        save_file(as_layer, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        kind = getattr(transformers, config["architectures"][0])
        model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    decoder = model.model
    block = decoder.layers[-1]
    decoder.layers = decoder.layers[:-1]

    def normed(x, weight):
        norm = type(decoder.norm)(x.shape[-1], eps=model.config.rms_norm_eps)
        norm.weight.data = weight
        return norm(x)

    with torch.no_grad():
        hidden = decoder(input_ids=tokens[None].long(), use_cache=False).last_hidden_state[:, :-1]
        embedded = decoder.embed_tokens(tokens[None, 1:].long())
        x = torch.cat([normed(embedded, parts["token"]), normed(hidden, parts["hidden"])], -1) @ parts["join"].T
        places = torch.arange(1, len(tokens))
        behind = places[:, None] - places
        seen = (behind >= 0) & (behind < (window or len(tokens)))
        mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[None, None]
        kinds = {"layer_type": "sliding_attention"} if window else {}
        angles = decoder.rotary_emb(x, places[None], **kinds)
        y = block(x, attention_mask=mask, position_ids=places[None], position_embeddings=angles, past_key_values=None, use_cache=False)
        return model.lm_head(normed(y[0] if isinstance(y, tuple) else y, parts["norm"]))[0]


def logits(folder, tokens):
    with open(os.path.join(folder, "config.json")) as file:
        kind = getattr(transformers, json.load(file)["architectures"][0])
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        return model(input_ids=tokens[None].long(), use_cache=False).logits[0]


def make(source, out):
    tensors = load_file(os.path.join(source, "model.safetensors"))
    weights = describe(tensors)
    made = {name: generate(name, *rest) for name, *rest in weights["tensors"]}
    made |= {name: tensors[name] for name in weights["integers"]}
    # The last ids of the vocabulary stand for images in some.
    tokens = ((torch.from_numpy(noise(os.path.basename(source), TOKENS)) + 1) / 2 * 377).to(torch.int32) + 3
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(os.path.join(source, "config.json"), folder)
        save_file(made, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        result = logits(folder, tokens)
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(source, "config.json")) as file:
        config = json.load(file)
    for name, content in [("config.json", config), ("weights.json", weights)]:
        with open(os.path.join(out, name), "w") as file:
            file.write(json.dumps(content, separators=(",", ":")).replace('],["', '],\n["') + "\n")
    reference = {"tokens": tokens, "logits": result[ROWS].float().contiguous()}
    following = next_token_logits(config, made, tokens)
    if following is not None:
        reference["mtp.logits"] = following[NEXT_ROWS].float().contiguous()
    save_file(reference, os.path.join(out, "reference.safetensors"))
    print(f"{os.path.basename(out):16s} logits' deviation {result.std():.3f}", flush=True)


def tokenizer(path):
    """Byte-level BPE: three special tokens, the bytes, pairs of letters up to a vocabulary of 384."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    spelling = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    tokens = ["<pad>", "<s>", "</s>"] + [spelling[byte] for byte in range(256)]
    merges = [[chr(97 + i // 26), chr(97 + i % 26)] for i in range(384 - len(tokens))]
    tokens += ["".join(pair) for pair in merges]
    special = [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
               for i in range(3)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    content = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None, "pre_tokenizer": level,
               "post_processor": None, "decoder": level,
               "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                         "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                         "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges}}
    with open(path, "w") as file:
        json.dump(content, file, ensure_ascii=False)
        file.write("\n")


def main():
    checkpoints, out, *names = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    tokenizer(os.path.join(out, "tokenizer.json"))
    for name in names or sorted(os.listdir(checkpoints)):
        source = os.path.join(checkpoints, name)
        # Drafts have no logits of their own.
        if os.path.exists(os.path.join(source, "model.safetensors")) and not name.endswith(("-assistant", "-dflash")):
            make(source, os.path.join(out, name))


if __name__ == "__main__":
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    main()
