// I8: 8-bit integers, exact. Never a matrix.
#include "formats/plain.h"

namespace lockstep {
namespace {

struct I8 {
  using Stored = int8_t;
  static float Decode(int8_t v) { return static_cast<float>(v); }
};

}  // namespace

constinit const Format kFormatI8 = PlainFormat<I8>("I8", 24);

}  // namespace lockstep
