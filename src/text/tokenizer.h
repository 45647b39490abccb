// Text to token ids and back, for every vocabulary that a GGUF file or a Hugging Face folder brings.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocab.h"

namespace lockstep {

class GgufFile;

struct EncodeOptions {
  bool add_special = false;  // adds what the vocabulary wants around a text (BOS, CLS ... SEP)
  bool parse_special =
      false;  // control tokens are read from their texts; else those are plain text
};

struct DecodeOptions {
  bool skip_special = true;  // leaves control and unknown tokens out
  // The ids begin a text: the space that encoding puts before a text is dropped again.
  bool at_start = true;
};

// A vocabulary with its rules; cheap to copy, never changes, safe to use from many threads.
//
// Text that is not UTF-8 is encoded as if each ill-formed sequence (the standard's maximal subpart)
// were U+FFFD. Decoded text is always UTF-8: bytes that are none become U+FFFD by the same rule.
// Where two tokens have the same text, encoding gives the lower id. Tokens longer than 512 bytes are
// never looked for in text.
class Tokenizer {
 public:
  // All throw Refused, one line, naming file, key and index, for a vocabulary that is not acceptable.
  static Tokenizer FromVocab(Vocab vocab);
  static Tokenizer FromGguf(const GgufFile& file);
  // `path`: a tokenizer.json of the Hugging Face library, or a folder with one and perhaps a
  // tokenizer_config.json, which names BOS, EOS and the like.
  static Tokenizer FromTokenizerJson(const std::string& path);

  // Throws Failed where a pattern of the vocabulary needs more steps than its limit on this text.
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Refused where an id is no token.
  std::string Decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;

  int32_t size() const;
  bool Has(int32_t id) const { return id >= 0 && id < size(); }
  // The following take an id that Has() says is one.
  std::string_view TextOf(int32_t id) const;   // as the vocabulary spells it
  std::string_view BytesOf(int32_t id) const;  // as decoded, perhaps part of a character
  TokenType TypeOf(int32_t id) const;
  bool IsSpecial(int32_t id) const;  // control or unknown: left out by skip_special
  bool IsEndOfGeneration(int32_t id) const;

  std::span<const int32_t> end_of_generation() const;  // ascending
  std::optional<int32_t> Find(std::string_view token_text) const;
  std::optional<int32_t> special(Special which) const;
  // What add_special puts before and after.
  std::span<const int32_t> prefix() const;
  std::span<const int32_t> suffix() const;
  const std::string& name() const;

 private:
  friend class StreamDecoder;
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<const Impl> impl_;
};

// Decodes token by token. All pieces that it gives, joined, are what Decode() gives for the whole:
// it holds bytes back while they may still become a character, never gives half of one, and at the
// end gives U+FFFD for what was left incomplete.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, const DecodeOptions& options = {})
      : tokenizer_(std::move(tokenizer)), options_(options), at_start_(options.at_start) {}

  // The text that this token completes, perhaps empty. Refused where the id is no token.
  std::string Add(int32_t id);
  // The rest; the decoder is then as new.
  std::string Finish();
  // Bytes held back: 0 to 3.
  size_t held() const { return held_.size(); }

 private:
  Tokenizer tokenizer_;
  DecodeOptions options_;
  bool at_start_;
  std::string held_;
};

// A key of our own, beside those of tokenizer.ggml: the rules of a tokenizer.json for which those have
// no words. Where a file has it, its rules hold and those keys give tokens, scores and merges only.
inline constexpr std::string_view kTokenizerDescriptionKey = "lockstep.tokenizer.rules";
// A tokenizer.json without its tokens and merges, as JSON. `path`: the file.
std::string DescribeTokenizer(const std::string& path);
// Adds such rules to a vocabulary of tokens. Refused naming `who`.
void ReadDescription(const std::string& who, std::string_view text, Vocab* vocab);

// The vocabulary of a GGUF file or of a tokenizer.json, not yet checked by FinishVocab().
Vocab VocabFromGguf(const GgufFile& file);
Vocab VocabFromTokenizerJson(const std::string& path);

}  // namespace lockstep
