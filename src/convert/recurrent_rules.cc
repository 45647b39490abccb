#include "convert/recurrent_rules.h"

#include <cmath>

#include "base/error.h"

namespace lockstep {
namespace {

Values Half(const Values& values, uint64_t part) {
  if (values.dims().size() < 2) {
    throw Refused("{}: expected at least 2 axes, found {}", Printable(values.name()),
                  values.dims().size());
  }
  return Part(values, values.dims().size() - 2, part, 2);
}

}  // namespace

Values Filters(const Values& values, const Place&) {
  if (values.dims().size() != 3 || values.dims()[1] != 1) {
    throw Refused("{}: expected 3 axes, the second of size 1", Printable(values.name()));
  }
  return Reshape(values, {values.dims()[0], values.dims()[2]});
}

Values NegativeExp(const Values& values, const Place&) {
  return Map(values, [](float x) { return static_cast<float>(-std::exp(double{x})); });
}

Values Column(const Values& values, const Place&) { return Reshape(values, {values.size(), 1}); }

Values GateHalf(const Values& values, const Place&) { return Half(values, 0); }
Values UpHalf(const Values& values, const Place&) { return Half(values, 1); }

}  // namespace lockstep
