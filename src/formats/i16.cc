// I16: 16-bit integers, exact. Never a matrix.
#include "formats/plain.h"

namespace lockstep {
namespace {

struct I16 {
  using Stored = int16_t;
  static float Decode(int16_t v) { return static_cast<float>(v); }
};

}  // namespace

constinit const Format kFormatI16 = PlainFormat<I16>("I16", 25);

}  // namespace lockstep
