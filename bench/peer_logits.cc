// Logits of llama.cpp for given tokens, for interop.py, which compiles it against llama.cpp's build.
//
//   peer_logits MODEL.gguf TOKENS LOGITS
//
// TOKENS: int32 [t], numbers as they lie in memory. LOGITS: f32 [t, v] is written, of one pass over all tokens in one sequence,
// computed in f32 with f32 K/V on the CPU.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

#include "llama.h"

namespace {

int Fail(const char* what, const char* which) {
  std::fprintf(stderr, "peer_logits: %s: %s\n", which, what);
  return 1;
}

std::vector<llama_token> ReadTokens(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const auto* first = reinterpret_cast<const llama_token*>(bytes.data());
  return {first, first + bytes.size() / sizeof(llama_token)};
}

llama_context_params Parameters(uint32_t tokens) {
  llama_context_params parameters = llama_context_default_params();
  parameters.n_ctx = tokens + 32;
  parameters.n_batch = parameters.n_ubatch = tokens;
  parameters.n_threads = parameters.n_threads_batch = 2;
  parameters.type_k = parameters.type_v = GGML_TYPE_F32;
  parameters.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  return parameters;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return Fail("expected MODEL.gguf TOKENS LOGITS", "arguments");
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  llama_backend_init();
  const std::vector<llama_token> tokens = ReadTokens(argv[2]);
  if (tokens.empty()) return Fail("expected tokens, found none", argv[2]);

  llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (model == nullptr) return Fail("does not load", argv[1]);
  const auto count = static_cast<uint32_t>(tokens.size());
  llama_context* context = llama_init_from_model(model, Parameters(count));
  if (context == nullptr) return Fail("has no context", argv[1]);

  llama_batch batch = llama_batch_init(static_cast<int32_t>(count), 0, 1);
  batch.n_tokens = static_cast<int32_t>(count);
  for (uint32_t i = 0; i < count; ++i) {
    batch.token[i] = tokens[i];
    batch.pos[i] = static_cast<llama_pos>(i);
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  if (llama_decode(context, batch) != 0) return Fail("does not decode", argv[1]);

  const int32_t vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
  std::ofstream out(argv[3], std::ios::binary);
  out.write(reinterpret_cast<const char*>(llama_get_logits(context)),
            static_cast<std::streamsize>(sizeof(float) * count * static_cast<size_t>(vocabulary)));
  return out.flush() ? 0 : Fail("could not be written", argv[3]);
}
