#include "text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/tokenizer_models.h"
#include "text/tokenizer_steps.h"

namespace lockstep {
namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 30;

// Added tokens by their texts, and how each is to be found.
class AddedTokens {
 public:
  // `normalized`: the tokens that are found in normalised text, under their normalised texts.
  AddedTokens(const Vocab& vocab, const Normalizer& normalizer, bool normalized) {
    std::vector<ByteTrie::Entry> always;
    std::vector<ByteTrie::Entry> with_control;
    std::vector<std::string> texts;
    texts.reserve(vocab.added.size());  // entries hold views of them
    for (size_t i = 0; i < vocab.added.size(); ++i) {
      const AddedToken& added = vocab.added[i];
      if (added.normalized != normalized) continue;
      const size_t id = static_cast<size_t>(added.id);
      const std::string& text =
          texts.emplace_back(normalized ? normalizer.Run(vocab.tokens[id]) : vocab.tokens[id]);
      with_control.push_back({text, static_cast<int32_t>(i)});
      if (IsTextToken(vocab.types[id])) always.push_back({text, static_cast<int32_t>(i)});
    }
    always_ = ByteTrie(std::move(always));
    with_control_ = ByteTrie(std::move(with_control));
  }

  const ByteTrie& Trie(bool parse_special) const { return parse_special ? with_control_ : always_; }

 private:
  ByteTrie always_;
  ByteTrie with_control_;
};

bool CutsWord(std::string_view text, size_t begin, size_t end) {
  size_t before = begin;
  while (before > 0 && (static_cast<uint8_t>(text[--before]) & 0xC0) == 0x80) {
  }
  const bool word_before = begin > 0 && IsWordChar(DecodeUtf8(text, before).code);
  return word_before || (end < text.size() && IsWordChar(DecodeUtf8(text, end).code));
}

size_t StripLeft(std::string_view text, size_t from, size_t to) {
  size_t keep = from;
  for (size_t at = from; at < to;) {
    const Utf8Char c = DecodeUtf8(text, at);
    at += c.bytes;
    if (!IsWhitespace(c.code)) keep = at;
  }
  return keep;
}

size_t StripRight(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Char c = DecodeUtf8(text, at);
    if (!IsWhitespace(c.code)) break;
    at += c.bytes;
  }
  return at;
}

// Walks `text`: `on_text(begin, end)` for what lies between added tokens, `on_token(id)` for each, the
// longest at the leftmost place.
template <typename OnText, typename OnToken>
void ForEachPart(std::string_view text, const ByteTrie& trie, const std::vector<AddedToken>& added,
                 OnText on_text, OnToken on_token) {
  size_t begin = 0;
  for (size_t at = 0; !trie.empty() && at < text.size();) {
    const ByteTrie::Match match = trie.Longest(text.substr(at));
    if (match.value < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = added[static_cast<size_t>(match.value)];
    size_t end = at + match.length;
    if (token.single_word && CutsWord(text, at, end)) {
      at = end;
      continue;
    }
    const size_t text_end = token.strip_left ? StripLeft(text, begin, at) : at;
    if (token.strip_right) end = StripRight(text, end);
    if (text_end > begin) on_text(begin, text_end);
    on_token(token.id);
    begin = at = end;
  }
  if (begin < text.size()) on_text(begin, text.size());
}

// No space before what English puts none before, as the WordPiece decoder of the Hugging Face library.
std::string CleanUp(std::string text) {
  static constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) {
    for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) {
      text.replace(at, from.size(), to);
    }
  }
  return text;
}

std::string WordBytes(std::string_view text, const Decoding& decoding) {
  const bool continues = decoding.word_start.empty() ? text.starts_with(decoding.continuation)
                                                     : !text.starts_with(decoding.word_start);
  if (continues) return std::string(text.substr(decoding.continuation.size()));
  const std::string word = fmt::format(" {}", text.substr(decoding.word_start.size()));
  return decoding.clean_up ? CleanUp(word) : word;
}

// What a token contributes to decoded text.
std::string DecodedBytes(const Vocab& vocab, size_t id) {
  const Decoding& decoding = vocab.decoding;
  const std::string& text = vocab.tokens[id];
  const TokenType type = vocab.types[id];
  std::string bytes;
  if (decoding.rwkv_escapes) return UnescapeRwkv(text, &bytes) ? bytes : text;
  const bool whole = type == TokenType::kControl || type == TokenType::kUnknown;
  if (decoding.words) return whole ? fmt::format(" {}", text) : WordBytes(text, decoding);
  if (decoding.byte_tokens && type == TokenType::kByte) {
    return std::string(1, static_cast<char>(ByteOfToken(text)));
  }
  if (decoding.byte_alphabet) {
    const bool spelled =
        !whole && type != TokenType::kUserDefined && FromByteAlphabet(text, &bytes);
    return spelled ? bytes : text;
  }
  bytes = text;
  for (const auto& [from, to] : decoding.replacements) {
    if (from.empty()) continue;
    for (size_t at = 0; (at = bytes.find(from, at)) != bytes.npos; at += to.size()) {
      bytes.replace(at, from.size(), to);
    }
  }
  return bytes;
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(Vocab v)
      : vocab(std::move(v)),
        normalizer(vocab),
        splitter(vocab),
        raw_added(vocab, normalizer, false),
        normalized_added(vocab, normalizer, true),
        model(MakeModel(vocab)),
        index(vocab.tokens.size()) {
    for (size_t id = 0; id < vocab.tokens.size(); ++id) {
      index.Add(vocab.tokens[id], static_cast<int32_t>(id));
      decoded.push_back(DecodedBytes(vocab, id));
    }
  }

  void EncodeText(std::string_view text, bool at_start, std::vector<int32_t>* ids) const {
    const Splitter::Pieces pieces = splitter.Run(text, at_start);
    for (std::string_view piece : pieces.views) model->Encode(piece, ids);
  }

  // Drops what encoding put before a text, at the first token that gives any.
  std::string_view WithoutPrefix(std::string_view bytes, bool* at_start) const {
    if (!*at_start || bytes.empty()) return bytes;
    *at_start = false;
    size_t most = vocab.decoding.strip_first_token ? bytes.size() : vocab.decoding.strip_spaces;
    while (most-- > 0 && bytes.starts_with(' ')) bytes.remove_prefix(1);
    return bytes;
  }

  std::string_view PieceOf(int32_t id, const DecodeOptions& options, bool* at_start) const {
    if (id < 0 || static_cast<size_t>(id) >= decoded.size()) {
      throw Refused("{}: token id: expected 0 to {}, found {}", vocab.name, decoded.size() - 1, id);
    }
    const TokenType type = vocab.types[static_cast<size_t>(id)];
    const bool special = type == TokenType::kControl || type == TokenType::kUnknown;
    if (special && options.skip_special) return {};
    return WithoutPrefix(decoded[static_cast<size_t>(id)], at_start);
  }

  Vocab vocab;
  Normalizer normalizer;
  Splitter splitter;
  AddedTokens raw_added;
  AddedTokens normalized_added;
  std::unique_ptr<const TokenModel> model;
  TokenIndex index;
  std::vector<std::string> decoded;
};

