// SentencePiece's tokenizer.model: the few fields of its protocol buffer that a vocabulary is made of
// (sentencepiece_model.proto of google/sentencepiece).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/vocab.h"

namespace lockstep {

struct SentencePieces {
  std::vector<std::string> texts;
  std::vector<float> scores;
  std::vector<TokenType> types;
  bool unigram = true;  // else merges by score
  bool space_before = true;
  bool collapse_spaces = true;
  std::string charsmap;  // compiled normalisation rules
  int32_t unknown = 0, bos = 1, eos = 2, pad = kNoToken;
};

// Reads a model. Refused naming `who` and the byte where it is cut short or not such a file, or of a
// kind other than unigram and BPE.
SentencePieces ParseSentencePieces(std::string_view who, std::string_view bytes);

}  // namespace lockstep
