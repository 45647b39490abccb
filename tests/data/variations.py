#!/usr/bin/env python3
"""Tiny checkpoints of known families in other sizes: one KV head, odd numbers of heads and experts, tied heads, windows, other seeds.

    variations.py GENERATOR OUT [NAME...]

GENERATOR is the script that makes the reference checkpoints (make_goldens.py beside them), whose cases these are varied from. What it writes
to OUT is then kept by make_goldens.py of this folder:

    variations.py ../../../shared/goldens/make_goldens.py OUT && make_goldens.py OUT goldens
"""
import importlib.util
import os
import sys

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
SMALL = {"hidden_size": 96, "num_hidden_layers": 2}

# Name: (case that it varies, model type where that is another, what differs).
VARIATIONS = {
    "llama-odd": ("llama", None, dict(SMALL | {"hidden_size": 112}, num_attention_heads=7, num_key_value_heads=1, head_dim=16, intermediate_size=160, tie_word_embeddings=False)),
    "mistral-window": ("llama-256", "mistral", dict(SMALL, sliding_window=24, num_attention_heads=5, num_key_value_heads=1, head_dim=32, intermediate_size=160)),
    "olmo3": ("olmo2", "olmo3", dict(num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=1, sliding_window=24, layer_types=[SLIDING] * 3 + [FULL],
                                     rope_parameters={SLIDING: dict(rope_type="default", rope_theta=500000.0),
                                                      FULL: dict(rope_type="yarn", rope_theta=500000.0, factor=4.0, original_max_position_embeddings=32, beta_fast=0.6, beta_slow=0.1, attention_factor=1.2)})),
    "qwen3-odd": ("qwen3", None, dict(SMALL, num_attention_heads=5, num_key_value_heads=5, head_dim=48, tie_word_embeddings=False)),
    "gemma2-odd": ("gemma2", None, dict(SMALL, num_attention_heads=3, num_key_value_heads=1, query_pre_attn_scalar=64, layer_types=[SLIDING, FULL])),
    "gemma3-odd": ("gemma3", None, dict(hidden_size=96, num_attention_heads=3, num_key_value_heads=3, head_dim=32, query_pre_attn_scalar=32)),
    "cohere2-odd": ("cohere2", None, dict(hidden_size=96, num_attention_heads=3, num_key_value_heads=1, num_hidden_layers=4)),
    "phi3-odd": ("phi3", None, dict(SMALL, num_attention_heads=3, num_key_value_heads=1, partial_rotary_factor=0.5, tie_word_embeddings=True, sliding_window=None)),
    "qwen3-moe-odd": ("qwen3-moe", None, dict(SMALL, num_attention_heads=3, num_key_value_heads=1, num_experts=7, num_experts_per_tok=3, mlp_only_layers=[], norm_topk_prob=False)),
    "laguna-odd": ("laguna", None, dict(num_attention_heads=3, num_key_value_heads=1, num_attention_heads_per_layer=[3, 5, 5, 5], num_experts=7, num_experts_per_tok=2, moe_router_logit_softcapping=1.5)),
    "glm4-moe-odd": ("glm4-moe", None, dict(SMALL, num_attention_heads=3, num_key_value_heads=3, n_routed_experts=15, num_experts_per_tok=3, n_group=3, topk_group=2, use_qk_norm=False, num_hidden_layers=3)),
    "gpt-oss-odd": ("gpt-oss", None, dict(num_attention_heads=3, num_key_value_heads=1, num_local_experts=5, num_experts_per_tok=2, swiglu_limit=1.0, rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=32, beta_fast=32.0, beta_slow=1.0))),
    "deepseek3-odd": ("deepseek3", None, dict(num_attention_heads=3, num_key_value_heads=3, v_head_dim=48, qk_nope_head_dim=16, n_routed_experts=15, num_experts_per_tok=3, n_group=3, topk_group=2, n_shared_experts=2, num_nextn_predict_layers=0)),
    "deepseek32-wide": ("deepseek32", None, dict(index_head_dim=64, num_attention_heads=5, num_key_value_heads=5)),
    "deepseek4-far": ("deepseek4", None, dict(compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 128})),
    "qwen3-next-odd": ("qwen3-next", None, dict(hidden_size=96, num_attention_heads=3, num_key_value_heads=1, head_dim=32, linear_num_key_heads=3, linear_num_value_heads=9, num_experts=7, num_experts_per_tok=2)),
    "qwen3.5-odd": ("qwen3.5", None, dict(hidden_size=96, num_attention_heads=5, num_key_value_heads=1, head_dim=32, linear_num_key_heads=3, linear_num_value_heads=6, linear_key_head_dim=16, tie_word_embeddings=True)),
    "qwen4-one": ("qwen4-exp", None, dict(ple_layer_ids=[2], ple_embed_dim=128, num_attention_heads=3, num_key_value_heads=1)),
    "glm5-next-soft": ("glm5-next", None, dict(linear_lower_bound=None, num_attention_heads=4, num_key_value_heads=4, linear_num_heads=4)),
    "lfm2-odd": ("lfm2", None, dict(hidden_size=96, num_attention_heads=3, num_key_value_heads=1, conv_L_cache=4)),
    "granite-hybrid-odd": ("granite-hybrid", None, dict(hidden_size=96, num_attention_heads=3, num_key_value_heads=1, mamba_n_heads=6, mamba_n_groups=1, mamba_d_head=32, num_local_experts=5, num_experts_per_tok=2)),
    "gemma4-odd": ("gemma4-moe", None, dict(num_attention_heads=6, num_key_value_heads=3, num_experts=5, top_k_experts=2, rms_norm_eps=1e-2)),
    "gemma4-e2b-odd": ("gemma4-e2b", None, dict(num_attention_heads=3, num_key_value_heads=1, rms_norm_eps=1e-2)),
    "mixtral-tied": ("mixtral", None, dict(SMALL, num_attention_heads=3, num_key_value_heads=1, num_local_experts=5, num_experts_per_tok=1, tie_word_embeddings=True)),
}


def main():
    generator, out, *names = sys.argv[1:]
    specification = importlib.util.spec_from_file_location("generator", generator)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    for i, (name, (base, model_type, changed)) in enumerate(VARIATIONS.items()):
        if names and name not in names:
            continue
        of_base, text, wrap, values = module.CASES[base]
        module.CASES[name] = (model_type or of_base, text, wrap, dict(values, **changed))
        # Of the base, the next-token block is left out: its last layer is a layer.
        module.make(name, out, 100 + i)


if __name__ == "__main__":
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    main()
