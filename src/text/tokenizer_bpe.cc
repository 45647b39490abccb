// Byte-pair encoding: neighbours are merged, best pair first, leftmost first among equals. The pairs
// of a BPE vocabulary are listed and ranked (Sennrich et al. 2016); SentencePiece allows any pair
// whose text is a token and ranks by its score (Kudo and Richardson 2018).
#include <bit>
#include <optional>
#include <queue>

#include "base/error.h"
#include "text/tokenizer_models.h"

namespace lockstep {
namespace {

struct Symbol {
  std::string_view text;
  int32_t id;
  int32_t prev;  // -1: none
  int32_t next;
};

// A pair that may be merged: lower ranks first.
struct Pair {
  uint32_t rank;
  int32_t id;  // of the merged token
};

struct Candidate {
  uint32_t rank;
  int32_t left;
  int32_t id;
  uint32_t bytes;  // of both together, by which a candidate from before another merge is known

  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

// Merges until `find`, which gives the Pair of two neighbours or nothing, finds none. Takes
// O(n log n) steps. A symbol that was merged into its left neighbour has an empty text.
template <typename Find>
void MergeAll(std::vector<Symbol>* symbols, const Find& find) {
  std::vector<Candidate> start;
  const auto candidate = [&](int32_t left) -> std::optional<Candidate> {
    const Symbol& a = (*symbols)[static_cast<size_t>(left)];
    if (a.next < 0) return std::nullopt;
    const Symbol& b = (*symbols)[static_cast<size_t>(a.next)];
    const std::optional<Pair> pair = find(a, b);
    if (!pair) return std::nullopt;
    return Candidate{pair->rank, left, pair->id,
                     static_cast<uint32_t>(a.text.size() + b.text.size())};
  };
  for (size_t i = 0; i + 1 < symbols->size(); ++i) {
    if (const auto c = candidate(static_cast<int32_t>(i))) start.push_back(*c);
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>(),
                                                                               std::move(start));
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& a = (*symbols)[static_cast<size_t>(best.left)];
    if (a.text.empty() || a.next < 0) continue;
    Symbol& b = (*symbols)[static_cast<size_t>(a.next)];
    if (a.text.size() + b.text.size() != best.bytes) continue;
    a.text = {a.text.data(), best.bytes};
    a.id = best.id;
    b.text = {};
    a.next = b.next;
    if (a.next >= 0) (*symbols)[static_cast<size_t>(a.next)].prev = best.left;
    if (const auto c = candidate(best.left)) queue.push(*c);
    if (a.prev >= 0) {
      if (const auto c = candidate(a.prev)) queue.push(*c);
    }
  }
}

void Append(std::string_view text, int32_t id, std::vector<Symbol>* symbols) {
  const int32_t at = static_cast<int32_t>(symbols->size());
  if (at > 0) symbols->back().next = at;
  symbols->push_back({text, id, at - 1, -1});
}

void Emit(const std::vector<Symbol>& symbols, const Fallback& fallback, std::vector<int32_t>* ids) {
  bool last_unknown = false;
  for (const Symbol& symbol : symbols) {
    if (symbol.text.empty()) continue;
    if (symbol.id >= 0) {
      ids->push_back(symbol.id);
      last_unknown = false;
    } else {
      fallback.Append(symbol.text, &last_unknown, ids);
    }
  }
}

// Pairs of token ids to what they merge to.
class PairMap {
 public:
  explicit PairMap(size_t capacity) {
    size_t size = 2;
    while (size < 2 * (capacity + 1)) size *= 2;
    slots_.resize(size);
    shift_ = 64 - std::countr_zero(size);
  }
  // The first of equal pairs stays.
  void Add(int32_t left, int32_t right, Pair pair) {
    Slot& slot = slots_[SlotOf(KeyOf(left, right))];
    if (slot.pair.id < 0) slot = {KeyOf(left, right), pair};
  }
  const Pair* Find(int32_t left, int32_t right) const {
    const Slot& slot = slots_[SlotOf(KeyOf(left, right))];
    return slot.pair.id < 0 ? nullptr : &slot.pair;
  }

