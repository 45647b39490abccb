// The rules of tokenizer.ggml.pre: how a byte-level BPE vocabulary cuts text before it merges.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/vocab.h"

namespace lockstep {

struct Pretokenizer {
  std::string_view name = {};
  std::vector<SplitStep> splits = {};
  bool ignore_merges = false;
  bool add_bos = false;  // where the file does not say
  bool add_separator = false;
  bool raw_text = false;     // tokens are UTF-8 and byte tokens, not in the byte alphabet
  bool space_marks = false;  // U+2581 for spaces
  bool whole_newlines = false;
  bool nfc = false;  // the text is normalised first
};

// The rule of that name. Refused "WHO: tokenizer.ggml.pre: ..." naming the known ones.
Pretokenizer FindPretokenizer(const std::string& who, std::string_view name);
std::vector<std::string_view> PretokenizerNames();
// The first name whose rule treats text as this byte-level BPE vocabulary does; empty where none
// does.
std::string_view MatchPretokenizer(const Vocab& vocab);

// The pattern of GPT-2, which the Hugging Face library's ByteLevel step uses.
SplitStep Gpt2Split();

// The step for a pattern of a tokenizer.json: the pattern, or, for patterns that are known to take
// more than linear time, a step that cuts at the same places.
SplitStep SplitOfPattern(std::string_view pattern);

}  // namespace lockstep
