// Station 6, weights: from the file into the form each operation reads, packed by the threads that will read them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/memory.h"
#include "base/thread_team.h"
#include "exec/weight_rows.h"
#include "gguf/gguf_file.h"
#include "graph/graph.h"

namespace lockstep {

// One weight in one form. A tied embedding is held twice: packed as a matrix, and as the file's own rows.
struct WeightUse {
  ValueId value;
  OperandKind kind;  // kMatrix, kExperts, kVector or kTable
  GgufTensor tensor;
  int64_t rows, width;      // of one expert where there are experts; width: numbers in a row
  WeightSource source;      // which of the tensor's rows (of each expert) they are
  const Format* format;     // in which they are held
  MatrixPart part = {};     // that the rank holds; of a vector, its numbers as rows
  int64_t file_rows = 0;    // rows of one expert in the tensor
  int64_t file_expert = 0;  // the first expert of this tensor that is held
  int64_t experts = 1;      // that are held of this tensor
  int64_t first_expert = 0, all_experts = 1;       // of those that the rank holds
  int64_t used_experts = 1, experts_of_model = 1;  // that one token reads of all there are

  WeightRows in_file() const { return {tensor, source, rows, width, part}; }
  // Whether both are the same matrix, packed from the same bytes in the same form.
  bool PacksLike(const WeightUse& other) const;
  // Bytes this use takes in memory of its own (tables stay in the file's map).
  int64_t bytes() const;
  // The share of it that one token reads, on average where it chooses experts; of weights that are multiplied.
  double used() const {
    const bool multiplied = kind == OperandKind::kMatrix || kind == OperandKind::kExperts;
    return multiplied ? static_cast<double>(used_experts) / static_cast<double>(experts_of_model)
                      : 0;
  }
  // Multiplications and additions of one row with all of it.
  double ops() const {
    return 2 * static_cast<double>(experts) * static_cast<double>(rows) *
           static_cast<double>(width);
  }
};

// Finds every weight of the graph in the file and checks its shape and type; reads no tensor data. Throws Refused naming the tensor,
// the shape expected and the shape found. model: the file of WeightSource::of_model; null where no weight is.
std::vector<WeightUse> FindWeights(const Graph& graph, const GgufFile& file,
                                   const GgufFile* model = nullptr);

// A tensor that a file with a graph's weights has.
struct ExpectedTensor {
  std::string name;
  std::vector<uint64_t> dims;  // as in files, fastest first
};

// The tensors of all weights of the graph, by the order of their first use; where files may hold a weight in several ways, as the graph
// names it.
std::vector<ExpectedTensor> ExpectedTensors(const Graph& graph);

// The type in which a weight is held. Throws Refused where the file has none, or one of another kind.
const Format& WeightFormat(const GgufFile& file, const WeightSource& source);

// Whether multiplications with a weight take their activations in 8-bit codes: what Program asks.
std::function<bool(ValueId)> TakesCodes(std::span<const WeightUse> uses);

class WeightStore {
 public:
  // Called with bytes done and bytes in all.
  using Progress = std::function<void(int64_t done, int64_t all)>;

  // Reads and packs all weights. The file must outlive the store. Throws Refused naming tensor, row and column of a weight that is not
  // finite, Failed where memory is short. lenders: whose matrices are shared where they are the same; they must outlive the store.
  WeightStore(std::vector<WeightUse> uses, const GgufFile& file, ThreadTeam& team,
              const Progress& progress, std::span<const WeightStore* const> lenders = {});

  Operand Get(ValueId value, OperandKind kind) const;
  int64_t bytes() const { return bytes_; }

 private:
  using Key = std::pair<ValueId, OperandKind>;

  static void PackMatrix(const WeightUse& use, int64_t file_row, const GgufFile& file,
                         ThreadTeam& team, PackedMatrix& matrix);
  void LoadMatrix(const WeightUse& use, const GgufFile& file, ThreadTeam& team);
  void LoadExperts(const WeightUse& use, const GgufFile& file, ThreadTeam& team);
  void LoadVector(const WeightUse& use, const GgufFile& file);
  // Takes a matrix of another store, where one has it.
  bool Borrow(const WeightUse& use, std::span<const WeightStore* const> lenders);

  std::map<Key, Operand> operands_;
  std::vector<std::unique_ptr<PackedMatrix>> matrices_;
  std::vector<WeightUse> packed_;  // of each of matrices_
  std::map<ValueId, std::vector<PackedMatrix>> experts_;
  std::vector<Buffer> buffers_;
  std::vector<std::vector<float>> vectors_;
  int64_t bytes_ = 0;
};

}  // namespace lockstep
