// From template source to its tree (Jinja 3.1 documentation, "Template Designer Documentation").
#pragma once

#include <string_view>

#include "text/jinja_ast.h"

namespace lockstep::jinja {

// Parses a whole template. Throws Fault, located, where it is not one, names an unknown filter or
// test where Jinja would refuse it at load (outside conditions), uses a statement that needs other
// files, or nests too deeply.
Program Parse(std::string_view source);

}  // namespace lockstep::jinja
