#include "engine/stop_matcher.h"

#include <algorithm>

namespace lockstep {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop)
    : stops_(std::move(stops)), include_stop_(include_stop) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopMatcher::Add(std::string_view piece) {
  if (stopped_) return "";
  held_ += piece;
  size_t first = std::string::npos;
  const std::string* which = nullptr;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    // The earliest wins; of those that begin together the one that ends first, as it was complete first.
    if (at < first || (at == first && which != nullptr && stop.size() < which->size())) {
      first = at;
      which = &stop;
    }
  }
  if (which != nullptr) {
    stopped_ = true;
    met_ = *which;
    return held_.substr(0, first + (include_stop_ ? which->size() : 0));
  }
  // The longest tail that begins a stop string may yet become one.
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, held_.size()); length > keep; --length) {
      if (held_.compare(held_.size() - length, length, stop, 0, length) == 0) {
        keep = length;
        break;
      }
    }
  }
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return certain;
}

std::string StopMatcher::Finish() { return stopped_ ? "" : std::move(held_); }

}  // namespace lockstep