 private:
  struct Slot {
    uint64_t key = 0;
    Pair pair = {0, -1};
  };
  static uint64_t KeyOf(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t SlotOf(uint64_t key) const {
    size_t at = key * 0x9E3779B97F4A7C15u >> shift_;
    while (slots_[at].pair.id >= 0 && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  std::vector<Slot> slots_;  // a power of two, at most half full
  int shift_ = 0;
};

class BpeModel : public TokenModel {
 public:
  explicit BpeModel(const Vocab& vocab)
      : vocab_(vocab),
        index_(IndexTextTokens(vocab)),
        fallback_(vocab),
        pairs_(vocab.merges.size()) {
    for (size_t b = 0; b < 256; ++b) {
      byte_ids_[b] = vocab.byte_alphabet ? index_.Find(ByteAlphabet()[b]) : kNoToken;
    }
    TokenIndex all(vocab.tokens.size());
    for (size_t id = 0; id < vocab.tokens.size(); ++id) {
      all.Add(vocab.tokens[id], static_cast<int32_t>(id));
    }
    for (size_t i = 0; i < vocab.merges.size(); ++i) AddMerge(all, i);
  }

  void Encode(std::string_view piece, std::vector<int32_t>* ids) const override {
    if (const int32_t id = WholePiece(piece); id >= 0) {
      ids->push_back(id);
      return;
    }
    std::vector<Symbol> symbols;
    symbols.reserve(piece.size());
    for (size_t at = 0; at < piece.size();) {
      const size_t bytes = vocab_.byte_alphabet ? 1 : DecodeUtf8(piece, at).bytes;
      const std::string_view text = piece.substr(at, bytes);
      const int32_t id =
          vocab_.byte_alphabet ? byte_ids_[static_cast<uint8_t>(piece[at])] : index_.Find(text);
      Append(text, id, &symbols);
      at += bytes;
    }
    MergeAll(&symbols, [this](const Symbol& a, const Symbol& b) -> std::optional<Pair> {
      const Pair* pair = pairs_.Find(a.id, b.id);
      return pair != nullptr ? std::optional(*pair) : std::nullopt;
    });
    Emit(symbols, fallback_, ids);
  }

 private:
  void AddMerge(const TokenIndex& all, size_t i) {
    const Merge& merge = vocab_.merges[i];
    const std::string text = merge.left + merge.right;
    const int32_t left = all.Find(merge.left);
    const int32_t right = all.Find(merge.right);
    const int32_t whole = all.Find(text);
    if (left < 0 || right < 0 || whole < 0) {
      throw Refused("{}: {}merges: index {}: expected tokens, found \"{}\", which is none",
                    vocab_.name, vocab_.key_prefix, i,
                    Printable(left < 0    ? merge.left
                              : right < 0 ? merge.right
                                          : text));
    }
    if (IsTextToken(vocab_.types[static_cast<size_t>(whole)])) {
      pairs_.Add(left, right, {static_cast<uint32_t>(i), whole});
    }
  }

  int32_t WholePiece(std::string_view piece) const {
    const bool newlines = vocab_.whole_newlines && piece.find_first_not_of('\n') == piece.npos;
    if ((!vocab_.ignore_merges && !newlines) || piece.size() > index_.longest()) return kNoToken;
    if (!vocab_.byte_alphabet) return index_.Find(piece);
    std::string spelled;
    for (char byte : piece) spelled += ByteAlphabet()[static_cast<uint8_t>(byte)];
    return index_.Find(spelled);
  }

  const Vocab& vocab_;
  TokenIndex index_;
  Fallback fallback_;
  PairMap pairs_;
  std::array<int32_t, 256> byte_ids_;
};

// Higher scores are lower ranks.
uint32_t RankOfScore(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score);
  const uint32_t ascending = (bits & 1u << 31) != 0 ? ~bits : bits | 1u << 31;
  return ~ascending;
}

class SentencePieceModel : public TokenModel {
 public:
  explicit SentencePieceModel(const Vocab& vocab)
      : vocab_(vocab), index_(IndexTextTokens(vocab)), fallback_(vocab) {}

  void Encode(std::string_view piece, std::vector<int32_t>* ids) const override {
    const size_t longest = std::min(index_.longest(), kMaxMatchedBytes);
    std::vector<Symbol> symbols;
    symbols.reserve(piece.size());
    for (size_t at = 0; at < piece.size();) {
      const std::string_view text = piece.substr(at, DecodeUtf8(piece, at).bytes);
      Append(text, index_.Find(text), &symbols);
      at += text.size();
    }
    MergeAll(&symbols, [&](const Symbol& a, const Symbol& b) -> std::optional<Pair> {
      const size_t bytes = a.text.size() + b.text.size();
      if (bytes > longest) return std::nullopt;
      const int32_t id = index_.Find({a.text.data(), bytes});
      if (id < 0) return std::nullopt;
      return Pair{RankOfScore(vocab_.scores[static_cast<size_t>(id)]), id};
    });
    Emit(symbols, fallback_, ids);
  }

 private:
  const Vocab& vocab_;
  TokenIndex index_;
  Fallback fallback_;
};

}  // namespace

std::unique_ptr<const TokenModel> MakeBpeModel(const Vocab& vocab) {
  return std::make_unique<BpeModel>(vocab);
}

std::unique_ptr<const TokenModel> MakeSentencePieceModel(const Vocab& vocab) {
  return std::make_unique<SentencePieceModel>(vocab);
}

}  // namespace lockstep
