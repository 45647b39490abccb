#include "gguf/json_events.h"

#include <boost/json/basic_parser_impl.hpp>

#include "base/error.h"

namespace lockstep {
namespace {

namespace json = boost::json;
using json::error_code;

// The handler that Boost.JSON's event parser asks for (its documentation names the members).
struct Adapter {
  static constexpr size_t max_array_size = static_cast<size_t>(-1);
  static constexpr size_t max_object_size = static_cast<size_t>(-1);
  static constexpr size_t max_string_size = static_cast<size_t>(-1);
  static constexpr size_t max_key_size = static_cast<size_t>(-1);

  explicit Adapter(JsonEvents* events) : events_(events) {}

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) { return Begin("an object"); }
  bool on_array_begin(error_code&) { return Begin("an array"); }
  bool on_object_end(size_t, error_code&) { return End(); }
  bool on_array_end(size_t, error_code&) { return End(); }

  bool on_key_part(json::string_view part, size_t, error_code&) { return Collect(part); }
  bool on_string_part(json::string_view part, size_t, error_code&) { return Collect(part); }
  bool on_key(json::string_view part, size_t, error_code&) {
    Collect(part);
    events_->OnKey(depth_, text_);
    text_.clear();
    return true;
  }
  bool on_string(json::string_view part, size_t, error_code&) {
    Collect(part);
    events_->OnString(depth_, text_);
    text_.clear();
    return true;
  }

  bool on_number_part(json::string_view, error_code&) { return true; }
  bool on_int64(int64_t value, json::string_view, error_code&) {
    if (value < 0) return Other("a negative number");
    events_->OnInteger(depth_, static_cast<uint64_t>(value));
    return true;
  }
  bool on_uint64(uint64_t value, json::string_view, error_code&) {
    events_->OnInteger(depth_, value);
    return true;
  }
  bool on_double(double, json::string_view, error_code&) { return Other("a fraction"); }
  bool on_bool(bool, error_code&) { return Other("a bool"); }
  bool on_null(error_code&) { return Other("null"); }
  bool on_comment_part(json::string_view, error_code&) { return true; }
  bool on_comment(json::string_view, error_code&) { return true; }

 private:
  bool Begin(std::string_view kind) {
    events_->OnBegin(depth_++, kind);
    return true;
  }
  bool End() {
    --depth_;
    return true;
  }
  bool Collect(json::string_view part) {
    text_.append(part.data(), part.size());
    return true;
  }
  bool Other(std::string_view kind) {
    events_->OnOther(depth_, kind);
    return true;
  }

  JsonEvents* events_;
  int depth_ = 0;
  std::string text_;  // of the key or string that is being read
};

}  // namespace

void WalkJson(std::string_view text, std::string_view where, JsonEvents& events) {
  json::basic_parser<Adapter> parser(json::parse_options(), &events);
  error_code error;
  size_t used = parser.write_some(false, text.data(), text.size(), error);
  if (error) {
    throw Refused("{}: expected JSON, found at byte {}: {}", where, used, error.message());
  }
  if (used != text.size()) {
    throw Refused("{}: expected the JSON to end at byte {}, found {} bytes more", where, used,
                  text.size() - used);
  }
}

}  // namespace lockstep
