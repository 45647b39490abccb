// Changing and cutting text: what happens between the text of a request and the pieces that a model
// encodes.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_charsmap.h"
#include "text/tokenizer_regex.h"
#include "text/vocab.h"

namespace lockstep {

// The normalizer of a vocabulary, ready to run. Takes and gives well-formed UTF-8.
class Normalizer {
 public:
  // Refused where a pattern or the charsmap is bad.
  explicit Normalizer(const Vocab& vocab);
  bool empty() const { return steps_.empty(); }
  // Throws Failed where the result would be more than 64 times as long.
  std::string Run(std::string_view text) const;

 private:
  struct Step {
    NormalizerStep rule;
    std::optional<Regex> regex;
  };
  std::string Apply(const Step& step, std::string text, size_t limit) const;

  std::vector<Step> steps_;
  Charsmap charsmap_;
};

// The cuts of a vocabulary, ready to run.
class Splitter {
 public:
  // Refused where a pattern is bad.
  explicit Splitter(const Vocab& vocab);

  // Pieces of one text; views of the text and of `changed`.
  struct Pieces {
    std::vector<std::string_view> views;
    std::deque<std::string> changed;
  };
  // `at_start`: the text begins where the whole request begins.
  Pieces Run(std::string_view text, bool at_start) const;

 private:
  struct Step {
    SplitStep rule;
    std::optional<Regex> regex;
  };
  std::vector<Step> steps_;
};

}  // namespace lockstep
