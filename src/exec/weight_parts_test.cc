// The parts of weights that ranks hold: what a rank packs of a file's tensor is what it would pack of a tensor with nothing else in it.
#include <gtest/gtest.h>
#include <tiny_model.h>

#include <cstring>
#include <limits>

#include "base/thread_team.h"
#include "exec/weights.h"
#include "gguf/gguf_writer.h"
#include "gguf/temp_folder.h"
#include "ops/head_linear.h"

namespace lockstep::test {
namespace {

// Along one axis.
struct Run {
  int64_t begin, size;
};

struct PartCase {
  const char* name;
  OperandKind kind;
  Shape whole;      // with experts or heads of their own first where they are kExperts
  size_t row_axes;  // that count rows
  WeightSource source;
  std::vector<Run> part;  // of each axis
};

constexpr auto kMatrix = OperandKind::kMatrix;
constexpr auto kExperts = OperandKind::kExperts;

std::vector<PartCase> Cases() {
  const Axis g{'g', 4}, r{'r', 4}, d{'d', 8}, k{'k', 512}, n{'n', 40}, f{'f', 1024}, wide{'d', 128};
  const Axis e{'e', 5}, rows{'f', 48}, columns{'f', 768}, h{'r', 6};
  const Run all_k{0, 512}, all_n{0, 40}, all_r{0, 4}, all_d{0, 8};
  const WeightSource plain{"w"}, fused{"w", 17, 200}, woven{"w", 3, 4 * 24, 16, 24}, each{"w.*"};
  const WeightSource turned{.tensor = "w", .row_begin = 3, .file_rows = 40, .transposed = true};
  return {
      {"all", kMatrix, {g, r, d, k}, 3, plain, {{0, 4}, all_r, all_d, all_k}},
      {"KV heads", kMatrix, {g, r, d, k}, 3, plain, {{1, 2}, all_r, all_d, all_k}},
      {"query heads of one", kMatrix, {g, r, d, k}, 3, plain, {{2, 1}, {1, 3}, all_d, all_k}},
      {"query heads of each", kMatrix, {g, r, d, k}, 3, plain, {{1, 3}, {2, 2}, all_d, all_k}},
      {"of a fused tensor", kMatrix, {g, r, d, k}, 3, fused, {{3, 1}, all_r, all_d, all_k}},
      {"runs of a fused tensor", kMatrix, {g, r, d, k}, 3, fused, {{0, 4}, {1, 1}, all_d, all_k}},
      // Four heads of 16 rows, 24 apart.
      {"woven", kMatrix, {g, {'d', 16}, k}, 2, woven, {{1, 2}, {0, 16}, all_k}},
      {"the first columns", kMatrix, {n, f}, 1, plain, {all_n, {0, 256}}},
      {"columns between", kMatrix, {n, f}, 1, plain, {all_n, {256, 512}}},
      {"the last columns", kMatrix, {n, f}, 1, plain, {all_n, {768, 256}}},
      {"columns within blocks of 256", kMatrix, {n, f}, 1, plain, {all_n, {32, 224}}},
      {"columns within any blocks", kMatrix, {n, f}, 1, plain, {all_n, {3, 6}}},
      {"columns by KV heads", kMatrix, {n, g, r, wide}, 1, plain, {all_n, {1, 2}, all_r, {0, 128}}},
      {"columns by query heads",
       kMatrix,
       {n, g, r, wide},
       1,
       plain,
       {all_n, {3, 1}, {2, 2}, {0, 128}}},
      {"rows and columns", kMatrix, {n, f}, 1, fused, {{7, 20}, {256, 256}}},
      {"some experts", kExperts, {e, rows, k}, 2, plain, {{1, 3}, {0, 48}, all_k}},
      {"rows of experts", kExperts, {e, rows, k}, 2, plain, {{0, 5}, {16, 16}, all_k}},
      {"rows of fused experts", kExperts, {e, rows, k}, 2, fused, {{0, 5}, {32, 16}, all_k}},
      {"columns of experts", kExperts, {e, n, columns}, 2, plain, {{0, 5}, all_n, {256, 512}}},
      {"columns of some experts", kExperts, {e, n, columns}, 2, plain, {{2, 2}, all_n, {256, 256}}},
      {"experts with tensors of their own",
       kExperts,
       {e, rows, k},
       2,
       each,
       {{2, 3}, {0, 48}, all_k}},
      {"parts of those", kExperts, {e, n, columns}, 2, each, {{1, 4}, all_n, {512, 256}}},
      {"heads turned round",
       kExperts,
       {h, {'k', 256}, {'d', 32}},
       2,
       turned,
       {{2, 3}, {0, 256}, {0, 32}}},
      {"rows turned round",
       kExperts,
       {h, {'k', 256}, {'d', 32}},
       2,
       turned,
       {{0, 6}, {64, 96}, {0, 32}}},
  };
}

int64_t SizeOf(const Shape& shape, size_t first, size_t last) {
  int64_t size = 1;
  for (size_t i = first; i < last; ++i) size *= shape[i].size;
  return size;
}

// A weight under test and a graph that uses it: x, a row for each token, comes from an embedding by way of a matrix of its shape.
struct OneWeight {
  Graph graph;
  ValueId weight;

