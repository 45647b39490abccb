// The architectures this engine knows: one file and one row each.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "models/source.h"

namespace lockstep {

struct Architecture {
  std::string_view name;  // general.architecture of the file
  Graph (*build)(const ModelSource& source);
};

// By ascending name.
std::span<const Architecture> Architectures();

// States the graph of a file's first next-token block, which runs beside the model's own (models/next_token.h). Throws Refused naming
// nextn_predict_layers where the file has no such block, or the architecture none that is known here.
Graph BuildNextTokenGraph(const ModelSource& source, const Graph& model);

// States the graph of a file. Throws Refused naming the architecture and the known ones, or the key or tensor that does not fit.
Graph BuildGraph(const ModelSource& source);

}  // namespace lockstep
