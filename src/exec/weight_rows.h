// Which numbers of a file's tensor a weight is, where they are not one run of rows as the file holds them: heads woven in the file, columns that
// become rows (WeightSource), and the part that a rank holds (Value::part).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "formats/format.h"
#include "gguf/gguf_file.h"
#include "graph/graph.h"

namespace lockstep {

struct IndexRun {
  int64_t begin = 0;
  int64_t size = 0;
  bool operator==(const IndexRun&) const = default;
};

// The indices that a value's part takes of axes [first, last) of the whole, counted over these axes alone, the last fastest: as few
// runs as can be, ascending.
std::vector<IndexRun> RunsOf(const Value& value, size_t first, size_t last);
// The value as all ranks together have it.
Value WholeOf(const Value& value);

// The part of a whole matrix that a rank holds.
struct MatrixPart {
  int64_t rows = 0, width = 0;  // of the whole
  std::vector<IndexRun> row_runs;
  int64_t column_begin = 0;

  int64_t Row(int64_t row) const;  // of the whole
  bool operator==(const MatrixPart&) const = default;
};

// A matrix [rows, width] that `source` takes from `tensor`; where the tensor has one for each expert, each expert's.
struct WeightRows {
  GgufTensor tensor;
  WeightSource source;
  int64_t rows = 0, width = 0;  // of the part
  MatrixPart part;

  // The format in which the weight is held: that of the file, f32 where columns become rows and cut through blocks.
  const Format& held() const;
  // Rows, of one expert, and numbers in a row that the file's tensor must have.
  std::pair<int64_t, int64_t> file_shape() const;
  // Whether the rows must be put together before they are packed.
  bool scattered() const {
    return source.run_rows != 0 || source.transposed || part.row_runs.size() > 1 ||
           width != part.width;
  }
  // Puts rows [begin, end) of the matrix, as held() stores them, to their places in `to`: [rows, width]. file_row: the first of the expert's rows
  // in the tensor.
  void Copy(int64_t begin, int64_t end, int64_t file_row, std::byte* to) const;
  // Where the number at [row, column] stands in the file's tensor, or among the expert's rows of it: its row and column.
  std::pair<int64_t, int64_t> PlaceInFile(int64_t row, int64_t column) const;

 private:
  void CopyTransposed(int64_t begin, int64_t end, int64_t file_row, std::byte* to) const;
};

}  // namespace lockstep
