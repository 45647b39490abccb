#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "simd/isa.h"
#include "simd/scalar.h"
#include "simd/testing/lanes.h"
#include "tensor/half.h"

namespace lockstep {
namespace {

using testing::Block;
using testing::LaneFunction;
using Definition = std::function<void(const Block&, const Block&, const Block&, Block&)>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// What a function means, in plain scalar C++.
struct Meaning {
  enum Output { kFloats, kBits } output;  // kFloats: any NaN equals any NaN
  Definition define;
  std::function<void(Block&, Block&)> prepare = [](Block&, Block&) {
  };  // moves a, b into the domain
};

Meaning FloatUnary(std::function<float(float)> f) {
  return {Meaning::kFloats, [f](auto& a, auto&, auto&, auto& out) {
            for (int i = 0; i < 16; ++i) out.f[i] = f(a.f[i]);
          }};
}
Meaning FloatBinary(std::function<float(float, float)> f) {
  return {Meaning::kFloats, [f](auto& a, auto& b, auto&, auto& out) {
            for (int i = 0; i < 16; ++i) out.f[i] = f(a.f[i], b.f[i]);
          }};
}
Meaning FloatTernary(std::function<float(float, float, float)> f) {
  return {Meaning::kFloats, [f](auto& a, auto& b, auto& c, auto& out) {
            for (int i = 0; i < 16; ++i) out.f[i] = f(a.f[i], b.f[i], c.f[i]);
          }};
}
Meaning Compare(std::function<bool(float, float, float)> f) {
  return {Meaning::kBits, [f](auto& a, auto& b, auto& c, auto& out) {
            out.i[0] = 0;
            for (int i = 0; i < 16; ++i) out.i[0] |= f(a.f[i], b.f[i], c.f[i]) << i;
          }};
}
Meaning Integers(std::function<int64_t(int64_t, int64_t, int64_t)> f) {
  return {Meaning::kBits, [f](auto& a, auto& b, auto& c, auto& out) {
            for (int i = 0; i < 16; ++i) out.i[i] = static_cast<int32_t>(f(a.i[i], b.i[i], c.i[i]));
          }};
}
Meaning CompareIntegers(std::function<bool(int32_t, int32_t)> f) {
  return {Meaning::kBits, [f](auto& a, auto& b, auto&, auto& out) {
            out.i[0] = 0;
            for (int i = 0; i < 16; ++i) out.i[0] |= f(a.i[i], b.i[i]) << i;
          }};
}
Meaning Bytes(std::function<int(int, int)> f) {
  return {Meaning::kBits, [f](auto& a, auto& b, auto&, auto& out) {
            for (int i = 0; i < 64; ++i) out.u[i] = static_cast<uint8_t>(f(a.u[i], b.u[i]));
          }};
}
Meaning With(Meaning m, std::function<void(Block&, Block&)> prepare) {
  m.prepare = std::move(prepare);
  return m;
}
void CountIn0To16(Block&, Block& b) {
  b.i[0] = static_cast<int32_t>(static_cast<uint32_t>(b.i[0]) % 17);
}

template <typename T, typename F>
T Tree(const T* values, F f) {
  std::vector<T> v(values, values + 16);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) v[i] = f(v[i], v[i + width]);
  }
  return v[0];
}

float MinOf(float x, float y) { return x < y ? x : y; }
float MaxOf(float x, float y) { return x > y ? x : y; }