  explicit OneWeight(const PartCase& c) {
    GraphBuilder build("test");
    const Axis v{'v', 300}, k{'k', 64};
    const ValueId embedded = build.Apply("embedded", MakeEmbed(1),
                                         {build.tokens(), build.Weight({"plain.embed"}, {v, k})});
    Shape in;
    if (c.kind == kExperts) in.Append(c.whole[0]);
    for (size_t i = c.row_axes; i < c.whole.rank(); ++i) in.Append(c.whole[i]);
    in.Append({'k', 64});
    const ValueId x = build.Apply("x", MakeLinear(0), {embedded, build.Weight({"plain.in"}, in)});
    weight = build.Weight(c.source, c.whole);
    const ValueId y =
        build.Apply("y", c.kind == kExperts ? MakeHeadLinear() : MakeLinear(0), {x, weight});
    graph = build.Finish(y, y);
    Value& value = graph.values[static_cast<size_t>(weight)];
    value.part.whole = value.shape;
    value.shape = {};
    for (size_t i = 0; i < c.part.size(); ++i) {
      value.part.begin[i] = c.part[i].begin;
      value.shape.Append({c.whole[i].name, c.part[i].size});
    }
  }
};

// Row of a tensor (of one expert, where they are stacked) in which a row of the weight stands.
int64_t FileRow(const WeightSource& source, int64_t row) {
  if (source.run_rows == 0) return source.row_begin + row;
  return source.row_begin + row / source.run_rows * source.run_stride + row % source.run_rows;
}

struct FileSize {
  int64_t rows, width;
};
FileSize FileSizeOf(const PartCase& c) {
  const size_t first = c.kind == kExperts ? 1 : 0;
  const int64_t rows = SizeOf(c.whole, first, c.row_axes);
  const int64_t width = SizeOf(c.whole, c.row_axes, c.whole.rank());
  if (c.source.transposed) return {c.source.file_rows, rows};
  return {c.source.file_rows != 0 ? c.source.file_rows : rows, width};
}

// Numbers of [-0.5, 0.5), other ones for each seed.
std::vector<float> Numbers(int64_t count, uint32_t seed) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t hash = (static_cast<uint32_t>(i) + seed * 7919) * 2654435761u;
    numbers.push_back(static_cast<float>(hash >> 8) * 0x1p-24f - 0.5f);
  }
  return numbers;
}

// A tensor's bytes: blocks of the format from a few that differ, in no order that repeats.
std::vector<std::byte> Blocks(const Format& format, int64_t elements, uint32_t seed) {
  constexpr int64_t kFew = 61;
  const std::vector<float> numbers = Numbers(kFew * format.block, seed);
  std::vector<std::byte> few(static_cast<size_t>(kFew * format.block_bytes)), all;
  format.encode(numbers.data(), kFew, few.data());
  for (int64_t i = 0; i < elements / format.block; ++i) {
    const auto from = few.begin() + (i * i + i / 7) % kFew * format.block_bytes;
    all.insert(all.end(), from, from + format.block_bytes);
  }
  return all;
}

