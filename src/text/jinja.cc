#include "text/jinja.h"

#include <new>

#include "base/error.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_parser.h"
#include "text/unicode.h"

namespace lockstep {
namespace {

// Runs `body` and turns whatever it throws into one lockstep::Error.
template <typename Body>
auto Guarded(const std::string& name, Body&& body) {
  try {
    return body();
  } catch (const jinja::Fault& fault) {
    throw Refused("{}:{}:{}: {}", Printable(name), fault.line, fault.column,
                  Printable(fault.message, 1200));
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw Failed("{}: out of memory", Printable(name));
  } catch (const std::exception& error) {
    throw Failed("{}: {}", Printable(name), Printable(error.what()));
  }
}

std::tm LocalTime() {
  std::time_t seconds = std::time(nullptr);
  std::tm local{};
  localtime_r(&seconds, &local);
  return local;
}

}  // namespace

struct JinjaTemplate::Parsed {
  jinja::Program program;
};

JinjaTemplate::JinjaTemplate(std::string name, std::string_view source, const JinjaLimits& limits)
    : name_(std::move(name)), limits_(limits) {
  if (source.size() > kMaxSourceBytes) {
    throw Refused("{}: expected at most {} bytes, found {}", Printable(name_), kMaxSourceBytes,
                  source.size());
  }
  if (!IsUtf8(source)) throw Refused("{}: expected UTF-8, found other bytes", Printable(name_));
  parsed_ =
      Guarded(name_, [&] { return std::make_unique<const Parsed>(Parsed{jinja::Parse(source)}); });
}

JinjaTemplate::~JinjaTemplate() = default;
JinjaTemplate::JinjaTemplate(JinjaTemplate&&) noexcept = default;
JinjaTemplate& JinjaTemplate::operator=(JinjaTemplate&&) noexcept = default;

const std::set<std::string>& JinjaTemplate::reads() const { return parsed_->program.reads; }

std::string JinjaTemplate::Render(const jinja::Value& context, const std::tm* now) const {
  if (!context.IsDict())
    throw Refused("{}: expected a dict of variables, found {}", Printable(name_),
                  context.type_name());
  std::tm time = now != nullptr ? *now : LocalTime();
  return Guarded(name_, [&] {
    jinja::Budget budget(limits_);
    jinja::Interpreter interpreter(parsed_->program, context.dict(), limits_, time);
    return interpreter.Run();
  });
}

}  // namespace lockstep
