#include "apps/trace_report.h"

#include <algorithm>
#include <sstream>

namespace lockstep {
namespace {

int64_t Layers(const Graph& graph) {
  int64_t layers = 0;
  for (const Node& node : graph.nodes) layers = std::max<int64_t>(layers, node.layer + 1);
  return layers;
}

std::string PerLayer(int64_t count, int64_t layers) {
  return layers == 0 ? ""
                     : fmt::format(" ({:.1f} a layer)",
                                   static_cast<double>(count) / static_cast<double>(layers));
}

// The program's print, with seconds before each step.
std::string Steps(const Program& program, const Graph& graph, const Executor& executor) {
  std::istringstream lines(program.Print(graph));
  std::string text;
  auto seconds = executor.step_seconds().begin();
  for (std::string line; std::getline(lines, line);) {
    // The first line is about the whole, others without a number stand between steps.
    const bool step = !text.empty() && !line.starts_with('-');
    text += step ? fmt::format("{:>10.3f} ms {}\n", 1e3 * *seconds++, line) : line + "\n";
  }
  return text;
}

std::string Collectives(const Program& program, const ExchangeCounts& counts, int64_t layers) {
  const int64_t in_program = std::ranges::count_if(
      program.steps(), [](const Step& step) { return step.op->collective(); });
  std::string text = fmt::format("{} collectives{}", in_program, PerLayer(in_program, layers));
  if (counts.exchanges == 0) return text;
  const auto all = static_cast<double>(counts.exchanges);
  return text + fmt::format(", ran {}: {:.1f} us and {:.0f} bytes each", counts.exchanges,
                            1e6 * counts.seconds / all, static_cast<double>(counts.bytes) / all);
}

}  // namespace

std::string TraceReport(const Model& model) {
  const RankSet& ranks = model.ranks();
  const int64_t layers = Layers(model.graph());
  std::string text;
  for (int i = 0; i < ranks.local_ranks(); ++i) {
    const Program& program = ranks.program(i);
    text += fmt::format("rank {}\n", ranks.first_rank() + i);
    text += Steps(program, ranks.graph(i), ranks.executor(i));
    text += fmt::format("rank {}: {} steps, {} barriers{}, {}\n", ranks.first_rank() + i,
                        program.steps().size(), program.barriers(),
                        PerLayer(program.barriers(), layers),
                        Collectives(program, ranks.exchanges(i), layers));
  }
  return text;
}

}  // namespace lockstep