std::string WriteFile(const PartCase& c, const Format& format, const TempFolder& folder) {
  struct Tensor {
    std::string name;
    const Format* format;
    std::vector<uint64_t> dims;
  };
  const Format* f32 = FindFormat(std::string_view("F32"));
  const bool experts = c.kind == kExperts;
  const auto inner = static_cast<uint64_t>(SizeOf(c.whole, c.row_axes, c.whole.rank()) *
                                           (experts ? c.whole[0].size : 1));
  std::vector<Tensor> tensors = {{"plain.embed", f32, {64, 300}}, {"plain.in", f32, {64, inner}}};
  const FileSize size = FileSizeOf(c);
  std::vector<uint64_t> dims = {static_cast<uint64_t>(size.width),
                                static_cast<uint64_t>(size.rows)};
  const auto count = static_cast<uint64_t>(experts ? c.whole[0].size : 1);
  if (c.source.tensor == "w.*") {
    for (uint64_t e = 0; e < count; ++e) tensors.push_back({fmt::format("w.{}", e), &format, dims});
  } else {
    if (experts) dims.push_back(count);
    tensors.push_back({"w", &format, dims});
  }
  const std::string path = folder / "m.gguf";
  GgufWriter writer(path);
  for (const Tensor& tensor : tensors)
    writer.AddTensor(tensor.name, tensor.format->id, tensor.dims);
  for (size_t i = 0; i < tensors.size(); ++i) {
    int64_t elements = 1;
    for (uint64_t dim : tensors[i].dims) elements *= static_cast<int64_t>(dim);
    writer.Write(Blocks(*tensors[i].format, elements, static_cast<uint32_t>(i)));
  }
  writer.Finish();
  return path;
}

// Bytes of a part's matrix as a file with nothing else would hold it: gathered number by number where formats have no blocks, block
// by block where they have. expert: of the whole.
std::vector<std::byte> PartOf(const PartCase& c, const GgufFile& file, int64_t expert) {
  const bool apart = c.source.tensor == "w.*";
  const GgufTensor tensor =
      file.RequireTensor(apart ? fmt::format("w.{}", expert) : std::string("w"));
  const Format& format = *FindFormat(tensor.type->id);
  const FileSize size = FileSizeOf(c);
  const int64_t first_row = apart ? 0 : expert * size.rows, row_bytes = format.RowBytes(size.width);
  std::vector<std::byte> bytes;
  std::vector<float> line(static_cast<size_t>(size.width));
  // Every index of the part, axis after axis.
  const size_t first = c.kind == kExperts ? 1 : 0;
  std::vector<int64_t> at(c.whole.rank());
  auto walk = [&](auto&& self, size_t axis) -> void {
    if (axis < c.whole.rank()) {
      for (at[axis] = c.part[axis].begin; at[axis] < c.part[axis].begin + c.part[axis].size;
           ++at[axis])
        self(self, axis + 1);
      return;
    }
    int64_t row = 0, column = 0;
    for (size_t i = first; i < c.row_axes; ++i) row = row * c.whole[i].size + at[i];
    for (size_t i = c.row_axes; i < c.whole.rank(); ++i) column = column * c.whole[i].size + at[i];
    const int64_t file_row = FileRow(c.source, c.source.transposed ? column : row);
    const int64_t file_column = c.source.transposed ? row : column;
    const std::byte* from = tensor.data.data() + (first_row + file_row) * row_bytes;
    if (c.source.transposed && format.block > 1) {
      format.decode(from, size.width / format.block, line.data());
      const auto* number =
          reinterpret_cast<const std::byte*>(&line[static_cast<size_t>(file_column)]);
      bytes.insert(bytes.end(), number, number + sizeof(float));
    } else if (file_column % format.block == 0) {
      from += file_column / format.block * format.block_bytes;
      bytes.insert(bytes.end(), from, from + format.block_bytes);
    }
  };
  walk(walk, first);
  return bytes;
}

