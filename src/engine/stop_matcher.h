// Stop strings over streamed text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Takes text piece by piece and gives back what is certain: text that cannot be part of a stop string. The result does not depend on how
// the text was cut into pieces. Empty stop strings are ignored.
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
  std::vector<std::string> stops_;
  bool include_stop_;
  std::string held_;
  bool stopped_ = false;
  std::string met_;
};

}  // namespace lockstep
