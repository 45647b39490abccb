// The models: pieces of text to token ids. One file each.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/tokenizer_trie.h"
#include "text/vocab.h"

namespace lockstep {

// Encodes one piece of normalised, well-formed UTF-8. Safe to use from many threads.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  virtual void Encode(std::string_view piece, std::vector<int32_t>* ids) const = 0;
};

// All take a vocabulary that FinishVocab() has checked and that outlives the model; Refused where
// the model finds more to object to.
std::unique_ptr<const TokenModel> MakeBpeModel(const Vocab& vocab);
std::unique_ptr<const TokenModel> MakeSentencePieceModel(const Vocab& vocab);
std::unique_ptr<const TokenModel> MakeUnigramModel(const Vocab& vocab);
std::unique_ptr<const TokenModel> MakeWordPieceModel(const Vocab& vocab);
std::unique_ptr<const TokenModel> MakeRwkvModel(const Vocab& vocab);
std::unique_ptr<const TokenModel> MakePlamo2Model(const Vocab& vocab);
std::unique_ptr<const TokenModel> MakeModel(const Vocab& vocab);

// Look-up of the tokens that plain text may become.
TokenIndex IndexTextTokens(const Vocab& vocab);
ByteTrie TrieOfTextTokens(const Vocab& vocab);

// What becomes of characters that no token spells: byte tokens where the vocabulary has all 256 and
// wants them used, else the unknown token, else nothing.
class Fallback {
 public:
  explicit Fallback(const Vocab& vocab);
  bool bytes() const { return bytes_; }
  int32_t byte_id(char byte) const { return byte_ids_[static_cast<uint8_t>(byte)]; }
  // Appends what becomes of `text`. `last_unknown` is the state between calls for one piece: false at
  // first, and after every known token.
  void Append(std::string_view text, bool* last_unknown, std::vector<int32_t>* ids) const;

 private:
  bool bytes_ = false;
  bool fuse_ = true;
  int32_t unknown_ = kNoToken;
  std::array<int32_t, 256> byte_ids_;
};

}  // namespace lockstep