std::map<std::string, Meaning> FloatMeanings() {
  return {
      {"Load", FloatUnary([](float x) { return x; })},
      {"LoadPartial", With({Meaning::kFloats,
                            [](auto& a, auto& b, auto&, auto& out) {
                              for (int i = 0; i < 16; ++i) out.f[i] = i < b.i[0] ? a.f[i] : 0;
                            }},
                           CountIn0To16)},
      {"StorePartial", With({Meaning::kFloats,
                             [](auto& a, auto& b, auto&, auto& out) {
                               for (int i = 0; i < b.i[0]; ++i) out.f[i] = a.f[i];
                             }},
                            CountIn0To16)},
      {"LoadInterleaved",
       {Meaning::kFloats,
        [](auto& a, auto&, auto&, auto& out) {
          for (int i = 0; i < 32; ++i) out.f[i] = a.f[i % 16 * 2 + i / 16];
        }}},
      {"StoreInterleaved",
       {Meaning::kFloats,
        [](auto& a, auto&, auto&, auto& out) {
          for (int i = 0; i < 32; ++i) out.f[i] = a.f[i / 2 + i % 2 * 16];
        }}},
      {"Set1",
       {Meaning::kFloats,
        [](auto& a, auto&, auto&, auto& out) {
          for (int i = 0; i < 16; ++i) out.f[i] = a.f[0];
        }}},
      {"Zero", FloatUnary([](float) { return 0.0f; })},
      {"Add", FloatBinary([](float x, float y) { return x + y; })},
      {"Sub", FloatBinary([](float x, float y) { return x - y; })},
      {"Mul", FloatBinary([](float x, float y) { return x * y; })},
      {"Div", FloatBinary([](float x, float y) { return x / y; })},
      {"Sqrt", FloatUnary([](float x) { return std::sqrt(x); })},
      {"Fma", FloatTernary([](float x, float y, float z) { return std::fma(x, y, z); })},
      {"Fnma", FloatTernary([](float x, float y, float z) { return std::fma(-x, y, z); })},
      {"Min", FloatBinary(MinOf)},
      {"Max", FloatBinary(MaxOf)},
      {"Neg", FloatUnary([](float x) { return -x; })},
      {"Abs", FloatUnary([](float x) { return std::fabs(x); })},
      {"Less", Compare([](float x, float y, float) { return x < y; })},
      {"LessEqual", Compare([](float x, float y, float) { return x <= y; })},
      {"Equal", Compare([](float x, float y, float) { return x == y; })},
      {"IsNan", Compare([](float x, float, float) { return std::isnan(x); })},
      {"MaskAnd", Compare([](float x, float y, float z) { return x < y && std::isnan(z); })},
      {"MaskOr", Compare([](float x, float y, float z) { return x < y || std::isnan(z); })},
      {"MaskNot", Compare([](float x, float y, float) { return !(x < y); })},
      {"Any",
       {Meaning::kBits,
        [](auto& a, auto& b, auto&, auto& out) {
          out.i[0] = 0;
          for (int i = 0; i < 16; ++i) out.i[0] |= a.f[i] < b.f[i];
        }}},
      {"Select", FloatTernary([](float x, float y, float z) { return x < y ? x : z; })},
      {"RoundToInt", With({Meaning::kBits,
                           [](auto& a, auto&, auto&, auto& out) {
                             for (int i = 0; i < 16; ++i)
                               out.i[i] = static_cast<int32_t>(std::nearbyint(double{a.f[i]}));
                           }},
                          [](Block& a, Block&) {
                            for (float& x : a.f) {
                              if (!(std::fabs(x) <= 2147483520.0f))
                                x = std::copysign(2147483520.0f, x);
                            }
                          })},
      {"FromBits", FloatUnary([](float x) { return x; })},
      {"ReduceAdd",
       {Meaning::kFloats,
        [](auto& a, auto&, auto&, auto& out) { out.f[0] = Tree(a.f, std::plus<float>()); }}},
      {"ReduceMax",
       {Meaning::kFloats, [](auto& a, auto&, auto&, auto& out) { out.f[0] = Tree(a.f, MaxOf); }}},
      {"LoadF16",
       {Meaning::kFloats,
        [](auto& a, auto&, auto&, auto& out) {
          for (int i = 0; i < 16; ++i) out.f[i] = F16ToF32(a.h[i]);
        }}},
      {"LoadBf16",
       {Meaning::kFloats,
        [](auto& a, auto&, auto&, auto& out) {
          for (int i = 0; i < 16; ++i) out.f[i] = Bf16ToF32(a.h[i]);
        }}},
      {"StoreF16",
       {Meaning::kBits,
        [](auto& a, auto&, auto&, auto& out) {
          for (int i = 0; i < 16; ++i) out.h[i] = F32ToF16(a.f[i]);
        }}},
      {"StoreBf16",
       {Meaning::kBits,
        [](auto& a, auto&, auto&, auto& out) {
          for (int i = 0; i < 16; ++i) out.h[i] = F32ToBf16(a.f[i]);
        }}},
      {"Exp", FloatUnary(scalar::Exp)},
      {"Sigmoid", FloatUnary(scalar::Sigmoid)},
      {"Tanh", FloatUnary(scalar::Tanh)},
      {"Silu", FloatUnary(scalar::Silu)},
      {"GeluQuick", FloatUnary(scalar::GeluQuick)},
      {"GeluTanh", FloatUnary(scalar::GeluTanh)},
      {"GeluErf", FloatUnary(scalar::GeluErf)},
      {"Softplus", FloatUnary(scalar::Softplus)},
      {"Relu", FloatUnary(scalar::Relu)},
      {"ReluSquared", FloatUnary(scalar::ReluSquared)},
  };
}

