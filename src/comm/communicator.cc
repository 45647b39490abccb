#include "comm/communicator.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/error.h"
#include "comm/mpi.h"
#include "comm/mpi_environment.h"
#include "comm/teams.h"

namespace lockstep {
namespace {

constexpr TransportRow kTransports[] = {
    {"mpi", MpiServes, ConnectMpi},
    {"teams", [](const GroupOptions&) { return true; },
     [](const GroupOptions& options) -> std::unique_ptr<RankGroup> {
       return std::make_unique<TeamsGroup>(options);
     }},
};

void TakeLargest(std::span<const float* const> rows, int64_t count, float* out) {
  std::copy_n(rows[0], count, out);
  for (const float* row : rows.subspan(1)) {
    for (int64_t c = 0; c < count; ++c) out[c] = std::max(out[c], row[c]);
  }
}

std::atomic<bool> ends_alone{false};

}  // namespace

std::span<const TransportRow> Transports() { return kTransports; }

void EndAlone() { ends_alone = true; }
bool EndsAlone() { return ends_alone; }

int Processes() { return MpiProcesses(); }
int ThisProcess() { return MpiProcess(); }
int ProcessesOnThisHost() { return MpiLocalProcesses(); }

std::unique_ptr<RankGroup> ConnectRanks(const GroupOptions& options) {
  LOCKSTEP_CHECK(std::ssize(options.threads) == options.local_ranks, "{} ranks, {} teams",
                 options.local_ranks, options.threads.size());
  return std::ranges::find_if(kTransports,
                              [&](const TransportRow& row) { return row.serves(options); })
      ->create(options);
}

RankParts Communicator::Exchange(int member, std::span<const std::byte* const> mine,
                                 std::span<const int64_t> bytes) {
  if (member != 0) return DoExchange(member, mine, bytes);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const RankParts parts = DoExchange(member, mine, bytes);
  counts_.seconds += std::chrono::duration<double>(Clock::now() - start).count();
  ++counts_.exchanges;
  const auto own = bytes.subspan(static_cast<size_t>(rank()) * mine.size(), mine.size());
  counts_.bytes += std::accumulate(bytes.begin(), bytes.end(), int64_t{0}) -
                   std::accumulate(own.begin(), own.end(), int64_t{0});
  return parts;
}

void Communicator::Reduce(int member, std::span<const ReduceTerm> terms, int64_t rows,
                          WorkRange columns, CombineRootsFn* combine) {
  const std::byte* mine[kMaxParts];
  std::vector<int64_t> bytes(static_cast<size_t>(ranks()) * terms.size());
  for (size_t i = 0; i < terms.size(); ++i) {
    mine[i] = reinterpret_cast<const std::byte*>(terms[i].roots);
    for (size_t rank = 0; rank < static_cast<size_t>(ranks()); ++rank) {
      bytes[rank * terms.size() + i] =
          terms[i].rank_roots[rank] * rows * terms[i].width * static_cast<int64_t>(sizeof(float));
    }
  }
  const RankParts parts = Exchange(member, std::span(mine).first(terms.size()), bytes);
  std::vector<const float*> roots, row_roots;
  for (size_t i = 0; i < terms.size(); ++i) {
    const ReduceTerm& term = terms[i];
    const WorkRange own{std::min(columns.begin, term.width), std::min(columns.end, term.width)};
    if (own.size() == 0) continue;
    roots.clear();
    auto take = [&](size_t rank, int64_t root) {
      const auto* data = reinterpret_cast<const float*>(parts.at(rank, i));
      roots.push_back(data + root * rows * term.width + own.begin);
    };
    for (const RootPlace& place : term.order) take(static_cast<size_t>(place.rank), place.index);
    for (size_t rank = 0; term.fold == nullptr && rank < term.rank_roots.size(); ++rank) {
      if (term.rank_roots[rank] > 0) take(rank, 0);
    }
    row_roots.resize(roots.size());
    for (int64_t t = 0; t < rows; ++t) {
      for (size_t r = 0; r < roots.size(); ++r) row_roots[r] = roots[r] + t * term.width;
      float* out = term.out + t * term.out_stride + own.begin;
      if (term.fold != nullptr) {
        combine(*term.fold, row_roots.data(), own.size(), out);
      } else {
        TakeLargest(row_roots, own.size(), out);
      }
    }
  }
}

void Communicator::Gather(int member, const float* mine, std::span<const int64_t> widths,
                          int64_t rows, WorkRange columns, float* out) {
  const int64_t all = std::accumulate(widths.begin(), widths.end(), int64_t{0});
  std::vector<int64_t> bytes;
  for (int64_t width : widths) bytes.push_back(rows * width * static_cast<int64_t>(sizeof(float)));
  const std::byte* part = reinterpret_cast<const std::byte*>(mine);
  const RankParts parts = Exchange(member, {&part, 1}, bytes);
  int64_t at = 0;
  for (size_t rank = 0; rank < widths.size(); at += widths[rank++]) {
    const int64_t begin = std::max(columns.begin, at),
                  end = std::min(columns.end, at + widths[rank]);
    if (begin >= end) continue;
    const auto* data = reinterpret_cast<const float*>(parts.at(rank, 0));
    for (int64_t t = 0; t < rows; ++t)
      std::copy_n(data + t * widths[rank] + begin - at, end - begin, out + t * all + begin);
  }
}

}  // namespace lockstep