std::vector<std::byte> Packed(const std::vector<std::byte>& rows, const Format& format, int64_t n,
                              int64_t k) {
  PackedMatrix matrix(format, n, k);
  std::vector<std::byte> bytes(static_cast<size_t>(matrix.bytes()));
  matrix.data = bytes.data();
  EXPECT_FALSE(PackPanels(rows.data(), 0, matrix.panels(), matrix).has_value());
  return bytes;
}

void ExpectPart(const PartCase& c, const GgufFile& file, const OneWeight& one, int threads) {
  ThreadTeam team(threads);
  const WeightStore store(FindWeights(one.graph, file), file, team, nullptr);
  const Operand operand = store.Get(one.weight, c.kind);
  const bool experts = c.kind == kExperts;
  const Shape& shape = one.graph.value(one.weight).shape;
  const int64_t rows = SizeOf(shape, experts ? 1 : 0, c.row_axes);
  const int64_t width = SizeOf(shape, c.row_axes, shape.rank());
  const int64_t count = experts ? shape[0].size : 1;
  if (experts) {
    ASSERT_EQ(std::ssize(std::get<Experts>(operand)), count);
  }
  for (int64_t i = 0; i < count; ++i) {
    const PackedMatrix& found = experts ? std::get<Experts>(operand)[static_cast<size_t>(i)]
                                        : *std::get<const PackedMatrix*>(operand);
    ASSERT_EQ(found.n, rows);
    ASSERT_EQ(found.k, width);
    const std::vector<std::byte> expected =
        Packed(PartOf(c, file, experts ? c.part[0].begin + i : 0), *found.format, rows, width);
    ASSERT_EQ(std::memcmp(found.data, expected.data(), expected.size()), 0) << "matrix " << i;
  }
}

// Whether a format's blocks allow the part.
bool Fits(const PartCase& c, const Format& format) {
  if (c.source.transposed) return true;
  int64_t begin = 0, size = 1;
  for (size_t i = c.row_axes; i < c.whole.rank(); ++i) {
    begin = begin * c.whole[i].size + c.part[i].begin;
    size *= c.part[i].size;
  }
  return begin % format.block == 0 && size % format.block == 0;
}

class WeightPartsOf : public testing::TestWithParam<const Format*> {};

TEST_P(WeightPartsOf, AreTheSamePartsOfTheWholeOrAreRefused) {
  const Format& format = *GetParam();
  for (const PartCase& c : Cases()) {
    SCOPED_TRACE(c.name);
    const TempFolder folder;
    const GgufFile file = GgufFile::Open(WriteFile(c, format, folder));
    const OneWeight one(c);
    if (Fits(c, format)) {
      for (int threads : {1, 3, 5}) ExpectPart(c, file, one, threads);
      continue;
    }
    const std::string text = MessageOf([&] { FindWeights(one.graph, file); });
    EXPECT_NE(text.find(fmt::format("expected a cut along whole blocks of {}, found columns ",
                                    format.block)),
              text.npos)
        << text;
  }
}

std::vector<const Format*> MatrixFormats() {
  std::vector<const Format*> formats;
  for (const Format* format : AllFormats()) {
    const bool plain = format->name == "F32" || format->name == "F16" || format->name == "BF16";
    if ((format->group != 0 && format->encode != nullptr) || plain) formats.push_back(format);
  }
  return formats;
}