std::map<std::string, Meaning> IntegerMeanings() {
  return {
      {"LoadI32Partial", With({Meaning::kBits,
                               [](auto& a, auto& b, auto&, auto& out) {
                                 for (int i = 0; i < 16; ++i) out.i[i] = i < b.i[0] ? a.i[i] : 0;
                               }},
                              CountIn0To16)},
      {"StoreI32Partial", With({Meaning::kBits,
                                [](auto& a, auto& b, auto&, auto& out) {
                                  for (int i = 0; i < b.i[0]; ++i) out.i[i] = a.i[i];
                                }},
                               CountIn0To16)},
      {"SetI32",
       {Meaning::kBits,
        [](auto& a, auto&, auto&, auto& out) {
          for (int i = 0; i < 16; ++i) out.i[i] = a.i[0];
        }}},
      {"Iota",
       {Meaning::kBits,
        [](auto&, auto&, auto&, auto& out) {
          for (int i = 0; i < 16; ++i) out.i[i] = i;
        }}},
      {"FirstLanes", With({Meaning::kBits,
                           [](auto&, auto& b, auto&, auto& out) { out.i[0] = (1 << b.i[0]) - 1; }},
                          CountIn0To16)},
      {"ToF32",
       {Meaning::kFloats,
        [](auto& a, auto&, auto&, auto& out) {
          for (int i = 0; i < 16; ++i) out.f[i] = static_cast<float>(a.i[i]);
        }}},
      {"BitsOf", Integers([](int64_t x, int64_t, int64_t) { return x; })},
      {"AddI32", Integers([](int64_t x, int64_t y, int64_t) { return x + y; })},
      {"SubI32", Integers([](int64_t x, int64_t y, int64_t) { return x - y; })},
      {"MulI32", Integers([](int64_t x, int64_t y, int64_t) { return x * y; })},
      {"AndI32", Integers([](int64_t x, int64_t y, int64_t) { return x & y; })},
      {"OrI32", Integers([](int64_t x, int64_t y, int64_t) { return x | y; })},
      {"XorI32", Integers([](int64_t x, int64_t y, int64_t) { return x ^ y; })},
      {"MaxI32", Integers([](int64_t x, int64_t y, int64_t) { return std::max(x, y); })},
      {"MinI32", Integers([](int64_t x, int64_t y, int64_t) { return std::min(x, y); })},
      {"SelectI32", Integers([](int64_t x, int64_t y, int64_t z) { return x > y ? x : z; })},
      {"GreaterI32", CompareIntegers([](int32_t x, int32_t y) { return x > y; })},
      {"EqualI32", CompareIntegers([](int32_t x, int32_t y) { return x == y; })},
      {"ReduceAddI32",
       {Meaning::kBits,
        [](auto& a, auto&, auto&, auto& out) {
          int64_t sum = 0;
          for (int i = 0; i < 16; ++i) sum += a.i[i];
          out.i[0] = static_cast<int32_t>(sum);
        }}},
      {"ReduceMaxI32",
       {Meaning::kBits,
        [](auto& a, auto&, auto&, auto& out) { out.i[0] = *std::max_element(a.i, a.i + 16); }}},
      {"ShiftLeft1", Integers([](int64_t x, int64_t, int64_t) { return x << 1; })},
      {"ShiftLeft23", Integers([](int64_t x, int64_t, int64_t) { return x << 23; })},
      {"ShiftRight1", Integers([](int64_t x, int64_t, int64_t) { return x >> 1; })},
      {"ShiftRight31", Integers([](int64_t x, int64_t, int64_t) { return x >> 31; })},
      {"ShiftRightLogical1",
       Integers([](int64_t x, int64_t, int64_t) { return (x & 0xFFFFFFFF) >> 1; })},
      {"ShiftRightLogical31",
       Integers([](int64_t x, int64_t, int64_t) { return (x & 0xFFFFFFFF) >> 31; })},
      {"LoadU16",
       {Meaning::kBits,
        [](auto& a, auto&, auto&, auto& out) {
          for (int i = 0; i < 16; ++i) out.i[i] = a.h[i];
        }}},
      {"StoreU16",
       {Meaning::kBits, [](auto& a, auto&, auto&, auto& out) { std::memcpy(out.h, a.h, 32); }}},
      {"LoadI8AsI32",
       {Meaning::kBits,
        [](auto& a, auto&, auto&, auto& out) {
          for (int i = 0; i < 16; ++i) out.i[i] = a.s[i];
        }}},
      {"StoreAsI8",
       {Meaning::kBits, [](auto& a, auto&, auto&, auto& out) { std::memcpy(out.s, a.s, 16); }}},
  };
}

