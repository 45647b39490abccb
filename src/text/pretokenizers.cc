#include "text/pretokenizers.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace lockstep {
namespace {

// Patterns are those of the models' own tokenizers. Where a name stands for several models with
// equal cuts, the rule stands once.
#define LOCKSTEP_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LOCKSTEP_PUNCTUATION R"( ?[^\s\p{L}\p{N}]+[\r\n]*)"
#define LOCKSTEP_SPACES R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define LOCKSTEP_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define LOCKSTEP_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define LOCKSTEP_LEAD R"([^\r\n\p{L}\p{N}]?)"

constexpr char kGpt2[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr char kLlama3[] = LOCKSTEP_CONTRACTIONS
    "|" LOCKSTEP_LEAD R"(\p{L}+|\p{N}{1,3}|)" LOCKSTEP_PUNCTUATION "|" LOCKSTEP_SPACES;
constexpr char kQwen2[] = LOCKSTEP_CONTRACTIONS
    "|" LOCKSTEP_LEAD R"(\p{L}+|\p{N}|)" LOCKSTEP_PUNCTUATION "|" LOCKSTEP_SPACES;
constexpr char kQwen35[] = LOCKSTEP_CONTRACTIONS
    "|" LOCKSTEP_LEAD R"([\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" LOCKSTEP_SPACES;
constexpr char kCasedWords[] = LOCKSTEP_LEAD LOCKSTEP_UPPER
    "*" LOCKSTEP_LOWER "+" LOCKSTEP_CONTRACTIONS "?|" LOCKSTEP_LEAD LOCKSTEP_UPPER
    "+" LOCKSTEP_LOWER "*" LOCKSTEP_CONTRACTIONS "?";
constexpr char kCasedWordsBare[] = LOCKSTEP_LEAD LOCKSTEP_UPPER
    "*" LOCKSTEP_LOWER "+|" LOCKSTEP_LEAD LOCKSTEP_UPPER "+" LOCKSTEP_LOWER "*";
constexpr char kPunctuationSlash[] = R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" LOCKSTEP_SPACES;
constexpr char kDeepSeekWords[] =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|)" LOCKSTEP_SPACES;
constexpr char kSparkWords[] =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)";
constexpr char kCjk[] = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
// The reference scans the whole run of spaces for a line feed at every piece of at most 512. A piece
// after another space than a line feed cannot find one, so it need not look.
constexpr char kJais2[] = LOCKSTEP_CONTRACTIONS
    "|" LOCKSTEP_LEAD R"(\p{L}+|\p{N}{1,3}|)" LOCKSTEP_PUNCTUATION
    R"(|(?<![^\S\r\n])\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|)"
    R"(\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";
constexpr char kKimi[] =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)" LOCKSTEP_CONTRACTIONS
    R"(?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)" LOCKSTEP_CONTRACTIONS
    R"(?|\p{N}{1,3}|)" LOCKSTEP_PUNCTUATION "|" LOCKSTEP_SPACES;
// Possessive: the reference nests three repetitions, which its engine keeps on a stack.
constexpr char kExaoneMoe[] = LOCKSTEP_CONTRACTIONS
    "|" LOCKSTEP_LEAD
    R"((?:\p{L}\p{M}*+(?: \p{L}\p{M}*+)*+)++|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|)"
    R"(\s+(?!\S)|\s+)";
constexpr char kBailing[] = R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                            R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr char kSeedCoder[] = LOCKSTEP_CONTRACTIONS
    "|" LOCKSTEP_LEAD R"(\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|)" LOCKSTEP_SPACES;
constexpr char kUfakzeka[] =
    LOCKSTEP_LEAD R"(\p{L}+|\p{N}|)" LOCKSTEP_PUNCTUATION "|" LOCKSTEP_SPACES;
constexpr char kMiniCpm5[] = LOCKSTEP_CONTRACTIONS
    "|" LOCKSTEP_LEAD R"(\p{L}+|\p{N}+|)" LOCKSTEP_PUNCTUATION "|" LOCKSTEP_SPACES;
constexpr char kAfmoeScripts[] =
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
    "\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af"
    "\u1100-\u11ff]+";
