#include "text/vocab.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/error.h"

namespace lockstep {
namespace {

// Tokens that end an answer wherever they appear, by their texts.
constexpr std::string_view kEndTexts[] = {"<|eot_id|>",
                                          "<|im_end|>",
                                          "<|end|>",
                                          "<|return|>",
                                          "<|call|>",
                                          "<|flush|>",
                                          "<|calls|>",
                                          "<end_of_turn>",
                                          "<|endoftext|>",
                                          "</s>",
                                          "<|eom_id|>",
                                          "<EOT>",
                                          "_<EOT>",
                                          "[EOT]",
                                          "[EOS]",
                                          "<|end_of_text|>",
                                          "<end_of_utterance>",
                                          "<eos>",
                                          "<turn|>",
                                          "<|tool_response>",
                                          "<｜end▁of▁sentence｜>",
                                          "[e~["};

// Special tokens that end an answer too.
constexpr Special kEndSpecials[] = {Special::kEos,    Special::kEot,     Special::kEom,
                                    Special::kFimPad, Special::kFimRepo, Special::kFimFile};

// A text that ends no answer in vocabularies that have all of the others: there it ends a message, or
// is left over from an older model.
struct NotAnEnd {
  std::string_view text;
  std::vector<std::string_view> where;
};
const std::vector<NotAnEnd>& NotEnds() {
  static const std::vector<NotAnEnd> list = {
      {"<|end|>", {"<|return|>", "<|call|>"}}, {"<|end|>", {"<|return|>", "<|calls|>"}},
      {"<|end|>", {"<|flush|>", "<|call|>"}},  {"<|end|>", {"<|flush|>", "<|calls|>"}},
      {"</s>", {"<|tool_response>"}},
  };
  return list;
}

using TextIds = std::unordered_map<std::string_view, int32_t>;

int32_t FindText(const TextIds& ids, std::string_view text) {
  const auto it = ids.find(text);
  return it == ids.end() ? kNoToken : it->second;
}

[[noreturn]] void Refuse(const Vocab& vocab, std::string_view key, const std::string& text) {
  throw Refused("{}: {}{}: {}", vocab.name, vocab.key_prefix, key, text);
}

void CheckLengths(Vocab* vocab) {
  const size_t count = vocab->tokens.size();
  if (count == 0 || count > (size_t{1} << 24)) {
    Refuse(*vocab, "tokens", fmt::format("expected 1 to {} tokens, found {}", 1 << 24, count));
  }
  if (vocab->types.empty()) vocab->types.assign(count, TokenType::kNormal);
  if (vocab->types.size() != count) {
    Refuse(*vocab, "token_type",
           fmt::format("expected {} types, one a token, found {}", count, vocab->types.size()));
  }
  const bool scored = vocab->kind == ModelKind::kSentencePiece ||
                      vocab->kind == ModelKind::kUnigram || vocab->kind == ModelKind::kPlamo2;
  if ((scored || !vocab->scores.empty()) && vocab->scores.size() != count) {
    Refuse(*vocab, "scores",
           fmt::format("expected {} scores, one a token, found {}", count, vocab->scores.size()));
  }
  for (size_t i = 0; i < vocab->scores.size(); ++i) {
    if (!std::isfinite(vocab->scores[i])) {
      Refuse(*vocab, "scores",
             fmt::format("index {}: expected a finite number, found {}", i, vocab->scores[i]));
    }
  }
}

void CheckTypes(const Vocab& vocab) {
  for (size_t i = 0; i < vocab.types.size(); ++i) {
    const int type = static_cast<int>(vocab.types[i]);
    if (type >= kTokenTypes) {
      Refuse(vocab, "token_type",
             fmt::format("index {}: expected 0 to {}, found {}", i, kTokenTypes - 1, type));
    }
    if (vocab.types[i] == TokenType::kByte && ByteOfToken(vocab.tokens[i]) < 0) {
      Refuse(vocab, "tokens",
             fmt::format("index {}: expected a byte token <0x00> to <0xFF>, found {}", i,
                         Printable(vocab.tokens[i])));
    }
  }
}

void CheckIds(const Vocab& vocab) {
  const int64_t count = static_cast<int64_t>(vocab.tokens.size());
  const auto check = [&](int64_t id, std::string_view key) {
    if (id < 0 || id >= count) {
      Refuse(vocab, key, fmt::format("expected a token id below {}, found {}", count, id));
    }
  };
  for (const SpecialName& name : SpecialNames()) {
    if (vocab.special_id(name.which) != kNoToken) check(vocab.special_id(name.which), name.key);
  }
  for (int32_t id : vocab.prefix) check(id, "prefix");
  for (int32_t id : vocab.suffix) check(id, "suffix");
  for (const AddedToken& added : vocab.added) check(added.id, "added_tokens");
}

// Whether text may become this token by merges: then its name is a coincidence ("</s>" is markup in
// many vocabularies), whatever it means elsewhere.
bool IsMadeByMerges(const Vocab& vocab, std::string_view text) {
  return std::any_of(vocab.merges.begin(), vocab.merges.end(), [&](const Merge& merge) {
    return merge.left.size() + merge.right.size() == text.size() && text.starts_with(merge.left) &&
           text.ends_with(merge.right);
  });
}

// Tokens with a known name are control tokens even where the file calls them something else: as plain
// text they would end answers.
void FindSpecials(const TextIds& ids, Vocab* vocab) {
  std::vector<bool> is_added(vocab->tokens.size());
  for (const AddedToken& added : vocab->added) is_added[static_cast<size_t>(added.id)] = true;
  const auto make_control = [&](int32_t id) {
    const size_t i = static_cast<size_t>(id);
    vocab->types[i] = TokenType::kControl;
    if (!is_added[i]) vocab->added.push_back({.id = id});
    is_added[i] = true;
  };
  const auto find = [&](std::string_view text) {
    const int32_t id = FindText(ids, text);
    if (id == kNoToken) return id;
    const bool plain = vocab->types[static_cast<size_t>(id)] == TokenType::kNormal;
    return plain && IsMadeByMerges(*vocab, text) ? kNoToken : id;
  };
  for (const SpecialName& name : SpecialNames()) {
    for (std::string_view text : name.texts) {
      if (vocab->special_id(name.which) != kNoToken) break;
      const int32_t id = find(text);
      if (id == kNoToken) continue;
      vocab->special_id(name.which) = id;
      make_control(id);
    }
  }
  std::vector<int32_t>& ends = vocab->end_of_generation;
  for (Special special : kEndSpecials) {
    if (vocab->special_id(special) != kNoToken) ends.push_back(vocab->special_id(special));
  }
  for (std::string_view text : kEndTexts) {
    const int32_t id = find(text);
    if (id == kNoToken) continue;
    ends.push_back(id);
    make_control(id);
  }
  for (const NotAnEnd& rule : NotEnds()) {
    const bool applies = std::all_of(rule.where.begin(), rule.where.end(),
                                     [&](auto text) { return FindText(ids, text) != kNoToken; });
    const int32_t id = FindText(ids, rule.text);
    if (applies && id != vocab->special_id(Special::kEos)) std::erase(ends, id);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

const std::vector<SpecialName>& SpecialNames() {
  static const std::vector<SpecialName> names = {
      {Special::kBos, "bos_token_id", "cls_token_id", {}},
      {Special::kEos, "eos_token_id", "", {}},
      {Special::kEot,
       "eot_token_id",
       "",
       {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
        "<EOT>", "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>"}},
      {Special::kEom, "eom_token_id", "", {"<|eom_id|>"}},
      {Special::kUnknown, "unknown_token_id", "", {}},
      {Special::kSeparator, "seperator_token_id", "", {}},  // the key is spelt so in files
      {Special::kPad, "padding_token_id", "", {}},
      {Special::kMask, "mask_token_id", "", {}},
      {Special::kFimPrefix,
       "fim_pre_token_id",
       "prefix_token_id",
       {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
        "<|code_prefix|>", "<|prefix|>"}},
      {Special::kFimSuffix,
       "fim_suf_token_id",
       "suffix_token_id",
       {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
        "<|code_suffix|>", "<|suffix|>"}},
      {Special::kFimMiddle,
       "fim_mid_token_id",
       "middle_token_id",
       {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
        "<|code_middle|>", "<|middle|>"}},
      {Special::kFimPad,
       "fim_pad_token_id",
       "",
       {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
      {Special::kFimRepo,
       "fim_rep_token_id",
       "",
       {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
      {Special::kFimFile, "fim_sep_token_id", "", {"<|file_sep|>"}},
  };
  return names;
}

bool IsTextToken(TokenType type) {
  return type != TokenType::kControl && type != TokenType::kUnknown && type != TokenType::kByte;
}

int ByteOfToken(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const int high = HexDigit(text[3]);
  const int low = HexDigit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

bool UnescapeRwkv(std::string_view text, std::string* bytes) {
  bytes->clear();
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\\') {
      bytes->push_back(text[at]);
      continue;
    }
    if (++at >= text.size()) return false;
    if (text[at] == 'x') {
      if (at + 2 >= text.size()) return false;
      const int high = HexDigit(text[at + 1]);
      const int low = HexDigit(text[at + 2]);
      if (high < 0 || low < 0) return false;
      bytes->push_back(static_cast<char>(high * 16 + low));
      at += 2;
      continue;
    }
    const char c = text[at];
    bytes->push_back(c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c);
  }
  return true;
}

void UseSpaceMarks(Vocab* vocab, bool prefix_space) {
  if (prefix_space) {
    vocab->normalizer.push_back({.kind = NormalizerStep::Kind::kPrepend, .content = " "});
    vocab->decoding.strip_spaces = 1;
  }
  vocab->normalizer.push_back(
      {.kind = NormalizerStep::Kind::kReplace, .pattern = " ", .content = std::string(kSpaceMark)});
  vocab->decoding.replacements.emplace_back(kSpaceMark, " ");
}

void UseBertNormalizer(const BertText& options, Vocab* vocab) {
  using Kind = NormalizerStep::Kind;
  std::vector<NormalizerStep>& steps = vocab->normalizer;
  if (options.clean) steps.push_back({.kind = Kind::kCleanControls});
  if (options.space_ideographs) steps.push_back({.kind = Kind::kSpaceIdeographs});
  if (options.strip_accents) {
    steps.push_back({.kind = Kind::kForm, .form = NormalForm::kNfd});
    steps.push_back({.kind = Kind::kStripAccents});
  }
  if (options.lowercase) steps.push_back({.kind = Kind::kLowercase});
}

void UseBertSplits(Vocab* vocab) {
  vocab->splits.push_back({.pattern = R"(\s+)", .matches = SplitStep::Matches::kRemoved});
  vocab->splits.push_back({.pattern = R"([\p{P}!-/:-@\[-`{-~])"});
}

void FinishVocab(Vocab* vocab) {
  CheckLengths(vocab);
  CheckTypes(*vocab);
  CheckIds(*vocab);
  TextIds ids;
  ids.reserve(vocab->tokens.size());
  for (size_t id = 0; id < vocab->tokens.size(); ++id) {
    ids.emplace(vocab->tokens[id], static_cast<int32_t>(id));
  }
  FindSpecials(ids, vocab);
}

}  // namespace lockstep