std::map<std::string, Meaning> ByteMeanings() {
  return {
      {"LoadBytes", Bytes([](int x, int) { return x; })},
      {"SetBytes",
       {Meaning::kBits, [](auto& a, auto&, auto&, auto& out) { std::memset(out.u, a.u[0], 64); }}},
      {"AndBytes", Bytes([](int x, int y) { return x & y; })},
      {"OrBytes", Bytes([](int x, int y) { return x | y; })},
      {"XorBytes", Bytes([](int x, int y) { return x ^ y; })},
      {"AddBytes", Bytes([](int x, int y) { return x + y; })},
      {"SubBytes", Bytes([](int x, int y) { return x - y; })},
      {"ShiftLeftBytes1", Bytes([](int x, int) { return x << 1; })},
      {"ShiftLeftBytes6", Bytes([](int x, int) { return x << 6; })},
      {"ShiftRightBytes1", Bytes([](int x, int) { return x >> 1; })},
      {"ShiftRightBytes7", Bytes([](int x, int) { return x >> 7; })},
      {"ShiftRight4Bytes", Bytes([](int x, int) { return x >> 4; })},
      {"Lookup16",
       {Meaning::kBits,
        [](auto& a, auto& b, auto&, auto& out) {
          for (int i = 0; i < 64; ++i) out.u[i] = a.u[b.u[i] & 15];
        }}},
      {"Dot4",
       {Meaning::kBits,
        [](auto& a, auto& b, auto& c, auto& out) {
          for (int i = 0; i < 16; ++i) {
            int64_t sum = c.i[i];
            for (int j = 0; j < 4; ++j) sum += (b.u[4 * i + j] & 127) * a.s[j];
            out.i[i] = static_cast<int32_t>(sum);
          }
        }}},
      {"Dot4Biased", With({Meaning::kBits,
                           [](auto& a, auto& b, auto&, auto& out) {
                             for (int i = 0; i < 16; ++i) {
                               out.i[i] = 0;
                               for (int j = 0; j < 4; ++j)
                                 out.i[i] += (b.u[4 * i + j] - 128) * a.s[j];
                             }
                           }},
                          [](Block& a, Block&) {
                            for (int8_t& x : a.s) x = std::max<int8_t>(x, -127);
                          })},
  };
}

std::map<std::string, Meaning> Meanings() {
  std::map<std::string, Meaning> all = FloatMeanings();
  all.merge(IntegerMeanings());
  all.merge(ByteMeanings());
  return all;
}

