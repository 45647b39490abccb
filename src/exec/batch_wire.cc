#include "exec/batch_wire.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace lockstep {
namespace {

void Put(std::string& to, int64_t number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

template <typename T>
void PutAll(std::string& to, std::span<const T> values) {
  Put(to, std::ssize(values));
  to.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  int64_t Number() {
    int64_t number = 0;
    Take(&number, sizeof(number));
    return number;
  }
  template <typename T>
  std::vector<T> All() {
    const int64_t count = Number();
    if (count < 0 || static_cast<size_t>(count) > rest_.size() / sizeof(T)) Fail();
    std::vector<T> values(static_cast<size_t>(count));
    Take(values.data(), values.size() * sizeof(T));
    return values;
  }
  void ExpectEnd() const {
    if (!rest_.empty()) Fail();
  }

 private:
  void Take(void* to, size_t bytes) {
    if (bytes > rest_.size()) Fail();
    if (bytes != 0) std::memcpy(to, rest_.data(), bytes);
    rest_.remove_prefix(bytes);
  }
  [[noreturn]] static void Fail() {
    throw Failed("batch: expected the bytes of one, found others");
  }

  std::string_view rest_;
};

// Rows of one sequence that may be dropped after any batch (ops/recurrent.h) may not be left in an earlier piece.
bool MayCut(const Batch& batch, size_t row) {
  auto sequence = [&](size_t i) { return batch.places[i].sequence; };
  const auto rows = batch.places.size(), apart = static_cast<size_t>(kDropRows);
  return sequence(row - 1) != sequence(row) ||
         (row >= apart && row + apart <= rows && sequence(row - apart) == sequence(row) &&
          sequence(row + apart - 1) == sequence(row));
}

// Rows [begin, end) as a batch of their own.
Batch PieceOf(const Batch& batch, size_t begin, size_t end) {
  Batch piece;
  piece.tokens.assign(batch.tokens.begin() + static_cast<ptrdiff_t>(begin),
                      batch.tokens.begin() + static_cast<ptrdiff_t>(end));
  for (size_t row = begin; row < end; ++row) {
    const BatchPlace& place = batch.places[row];
    const bool starts = row == begin || batch.places[row - 1].sequence != place.sequence;
    if (starts) {
      BatchSequence sequence = batch.sequences[static_cast<size_t>(place.sequence)];
      // What is done once, in the piece that comes to it first.
      const bool resumes = row > 0 && batch.places[row - 1].sequence == place.sequence;
      if (resumes) sequence.restore = -1;
      size_t last = row;
      while (last < end && batch.places[last].sequence == place.sequence) ++last;
      const int64_t first = place.position, past = first + static_cast<int64_t>(last - row);
      if (sequence.save_at > past || sequence.save_at < first + resumes) sequence.save = -1;
      piece.sequences.push_back(sequence);
    }
    piece.places.push_back({static_cast<int32_t>(piece.sequences.size()) - 1, place.position});
  }
  for (int32_t row : batch.outputs) {
    const auto at = static_cast<size_t>(row);
    if (at >= begin && at < end) piece.outputs.push_back(row - static_cast<int32_t>(begin));
  }
  const size_t width = batch.input.size() / std::max<size_t>(batch.tokens.size(), 1);
  piece.input = batch.input.subspan(begin * width, (end - begin) * width);
  return piece;
}

}  // namespace

std::string EncodeBatch(const Batch& batch) {
  std::string bytes;
  PutAll<int32_t>(bytes, batch.tokens);
  PutAll<int32_t>(bytes, batch.outputs);
  for (const BatchPlace& place : batch.places) {
    Put(bytes, place.sequence);
    Put(bytes, place.position);
  }
  Put(bytes, std::ssize(batch.sequences));
  for (const BatchSequence& sequence : batch.sequences) {
    PutAll<int32_t>(bytes, sequence.pages);
    for (int64_t number : {sequence.slot, sequence.restore, sequence.save, sequence.save_at})
      Put(bytes, number);
  }
  PutAll<float>(bytes, batch.input);
  return bytes;
}

OwnedBatch DecodeBatch(const std::string& bytes) {
  Reader reader(bytes);
  OwnedBatch owned;
  Batch& batch = owned.batch;
  batch.tokens = reader.All<int32_t>();
  batch.outputs = reader.All<int32_t>();
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    const auto sequence = static_cast<int32_t>(reader.Number());
    batch.places.push_back({sequence, reader.Number()});
  }
  for (int64_t left = reader.Number(); left > 0; --left) {
    owned.pages.push_back(reader.All<int32_t>());
    BatchSequence sequence;
    for (int64_t BatchSequence::*member : {&BatchSequence::slot, &BatchSequence::restore,
                                           &BatchSequence::save, &BatchSequence::save_at}) {
      sequence.*member = reader.Number();
    }
    batch.sequences.push_back(sequence);
  }
  owned.input = reader.All<float>();
  batch.input = owned.input;
  reader.ExpectEnd();
  for (size_t i = 0; i < owned.pages.size(); ++i) batch.sequences[i].pages = owned.pages[i];
  return owned;
}

std::vector<Batch> CutBatch(const Batch& batch, int64_t pieces) {
  const size_t rows = batch.tokens.size();
  std::vector<Batch> all;
  size_t begin = 0;
  for (int64_t i = 1; i <= pieces; ++i) {
    size_t end = rows * static_cast<size_t>(i) / static_cast<size_t>(pieces);
    while (end < rows && end > begin && !MayCut(batch, end)) ++end;
    if (end <= begin) continue;
    all.push_back(PieceOf(batch, begin, end));
    begin = end;
  }
  return all;
}

}  // namespace lockstep
