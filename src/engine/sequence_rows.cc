#include "engine/sequence_rows.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "base/interrupt.h"

namespace lockstep {
namespace {

Batch BatchOf(const SequenceRows& rows, const RowsDone& part) {
  Batch batch;
  // Pages beyond the last row are nobody's business.
  const int64_t pages = CeilDiv(rows.position + part.end, kPageTokens);
  batch.sequences = {{rows.pages.first(static_cast<size_t>(pages))}};
  batch.sequences[0].slot = 0;
  if (part.begin == 0) batch.sequences[0].restore = rows.restore;
  const int64_t page_end = (rows.position + part.end) / kPageTokens * kPageTokens;
  if (page_end > rows.position + part.begin) {
    batch.sequences[0].save = rows.save;
    batch.sequences[0].save_at = page_end;
  }
  for (int64_t i = part.begin; i < part.end; ++i) {
    batch.tokens.push_back(rows.tokens[static_cast<size_t>(i)]);
    batch.places.push_back({0, rows.position + i});
    if (i >= part.wanted) batch.outputs.push_back(static_cast<int32_t>(i - part.begin));
  }
  const auto width = std::ssize(rows.input) / std::max<int64_t>(std::ssize(rows.tokens), 1);
  batch.input = rows.input.subspan(static_cast<size_t>(part.begin * width),
                                   static_cast<size_t>((part.end - part.begin) * width));
  return batch;
}

}  // namespace

void RunFinite(const Batch& batch, RankSet& ranks) {
  ThrowIfInterrupted();
  ranks.Run(batch);
  for (size_t row = 0; row < batch.tokens.size(); ++row) {
    const std::string step = ranks.Fault(static_cast<int64_t>(row));
    if (step.empty()) continue;
    throw Failed("{}: expected finite numbers, found NaN or infinity at position {}", step,
                 batch.places[row].position);
  }
}

void RunRows(const SequenceRows& rows, RankSet& ranks, FunctionRef<void(const RowsDone&)> done) {
  const ProgramOptions& limits = ranks.options();
  const auto size = std::ssize(rows.tokens);
  for (RowsDone part{}; part.begin < size; part.begin = part.end) {
    part.wanted = std::max(part.begin, rows.first_wanted);
    part.end = std::min({size, part.begin + limits.max_tokens, part.wanted + limits.max_outputs});
    part.wanted = std::min(part.wanted, part.end);
    RunFinite(BatchOf(rows, part), ranks);
    done(part);
  }
}

}  // namespace lockstep