// Values at which something changes: zeros, denormals, ties, ends of ranges, not-a-numbers.
const std::vector<uint32_t>& HostileBits() {
  static const std::vector<uint32_t> bits = [] {
    std::vector<uint32_t> out = {0,          1,          0x007FFFFF, 0x00800000,
                                 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000,
                                 0x7FFFFFFF, 0x80808080, 0x7F7F7F7F};
    for (float x : {0.5f,       1.0f,       1.5f,       2.5f,          3.5f,          88.7f,
                    88.73f,     89.0f,      103.9f,     104.0f,        14.6f,         65504.0f,
                    65519.9f,   65520.0f,   0x1p-14f,   0x1.ffcp-15f,  0x1p-24f,      0x1p-25f,
                    4194303.5f, 4194304.5f, 8388607.5f, 2147483520.0f, 2147483648.0f, 1e30f,
                    1e-30f,     0x1.01p0f,  0x1.03p0f,  0x1.fffffep0f}) {
      out.push_back(std::bit_cast<uint32_t>(x));
    }
    size_t count = out.size();
    for (size_t i = 0; i < count; ++i) out.push_back(out[i] ^ 0x80000000);
    return out;
  }();
  return bits;
}

class Inputs {
 public:
  // Lanes in turn: hostile values, any bits, numbers of moderate size.
  Block Next() {
    Block block;
    for (int32_t& lane : block.i) {
      switch (generator_() % 3) {
        case 0:
          lane = static_cast<int32_t>(HostileBits()[generator_() % HostileBits().size()]);
          break;
        case 1:
          lane = static_cast<int32_t>(generator_());
          break;
        default:
          lane = std::bit_cast<int32_t>(std::uniform_real_distribution<float>(-20, 20)(generator_));
      }
    }
    return block;
  }

 private:
  std::mt19937 generator_{1};
};

bool SameOutput(Meaning::Output output, const Block& x, const Block& y) {
  for (int i = 0; i < 32; ++i) {
    bool both_nan = output == Meaning::kFloats && std::isnan(x.f[i]) && std::isnan(y.f[i]);
    if (x.i[i] != y.i[i] && !both_nan) return false;
  }
  return true;
}

std::string Lanes(const Block& block) {
  std::string text;
  for (int32_t lane : block.i) text += fmt::format(" {:08x}", static_cast<uint32_t>(lane));
  return text;
}

TEST(Lanes, EqualTheirMeaningOnEveryInstructionSet) {
  std::map<std::string, Meaning> meanings = Meanings();
  for (Isa isa : AvailableIsas()) {
    testing::LaneFunctions functions = testing::LaneFunctionsFor(isa);
    EXPECT_EQ(functions.isa, isa);
    EXPECT_EQ(functions.all.size(), meanings.size());
    for (const LaneFunction& function : functions.all) {
      ASSERT_TRUE(meanings.contains(function.name)) << function.name;
      const Meaning& meaning = meanings[function.name];
      Inputs inputs;
      for (int round = 0; round < 3000; ++round) {
        Block a = inputs.Next(), b = inputs.Next(), c = inputs.Next();
        meaning.prepare(a, b);
        Block expected, found;
        std::memset(&expected, 0xA5, sizeof(expected));
        std::memset(&found, 0xA5, sizeof(found));
        meaning.define(a, b, c, expected);
        function.run(a, b, c, found);
        ASSERT_TRUE(SameOutput(meaning.output, expected, found))
            << IsaName(isa) << ' ' << function.name << "\na" << Lanes(a) << "\nb" << Lanes(b)
            << "\nc" << Lanes(c) << "\nexpected" << Lanes(expected) << "\nfound" << Lanes(found);
      }
    }
  }
}

TEST(Lanes, ConvertEveryHalfAndBfloat) {
  for (Isa isa : AvailableIsas()) {
    std::map<std::string, const LaneFunction*> by_name;
    for (const LaneFunction& f : testing::LaneFunctionsFor(isa).all) by_name[f.name] = &f;
    for (uint32_t first = 0; first < 0x10000; first += 16) {
      Block codes{}, values{}, back{};
      for (int i = 0; i < 16; ++i) codes.h[i] = static_cast<uint16_t>(first + i);
      for (auto [load, store] :
           {std::pair("LoadF16", "StoreF16"), std::pair("LoadBf16", "StoreBf16")}) {
        by_name[load]->run(codes, codes, codes, values);
        by_name[store]->run(values, codes, codes, back);
        for (int i = 0; i < 16; ++i) {
          if (std::isnan(values.f[i])) continue;
          ASSERT_EQ(back.h[i], codes.h[i]) << IsaName(isa) << load;
        }
      }
    }
  }
}