Tokenizer Tokenizer::FromVocab(Vocab vocab) {
  FinishVocab(&vocab);
  return Tokenizer(std::make_shared<const Impl>(std::move(vocab)));
}

Tokenizer Tokenizer::FromGguf(const GgufFile& file) { return FromVocab(VocabFromGguf(file)); }

Tokenizer Tokenizer::FromTokenizerJson(const std::string& path) {
  return FromVocab(VocabFromTokenizerJson(path));
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes) {
    throw Refused("tokenizer: text: expected at most {} bytes, found {}", kMaxTextBytes,
                  text.size());
  }
  std::string repaired;
  if (!IsUtf8(text)) text = repaired = ReplaceInvalidUtf8(text);
  const Impl& impl = *impl_;
  std::vector<int32_t> ids;
  if (options.add_special) ids = impl.vocab.prefix;
  const auto on_token = [&](int32_t id) { ids.push_back(id); };
  ForEachPart(
      text, impl.raw_added.Trie(options.parse_special), impl.vocab.added,
      [&](size_t begin, size_t end) {
        const std::string normal = impl.normalizer.Run(text.substr(begin, end - begin));
        ForEachPart(
            normal, impl.normalized_added.Trie(options.parse_special), impl.vocab.added,
            [&](size_t from, size_t to) {
              const std::string_view part = std::string_view(normal).substr(from, to - from);
              impl.EncodeText(part, begin == 0 && from == 0, &ids);
            },
            on_token);
      },
      on_token);
  if (options.add_special) {
    ids.insert(ids.end(), impl.vocab.suffix.begin(), impl.vocab.suffix.end());
  }
  return ids;
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  bool at_start = options.at_start;
  std::string bytes;
  for (int32_t id : ids) bytes += impl_->PieceOf(id, options, &at_start);
  return IsUtf8(bytes) ? bytes : ReplaceInvalidUtf8(bytes);
}

int32_t Tokenizer::size() const { return static_cast<int32_t>(impl_->vocab.tokens.size()); }

std::string_view Tokenizer::TextOf(int32_t id) const {
  return impl_->vocab.tokens[static_cast<size_t>(id)];
}

std::string_view Tokenizer::BytesOf(int32_t id) const {
  return impl_->decoded[static_cast<size_t>(id)];
}

TokenType Tokenizer::TypeOf(int32_t id) const {
  return impl_->vocab.types[static_cast<size_t>(id)];
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return TypeOf(id) == TokenType::kControl || TypeOf(id) == TokenType::kUnknown;
}

bool Tokenizer::IsEndOfGeneration(int32_t id) const {
  const std::span<const int32_t> ends = end_of_generation();
  return std::binary_search(ends.begin(), ends.end(), id);
}

std::span<const int32_t> Tokenizer::end_of_generation() const {
  return impl_->vocab.end_of_generation;
}

std::optional<int32_t> Tokenizer::Find(std::string_view token_text) const {
  const int32_t id = impl_->index.Find(token_text);
  return id < 0 ? std::nullopt : std::optional(id);
}

std::optional<int32_t> Tokenizer::special(Special which) const {
  const int32_t id = impl_->vocab.special_id(which);
  return id == kNoToken ? std::nullopt : std::optional(id);
}

std::span<const int32_t> Tokenizer::prefix() const { return impl_->vocab.prefix; }
std::span<const int32_t> Tokenizer::suffix() const { return impl_->vocab.suffix; }
const std::string& Tokenizer::name() const { return impl_->vocab.name; }

std::string StreamDecoder::Add(int32_t id) {
  std::string bytes = std::exchange(held_, {});
  bytes += tokenizer_.impl_->PieceOf(id, options_, &at_start_);
  held_ = bytes.substr(bytes.size() - IncompleteUtf8Tail(bytes));
  bytes.resize(bytes.size() - held_.size());
  return IsUtf8(bytes) ? bytes : ReplaceInvalidUtf8(bytes);
}

std::string StreamDecoder::Finish() {
  at_start_ = options_.at_start;
  return ReplaceInvalidUtf8(std::exchange(held_, {}));
}

}  // namespace lockstep
