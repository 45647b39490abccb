// Byte-pair encoding: neighbours are merged, best pair first, leftmost first among equals. The pairs
// of a BPE vocabulary are listed and ranked (Sennrich et al. 2016); SentencePiece allows any pair
// whose text is a token and ranks by its score (Kudo and Richardson 2018).
#include <algorithm>
#include <bit>
#include <functional>
#include <optional>

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

// Which characters ever stand side by side inside a token. Between others no merge can happen, so
// that a text falls into short segments (words, mostly) that merge on their own. Pairs are hashed:
// a pair that shares its bit with another only makes a segment longer.
class Neighbours {
 public:
  void Add(std::string_view text, bool bytes) {
    char32_t last = 0;
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = At(text, at, bytes);
      if (at > 0) bits_[BitOf(last, c.code)] = true;
      last = c.code;
      at += c.bytes;
    }
  }
  bool MayMerge(char32_t a, char32_t b) const { return bits_[BitOf(a, b)]; }

  // The character at `at`, or the byte.
  static Utf8Char At(std::string_view text, size_t at, bool bytes) {
    if (!bytes) return DecodeUtf8(text, at);
    return {.code = static_cast<uint8_t>(text[at]), .bytes = 1, .valid = true};
  }

 private:
  static constexpr int kBits = 20;
  static size_t BitOf(char32_t a, char32_t b) {
    return (uint64_t{a} << 21 | b) * 0x9E3779B97F4A7C15u >> (64 - kBits);
  }
  std::vector<bool> bits_ = std::vector<bool>(size_t{1} << kBits);
};

// Merges neighbours until none is left that may be. Keeps its memory between segments.
class Merger {
 public:
  void Append(std::string_view text, int32_t id) {
    const int32_t at = static_cast<int32_t>(symbols_.size());
    if (at > 0) symbols_.back().next = at;
    symbols_.push_back({text, id, at - 1, -1});
  }

  // `find` gives the Pair of two neighbours or nothing. Takes O(n log n) steps. Then gives all that is
  // left to `emit`, in order, and is empty again.
  template <typename Find, typename Emit>
  void Run(const Find& find, const Emit& emit) {
    for (size_t i = 0; i + 1 < symbols_.size(); ++i) Offer(static_cast<int32_t>(i), find);
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const Candidate best = heap_.back();
      heap_.pop_back();
      Symbol& a = At(best.left);
      if (a.text.empty() || a.next < 0) continue;
      Symbol& b = At(a.next);
      if (a.text.size() + b.text.size() != best.bytes) continue;
      a = {{a.text.data(), best.bytes}, best.id, a.prev, b.next};
      b.text = {};
      if (a.next >= 0) At(a.next).prev = best.left;
      for (int32_t left : {best.left, a.prev}) {
        if (left >= 0 && Offer(left, find)) {
          std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
        }
      }
    }
    for (const Symbol& symbol : symbols_) {
      if (!symbol.text.empty()) emit(symbol);
    }
    symbols_.clear();
  }

 private:
  Symbol& At(int32_t i) { return symbols_[static_cast<size_t>(i)]; }

  template <typename Find>
  bool Offer(int32_t left, const Find& find) {
    const Symbol& a = At(left);
    if (a.next < 0) return false;
    const Symbol& b = At(a.next);
    const std::optional<Pair> pair = find(a, b);
    if (!pair) return false;
    heap_.push_back(
        {pair->rank, left, pair->id, static_cast<uint32_t>(a.text.size() + b.text.size())});
    return true;
  }

  std::vector<Symbol> symbols_;  // one that was merged into its left neighbour has an empty text
  std::vector<Candidate> heap_;
};

// Encodes `piece` segment by segment; `id_of` gives the token of one character, or -1.
template <typename IdOf, typename Find>
void EncodeSegments(std::string_view piece, bool bytes, const Neighbours& neighbours,
                    const IdOf& id_of, const Find& find, const Fallback& fallback,
                    std::vector<int32_t>* ids) {
  bool last_unknown = false;
  const auto emit = [&](const Symbol& symbol) {
    if (symbol.id >= 0) {
      ids->push_back(symbol.id);
      last_unknown = false;
    } else {
      fallback.Append(symbol.text, &last_unknown, ids);
    }
  };
  Merger merger;
  char32_t last = 0;
  for (size_t at = 0; at < piece.size();) {
    const Utf8Char c = Neighbours::At(piece, at, bytes);
    if (at > 0 && !neighbours.MayMerge(last, c.code)) merger.Run(find, emit);
    const std::string_view text = piece.substr(at, c.bytes);
    merger.Append(text, id_of(text));
    last = c.code;
    at += c.bytes;
  }
  merger.Run(find, emit);
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
    const bool bytes = vocab_.byte_alphabet;
    EncodeSegments(
        piece, bytes, neighbours_,
        [&](std::string_view text) {
          return bytes ? byte_ids_[static_cast<uint8_t>(text[0])] : index_.Find(text);
        },
        [this](const Symbol& a, const Symbol& b) -> std::optional<Pair> {
          const Pair* pair = pairs_.Find(a.id, b.id);
          return pair != nullptr ? std::optional(*pair) : std::nullopt;
        },
        fallback_, ids);
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
      std::string spelled = text;
      if (vocab_.byte_alphabet && !FromByteAlphabet(text, &spelled)) return;
      neighbours_.Add(spelled, vocab_.byte_alphabet);
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
  Neighbours neighbours_;
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
      : vocab_(vocab), index_(IndexTextTokens(vocab)), fallback_(vocab) {
    for (size_t id = 0; id < vocab.tokens.size(); ++id) {
      if (IsTextToken(vocab.types[id])) neighbours_.Add(vocab.tokens[id], false);
    }
  }

  void Encode(std::string_view piece, std::vector<int32_t>* ids) const override {
    const size_t longest = std::min(index_.longest(), kMaxMatchedBytes);
    EncodeSegments(
        piece, false, neighbours_, [this](std::string_view text) { return index_.Find(text); },
        [&](const Symbol& a, const Symbol& b) -> std::optional<Pair> {
          const size_t bytes = a.text.size() + b.text.size();
          if (bytes > longest) return std::nullopt;
          const int32_t id = index_.Find({a.text.data(), bytes});
          if (id < 0) return std::nullopt;
          return Pair{RankOfScore(vocab_.scores[static_cast<size_t>(id)]), id};
        },
        fallback_, ids);
  }

 private:
  const Vocab& vocab_;
  TokenIndex index_;
  Fallback fallback_;
  Neighbours neighbours_;
};

}  // namespace

std::unique_ptr<const TokenModel> MakeBpeModel(const Vocab& vocab) {
  return std::make_unique<BpeModel>(vocab);
}

std::unique_ptr<const TokenModel> MakeSentencePieceModel(const Vocab& vocab) {
  return std::make_unique<SentencePieceModel>(vocab);
}

}  // namespace lockstep