// The extreme products, where a 16-bit pair sum would saturate.
TEST(Lanes, DotProductsAreExactAtTheirExtremes) {
  for (Isa isa : AvailableIsas()) {
    for (const LaneFunction& f : testing::LaneFunctionsFor(isa).all) {
      bool biased = f.name == std::string("Dot4Biased");
      if (!biased && f.name != std::string("Dot4")) continue;
      for (int w : {0, 127, 128, 255}) {
        for (int x : {-128, -127, 127}) {
          if ((biased && x == -128) || (!biased && w > 127)) continue;
          Block a, b, c{}, out{};
          std::memset(a.s, x, sizeof(a.s));
          std::memset(b.u, w, sizeof(b.u));
          f.run(a, b, c, out);
          for (int i = 0; i < 16; ++i) {
            ASSERT_EQ(out.i[i], 4 * x * (biased ? w - 128 : w)) << IsaName(isa) << ' ' << f.name;
          }
        }
      }
    }
  }
}

// A function of simd/math.h beside the exact one, and how far it may be off.
struct Accuracy {
  const char* name;
  float (*ours)(float);
  long double (*exact)(long double);
  long double ulps;      // of the exact result
  long double of_x;      // plus this share of |x|
  long double absolute;  // plus this
  float low, high;       // where it is sampled densely
};

long double ExactSigmoid(long double x) { return 1 / (1 + std::exp(-x)); }
long double ExactPhi(long double x) { return std::erfc(-x * std::sqrt(0.5L)) / 2; }
long double ExactGeluTanh(long double x) {
  return x * ExactSigmoid(2 * std::sqrt(2 / M_PIl) * (x + 0.044715L * x * x * x));
}

const Accuracy kAccuracies[] = {
    {"Exp", scalar::Exp, [](long double x) { return std::exp(x); }, 1.5, 0, 0, -104, 88.7f},
    {"Sigmoid", scalar::Sigmoid, ExactSigmoid, 3, 0, 0, -104, 30},
    {"Tanh", scalar::Tanh, [](long double x) { return std::tanh(x); }, 3, 0, 0, -11, 11},
    {"Silu", scalar::Silu, [](long double x) { return x * ExactSigmoid(x); }, 4, 0, 0x1p-142L, -120,
     30},
    {"GeluQuick", scalar::GeluQuick, [](long double x) { return x * ExactSigmoid(1.702L * x); }, 0,
     0x1p-22L, 0, -80, 30},
    {"GeluTanh", scalar::GeluTanh, ExactGeluTanh, 0, 0x1p-22L, 0, -20, 20},
    {"GeluErf", scalar::GeluErf, [](long double x) { return x * ExactPhi(x); }, 6, 0, 0x1p-142L,
     -16, 16},
    {"Softplus", scalar::Softplus, [](long double x) { return std::log1p(std::exp(x)); }, 4, 0, 0,
     -104, 30},
};

long double UlpOf(long double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::ldexp(1.0L, std::max(exponent - 24, -149));
}

long double WorstShareOfBound(const Accuracy& row, float x) {
  long double exact = row.exact(x);
  long double bound = row.ulps * UlpOf(exact) + row.of_x * std::fabs(x) + row.absolute;
  return std::fabs(row.ours(x) - exact) / std::max(bound, 0x1p-149L);
}

TEST(Math, StaysWithinItsErrorBounds) {
  std::mt19937 generator(7);
  for (const Accuracy& row : kAccuracies) {
    long double worst = 0;
    float at = 0;
    auto look = [&](float x) {
      long double share = WorstShareOfBound(row, x);
      if (!(share <= worst)) {
        worst = share;
        at = x;
      }
    };
    for (int i = 0; i <= 300000; ++i) look(row.low + (row.high - row.low) * (i / 300000.0f));
    for (int i = 0; i < 200000; ++i) {
      float x = std::bit_cast<float>(static_cast<uint32_t>(generator()));
      if (x >= row.low && x <= row.high) look(x);
    }
    RecordProperty(row.name, std::to_string(static_cast<double>(worst)));
    EXPECT_LE(worst, 1) << row.name << " at " << at;
  }
}

