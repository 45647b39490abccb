// Operators, attributes and subscripts with Python's meaning under Jinja's immutable sandbox. All
// throw Fault where Python raises, with Python's words where a template author would know them.
#pragma once

#include "text/jinja_ast.h"
#include "text/jinja_value.h"

namespace lockstep::jinja {

// kAdd to kPow.
Value Arithmetic(Op op, const Value& a, const Value& b);
// kEq to kNotIn.
bool Compare(Op op, const Value& a, const Value& b);
Value Negate(const Value& value);
Value Plus(const Value& value);

// value.name: an attribute, else an item of that key, else undefined.
Value GetAttribute(const Value& value, std::string_view name);
// value[key]: an item, else, where the key is a string, an attribute, else undefined.
Value GetItem(const Value& value, const Value& key);
// value[start:stop:step]; none stands for an absent bound.
Value GetSlice(const Value& value, const Value& start, const Value& stop, const Value& step);

}  // namespace lockstep::jinja
