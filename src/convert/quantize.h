// The quantiser: a GGUF file to another whose tensors have the formats of a mix.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert/imatrix.h"
#include "convert/quantize_mix.h"

namespace lockstep {

struct QuantizeOptions {
  std::string input;
  // Appears whole or not at all. With keep_split the prefix of the files:
  // "PREFIX-00001-of-0000N.gguf".
  std::string output;
  MixOptions mix;
  const Imatrix* imatrix = nullptr;
  std::string imatrix_name;  // written to the file's metadata
  bool allow_requantize = false;
  bool keep_split = false;
  bool dry_run = false;  // everything but encoding and writing
  int threads = 0;       // 0: one for each usable core
};

// What became of one tensor. Errors are those of the numbers that a reader will decode.
struct QuantizedTensor {
  std::string name;
  const Format* from = nullptr;
  const Format* to = nullptr;
  const Format* meant = nullptr;  // not `to` where rows do not fit its blocks
  uint64_t weights = 0;
  uint64_t bytes_before = 0, bytes_after = 0;
  // Experts of which the importance matrix knows nothing: all their columns count alike.
  std::vector<int64_t> unseen_experts;
  double squares = 0;                                // sum over the weights of x^2
  double square_errors = 0;                          // and of (x - decoded)^2
  double weighted_squares = 0, weighted_errors = 0;  // the same with importance, 0 without
  double largest_error = 0;

  bool fell_back() const { return to != meant; }
  // Root of the mean square error over that of the weights.
  double relative_error() const;
};

struct QuantizeResult {
  std::vector<QuantizedTensor> tensors;  // in file order
  uint64_t bytes_before = 0, bytes_after = 0;
};

// The same bytes whatever the number of threads. Takes memory for a few million weights at a time.
// Refused in one line: unknown names, quantised tensors without allow_requantize, tiny formats
// without an importance matrix, an importance matrix of another shape, and weights that are NaN or
// infinite, by tensor, row and column. Failed where writing fails.
QuantizeResult QuantizeFile(const QuantizeOptions& options);

}  // namespace lockstep
