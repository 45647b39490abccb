// Bytes in, two ways: as a tokenizer.json (the first byte is '{'), or as text for small vocabularies
// of every kind, which must come back as the same text, however it is streamed.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/tokenizer.h"
#include "text/tokenizer_testing.h"

namespace lockstep {
namespace {

void Require(bool condition) {
  if (!condition) abort();
}

void TryVocabulary(std::string_view json) {
  const std::string path = "/tmp/tokenizer_fuzz." + std::to_string(getpid()) + ".json";
  std::ofstream(path, std::ios::binary) << json;
  try {
    const Tokenizer tokenizer = Tokenizer::FromTokenizerJson(path);
    const std::vector<int32_t> ids = tokenizer.Encode("Hello  wörld\n<s> 12345 日本 \xFF");
    Require(IsUtf8(tokenizer.Decode(ids)));
  } catch (const Error&) {
  }
  unlink(path.c_str());
}

void TryText(const Tokenizer& tokenizer, std::string_view text, bool lossless) {
  const std::vector<int32_t> ids = tokenizer.Encode(text, {.parse_special = true});
  const std::string decoded = tokenizer.Decode(ids, {.skip_special = false});
  StreamDecoder stream(tokenizer, {.skip_special = false});
  std::string streamed;
  for (int32_t id : ids) {
    streamed += stream.Add(id);
    Require(IsUtf8(streamed));
  }
  streamed += stream.Finish();
  Require(streamed == decoded);
  if (lossless) Require(decoded == ReplaceInvalidUtf8(text));
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  static const std::vector<Tokenizer> lossless = {
      Tokenizer::FromVocab(SmallByteLevel("llama-bpe")),
      Tokenizer::FromVocab(SmallByteLevel("gpt-4o")),
      Tokenizer::FromVocab(SmallByteLevel("deepseek-v3")),
      Tokenizer::FromVocab(SmallByteLevel("kimi-k2")),
      Tokenizer::FromVocab(SmallByteLevel("superbpe")),
      Tokenizer::FromVocab(SmallByteLevel("tiny_aya"))};
  static const std::vector<Tokenizer> others = {Tokenizer::FromVocab(SmallSentencePiece()),
                                                Tokenizer::FromVocab(SmallUnigram(true)),
                                                Tokenizer::FromVocab(SmallUnigram(false))};
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.starts_with('{')) TryVocabulary(text);
  for (const Tokenizer& tokenizer : lossless) TryText(tokenizer, text, true);
  for (const Tokenizer& tokenizer : others) TryText(tokenizer, text, false);
  return 0;
}
