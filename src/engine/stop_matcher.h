// Stop strings over streamed text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Takes text piece by piece and gives back what is certain: text that cannot be part of a stop
// string. The stop string that is complete first ends the text; of those that are complete at once,
// the longest. So the result does not depend on how the text was cut into pieces. Time is linear in
// the text for each stop string (Knuth, Morris, Pratt 1977). Empty stop strings are ignored.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops, bool include_stop = false);

  // The text that is now certain. After a stop string was met, nothing more.
  std::string Add(std::string_view piece);
  // What was held back, at the end of a text that met no stop string.
  std::string Finish();
  bool stopped() const { return stopped_; }
  const std::string& met() const { return met_; }

 private:
  struct Stop {
    std::string text;
    // Length of the longest proper prefix of the first i + 1 bytes that also ends them.
    std::vector<uint32_t> border;
    size_t matched = 0;  // bytes of `text` that the text so far ends with

    explicit Stop(std::string stop);
    void Advance(char next);
  };

  std::vector<Stop> stops_;
  bool include_stop_;
  std::string held_;
  bool stopped_ = false;
  std::string met_;
};

}  // namespace lockstep