// FNV-1a of the results at fixed points. The value is the same on every machine and compiler, so a change of it is a
// change of every model's bits.
TEST(Math, KeepsItsBits) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const Accuracy& row : kAccuracies) {
    for (int i = -60000; i <= 60000; ++i) {
      hash ^= std::bit_cast<uint32_t>(row.ours(static_cast<float>(i) * 0x1p-9f));
      hash *= 0x100000001B3u;
    }
  }
  EXPECT_EQ(hash, 0x2580FC875AEA798Bu);
}

TEST(Math, HasTheRightLimits) {
  struct Limits {
    const char* name;
    float (*f)(float);
    float at_minus_inf, at_zero, at_inf;
  };
  const Limits rows[] = {
      {"Exp", scalar::Exp, 0, 1, kInf},
      {"Sigmoid", scalar::Sigmoid, 0, 0.5f, 1},
      {"Tanh", scalar::Tanh, -1, 0, 1},
      {"Silu", scalar::Silu, -0.0f, 0, kInf},
      {"GeluTanh", scalar::GeluTanh, -0.0f, 0, kInf},
      {"GeluErf", scalar::GeluErf, -0.0f, 0, kInf},
      {"GeluQuick", scalar::GeluQuick, -0.0f, 0, kInf},
      {"Softplus", scalar::Softplus, 0, 0x1.62e43p-1f, kInf},
      {"Relu", scalar::Relu, 0, 0, kInf},
      {"ReluSquared", scalar::ReluSquared, 0, 0, kInf},
  };
  auto bits = [](float x) { return std::bit_cast<uint32_t>(x); };
  for (const Limits& row : rows) {
    EXPECT_EQ(bits(row.f(-kInf)), bits(row.at_minus_inf)) << row.name;
    EXPECT_EQ(bits(row.f(-3e38f)), bits(row.at_minus_inf)) << row.name;
    EXPECT_EQ(bits(row.f(0)), bits(row.at_zero)) << row.name;
    EXPECT_EQ(bits(row.f(kInf)), bits(row.at_inf)) << row.name;
    EXPECT_FALSE(std::isnan(row.f(3e38f))) << row.name;
    EXPECT_TRUE(std::isnan(row.f(kNan))) << row.name;
    EXPECT_TRUE(std::isnan(row.f(-kNan))) << row.name;
  }
  EXPECT_EQ(bits(scalar::Tanh(-0.0f)), bits(-0.0f));
  EXPECT_EQ(scalar::Exp(88.8f), kInf);
  EXPECT_EQ(scalar::Exp(-103.9f), 0x1p-149f);
  EXPECT_EQ(scalar::Exp(-104.5f), 0);
}

TEST(Isa, NamesWhatItCanRun) {
  ASSERT_FALSE(AvailableIsas().empty());
  EXPECT_EQ(AvailableIsas().front(), Isa::kPortable);
  for (Isa isa : AvailableIsas()) {
    setenv("LOCKSTEP_ISA", std::string(IsaName(isa)).c_str(), 1);
    EXPECT_EQ(BestIsa(), isa);
  }
  unsetenv("LOCKSTEP_ISA");
  EXPECT_EQ(BestIsa(), AvailableIsas().back());
}

TEST(Isa, RefusesWhatItCannotRun) {
  std::string foreign = AvailableIsas().back() == Isa::kNeon ? "avx2" : "neon";
  for (const std::string& value :
       {foreign, std::string(""), std::string("AVX2"), std::string("avx2 "), std::string("\n"),
        std::string(100000, 'x')}) {
    setenv("LOCKSTEP_ISA", value.c_str(), 1);
    try {
      BestIsa();
      ADD_FAILURE() << Printable(value);
    } catch (const Error& error) {
      std::string text = error.what();
      EXPECT_EQ(error.kind(), ErrorKind::kRefused);
      EXPECT_NE(text.find("expected one of portable"), std::string::npos) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos);
      EXPECT_LT(text.size(), 300u);
    }
  }
  unsetenv("LOCKSTEP_ISA");
}

}  // namespace
}  // namespace lockstep