constexpr char kSentences[] = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr char kDeepSeekLlmLetters[] =
    R"(\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293)"
    R"(\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c)"
    R"(\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0)"
    R"(-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-)"
    R"(\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b)"
    R"(\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-)"
    R"(\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113)"
    R"(\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f)"
    R"(\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3)"
    R"(\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00)"
    R"(-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\x{10400}-\x{1044f}\x{104b0}-\x{104d3})"
    R"(\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df})"
    R"(\x{1e900}-\x{1e943}]+)";
constexpr char kYoutuScripts[] =
    R"([가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+)";

std::string Cased(std::string_view numbers) {
  return std::string(kCasedWords) + "|" + std::string(numbers) + kPunctuationSlash;
}

SplitStep Cut(std::string_view pattern) {
  return {.kind = SplitStep::Kind::kRegex, .pattern = std::string(pattern)};
}

std::vector<SplitStep> Cuts(std::initializer_list<std::string_view> patterns) {
  std::vector<SplitStep> steps;
  for (std::string_view pattern : patterns) steps.push_back(Cut(pattern));
  return steps;
}

struct Rule {
  std::vector<std::string_view> names;
  std::vector<SplitStep> splits;
  Pretokenizer flags = {};
};

// Names: llama.cpp's list of tokenizer.ggml.pre.
const std::vector<Rule>& Rules() {
  static const std::vector<Rule> rules = {
      {{"default", ""}, Cuts({R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"})},
      {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
        "jina-v5-nano"},
       Cuts({kLlama3}),
       {.ignore_merges = true, .add_bos = true}},
      {{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, Cuts({kLlama3})},
      {{"jais-2"}, Cuts({kJais2})},
      {{"minicpm5"}, Cuts({R"(\p{N}{1,3})", kMiniCpm5}), {.ignore_merges = true}},
      {{"deepseek-llm"},
       Cuts({R"([\r\n])", kDeepSeekLlmLetters, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)",
             "[一-龥ࠀ-一가-퟿]+", R"(\p{N}+)"})},
      {{"deepseek-coder"},
       Cuts({R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[一-龥ࠀ-一가-퟿]+", R"(\p{N})"})},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
       Cuts({R"(\p{N}{1,3})", kCjk, kDeepSeekWords})},
      {{"spark2_5"}, Cuts({R"(\p{N}{1,3})", kCjk, kSparkWords, R"(\p{N})"})},
      {{"youtu"}, Cuts({kYoutuScripts, Cased(R"(\p{N})")}), {.ignore_merges = true}},
      {{"falcon"}, Cuts({R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"})},
      {{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b",
        "mellum2"},
       Cuts({R"(\p{N})", kGpt2})},
      {{"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0",
        "mellum", "modern-bert", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4"},
       Cuts({kGpt2})},
      {{"jina-v1-en", "jina-v2-code", "roberta-bpe"}, Cuts({kGpt2}), {.add_separator = true}},
      {{"gemma4", "granite-embed-multi-311m"},
       Cuts({R"([^\n]+|[\n]+)"}),
       {.add_bos = true, .raw_text = true, .space_marks = true, .whole_newlines = true}},
      {{"sarvam-moe"}, Cuts({R"([^\n]+|[\n]+)"}), {.raw_text = true, .space_marks = true}},
      {{"whitespace"},
       {{.kind = SplitStep::Kind::kRegex,
         .pattern = R"(\s+)",
         .matches = SplitStep::Matches::kRemoved}},
       {.raw_text = true}},
      // The models' own tokenizers normalise first.
      {{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez"}, Cuts({kQwen2}), {.nfc = true}},
      {{"stablelm2", "hunyuan", "solar-open", "grok-2"}, Cuts({kQwen2})},
      {{"qwen35"}, Cuts({kQwen35}), {.nfc = true}},
      {{"laguna"}, Cuts({R"([^\n]+|[\n]+)", kQwen2})},
      {{"ufakzeka"}, Cuts({kUfakzeka})},
      {{"poro-chat", "bloom", "gpt3-finnish"}, Cuts({kSentences})},
      {{"viking"}, Cuts({kSentences, R"(\p{N})"})},
      {{"tekken"},
       Cuts({std::string(kCasedWordsBare) + R"(|\p{N})" + kPunctuationSlash}),
       {.ignore_merges = true, .add_bos = true}},
      {{"chameleon"},
       Cuts({"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", R"(([\t\n]|    |  ))",
             R"(\p{N})", R"([\p{P}!-/:-@\[-`{-~])", kGpt2}),
       {.add_bos = true}},
      {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, Cuts({Cased(R"(\p{N}{1,3})")})},
      {{"granite-embed-multi-97m"}, Cuts({Cased(R"(\p{N}{1,3})")}), {.ignore_merges = true}},
      {{"tiny_aya", "cohere2moe"},
       {{.kind = SplitStep::Kind::kDigitGroupsWordEnd}, Cut(Cased(R"(\p{N}{1,3})"))}},
      {{"kimi-k2"}, Cuts({kKimi})},
      {{"superbpe"}, {Cut(R"(\p{N}+)"), {.kind = SplitStep::Kind::kDigitThousands}}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"}, Cuts({kBailing})},
      {{"seed-coder"}, Cuts({kSeedCoder})},
      {{"afmoe"},
       {{.kind = SplitStep::Kind::kDigitGroups}, Cut(kAfmoeScripts), Cut(kDeepSeekWords)}},
      {{"exaone-moe"}, Cuts({kExaoneMoe})},
  };
  return rules;
}

}  // namespace

std::vector<std::string_view> PretokenizerNames() {
  std::vector<std::string_view> names;
  for (const Rule& rule : Rules()) {
    for (std::string_view name : rule.names) {
      if (!name.empty()) names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

Pretokenizer FindPretokenizer(const std::string& who, std::string_view name) {
  for (const Rule& rule : Rules()) {
    if (std::find(rule.names.begin(), rule.names.end(), name) == rule.names.end()) continue;
    Pretokenizer found = rule.flags;
    found.name = name;
    found.splits = rule.splits;
    return found;
  }
  throw Refused("{}: tokenizer.ggml.pre: expected one of {}, found {}", who,
                fmt::join(PretokenizerNames(), " "), Printable(name));
}

namespace {

// Files write a line feed in a pattern as itself or as an escape.
std::string WithEscapes(std::string_view pattern) {
  std::string text;
  for (char c : pattern) {
    if (c == '\r' || c == '\n' || c == '\t') {
      text += c == '\r' ? "\\r" : c == '\n' ? "\\n" : "\\t";
    } else {
      text += c;
    }
  }
  return text;
}

bool SameSplits(const std::vector<SplitStep>& a, const std::vector<SplitStep>& b) {
  return std::ranges::equal(a, b, [](SplitStep x, SplitStep y) {
    x.pattern = WithEscapes(x.pattern);
    y.pattern = WithEscapes(y.pattern);
    return x == y;
  });
}

}  // namespace

std::string_view MatchPretokenizer(const Vocab& vocab) {
  const bool nfc = !vocab.normalizer.empty();
  if (vocab.kind != ModelKind::kBpe || !vocab.byte_alphabet || vocab.byte_fallback ||
      vocab.normalizer.size() > 1 || (nfc && !(vocab.normalizer[0] == NormalizerStep{}))) {
    return "";
  }
  for (const Rule& rule : Rules()) {
    const Pretokenizer& flags = rule.flags;
    if (flags.raw_text || flags.space_marks || flags.whole_newlines || flags.nfc != nfc) continue;
    if (flags.ignore_merges == vocab.ignore_merges && SameSplits(rule.splits, vocab.splits)) {
      return rule.names[0];
    }
  }
  return "";
}

SplitStep Gpt2Split() { return Cut(kGpt2); }

SplitStep SplitOfPattern(std::string_view pattern) {
  if (pattern == R"((?=(\d{3})+(?!\d)))") return {.kind = SplitStep::Kind::kDigitThousands};
  if (pattern == R"(\d{1,3}(?=(?:\d{3})*\b))") {
    return {.kind = SplitStep::Kind::kDigitGroupsWordEnd};
  }
  return Cut(pattern);
}

}  // namespace lockstep
