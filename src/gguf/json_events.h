// JSON as events: nothing is built, so duplicate keys are seen and memory stays with the caller.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// Depth is the number of objects and arrays around a thing: 1 for the keys and values of the
// outermost one.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual void OnKey(int depth, std::string_view key) = 0;
  // "an object", "an array"; `depth` is that of the container itself, 0 for the outermost one.
  virtual void OnBegin(int depth, std::string_view kind) = 0;
  virtual void OnString(int depth, std::string_view text) = 0;
  virtual void OnInteger(int depth, uint64_t value) = 0;
  // All else: "a negative number", "a fraction", "a bool", "null".
  virtual void OnOther(int depth, std::string_view kind) = 0;
};

// Parses the whole of `text`, nested 32 deep at most. `where` starts the message of what is not
// JSON: "FILE: header". Handlers may throw.
void WalkJson(std::string_view text, std::string_view where, JsonEvents& events);

}  // namespace lockstep