INSTANTIATE_TEST_SUITE_P(All, WeightPartsOf, testing::ValuesIn(MatrixFormats()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(WeightParts, HaveEncodersForEveryFormatOfWeights) {
  for (const Format* format : AllFormats()) {
    if (format->group != 0) {
      EXPECT_NE(format->encode, nullptr) << format->name;
    }
  }
}

// A bias or a norm's weight of heads.
TEST(WeightParts, OfVectorsAreTheirNumbers) {
  const TempFolder folder;
  TinyModel model{TinyOptions{}};
  model.tensors.resize(1);
  std::vector<float> numbers;
  for (int i = 0; i < 4 * 3 * 8; ++i) numbers.push_back(static_cast<float>(i));
  model.tensors[0] = {"embed", {96, 10}, std::vector<float>(960, 1.0f)};
  model.tensors.push_back({"bias", {96}, numbers});
  model.Write(folder / "m.gguf");
  const GgufFile file = GgufFile::Open(folder / "m.gguf");
  GraphBuilder build("test");
  const Axis g{'g', 4}, r{'r', 3}, d{'d', 8}, v{'v', 10};
  const ValueId x =
      build.Apply("x", MakeEmbed(1), {build.tokens(), build.Weight({"embed"}, {v, {'n', 96}})});
  const ValueId weight = build.Weight({"bias"}, {g, r, d});
  Graph graph = build.Finish(x, x);
  graph.nodes.push_back({MakeAddBias(), {x, weight}, kNoValue, -1});
  Value& value = graph.values[static_cast<size_t>(weight)];
  value.part.whole = value.shape;
  struct Case {
    Shape shape;
    std::array<int64_t, Shape::kCapacity> begin;
    std::vector<int> first_of_each_run;
    int run;
  };
  for (const Case& c : {Case{{{'g', 2}, r, d}, {1, 0, 0}, {24}, 48},
                        Case{{g, {'r', 1}, d}, {0, 2, 0}, {16, 40, 64, 88}, 8},
                        Case{{{'g', 1}, {'r', 2}, d}, {3, 1, 0}, {80}, 16},
                        Case{{{'g', 1}, {'r', 1}, {'d', 4}}, {2, 1, 4}, {60}, 4}}) {
    value.shape = c.shape;
    value.part.begin = c.begin;
    ThreadTeam team(1);
    const WeightStore store(FindWeights(graph, file), file, team, nullptr);
    const auto found = std::get<std::span<const float>>(store.Get(weight, OperandKind::kVector));
    std::vector<float> expected;
    for (int first : c.first_of_each_run) {
      for (int i = 0; i < c.run; ++i) expected.push_back(static_cast<float>(first + i));
    }
    EXPECT_EQ(std::vector<float>(found.begin(), found.end()), expected) << c.shape.ToString();
  }
}

// What a part names in a message is the file's place, not its own.
TEST(WeightParts, NameTheFilesPlaceOfWhatIsNotFinite) {
  for (const PartCase& c : Cases()) {
    if (std::string_view(c.name) != "query heads of each" &&
        std::string_view(c.name) != "columns of some experts")
      continue;
    const TempFolder folder;
    const GgufFile plain =
        GgufFile::Open(WriteFile(c, *FindFormat(std::string_view("F32")), folder));
    TinyModel model{TinyOptions{}};
    model.tensors.clear();
    for (const GgufTensor& tensor : plain.tensors()) {
      const auto dims = std::span(tensor.dims).first(static_cast<size_t>(tensor.dims_count));
      const auto* data = reinterpret_cast<const float*>(tensor.data.data());
      model.tensors.push_back(
          {std::string(tensor.name), {dims.begin(), dims.end()}, {data, data + tensor.elements()}});
    }
    // Heads 3 of KV head 2: row (2 * 4 + 3) * 8 + 5. Expert 3: row 3 * 40 + 11, column 300.
    const bool heads = c.kind == kMatrix;
    const int64_t row = heads ? 93 : 131, column = heads ? 7 : 300;
    const int64_t width = FileSizeOf(c).width;
    model.tensor("w").values[static_cast<size_t>(row * width + column)] =
        std::numeric_limits<float>::infinity();
    model.Write(folder / "bad.gguf");
    const GgufFile file = GgufFile::Open(folder / "bad.gguf");
    const OneWeight one(c);
    ThreadTeam team(2);
    const std::string text =
        MessageOf([&] { WeightStore(FindWeights(one.graph, file), file, team, nullptr); });
    EXPECT_NE(text.find(fmt::format("found NaN or infinity at row {}, column {} ", row, column)),
              text.npos)
        << text;
  }
}

}  // namespace
}  // namespace lockstep::test
