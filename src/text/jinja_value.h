// Values of the template language: Python's, as far as a template can tell. All but objects are
// immutable.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/json_text.h"

namespace lockstep::jinja {

// What a template may use in one rendering. What exceeds a limit is an error that names it.
struct Limits {
  uint64_t steps =
      20'000'000;  // expressions, statements, items compared, and one per 64 bytes of text made
  size_t live_bytes = 256u << 20;   // all values alive at one time
  size_t output_bytes = 64u << 20;  // the text that is returned
  int depth = 1000;                 // expressions and statements inside each other while running
  int64_t range = 100'000;          // items of range(), as in Jinja's sandbox
};

// An error inside a template; the place is added where it passes the nearest expression or
// statement. Only the public classes (jinja.h) turn it into lockstep::Error.
struct Fault : std::exception {
  explicit Fault(std::string text) : message(std::move(text)) {}
  const char* what() const noexcept override { return message.c_str(); }
  void Locate(int at_line, int at_column) {
    if (line != 0) return;
    line = at_line;
    column = at_column;
  }

  std::string message;
  int line = 0;    // from 1; 0 while unknown
  int column = 0;  // from 1, in bytes
};

// Counts what the rendering of this thread has used. Values made while one is current are charged
// to it and must not outlive it; without one, making values is free.
class Budget {
 public:
  explicit Budget(const Limits& limits);
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;
  ~Budget();

  static Budget* current();
  // Charges steps to the current budget, if any. Throws Fault where they are used up.
  static void Spend(uint64_t steps);
  // Refuses a text of `bytes` before it is built.
  static void CheckBytes(uint64_t bytes);

  const Limits& limits() const { return limits_; }

 private:
  friend class Charge;
  Limits limits_;
  uint64_t steps_ = 0;
  size_t live_bytes_ = 0;
  Budget* outer_;
};

// Bytes that a value holds, for as long as the value lives.
class Charge {
 public:
  Charge() = default;
  explicit Charge(size_t bytes);
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  ~Charge();

 private:
  Budget* budget_ = nullptr;
  size_t bytes_ = 0;
};

constexpr int kMaxValueDepth = 200;  // lists and dicts inside each other

class Value;
class Interpreter;
using Int = __int128;  // holds every JSON integer that Boost.JSON keeps exact, with room for sums

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// What can be called or has attributes of its own: functions, macros, loops, namespaces.
class Object : public std::enable_shared_from_this<Object> {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  virtual std::string Repr() const = 0;
  virtual bool callable() const { return false; }
  virtual Value Call(Interpreter& interpreter, const Args& args);
  virtual std::optional<Value> Attribute(std::string_view name) const;
  virtual int depth() const { return 0; }  // nesting of the values inside
};

// How a sequence came about, which decides what it can do: a generator is used up by iteration and
// has no length, a view or range has no JSON form.
enum class Sequence { kList, kTuple, kGenerator, kView, kRange };

struct String;
struct List;
struct Dict;
struct Undefined;
struct None {};

class Value {
 public:
  Value() : data_(None{}) {}
  Value(bool value) : data_(value) {}  // NOLINT: implicit by design, as are those below
  Value(int value) : data_(Int{value}) {}
  Value(int64_t value) : data_(Int{value}) {}
  Value(size_t value) : data_(Int{value}) {}
  Value(Int value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::string text);  // UTF-8
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}

  static Value Markup(std::string text);  // a string that is not to be escaped again
  static Value MakeList(std::vector<Value> items, Sequence kind = Sequence::kList);
  static Value Tuple(std::vector<Value> items) {
    return MakeList(std::move(items), Sequence::kTuple);
  }
  // Later values replace those of an equal key, at its place. Throws Fault where a key cannot be
  // one.
  static Value MakeDict(std::vector<std::pair<Value, Value>> items);
  static Value MakeUndefined(std::string message);
  // From a parsed document; throws Fault where it nests too deeply.
  static Value FromJson(const boost::json::value& value);

