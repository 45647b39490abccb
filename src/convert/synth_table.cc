// Hyper-parameters of published models, from their config.json.
#include "convert/synth.h"

namespace lockstep {
namespace {

constexpr std::string_view kLlama1b =
    "context_length=131072 embedding_length=2048 block_count=16 feed_forward_length=8192 "
    "attention.head_count=32 attention.head_count_kv=8 rope.dimension_count=64 "
    "rope.freq_base=500000.0 attention.layer_norm_rms_epsilon=1e-5";

constexpr SynthModel kModels[] = {
    {"llama", "135m", "SmolLM2-135M", 49152,
     "context_length=8192 embedding_length=576 block_count=30 feed_forward_length=1536 "
     "attention.head_count=9 attention.head_count_kv=3 rope.dimension_count=64 "
     "rope.freq_base=100000.0 attention.layer_norm_rms_epsilon=1e-5",
     ""},
    {"llama", "1b", "Llama 3.2 1B", 128256, kLlama1b, ""},
    {"llama", "3b", "Llama 3.2 3B", 128256,
     "context_length=131072 embedding_length=3072 block_count=28 feed_forward_length=8192 "
     "attention.head_count=24 attention.head_count_kv=8 rope.dimension_count=128 "
     "rope.freq_base=500000.0 attention.layer_norm_rms_epsilon=1e-5",
     ""},
    {"llama", "8b", "Llama 3.1 8B", 128256,
     "context_length=131072 embedding_length=4096 block_count=32 feed_forward_length=14336 "
     "attention.head_count=32 attention.head_count_kv=8 rope.dimension_count=128 "
     "rope.freq_base=500000.0 attention.layer_norm_rms_epsilon=1e-5",
     "output"},
    {"llama", "70b", "Llama 3.1 70B", 128256,
     "context_length=131072 embedding_length=8192 block_count=80 feed_forward_length=28672 "
     "attention.head_count=64 attention.head_count_kv=8 rope.dimension_count=128 "
     "rope.freq_base=500000.0 attention.layer_norm_rms_epsilon=1e-5",
     "output"},
    {"llama", "8x7b", "Mixtral 8x7B", 32000,
     "context_length=32768 embedding_length=4096 block_count=32 feed_forward_length=14336 "
     "attention.head_count=32 attention.head_count_kv=8 rope.dimension_count=128 "
     "rope.freq_base=1000000.0 attention.layer_norm_rms_epsilon=1e-5 expert_count=8 "
     "expert_used_count=2",
     "output"},
    {"qwen2", "7b", "Qwen2.5 7B", 152064,
     "context_length=32768 embedding_length=3584 block_count=28 feed_forward_length=18944 "
     "attention.head_count=28 attention.head_count_kv=4 rope.freq_base=1000000.0 "
     "attention.layer_norm_rms_epsilon=1e-6",
     "output blk:attn_q.bias blk:attn_k.bias blk:attn_v.bias"},
    {"qwen3", "0.6b", "Qwen3 0.6B", 151936,
     "context_length=40960 embedding_length=1024 block_count=28 feed_forward_length=3072 "
     "attention.head_count=16 attention.head_count_kv=8 attention.key_length=128 "
     "attention.value_length=128 rope.freq_base=1000000.0 attention.layer_norm_rms_epsilon=1e-6",
     ""},
    {"qwen3", "1.7b", "Qwen3 1.7B", 151936,
     "context_length=40960 embedding_length=2048 block_count=28 feed_forward_length=6144 "
     "attention.head_count=16 attention.head_count_kv=8 attention.key_length=128 "
     "attention.value_length=128 rope.freq_base=1000000.0 attention.layer_norm_rms_epsilon=1e-6",
     ""},
    {"qwen3", "4b", "Qwen3 4B", 151936,
     "context_length=40960 embedding_length=2560 block_count=36 feed_forward_length=9728 "
     "attention.head_count=32 attention.head_count_kv=8 attention.key_length=128 "
     "attention.value_length=128 rope.freq_base=1000000.0 attention.layer_norm_rms_epsilon=1e-6",
     ""},
    {"qwen3", "8b", "Qwen3 8B", 151936,
     "context_length=40960 embedding_length=4096 block_count=36 feed_forward_length=12288 "
     "attention.head_count=32 attention.head_count_kv=8 attention.key_length=128 "
     "attention.value_length=128 rope.freq_base=1000000.0 attention.layer_norm_rms_epsilon=1e-6",
     "output"},
    {"qwen3", "32b", "Qwen3 32B", 151936,
     "context_length=40960 embedding_length=5120 block_count=64 feed_forward_length=25600 "
     "attention.head_count=64 attention.head_count_kv=8 attention.key_length=128 "
     "attention.value_length=128 rope.freq_base=1000000.0 attention.layer_norm_rms_epsilon=1e-6",
     "output"},
    {"qwen3moe", "30b-a3b", "Qwen3 30B-A3B", 151936,
     "context_length=40960 embedding_length=2048 block_count=48 feed_forward_length=6144 "
     "attention.head_count=32 attention.head_count_kv=4 attention.key_length=128 "
     "attention.value_length=128 rope.freq_base=1000000.0 attention.layer_norm_rms_epsilon=1e-6 "
     "expert_count=128 expert_used_count=8 expert_feed_forward_length=768",
     "output"},
    {"qwen3moe", "235b-a22b", "Qwen3 235B-A22B", 151936,
     "context_length=40960 embedding_length=4096 block_count=94 feed_forward_length=12288 "
     "attention.head_count=64 attention.head_count_kv=4 attention.key_length=128 "
     "attention.value_length=128 rope.freq_base=1000000.0 attention.layer_norm_rms_epsilon=1e-6 "
     "expert_count=128 expert_used_count=8 expert_feed_forward_length=1536",
     "output"},
    {"qwen3next", "80b-a3b", "Qwen3-Next 80B-A3B", 151936,
     "context_length=262144 embedding_length=2048 block_count=48 feed_forward_length=5120 "
     "attention.head_count=16 attention.head_count_kv=2 attention.key_length=256 "
     "attention.value_length=256 rope.dimension_count=64 rope.freq_base=10000000.0 "
     "attention.layer_norm_rms_epsilon=1e-6 expert_count=512 expert_used_count=10 "
     "expert_feed_forward_length=512 expert_shared_feed_forward_length=512 "
     "ssm.conv_kernel=4 ssm.state_size=128 ssm.group_count=16 ssm.time_step_rank=32 "
     "ssm.inner_size=4096 full_attention_interval=4",
     "output"},
    {"gemma3", "270m", "Gemma 3 270M", 262144,
     "context_length=32768 embedding_length=640 block_count=18 feed_forward_length=2048 "
     "attention.head_count=4 attention.head_count_kv=1 attention.key_length=256 "
     "attention.value_length=256 attention.sliding_window=512 rope.freq_base=1000000.0 "
     "attention.layer_norm_rms_epsilon=1e-6",
     ""},
    {"gemma3", "1b", "Gemma 3 1B", 262144,
     "context_length=32768 embedding_length=1152 block_count=26 feed_forward_length=6912 "
     "attention.head_count=4 attention.head_count_kv=1 attention.key_length=256 "
     "attention.value_length=256 attention.sliding_window=512 rope.freq_base=1000000.0 "
     "attention.layer_norm_rms_epsilon=1e-6",
     ""},
    {"gemma3", "4b", "Gemma 3 4B", 262208,
     "context_length=131072 embedding_length=2560 block_count=34 feed_forward_length=10240 "
     "attention.head_count=8 attention.head_count_kv=4 attention.key_length=256 "
     "attention.value_length=256 attention.sliding_window=1024 rope.freq_base=1000000.0 "
     "attention.layer_norm_rms_epsilon=1e-6",
     ""},
    {"gemma3", "27b", "Gemma 3 27B", 262208,
     "context_length=131072 embedding_length=5376 block_count=62 feed_forward_length=21504 "
     "attention.head_count=32 attention.head_count_kv=16 attention.key_length=128 "
     "attention.value_length=128 attention.sliding_window=1024 rope.freq_base=1000000.0 "
     "attention.layer_norm_rms_epsilon=1e-6",
     ""},
    {"gpt-oss", "20b", "gpt-oss 20B", 201088,
     "context_length=131072 embedding_length=2880 block_count=24 attention.head_count=64 "
     "attention.head_count_kv=8 attention.key_length=64 attention.value_length=64 "
     "attention.sliding_window=128 rope.freq_base=150000.0 rope.scaling.type=\"yarn\" "
     "rope.scaling.factor=32.0 rope.scaling.original_context_length=4096 "
     "attention.layer_norm_rms_epsilon=1e-5 expert_count=32 expert_used_count=4 "
     "expert_feed_forward_length=2880 feed_forward_length=2880",
     "output blk:attn_q.bias blk:attn_k.bias blk:attn_v.bias blk:attn_output.bias "
     "blk:ffn_gate_inp.bias blk:ffn_gate_exps.bias blk:ffn_up_exps.bias blk:ffn_down_exps.bias "
     "blk:post_attention_norm"},
    {"gpt-oss", "120b", "gpt-oss 120B", 201088,
     "context_length=131072 embedding_length=2880 block_count=36 attention.head_count=64 "
     "attention.head_count_kv=8 attention.key_length=64 attention.value_length=64 "
     "attention.sliding_window=128 rope.freq_base=150000.0 rope.scaling.type=\"yarn\" "
     "rope.scaling.factor=32.0 rope.scaling.original_context_length=4096 "
     "attention.layer_norm_rms_epsilon=1e-5 expert_count=128 expert_used_count=4 "
     "expert_feed_forward_length=2880 feed_forward_length=2880",
     "output blk:attn_q.bias blk:attn_k.bias blk:attn_v.bias blk:attn_output.bias "
     "blk:ffn_gate_inp.bias blk:ffn_gate_exps.bias blk:ffn_up_exps.bias blk:ffn_down_exps.bias "
     "blk:post_attention_norm"},
    {"deepseek2", "16b-a2.4b", "DeepSeek-V2-Lite", 102400,
     "context_length=163840 embedding_length=2048 block_count=27 feed_forward_length=10944 "
     "attention.head_count=16 attention.head_count_kv=1 attention.kv_lora_rank=512 "
     "attention.key_length=576 attention.value_length=512 attention.key_length_mla=192 "
     "attention.value_length_mla=128 rope.dimension_count=64 rope.freq_base=10000.0 "
     "attention.layer_norm_rms_epsilon=1e-6 leading_dense_block_count=1 expert_count=64 "
     "expert_used_count=6 expert_shared_count=2 expert_feed_forward_length=1408 "
     "expert_weights_scale=1.0 expert_gating_func=1",
     "output blk0-0:ffn_gate blk:attn_k_b blk:attn_v_b"},
    {"deepseek2", "671b", "DeepSeek-V3", 129280,
     "context_length=163840 embedding_length=7168 block_count=61 feed_forward_length=18432 "
     "attention.head_count=128 attention.head_count_kv=1 attention.q_lora_rank=1536 "
     "attention.kv_lora_rank=512 attention.key_length=576 attention.value_length=512 "
     "attention.key_length_mla=192 attention.value_length_mla=128 rope.dimension_count=64 "
     "rope.freq_base=10000.0 attention.layer_norm_rms_epsilon=1e-6 leading_dense_block_count=3 "
     "expert_count=256 expert_used_count=8 expert_shared_count=1 expert_feed_forward_length=2048 "
     "expert_weights_scale=2.5 expert_weights_norm=true expert_gating_func=2 "
     "expert_group_count=8 expert_group_used_count=4",
     "output blk0-2:ffn_gate blk:attn_k_b blk:attn_v_b blk3-60:exp_probs_b.bias"},
    {"glm4moe", "106b-a12b", "GLM-4.5-Air", 151552,
     "context_length=131072 embedding_length=4096 block_count=46 feed_forward_length=10944 "
     "attention.head_count=96 attention.head_count_kv=8 attention.key_length=128 "
     "attention.value_length=128 rope.dimension_count=64 rope.freq_base=1000000.0 "
     "attention.layer_norm_rms_epsilon=1e-5 leading_dense_block_count=1 expert_count=128 "
     "expert_used_count=8 expert_shared_count=1 expert_feed_forward_length=1408 "
     "expert_weights_scale=1.0 expert_weights_norm=true expert_gating_func=2",
     "output blk0-0:ffn_gate blk:attn_q.bias blk:attn_k.bias blk:attn_v.bias "
     "blk1-45:exp_probs_b.bias blk:post_attention_norm"},
    {"minimax-m2", "230b-a10b", "MiniMax-M2", 200064,
     "context_length=196608 embedding_length=3072 block_count=62 feed_forward_length=1536 "
     "attention.head_count=48 attention.head_count_kv=8 attention.key_length=128 "
     "attention.value_length=128 rope.dimension_count=64 rope.freq_base=5000000.0 "
     "attention.layer_norm_rms_epsilon=1e-6 expert_count=256 expert_used_count=8 "
     "expert_feed_forward_length=1536 expert_gating_func=2",
     "output blk:exp_probs_b.bias"},
};

}  // namespace

std::span<const SynthModel> SynthModels() { return kModels; }

}  // namespace lockstep
