// A vocabulary as data: what a GGUF file and a Hugging Face folder both come down to, and all that
// a Tokenizer is made of.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/unicode.h"

namespace lockstep {

inline constexpr int32_t kNoToken = -1;

// Values are those of tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // never read from plain text, shown only on request
  kUserDefined = 4,  // taken whole from any text, before the model sees it
  kUnused = 5,
  kByte = 6,  // "<0xHH>": one byte that no other token spells
};
inline constexpr int kTokenTypes = 7;

// Whether plain text may become this token: control, unknown and byte tokens are never read from
// their texts.
bool IsTextToken(TokenType type);

enum class ModelKind {
  kBpe,            // merges by rank (gpt2, and every BPE of the Hugging Face library)
  kSentencePiece,  // merges by score (llama)
  kUnigram,        // the most probable pieces (t5)
  kWordPiece,      // longest match from the left, word by word (bert)
  kRwkv,           // longest match from the left, on bytes
  kPlamo2,         // the most probable pieces, read from the end
};

// One change of the text before it is split.
struct NormalizerStep {
  enum class Kind {
    kForm,  // to `form`
    kLowercase,
    kStripAccents,  // removes nonspacing marks (after a kForm kNfd)
    kStripMarks,    // removes all marks
    kNmt,           // the controls and spaces of SentencePiece's "nmt" rule
    kReplace,       // every `pattern` by `content`
    kReplaceRegex,  // the same, `pattern` a regular expression
    kPrepend,       // `content` before a text that is not empty
    kAppend,        // `content` after a text that is not empty
    kStripLeft,     // removes white space
    kStripRight,
    kCleanControls,    // removes controls, makes white space a space (BERT, Nmt)
    kSpaceIdeographs,  // puts spaces around CJK ideographs (BERT)
    kCharsmap,         // SentencePiece's compiled table in Vocab::charsmap
    kCollapseSpaces,   // removes spaces at both ends, and all but one of each run
  };
  Kind kind = Kind::kForm;
  NormalForm form = NormalForm::kNfc;
  std::string pattern = {};
  std::string content = {};

  bool operator==(const NormalizerStep&) const = default;
};

// One way of cutting each piece into smaller ones.
struct SplitStep {
  enum class Kind {
    kRegex,
    kLiteral,
    kDigitGroups,         // digits in threes, counted from the right
    kDigitGroupsWordEnd,  // the same, only where no word character follows
    kDigitThousands,      // only cuts before whole groups: "12345" to "12", "345"
    kSpaceMark,    // spaces become U+2581, `prefix` says where one is added, `cut` before each
    kPrefixSpace,  // adds a space before a piece that begins with none
  };
  enum class Matches { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };
  enum class Prefix { kNever, kFirst, kAlways };
  Kind kind = Kind::kRegex;
  std::string pattern = {};
  Matches matches = Matches::kIsolated;
  bool invert = false;  // what lies between the matches is the match
  Prefix prefix = Prefix::kNever;
  bool cut = false;

  bool operator==(const SplitStep&) const = default;
};

// How token texts become bytes again.
struct Decoding {
  bool byte_alphabet = false;  // texts are in ByteAlphabet()
  bool byte_tokens = false;    // "<0xHH>" is a byte
  bool rwkv_escapes = false;   // texts are escaped ("\x0a", "\n")
  std::vector<std::pair<std::string, std::string>> replacements = {};
  // WordPiece: a token without `continuation` before it (or with `word_start`) begins a new word.
  bool words = false;
  std::string continuation = {};
  std::string word_start = {};
  bool clean_up = false;  // no space before punctuation and contractions
  // Spaces that are dropped at the very beginning.
  size_t strip_spaces = 0;
  bool strip_first_token = false;  // all spaces of the first token, with strip_spaces 0
};

struct Merge {
  std::string left;
  std::string right;
};

// A token that is found in the text before the model runs.
struct AddedToken {
  int32_t id = kNoToken;
  bool strip_left = false;   // takes white space before it
  bool strip_right = false;  // takes white space after it
  bool single_word = false;  // not inside a word
  bool normalized = false;   // is found in the normalised text
};

enum class Special {
  kBos,
  kEos,
  kEot,
  kEom,
  kUnknown,
  kSeparator,
  kPad,
  kMask,
  kFimPrefix,
  kFimSuffix,
  kFimMiddle,
  kFimPad,
  kFimRepo,
  kFimFile,
};
inline constexpr size_t kSpecials = 14;

struct Vocab {
  std::string name;        // the file, for messages
  std::string key_prefix;  // "tokenizer.ggml.": what a key is called in messages

  ModelKind kind = ModelKind::kBpe;
  // Where two tokens have the same text, the lowest id wins: the others are only ever decoded.
  std::vector<std::string> tokens;
  std::vector<TokenType> types;
  std::vector<float> scores;  // of kSentencePiece, kUnigram and kPlamo2
  std::vector<Merge> merges;  // of kBpe, best first
  std::vector<AddedToken> added;
  std::array<int32_t, kSpecials> special = [] {
    std::array<int32_t, kSpecials> none;
    none.fill(kNoToken);
    return none;
  }();
  std::vector<int32_t> end_of_generation;  // ascending
  // Around every text that is encoded with add_special.
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;

  std::vector<NormalizerStep> normalizer;
  std::vector<SplitStep> splits;
  Decoding decoding;
  std::string charsmap;

  // The model.
  bool byte_alphabet = false;   // kBpe on ByteAlphabet()
  bool byte_fallback = false;   // what no token spells becomes byte tokens, where all 256 are there
  bool ignore_merges = false;   // a piece that is a token is that token
  bool whole_newlines = false;  // a piece of line feeds that is a token is that token
  bool fuse_unknown = true;     // unknown characters in a row give one unknown token
  std::string word_start;       // kWordPiece
  std::string continuation;     // kWordPiece
  size_t max_word_chars = 0;    // kWordPiece; longer words are unknown; 0: no limit

  int32_t& special_id(Special which) { return special[static_cast<size_t>(which)]; }
  int32_t special_id(Special which) const { return special[static_cast<size_t>(which)]; }
};

// What a special token is called in files and texts.
struct SpecialName {
  Special which;
  std::string_view key;                 // after "tokenizer.ggml."
  std::string_view older_key;           // empty where there is none
  std::vector<std::string_view> texts;  // by which it is found where the file does not say
};
const std::vector<SpecialName>& SpecialNames();

// The byte of a token text "<0xHH>", or -1.
int ByteOfToken(std::string_view text);

// The bytes that an escaped RWKV token text stands for (\t \n \r \xHH, and a backslash before any other
// character); false where an escape is cut short or its digits are none.
bool UnescapeRwkv(std::string_view text, std::string* bytes);

// Adds the spaces rule of SentencePiece to `vocab`: space marks for spaces, and where
// `prefix_space` one before each text. Decoding is the reverse.
void UseSpaceMarks(Vocab* vocab, bool prefix_space);

struct BertText {
  bool clean = true;
  bool space_ideographs = true;
  bool strip_accents = true;
  bool lowercase = true;
};
// Adds the text changes of BERT to `vocab`; its cuts: at white space, and around punctuation.
void UseBertNormalizer(const BertText& options, Vocab* vocab);
void UseBertSplits(Vocab* vocab);

// Checks `vocab` (lengths, types, byte tokens, ids), finds special tokens that the file does not
// name by their texts, makes every token with such a text a control token, and fills
// end_of_generation. Refused "NAME: KEY: ..." in one line with the index.
void FinishVocab(Vocab* vocab);

}  // namespace lockstep
