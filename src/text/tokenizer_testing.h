// Small vocabularies and checks that the tests of this folder share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/pretokenizers.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace lockstep {

// What the error of `run` says, which must be one line; or "" where there is none.
inline std::string RefusalOf(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    const std::string text = error.what();
    return text.find('\n') == text.npos ? text : "more than one line: " + text;
  }
  return "";
}

// FNV-1a over ids: long results are recorded as their hash.
inline uint64_t HashOf(const std::vector<int32_t>& ids, uint64_t hash = 0xcbf29ce484222325) {
  for (int32_t id : ids) hash = (hash ^ static_cast<uint32_t>(id)) * 0x100000001b3;
  return hash;
}

inline int32_t AddToken(std::string text, TokenType type, float score, Vocab* vocab) {
  const int32_t id = static_cast<int32_t>(vocab->tokens.size());
  vocab->tokens.push_back(std::move(text));
  vocab->types.push_back(type);
  vocab->scores.push_back(score);
  const bool added =
      type == TokenType::kControl || type == TokenType::kUserDefined || type == TokenType::kUnknown;
  if (added) vocab->added.push_back({.id = id});
  return id;
}

inline void AddByteTokens(Vocab* vocab) {
  for (int b = 0; b < 256; ++b) AddToken(fmt::format("<0x{:02X}>", b), TokenType::kByte, 0, vocab);
  vocab->byte_fallback = vocab->decoding.byte_tokens = true;
}

// V1: SentencePiece BPE with scores. Ids: 0 <unk>, 1 <s>, 2 </s>, 3..258 bytes, then pieces.
inline Vocab SmallSentencePiece() {
  Vocab vocab{.name = "v1", .key_prefix = "tokenizer.ggml.", .kind = ModelKind::kSentencePiece};
  vocab.special_id(Special::kUnknown) = AddToken("<unk>", TokenType::kUnknown, 0, &vocab);
  vocab.special_id(Special::kBos) = AddToken("<s>", TokenType::kControl, 0, &vocab);
  vocab.special_id(Special::kEos) = AddToken("</s>", TokenType::kControl, 0, &vocab);
  AddByteTokens(&vocab);
  const std::vector<std::pair<std::string, float>> pieces = {
      {"▁", -1e9f}, {"▁▁", -1e9f}, {"▁a", -1}, {"a", -20}, {"b", -21}, {"ab", -2},
      {"▁ab", -3},  {"x", -22},    {"▁x", -4}, {"<", -23}, {"s", -24}, {">", -25}};
  for (const auto& [text, score] : pieces) AddToken(text, TokenType::kNormal, score, &vocab);
  vocab.prefix = {1};
  UseSpaceMarks(&vocab, true);
  return vocab;
}

// V2: byte-level BPE. Ids: the 256 bytes of the alphabet in order, then merges, then controls.
inline Vocab SmallByteLevel(const std::string& pre) {
  Vocab vocab{.name = "v2", .key_prefix = "tokenizer.ggml.", .kind = ModelKind::kBpe};
  for (const std::string& letter : ByteAlphabet()) {
    AddToken(letter, TokenType::kNormal, 0, &vocab);
  }
  for (const auto& [left, right] :
       {std::pair("h", "e"), {"l", "l"}, {"he", "ll"}, {"Ġ", "hell"}, {"a", "a"}, {"aa", "aa"}}) {
    AddToken(std::string(left) + right, TokenType::kNormal, 0, &vocab);
    vocab.merges.push_back({left, right});
  }
  vocab.special_id(Special::kEos) = AddToken("<|im_end|>", TokenType::kControl, 0, &vocab);
  AddToken("<|im_start|>", TokenType::kControl, 0, &vocab);
  vocab.scores.clear();
  vocab.byte_alphabet = vocab.decoding.byte_alphabet = true;
  vocab.splits = FindPretokenizer("v2", pre).splits;
  return vocab;
}

// The rules that cut without dropping anything, of vocabularies in the byte alphabet.
inline std::vector<std::string> ByteLevelNames() {
  std::vector<std::string> names;
  for (std::string_view name : PretokenizerNames()) {
    if (!FindPretokenizer("test", name).raw_text) names.emplace_back(name);
  }
  return names;
}

// V3: unigram. Ids: 0 <unk>, 1 </s>, then five pieces, then perhaps bytes.
inline Vocab SmallUnigram(bool bytes) {
  Vocab vocab{.name = "v3", .key_prefix = "tokenizer.ggml.", .kind = ModelKind::kUnigram};
  vocab.special_id(Special::kUnknown) = AddToken("<unk>", TokenType::kUnknown, 0, &vocab);
  vocab.special_id(Special::kEos) = AddToken("</s>", TokenType::kControl, 0, &vocab);
  for (const auto& [text, score] :
       {std::pair("▁", -2.0f), {"▁a", -1.5f}, {"a", -3.0f}, {"b", -3.5f}, {"ab", -4.0f}}) {
    AddToken(text, TokenType::kNormal, score, &vocab);
  }
  if (bytes) AddByteTokens(&vocab);
  UseSpaceMarks(&vocab, true);
  return vocab;
}

}  // namespace lockstep
