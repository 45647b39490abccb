#include "text/tokenizer_models.h"

#include <algorithm>

namespace lockstep {

TokenIndex IndexTextTokens(const Vocab& vocab) {
  TokenIndex index(vocab.tokens.size());
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    if (IsTextToken(vocab.types[id])) index.Add(vocab.tokens[id], static_cast<int32_t>(id));
  }
  return index;
}

ByteTrie TrieOfTextTokens(const Vocab& vocab) {
  std::vector<ByteTrie::Entry> entries;
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    if (IsTextToken(vocab.types[id])) {
      entries.push_back({vocab.tokens[id], static_cast<int32_t>(id)});
    }
  }
  return ByteTrie(std::move(entries));
}

Fallback::Fallback(const Vocab& vocab)
    : fuse_(vocab.fuse_unknown), unknown_(vocab.special_id(Special::kUnknown)) {
  byte_ids_.fill(kNoToken);
  for (size_t id = vocab.tokens.size(); id-- > 0;) {
    if (vocab.types[id] != TokenType::kByte) continue;
    const int byte = ByteOfToken(vocab.tokens[id]);
    if (byte >= 0) byte_ids_[static_cast<size_t>(byte)] = static_cast<int32_t>(id);
  }
  bytes_ = vocab.byte_fallback &&
           std::find(byte_ids_.begin(), byte_ids_.end(), kNoToken) == byte_ids_.end();
}

void Fallback::Append(std::string_view text, bool* last_unknown, std::vector<int32_t>* ids) const {
  if (bytes_) {
    for (char byte : text) ids->push_back(byte_id(byte));
    *last_unknown = false;
    return;
  }
  if (unknown_ != kNoToken && !(fuse_ && *last_unknown)) ids->push_back(unknown_);
  *last_unknown = true;
}

std::unique_ptr<const TokenModel> MakeModel(const Vocab& vocab) {
  switch (vocab.kind) {
    case ModelKind::kBpe:
      return MakeBpeModel(vocab);
    case ModelKind::kSentencePiece:
      return MakeSentencePieceModel(vocab);
    case ModelKind::kUnigram:
      return MakeUnigramModel(vocab);
    case ModelKind::kWordPiece:
      return MakeWordPieceModel(vocab);
    case ModelKind::kRwkv:
      return MakeRwkvModel(vocab);
    case ModelKind::kPlamo2:
      return MakePlamo2Model(vocab);
  }
  return nullptr;
}

}  // namespace lockstep
