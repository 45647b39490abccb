// A generated corpus of malformed files: one row a kind of fault, several files a row.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "gguf/test_files.h"

namespace lockstep::test {
namespace {

using Type = GgufValueType;

constexpr uint64_t kHuge[] = {uint64_t{1} << 32, uint64_t{1} << 61, uint64_t{1} << 62,
                              uint64_t{1} << 63, ~uint64_t{7},      ~uint64_t{0}};

struct Case {
  std::string bytes;
  std::string item;  // the key, tensor or place that the message must name
};

struct Kind {
  std::string_view name;
  std::string_view says;  // part of every message of this kind
  std::function<std::vector<Case>()> cases;
};

// A sound file with one pair and one tensor, to be broken in one place.
RawGguf Sound() {
  RawGguf file;
  file.pairs = {Pair("good.key", Type::kUint32, Num<uint32_t>(7))};
  file.infos = {Info("good.weight", {8}, 0, 0)};
  file.data = std::string(32, 'x');
  return file;
}

std::string WithPair(const std::string& pair) {
  RawGguf file = Sound();
  file.pairs.push_back(pair);
  return file.Bytes();
}

// The broken tensor stands second, 32 bytes into the data, of which there are 64.
std::string WithTensor(const std::string& info) {
  RawGguf file = Sound();
  file.infos.push_back(info);
  file.data.resize(64);
  return file.Bytes();
}

// No tensors and nothing after the pair.
std::string EndsWithPair(const std::string& pair) {
  RawGguf file;
  file.pairs = {pair};
  return file.Bytes();
}

template <typename Values, typename Make>
std::vector<Case> ForEach(const Values& values, std::string item, Make make) {
  std::vector<Case> out;
  for (const auto& value : values) out.push_back({make(value), item});
  return out;
}

std::string Nested(int depth) {
  std::string value = Array(Type::kUint8, 1, "x");
  for (int i = 1; i < depth; ++i) value = Array(Type::kArray, 1, value);
  return value;
}

std::vector<uint64_t> Powers(int from, int to) {
  std::vector<uint64_t> out;
  for (int i = from; i <= to; ++i) out.push_back(uint64_t{1} << i);
  return out;
}

constexpr std::pair<Type, size_t> kScalars[] = {
    {Type::kUint8, 1},  {Type::kInt8, 1},  {Type::kUint16, 2},  {Type::kInt16, 2},
    {Type::kUint32, 4}, {Type::kInt32, 4}, {Type::kFloat32, 4}, {Type::kBool, 1},
    {Type::kUint64, 8}, {Type::kInt64, 8}, {Type::kFloat64, 8}, {Type::kString, 8},
    {Type::kArray, 12},
};

std::vector<Kind> HeaderKinds() {
  return {
      {"empty file", "magic",
       [] {
         return std::vector<Case>{{"", "header"}};
       }},
      {"wrong magic", "magic",
       [] {
         return ForEach(std::vector<std::string>{"GGML", "FUGG", "gguf", "GGUE", "PK\3\4",
                                                 std::string(4, '\0'), "\xFF\xFE\n\r"},
                        "header", [](const std::string& magic) {
                          RawGguf file = Sound();
                          file.magic = magic;
                          return file.Bytes();
                        });
       }},
      {"unknown version", "version",
       [] {
         return ForEach(std::vector<uint32_t>{0, 1, 4, 5, 255, 256, 65536, 0x7FFFFFFF}, "header",
                        [](uint32_t version) {
                          RawGguf file = Sound();
                          file.version = version;
                          return file.Bytes();
                        });
       }},
      {"big-endian", "byte order",
       [] {
         return ForEach(std::vector<uint32_t>{0x01000000, 0x02000000, 0x03000000}, "header",
                        [](uint32_t version) {
                          RawGguf file = Sound();
                          file.version = version;
                          return file.Bytes();
                        });
       }},
      {"header cut", "found",
       [] {
         std::vector<Case> out;
         for (size_t n = 1; n < 24; ++n) out.push_back({Sound().Bytes().substr(0, n), "header"});
         return out;
       }},
      {"tensor count past the file", "tensors",
       [] {
         return ForEach(kHuge, "header", [](uint64_t count) {
           RawGguf file = Sound();
           file.extra_tensors = count - 1;
           return file.Bytes();
         });
       }},
      {"pair count past the file", "metadata pairs",
       [] {
         return ForEach(kHuge, "header", [](uint64_t count) {
           RawGguf file = Sound();
           file.extra_pairs = count - 1;
           return file.Bytes();
         });
       }},
      {"one pair too many", "found",
       [] {
         RawGguf file;
         file.pairs = {Pair("a", Type::kString, Str(std::string(100, 'x')))};
         file.extra_pairs = 1;
         return std::vector<Case>{{file.Bytes(), "metadata pair 1"}};
       }},
      {"tensors announced but not there", "tensors",
       [] {
         return ForEach(std::vector<uint64_t>{1, 2, 3}, "directory", [](uint64_t count) {
           RawGguf file;
           file.pairs = {Pair("a", Type::kString, Str(std::string(100, 'x')))};
           file.extra_tensors = count;
           return file.Bytes();
         });
       }},
  };
}

std::vector<Kind> KeyKinds() {
  return {
      {"empty key", "1 to 65535 bytes",
       [] {
         return std::vector<Case>{{WithPair(Pair("", 0, "x")), "metadata pair 1"}};
       }},
      {"key past the file", "bytes of key",
       [] {
         return ForEach(kHuge, "metadata pair 1",
                        [](uint64_t size) { return WithPair(Num(size) + "abc"); });
       }},
      {"key too long", "1 to 65535 bytes",
       [] {
         return ForEach(std::vector<size_t>{65536, 65537, 100000}, "metadata pair 1",
                        [](size_t size) { return WithPair(Pair(std::string(size, 'k'), 0, "x")); });
       }},
      {"unknown value type", "value type from 0 to 12",
       [] {
         return ForEach(std::vector<uint32_t>{13, 14, 15, 100, 255, 256, 0x7FFFFFFF, 0xFFFFFFFF},
                        "bad.key",
                        [](uint32_t type) { return WithPair(Pair("bad.key", type, "12345678")); });
       }},
      {"duplicate key", "found two",
       [] {
         return ForEach(kScalars, "good.key", [](std::pair<Type, size_t> scalar) {
           return WithPair(Pair("good.key", scalar.first, std::string(scalar.second, '\0')));
         });
       }},
      {"duplicate key far away", "found two",
       [] {
         RawGguf file = Sound();
         for (int i = 0; i < 100; ++i) file.pairs.push_back(Pair(fmt::format("k{}", i), 0, "x"));
         file.pairs.push_back(Pair("good.key", 0, "x"));
         return std::vector<Case>{{file.Bytes(), "good.key"}};
       }},
  };
}

std::vector<Kind> ValueKinds() {
  return {
      {"scalar cut", "found",
       [] {
         std::vector<Case> out;
         for (auto [type, size] : kScalars) {
           // From two bytes up: the shortest pairs are already refused by the count of pairs.
           for (size_t n = 1; n < size; n += 3) {
             out.push_back({EndsWithPair(Pair("bad.key", type, std::string(n, '\0'))), "bad.key"});
           }
         }
         return out;
       }},
      {"string past the file", "bytes of string",
       [] {
         return ForEach(kHuge, "bad.key", [](uint64_t size) {
           return WithPair(Pair("bad.key", Type::kString, Num(size) + "abc"));
         });
       }},
      {"string one byte too long", "bytes of string",
       [] {
         return std::vector<Case>{
             {EndsWithPair(Pair("bad.key", Type::kString, Num<uint64_t>(4) + "abc")), "bad.key"}};
       }},
      {"bool that is neither", "0 or 1",
       [] {
         return ForEach(std::vector<uint8_t>{2, 3, 127, 128, 255}, "bad.key", [](uint8_t value) {
           return WithPair(Pair("bad.key", Type::kBool, Num(value)));
         });
       }},
      {"bool in an array that is neither", "0 or 1",
       [] {
         return ForEach(std::vector<uint8_t>{2, 255}, "bad.key", [](uint8_t value) {
           return WithPair(Pair("bad.key", Type::kArray,
                                Array(Type::kBool, 3, Num<uint16_t>(0x0100) + Num(value))));
         });
       }},
      {"array of an unknown type", "value type from 0 to 12",
       [] {
         return ForEach(std::vector<uint32_t>{13, 99, 0xFFFFFFFF}, "bad.key", [](uint32_t type) {
           return WithPair(
               Pair("bad.key", Type::kArray, Array(static_cast<Type>(type), 1, "12345678")));
         });
       }},
      {"array past the file", "elements",
       [] {
         std::vector<Case> out;
         for (auto [type, size] : kScalars) {
           for (uint64_t count : kHuge) {
             out.push_back({WithPair(Pair("bad.key", Type::kArray, Array(type, count, "12345678"))),
                            "bad.key"});
           }
         }
         return out;
       }},
      {"array one element too long", "elements",
       [] {
         std::vector<Case> out;
         for (auto [type, size] : kScalars) {
           out.push_back({EndsWithPair(Pair("bad.key", Type::kArray,
                                            Array(type, 3, std::string(2 * size, '\0')))),
                          "bad.key"});
         }
         return out;
       }},
      {"string in an array past the file", "bytes of string",
       [] {
         return ForEach(kHuge, "bad.key", [](uint64_t size) {
           return WithPair(
               Pair("bad.key", Type::kArray, Array(Type::kString, 2, Str("ok") + Num(size))));
         });
       }},
      {"arrays nested too deep", "8 deep",
       [] {
         return ForEach(std::vector<int>{9, 10, 100, 5000}, "bad.key", [](int depth) {
           return WithPair(Pair("bad.key", Type::kArray, Nested(depth)));
         });
       }},
      {"array in an array cut", "elements",
       [] {
         return ForEach(std::vector<uint64_t>{5, 1000, ~uint64_t{0}}, "bad.key",
                        [](uint64_t count) {
                          return EndsWithPair(
                              Pair("bad.key", Type::kArray,
                                   Array(Type::kArray, 1, Array(Type::kUint8, count, "1234"))));
                        });
       }},
  };
}

std::vector<Kind> AlignmentKinds() {
  const std::string key(kGgufAlignmentKey);
  return {
      {"alignment that is no power of two", "power of two",
       [=] {
         return ForEach(std::vector<uint32_t>{0, 24, 31, 33, 40, 48, 96, 0xFFFFFFFF}, key,
                        [&](uint32_t a) { return WithPair(Pair(key, Type::kUint32, Num(a))); });
       }},
      {"alignment below 8", "at least 8",
       [=] {
         return ForEach(std::vector<uint8_t>{1, 2, 4}, key,
                        [&](uint8_t a) { return WithPair(Pair(key, Type::kUint8, Num(a))); });
       }},
      {"negative alignment", "value from 0",
       [=] {
         return std::vector<Case>{{WithPair(Pair(key, Type::kInt8, Num<int8_t>(-8))), key},
                                  {WithPair(Pair(key, Type::kInt32, Num<int32_t>(-32))), key},
                                  {WithPair(Pair(key, Type::kInt64, Num(INT64_MIN))), key}};
       }},
      {"alignment too large", "to 4294967295",
       [=] {
         return ForEach(Powers(32, 63), key,
                        [&](uint64_t a) { return WithPair(Pair(key, Type::kUint64, Num(a))); });
       }},
      {"alignment of a wrong type", "expected an unsigned integer",
       [=] {
         std::vector<Case> out;
         for (auto [type, value] : {std::pair(Type::kString, Str("32")),
                                    {Type::kFloat32, Num(32.f)},
                                    {Type::kFloat64, Num(32.0)},
                                    {Type::kBool, Num<uint8_t>(1)},
                                    {Type::kArray, Array(Type::kUint8, 1, " ")}}) {
           out.push_back({WithPair(Pair(key, type, value)), key});
         }
         return out;
       }},
      {"alignment that moves the data past the file", "the file is cut",
       [=] {
         return ForEach(Powers(12, 31), "good.weight",
                        [&](uint64_t a) { return WithPair(Pair(key, Type::kUint64, Num(a))); });
       }},
  };
}

std::vector<Kind> DirectoryKinds() {
  return {
      {"empty tensor name", "1 to 65535 bytes",
       [] {
         return std::vector<Case>{{WithTensor(Info("", {8}, 0, 32)), "tensor 1"}};
       }},
      {"tensor name past the file", "bytes of tensor name",
       [] {
         return ForEach(kHuge, "tensor 1",
                        [](uint64_t size) { return WithTensor(Num(size) + std::string(40, 'n')); });
       }},
      {"tensor name too long", "1 to 65535 bytes",
       [] {
         return ForEach(std::vector<size_t>{65536, 70000}, "tensor 1", [](size_t size) {
           return WithTensor(Info(std::string(size, 'n'), {8}, 0, 32));
         });
       }},
      {"too many dimensions", "at most 4 dimensions",
       [] {
         return ForEach(std::vector<uint32_t>{5, 6, 8, 100, 0x80000000, 0xFFFFFFFF}, "bad.weight",
                        [](uint32_t n) {
                          return WithTensor(Str("bad.weight") + Num(n) + std::string(64, '\1'));
                        });
       }},
      {"dimension of 0", "above 0",
       [] {
         std::vector<Case> out;
         for (size_t n = 1; n <= 4; ++n) {
           for (size_t zero = 0; zero < n; ++zero) {
             std::vector<uint64_t> dims(n, 1);
             dims[zero] = 0;
             out.push_back({WithTensor(Info("bad.weight", dims, 0, 32)), "bad.weight"});
           }
         }
         return out;
       }},
      {"product of dimensions overflows", "size overflow",
       [] {
         const uint64_t k32 = uint64_t{1} << 32;
         return ForEach(std::vector<std::vector<uint64_t>>{{k32, k32},
                                                           {k32, 1, k32},
                                                           {~uint64_t{0}, 2},
                                                           {~uint64_t{0}, ~uint64_t{0}},
                                                           {1 << 16, 1 << 16, 1 << 16, 1 << 16},
                                                           {k32, k32, k32, k32},
                                                           {uint64_t{1} << 63, 2, 8}},
                        "bad.weight", [](const std::vector<uint64_t>& dims) {
                          return WithTensor(Info("bad.weight", dims, 0, 32));
                        });
       }},
      {"bytes overflow", "size overflow",
       [] {
         std::vector<Case> out;
         for (uint64_t n : {uint64_t{1} << 62, uint64_t{1} << 63, ~uint64_t{255}}) {
           for (const TensorType& type : AllTensorTypes()) {
             out.push_back({WithTensor(Info("bad.weight", {n}, type.id, 32)), "bad.weight"});
           }
         }
         return out;
       }},
      {"unknown tensor type", "type id",
       [] {
         return ForEach(std::vector<uint32_t>{4, 5, 31, 32, 33, 36, 37, 38, 42, 43, 99, 0xFFFFFFFF},
                        "bad.weight",
                        [](uint32_t id) { return WithTensor(Info("bad.weight", {8}, id, 32)); });
       }},
      {"row that is no multiple of the block", "multiple of",
       [] {
         std::vector<Case> out;
         for (const TensorType& type : AllTensorTypes()) {
           if (type.block == 1) continue;
           for (uint64_t n : {1u, type.block - 1, type.block + 1, type.block / 2}) {
             out.push_back({WithTensor(Info("bad.weight", {n, 2}, type.id, 32)), "bad.weight"});
           }
         }
         return out;
       }},
      {"directory entry cut", "found",
       [] {
         std::vector<Case> out;
         RawGguf file;
         file.infos = {Info("first.weight", {8}, 0, 0), Info("bad.weight", {8, 1, 1, 1}, 0, 32)};
         file.alignment = 1;
         std::string whole = file.Bytes();
         // The last 50 bytes: from the dimension count on.
         for (size_t n = 1; n <= 48; ++n) {
           out.push_back({whole.substr(0, whole.size() - n), "bad.weight"});
         }
         return out;
       }},
      {"duplicate tensor", "found another",
       [] {
         return std::vector<Case>{{WithTensor(Info("good.weight", {8}, 0, 32)), "good.weight"},
                                  {WithTensor(Info("good.weight", {4}, 1, 32)), "good.weight"}};
       }},
  };
}

std::vector<Kind> PlaceKinds() {
  return {
      {"offset that is not aligned", "multiple of 32",
       [] {
         return ForEach(
             std::vector<uint64_t>{1, 2, 4, 8, 16, 31, 33, 48, ~uint64_t{0}}, "bad.weight",
             [](uint64_t offset) { return WithTensor(Info("bad.weight", {8}, 0, offset)); });
       }},
      {"offset past the file", "the file is cut",
       [] {
         return ForEach(Powers(6, 62), "bad.weight", [](uint64_t offset) {
           return WithTensor(Info("bad.weight", {8}, 0, offset));
         });
       }},
      {"offset that wraps", "size overflow",
       [] {
         return ForEach(
             std::vector<uint64_t>{~uint64_t{31}, ~uint64_t{63}, ~uint64_t{127}}, "bad.weight",
             [](uint64_t offset) { return WithTensor(Info("bad.weight", {8}, 0, offset)); });
       }},
      {"data cut", "the file is cut",
       [] {
         std::vector<Case> out;
         std::string whole = WithTensor(Info("bad.weight", {8}, 0, 32));
         for (size_t n = 1; n <= 32; ++n) {
           out.push_back({whole.substr(0, whole.size() - n), "bad.weight"});
         }
         return out;
       }},
      {"two tensors in one place", "inside tensor good.weight",
       [] {
         return ForEach(std::vector<uint64_t>{1, 4, 8}, "bad.weight",
                        [](uint64_t n) { return WithTensor(Info("bad.weight", {n}, 0, 0)); });
       }},
      {"tensor that starts inside another", "inside tensor long.weight",
       [] {
         return ForEach(std::vector<uint64_t>{32, 64, 96}, "bad.weight", [](uint64_t offset) {
           RawGguf file;
           file.infos = {Info("bad.weight", {8}, 0, offset), Info("long.weight", {32}, 0, 0)};
           file.data = std::string(128, 'x');
           return file.Bytes();
         });
       }},
  };
}

std::vector<Kind> SplitKinds() {
  return {
      {"one of several files under another name", "shards",
       [] {
         return ForEach(std::vector<uint16_t>{2, 3, 999}, "split.count", [](uint16_t count) {
           return WithPair(Pair("split.count", Type::kUint16, Num(count)));
         });
       }},
      {"not the first of several files", "first shard",
       [] {
         return ForEach(std::vector<uint16_t>{1, 2, 99}, "split.no", [](uint16_t number) {
           return WithPair(Pair("split.no", Type::kUint16, Num(number)));
         });
       }},
      {"split count out of range", "expected a value from 0 to 99999",
       [] {
         return std::vector<Case>{
             {WithPair(Pair("split.count", Type::kInt32, Num<int32_t>(-1))), "split.count"},
             {WithPair(Pair("split.count", Type::kUint32, Num<uint32_t>(100000))), "split.count"},
             {WithPair(Pair("split.count", Type::kUint64, Num(~uint64_t{0}))), "split.count"}};
       }},
      {"split number of a wrong type", "expected an unsigned integer",
       [] {
         return std::vector<Case>{
             {WithPair(Pair("split.no", Type::kString, Str("0"))), "split.no"},
             {WithPair(Pair("split.no", Type::kFloat32, Num(0.f))), "split.no"},
             {WithPair(Pair("split.no", Type::kBool, Num<uint8_t>(0))), "split.no"}};
       }},
  };
}

std::vector<Kind> AllKinds() {
  std::vector<Kind> all;
  for (auto* kinds : {HeaderKinds, KeyKinds, ValueKinds, AlignmentKinds, DirectoryKinds, PlaceKinds,
                      SplitKinds}) {
    for (Kind& kind : kinds()) all.push_back(std::move(kind));
  }
  return all;
}

TEST(GgufHostile, SoundFileThatTheCorpusBreaksLoads) {
  EXPECT_EQ(RefusalOf<GgufFile>(Sound().Bytes(), "good.gguf"), "");
  EXPECT_EQ(RefusalOf<GgufFile>(WithPair(Pair("a", Type::kArray, Nested(8))), "good.gguf"), "");
  EXPECT_EQ(RefusalOf<GgufFile>(WithTensor(Info("b", {8}, 0, 32)), "good.gguf"), "");
}

TEST(GgufHostile, EveryMalformedFileIsRefusedInOneLineThatNamesTheFault) {
  std::set<std::string_view> kinds;
  size_t files = 0;
  for (const Kind& kind : AllKinds()) {
    SCOPED_TRACE(kind.name);
    EXPECT_TRUE(kinds.insert(kind.name).second);
    for (const Case& wrong : kind.cases()) {
      ++files;
      std::string text = RefusalOf<GgufFile>(wrong.bytes, "bad\nname.gguf");
      EXPECT_TRUE(text.starts_with("bad\\x0Aname.gguf: " + wrong.item + ": ")) << text;
      EXPECT_NE(text.find(kind.says), text.npos) << text;
      EXPECT_LT(text.size(), 400u) << text;
    }
  }
  EXPECT_GE(kinds.size(), 40u);
  EXPECT_GE(files, 300u);
}

}  // namespace
}  // namespace lockstep::test
