// Importance matrices collected by running a model over text: what `imatrix` computes.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "convert/imatrix.h"
#include "engine/evaluator.h"

namespace lockstep {

struct ImportanceOptions {
  bool output = false;  // the output matrix too, not only those of layers
};

// Sums the squares of what every matrix of a model is multiplied by, while it lives. Activations
// count as the matrix met them: in 8-bit codes where it is quantised. Of experts, what the down
// matrix meets has been weighted by the router.
class ImportanceCollector {
 public:
  ImportanceCollector(Model& model, const ImportanceOptions& options);
  ImportanceCollector(const ImportanceCollector&) = delete;
  ImportanceCollector& operator=(const ImportanceCollector&) = delete;
  ~ImportanceCollector();

  // What was seen up to now; chunks and datasets are the caller's to set.
  Imatrix& matrix() { return matrix_; }

 private:
  void See(ValueId weight, int64_t expert, std::span<const float> x);

  Model& model_;
  ImportanceOptions options_;
  Imatrix matrix_;
  std::vector<ImatrixEntry*> entries_;  // by value; null: not seen yet
  std::vector<bool> wanted_;            // by value
};

}  // namespace lockstep
