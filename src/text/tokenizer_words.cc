// Longest match from the left: WordPiece (Schuster and Nakajima 2012) word by word, RWKV on bytes.
#include "base/error.h"
#include "text/tokenizer_models.h"

namespace lockstep {
namespace {

// The text tokens that begin with `prefix`, without it.
ByteTrie TrieAfter(const Vocab& vocab, std::string_view prefix) {
  std::vector<ByteTrie::Entry> entries;
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    const std::string_view text = vocab.tokens[id];
    if (IsTextToken(vocab.types[id]) && text.starts_with(prefix)) {
      entries.push_back({text.substr(prefix.size()), static_cast<int32_t>(id)});
    }
  }
  return ByteTrie(std::move(entries));
}

class WordPieceModel : public TokenModel {
 public:
  explicit WordPieceModel(const Vocab& vocab)
      : vocab_(vocab),
        starts_(TrieAfter(vocab, vocab.word_start)),
        continuations_(TrieAfter(vocab, vocab.continuation)),
        fallback_(vocab) {}

  void Encode(std::string_view word, std::vector<int32_t>* ids) const override {
    const size_t before = ids->size();
    bool known = vocab_.max_word_chars == 0 || CountChars(word) <= vocab_.max_word_chars;
    for (size_t at = 0; known && at < word.size();) {
      const ByteTrie& trie = at == 0 ? starts_ : continuations_;
      const ByteTrie::Match match = trie.Longest(word.substr(at));
      known = match.value >= 0;
      if (known) ids->push_back(match.value);
      at += match.length;
    }
    if (known) return;
    ids->resize(before);
    bool last_unknown = false;
    fallback_.Append(word, &last_unknown, ids);
  }

 private:
  const Vocab& vocab_;
  ByteTrie starts_;
  ByteTrie continuations_;
  Fallback fallback_;
};

class RwkvModel : public TokenModel {
 public:
  explicit RwkvModel(const Vocab& vocab) : fallback_(vocab) {
    std::vector<std::string> texts(vocab.tokens.size());
    std::vector<ByteTrie::Entry> entries;
    for (size_t id = 0; id < texts.size(); ++id) {
      if (!UnescapeRwkv(vocab.tokens[id], &texts[id])) {
        throw Refused("{}: {}tokens: index {}: expected escapes \\t \\n \\r \\xHH, found {}",
                      vocab.name, vocab.key_prefix, id, Printable(vocab.tokens[id]));
      }
      if (IsTextToken(vocab.types[id])) entries.push_back({texts[id], static_cast<int32_t>(id)});
    }
    trie_ = ByteTrie(std::move(entries));
  }

  void Encode(std::string_view piece, std::vector<int32_t>* ids) const override {
    for (size_t at = 0; at < piece.size();) {
      const ByteTrie::Match match = trie_.Longest(piece.substr(at));
      if (match.value >= 0) {
        ids->push_back(match.value);
        at += match.length;
      } else {
        bool last_unknown = false;
        fallback_.Append(piece.substr(at, 1), &last_unknown, ids);
        ++at;
      }
    }
  }

 private:
  ByteTrie trie_;
  Fallback fallback_;
};

}  // namespace

std::unique_ptr<const TokenModel> MakeWordPieceModel(const Vocab& vocab) {
  return std::make_unique<WordPieceModel>(vocab);
}

std::unique_ptr<const TokenModel> MakeRwkvModel(const Vocab& vocab) {
  return std::make_unique<RwkvModel>(vocab);
}

}  // namespace lockstep