  bool IsUndefined() const { return Holds<std::shared_ptr<const Undefined>>(); }
  bool IsNone() const { return Holds<None>(); }
  bool IsBool() const { return Holds<bool>(); }
  bool IsInt() const { return Holds<Int>(); }  // false for booleans
  bool IsFloat() const { return Holds<double>(); }
  bool IsNumber() const { return IsBool() || IsInt() || IsFloat(); }
  bool IsString() const { return Holds<std::shared_ptr<const String>>(); }
  bool IsMarkup() const;
  bool IsList() const { return Holds<std::shared_ptr<const List>>(); }  // any Sequence
  bool IsSequence(Sequence kind) const;
  bool IsDict() const { return Holds<std::shared_ptr<const Dict>>(); }
  bool IsObject() const { return Holds<std::shared_ptr<Object>>(); }
  bool IsCallable() const { return IsObject() && object()->callable(); }

  // Valid only for the kind asked for.
  bool boolean() const { return std::get<bool>(data_); }
  Int integer() const { return IsBool() ? Int{boolean()} : std::get<Int>(data_); }
  double number() const;  // of any number
  const std::string& text() const;
  const String& string() const { return *std::get<std::shared_ptr<const String>>(data_); }
  const List& list() const { return *std::get<std::shared_ptr<const List>>(data_); }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  const std::shared_ptr<Object>& object() const { return std::get<std::shared_ptr<Object>>(data_); }
  const std::string& undefined_message() const;

  bool Truth() const;
  std::string Str() const;             // Python's str(): what a template prints
  std::string Repr() const;            // Python's repr()
  std::string_view type_name() const;  // "str", "dict", "NoneType"
  int depth() const;  // how far lists and dicts nest inside, 0 for what has no items

  // Whether both are one object in memory, or equal where Python shares them (None, booleans, small
  // integers).
  bool Same(const Value& other) const;

 private:
  template <typename T>
  bool Holds() const {
    return std::holds_alternative<T>(data_);
  }
  explicit Value(std::shared_ptr<const String> text) : data_(std::move(text)) {}

  std::variant<None, bool, Int, double, std::shared_ptr<const String>, std::shared_ptr<const List>,
               std::shared_ptr<const Dict>, std::shared_ptr<Object>,
               std::shared_ptr<const Undefined>>
      data_;
};

struct String {
  explicit String(std::string bytes, bool is_markup);
  std::string text;
  bool markup;
  bool ascii;  // bytes are code points
  Charge charge;
};

struct List {
  List(std::vector<Value> values, Sequence sequence);
  // The items an iteration sees, which uses a generator up.
  std::vector<Value> Take() const;

  std::vector<Value> items;
  Sequence kind;
  int depth;
  mutable size_t taken = 0;  // items of a generator that are used up
  Charge charge;
};

struct Dict {
  explicit Dict(std::vector<std::pair<Value, Value>> pairs);
  // The value of a key, nullptr where there is none. Throws Fault where the key cannot be one.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;

  std::vector<std::pair<Value, Value>> items;
  int depth = 0;

 private:
  struct Hash {
    size_t operator()(const Value& value) const;
  };
  struct Equal {
    bool operator()(const Value& a, const Value& b) const;
  };
  std::unordered_map<Value, size_t, Hash, Equal> index_;  // only for larger dicts
  std::optional<Charge> charge_;
};

struct Undefined {
  std::string message;
};

// Python's ==. Undefined equals undefined.
bool Equals(const Value& a, const Value& b);
// Python's <. Throws Fault where the types have no order.
bool Less(const Value& a, const Value& b);
// Python's `needle in haystack`.
bool Contains(const Value& haystack, const Value& needle);
// Python's len(); nullopt where the type has none.
std::optional<size_t> Length(const Value& value);
// The items that `for` would visit: characters of a string, keys of a dict. Throws Fault where it
// is not iterable.
std::vector<Value> Items(const Value& value);
bool IsIterable(const Value& value);
// A hash that agrees with Equals; throws Fault for what Python cannot hash.
size_t HashOf(const Value& value);

// The text of json.dumps. Throws Fault for what has no JSON form.
std::string ToJson(const Value& value, const JsonStyle& style);

// Decimal digits of an integer.
std::string IntText(Int value);
// The value; throws Fault where it did not fit. A reference, so that it is read after the operation
// in the first argument.
Int Checked(bool overflow, const Int& value);

}  // namespace lockstep::jinja
