// Jinja for chat templates: what transformers' environment prints, within bounds. The environment
// is Jinja 3.1's ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks and loop controls;
// templates cannot load others.
#pragma once

#include <ctime>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "text/jinja_value.h"

namespace lockstep {

using JinjaLimits = jinja::Limits;

// A parsed template. Const members may be called from several threads.
class JinjaTemplate {
 public:
  // `name` stands before line and column in errors. Throws Refused where the source is not UTF-8,
  // longer than kMaxSourceBytes, or no template.
  JinjaTemplate(std::string name, std::string_view source, const JinjaLimits& limits = {});
  ~JinjaTemplate();
  JinjaTemplate(JinjaTemplate&&) noexcept;
  JinjaTemplate& operator=(JinjaTemplate&&) noexcept;

  static constexpr size_t kMaxSourceBytes = 4u << 20;

  // The text for the variables of `context`, a dict. `now`, what strftime_now prints, is the local
  // time where it is null. Throws Refused with name, line and column where the template raises,
  // fails or exceeds a limit.
  std::string Render(const jinja::Value& context, const std::tm* now = nullptr) const;

  // Names that the template reads from its context or Jinja's globals.
  const std::set<std::string>& reads() const;
  const std::string& name() const { return name_; }

 private:
  struct Parsed;
  std::string name_;
  JinjaLimits limits_;
  std::unique_ptr<const Parsed> parsed_;
};

}  // namespace lockstep
