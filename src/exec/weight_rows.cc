#include "exec/weight_rows.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace lockstep {

Value WholeOf(const Value& value) {
  Value whole = value;
  if (value.part.cut()) whole.shape = value.part.whole;
  whole.part = {};
  return whole;
}

std::vector<IndexRun> RunsOf(const Value& value, size_t first, size_t last) {
  const Shape whole = WholeOf(value).shape;
  std::vector<IndexRun> runs = {{0, 1}};
  for (size_t i = first; i < last; ++i) {
    const int64_t size = value.shape[i].size;
    std::vector<IndexRun> finer;
    for (const IndexRun& run : runs) {
      if (size == whole[i].size) {
        finer.push_back({run.begin * size, run.size * size});
        continue;
      }
      for (int64_t at = run.begin; at < run.begin + run.size; ++at)
        finer.push_back({at * whole[i].size + value.part.begin[i], size});
    }
    runs = std::move(finer);
  }
  return runs;
}

int64_t MatrixPart::Row(int64_t row) const {
  for (const IndexRun& run : row_runs) {
    if (row < run.size) return run.begin + row;
    row -= run.size;
  }
  LOCKSTEP_CHECK(false, "row {} is past the part", row);
}

const Format& WeightRows::held() const {
  const Format& in_file = *FindFormat(tensor.type->id);
  return source.transposed && in_file.block > 1 ? *FindFormat("F32") : in_file;
}

std::pair<int64_t, int64_t> WeightRows::file_shape() const {
  const auto [rows, width] = std::pair(part.rows, part.width);
  const int64_t own_rows = source.transposed ? width : rows;
  return {source.file_rows != 0 ? source.file_rows : own_rows, source.transposed ? rows : width};
}

std::pair<int64_t, int64_t> WeightRows::PlaceInFile(int64_t row, int64_t column) const {
  row = part.Row(row);
  column += part.column_begin;
  if (source.transposed) return {source.row_begin + column, row};
  if (source.run_rows == 0) return {source.row_begin + row, column};
  return {source.row_begin + row / source.run_rows * source.run_stride + row % source.run_rows,
          column};
}

void WeightRows::Copy(int64_t begin, int64_t end, int64_t file_row, std::byte* to) const {
  if (source.transposed) return CopyTransposed(begin, end, file_row, to);
  const int64_t bytes = held().RowBytes(width), file_bytes = held().RowBytes(part.width);
  for (int64_t row = begin; row < end; ++row) {
    const auto [at, column] = PlaceInFile(row, 0);
    const std::byte* from =
        tensor.data.data() + (file_row + at) * file_bytes + held().RowBytes(column);
    std::memcpy(to + row * bytes, from, static_cast<size_t>(bytes));
  }
}

void WeightRows::CopyTransposed(int64_t begin, int64_t end, int64_t file_row, std::byte* to) const {
  const Format& in_file = *FindFormat(tensor.type->id);
  const int64_t columns = file_shape().second, number = held().block_bytes;
  std::vector<std::byte> line(static_cast<size_t>(columns * number));
  for (int64_t i = 0; i < width; ++i) {
    const std::byte* row =
        tensor.data.data() + (file_row + PlaceInFile(0, i).first) * in_file.RowBytes(columns);
    if (in_file.block > 1) {
      in_file.decode(row, columns / in_file.block, reinterpret_cast<float*>(line.data()));
    } else {
      std::memcpy(line.data(), row, line.size());
    }
    for (int64_t n = begin; n < end; ++n) {
      std::memcpy(to + (n * width + i) * number, line.data() + part.Row(n) * number,
                  static_cast<size_t>(number));
    }
  }
}

}  // namespace lockstep
