// Unigram language model: the segmentation whose pieces have the greatest sum of log-probabilities
// (Kudo 2018), and PLaMo-2's variant of it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "text/tokenizer_models.h"

namespace lockstep {
namespace {

// An unknown character costs this much more than the least probable token (SentencePiece).
constexpr double kUnknownPenalty = 10.0;

class UnigramModel : public TokenModel {
 public:
  explicit UnigramModel(const Vocab& vocab)
      : vocab_(vocab), trie_(TrieOfTextTokens(vocab)), fallback_(vocab) {
    double lowest = std::numeric_limits<double>::max();
    for (size_t id = 0; id < vocab.tokens.size(); ++id) {
      if (vocab.types[id] == TokenType::kNormal)
        lowest = std::min<double>(lowest, vocab.scores[id]);
    }
    unknown_score_ =
        (lowest == std::numeric_limits<double>::max() ? 0.0 : lowest) - kUnknownPenalty;
  }

  void Encode(std::string_view piece, std::vector<int32_t>* ids) const override {
    std::vector<Best> best(piece.size() + 1);
    best[0].score = 0;
    for (size_t at = 0; at < piece.size();) {
      const size_t bytes = DecodeUtf8(piece, at).bytes;
      const double score = best[at].score;
      bool whole_char = false;
      trie_.ForEachPrefix(piece.substr(at), [&](size_t length, int32_t id) {
        whole_char |= length == bytes;
        Offer(score + ScoreOf(id), id, at, &best[at + length]);
      });
      if (!whole_char) Offer(score + unknown_score_, kNoToken, at, &best[at + bytes]);
      at += bytes;
    }
    std::vector<size_t> ends;
    for (size_t at = piece.size(); at > 0; at = best[at].from) ends.push_back(at);
    bool last_unknown = false;
    size_t from = 0;
    for (auto end = ends.rbegin(); end != ends.rend(); from = *end++) {
      if (best[*end].id >= 0) {
        ids->push_back(best[*end].id);
        last_unknown = false;
      } else {
        fallback_.Append(piece.substr(from, *end - from), &last_unknown, ids);
      }
    }
  }

 private:
  struct Best {
    double score = -std::numeric_limits<double>::infinity();
    size_t from = 0;
    int32_t id = kNoToken;
  };

  static void Offer(double score, int32_t id, size_t from, Best* best) {
    if (score > best->score) *best = {score, from, id};
  }

  // User-defined tokens cost nothing, so that they are always taken whole.
  double ScoreOf(int32_t id) const {
    const size_t i = static_cast<size_t>(id);
    return vocab_.types[i] == TokenType::kUserDefined ? 0.0 : double{vocab_.scores[i]};
  }

  const Vocab& vocab_;
  ByteTrie trie_;
  Fallback fallback_;
  double unknown_score_;
};

// Scores in units of 1e-4, sums from the end, longer pieces first among equals.
class Plamo2Model : public TokenModel {
 public:
  explicit Plamo2Model(const Vocab& vocab)
      : vocab_(vocab), trie_(TrieOfTextTokens(vocab)), fallback_(vocab) {}

  void Encode(std::string_view piece, std::vector<int32_t>* ids) const override {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (piece.starts_with(kByteOrderMark)) piece.remove_prefix(kByteOrderMark.size());
    constexpr int64_t kUnknownCost = 10'000'000;
    struct Best {
      int64_t cost = 0;
      size_t bytes = 0;
      int32_t id = kNoToken;
    };
    std::vector<Best> best(piece.size() + 1);
    for (size_t at = piece.size(); at-- > 0;) {
      const Utf8Char c = DecodeUtf8(piece, at);
      if (!c.valid) continue;  // inside a character
      Best choice = {best[at + c.bytes].cost + kUnknownCost, c.bytes, kNoToken};
      trie_.ForEachPrefix(piece.substr(at), [&](size_t length, int32_t id) {
        if (at + length < piece.size() && best[at + length].bytes == 0) return;
        const int64_t cost =
            best[at + length].cost - UnitsOf(vocab_.scores[static_cast<size_t>(id)]);
        if (cost <= choice.cost) choice = {cost, length, id};
      });
      best[at] = choice;
    }
    bool last_unknown = false;
    for (size_t at = 0; at < piece.size(); at += best[at].bytes) {
      if (best[at].id >= 0) {
        ids->push_back(best[at].id);
        last_unknown = false;
      } else {
        fallback_.Append(piece.substr(at, best[at].bytes), &last_unknown, ids);
      }
    }
  }

 private:
  static int64_t UnitsOf(float score) {
    return static_cast<int64_t>(std::round(std::clamp(score, -1e9f, 1e9f) * 1e4f));
  }

  const Vocab& vocab_;
  ByteTrie trie_;
  Fallback fallback_;
};

}  // namespace

std::unique_ptr<const TokenModel> MakeUnigramModel(const Vocab& vocab) {
  return std::make_unique<UnigramModel>(vocab);
}

std::unique_ptr<const TokenModel> MakePlamo2Model(const Vocab& vocab) {
  return std::make_unique<Plamo2Model>(vocab);
}

}  // namespace lockstep
