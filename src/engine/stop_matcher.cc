#include "engine/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace lockstep {

StopMatcher::Stop::Stop(std::string stop) : text(std::move(stop)) {
  border.assign(text.size(), 0);
  for (size_t i = 1; i < text.size(); ++i) {
    // The border of one byte more is found by walking the stop string over itself.
    Advance(text[i]);
    border[i] = static_cast<uint32_t>(matched);
  }
  matched = 0;
}

void StopMatcher::Stop::Advance(char next) {
  while (matched > 0 && text[matched] != next) matched = border[matched - 1];
  if (text[matched] == next) ++matched;
}

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop)
    : include_stop_(include_stop) {
  for (std::string& stop : stops) {
    if (!stop.empty()) stops_.emplace_back(std::move(stop));
  }
}

std::string StopMatcher::Add(std::string_view piece) {
  if (stopped_) return "";
  for (size_t i = 0; i < piece.size(); ++i) {
    const Stop* complete = nullptr;
    for (Stop& stop : stops_) {
      stop.Advance(piece[i]);
      if (stop.matched != stop.text.size()) continue;
      if (complete == nullptr || stop.text.size() > complete->text.size()) complete = &stop;
    }
    if (complete == nullptr) continue;
    stopped_ = true;
    met_ = complete->text;
    held_ += piece.substr(0, i + 1);
    if (!include_stop_) held_.resize(held_.size() - met_.size());
    return std::exchange(held_, "");
  }
  held_ += piece;
  size_t keep = 0;
  for (const Stop& stop : stops_) keep = std::max(keep, stop.matched);
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopMatcher::Finish() { return std::exchange(held_, ""); }

}  // namespace lockstep
