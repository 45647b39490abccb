// Bytes as a chat template: they load or are refused, and what loads renders or is refused, within
// the limits.
#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "text/jinja.h"

namespace {

const boost::json::value& Context() {
  static const boost::json::value context = lockstep::ParseJson("context", R"({
      "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": null}],
      "tools": [{"function": {"name": "f", "parameters": {"a": [1, 2.5, true]}}}],
      "s": "Grüße 🙂", "n": 7, "f": 2.5, "l": [3, 1, 2], "d": {"a": 1, "b": {"c": "x"}}})");
  return context;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::JinjaLimits limits;
  limits.steps = 100'000;
  limits.live_bytes = 16u << 20;
  limits.output_bytes = 1u << 20;
  try {
    lockstep::JinjaTemplate tmpl("fuzz", {reinterpret_cast<const char*>(data), size}, limits);
    tmpl.Render(lockstep::jinja::Value::FromJson(Context()));
  } catch (const lockstep::Error&) {
    // Refusing is a right answer.
  }
  return 0;
}
