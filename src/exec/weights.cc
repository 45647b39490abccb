#include "exec/weights.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <optional>
#include <set>

#include "base/error.h"

namespace lockstep {
namespace {

// Kernels prefetch past the end of a matrix.
constexpr uint64_t kMatrixSlack = 4096;

int64_t Elements(const Shape& shape) { return static_cast<int64_t>(shape.Count().value_or(0)); }

// Numbers in one row of a weight, as the operation that uses it reads rows.
int64_t RowWidth(const Graph& graph, const Node& node, size_t operand, OperandKind kind) {
  const Shape& shape = graph.value(node.inputs[operand]).shape;
  if (kind == OperandKind::kVector) return Elements(shape);
  if (kind == OperandKind::kTable) return shape[shape.rank() - 1].size;
  // A matrix meets the rows of operand 0; their first axis is t.
  const Shape& x = graph.value(node.inputs[0]).shape;
  return Elements(x) / x[0].size;
}

WeightUse FindWeight(const Graph& graph, const GgufFile& file, const Node& node, size_t operand,
                     OperandKind kind) {
  const Value& value = graph.value(node.inputs[operand]);
  const GgufTensor tensor = file.RequireTensor(value.source.tensor);
  WeightUse use{
      node.inputs[operand],       kind, tensor, 0, RowWidth(graph, node, operand, kind), 0,
      FindFormat(tensor.type->id)};
  use.rows = Elements(value.shape) / use.width;
  use.row_begin = value.source.row_begin;
  // A part of a fused bias: the file's vector is its only row, the part a run of its numbers.
  const bool part_of_vector = kind == OperandKind::kVector && value.source.file_rows != 0;
  const int64_t width = part_of_vector ? value.source.file_rows : use.width;
  const int64_t rows = part_of_vector                ? 1
                       : value.source.file_rows != 0 ? value.source.file_rows
                                                     : use.rows;
  if (static_cast<int64_t>(tensor.dims[0]) != width ||
      static_cast<int64_t>(tensor.rows()) != rows) {
    throw Refused("{}: {}: expected [{}, {}], found [{}, {}]", Printable(file.name(), 4096),
                  value.source.tensor, width, rows, tensor.dims[0], tensor.rows());
  }
  const bool number = use.format->group != 0 || use.format->name == "F32" ||
                      use.format->name == "F16" || use.format->name == "BF16";
  if (!number) {
    throw Refused("{}: {}: expected a type of weights, found {}", Printable(file.name(), 4096),
                  value.source.tensor, use.format->name);
  }
  return use;
}

}  // namespace

int64_t WeightUse::bytes() const {
  switch (kind) {
    case OperandKind::kMatrix:
      return PackedMatrix(*format, rows, width).bytes();
    case OperandKind::kVector:
      return width * static_cast<int64_t>(sizeof(float));
    default:
      return 0;
  }
}

std::vector<WeightUse> FindWeights(const Graph& graph, const GgufFile& file) {
  std::vector<WeightUse> uses;
  for (const Node& node : graph.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (graph.value(node.inputs[i]).kind != Value::Kind::kWeight) continue;
      const OperandKind kind = node.op->operand(i);
      const bool known = std::ranges::any_of(uses, [&](const WeightUse& use) {
        return use.value == node.inputs[i] && use.kind == kind;
      });
      if (!known) uses.push_back(FindWeight(graph, file, node, i, kind));
    }
  }
  return uses;
}

std::function<bool(ValueId)> TakesCodes(std::span<const WeightUse> uses) {
  std::set<ValueId> weights;
  for (const WeightUse& use : uses) {
    if (use.format->group != 0) weights.insert(use.value);
  }
  return [weights = std::move(weights)](ValueId id) { return weights.contains(id); };
}

WeightStore::WeightStore(std::vector<WeightUse> uses, const GgufFile& file, ThreadTeam& team,
                         const Progress& progress) {
  int64_t all = 0;
  for (const WeightUse& use : uses) all += use.bytes();
  // In file order, so that reading is sequential.
  std::ranges::stable_sort(uses, {}, [](const WeightUse& use) {
    return std::pair(use.tensor.shard, use.tensor.data.data());
  });
  for (const WeightUse& use : uses) {
    switch (use.kind) {
      case OperandKind::kMatrix:
        LoadMatrix(use, file, team);
        break;
      case OperandKind::kVector:
        LoadVector(use, file);
        break;
      default:
        operands_[{use.value, use.kind}] =
            Table{use.format, use.tensor.data.data(), use.rows, use.width};
    }
    bytes_ += use.bytes();
    if (progress) progress(bytes_, all);
  }
}

void WeightStore::LoadMatrix(const WeightUse& use, const GgufFile& file, ThreadTeam& team) {
  auto matrix = std::make_unique<PackedMatrix>(*use.format, use.rows, use.width);
  Buffer buffer(Size(static_cast<uint64_t>(matrix->bytes())) + Size(kMatrixSlack), use.tensor.name);
  matrix->data = buffer.data();
  const std::byte* rows = use.tensor.data.data() + use.row_begin * use.format->RowBytes(use.width);
  std::mutex mutex;
  std::optional<BadWeight> bad;
  team.Run([&](int member) {
    // The same share as Linear's, so that each thread touches first what it will read.
    const WorkRange share = ShareOf(use.rows, kColumnUnit, member, team.size());
    auto found =
        PackPanels(rows, share.begin / kPanelRows, CeilDiv(share.end, kPanelRows), *matrix);
    if (!found) return;
    std::lock_guard lock(mutex);
    if (!bad || found->row < bad->row) bad = found;
  });
  if (bad) {
    throw Refused(
        "{}: {}: expected finite weights, found NaN or infinity at row {}, column {} or in its "
        "block",
        Printable(file.name(), 4096), use.tensor.name, use.row_begin + bad->row, bad->column);
  }
  file.Release(use.tensor);
  operands_[{use.value, use.kind}] = static_cast<const PackedMatrix*>(matrix.get());
  matrices_.push_back(std::move(matrix));
  buffers_.push_back(std::move(buffer));
}

void WeightStore::LoadVector(const WeightUse& use, const GgufFile& file) {
  std::vector<float> all(static_cast<size_t>(use.tensor.dims[0]));
  use.format->decode(use.tensor.data.data(), static_cast<int64_t>(all.size()) / use.format->block,
                     all.data());
  std::vector<float> values(all.begin() + use.row_begin, all.begin() + use.row_begin + use.width);
  auto bad = std::ranges::find_if(values, [](float v) { return !std::isfinite(v); });
  if (bad != values.end()) {
    throw Refused("{}: {}: expected finite weights, found {} at {}", Printable(file.name(), 4096),
                  use.tensor.name, *bad, use.row_begin + (bad - values.begin()));
  }
  vectors_.push_back(std::move(values));
  operands_[{use.value, use.kind}] = std::span<const float>(vectors_.back());
}

Operand WeightStore::Get(ValueId value, OperandKind kind) const {
  return operands_.at({value, kind});
}

}  // namespace lockstep
