// Python's two ways to format text: "%d of %s" % values and "{} of {name}".format(...).
#pragma once

#include "text/jinja_value.h"

namespace lockstep::jinja {

// `pattern % values`: a tuple gives several values, a dict those of %(name)s. Throws Fault where
// they do not match.
Value PercentFormat(const Value& pattern, const Value& values);

// str.format: fields {}, {0}, {name}, {name.attribute[key]}, !r and !s, and format specifications.
Value BraceFormat(const std::string& pattern, const Args& args);

}  // namespace lockstep::jinja
