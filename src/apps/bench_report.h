// What `bench` measured, and how it is shown.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/perplexity.h"

namespace lockstep {

// One thing to measure: a prompt, an answer, or both, after `depth` cached tokens.
struct BenchTest {
  int64_t prompt = 0;
  int64_t gen = 0;
  int64_t depth = 0;

  std::string name() const;  // "pp512", "tg64 @ d8192", "pp512+tg64"
};

struct BenchModel {
  std::string file;
  std::string name;
  uint64_t bytes = 0;  // of all tensors in the file
  uint64_t parameters = 0;
  std::string isa;
};

// One test with one number of threads, over all repetitions. Shares are of the limit that was
// measured in the same round.
struct BenchResult {
  BenchTest test;
  int threads = 0;
  Mean tokens_per_s;
  std::vector<double> samples;  // tokens_per_s of each repetition
  Mean bytes_per_s;             // weights, K and V that were read; of pure answers
  Mean ops_per_s;               // 8-bit multiplications and additions of weights; of pure prompts
  Mean share;                   // of memory bandwidth for answers, of the integer peak for prompts
  Mean read_limit;              // bytes per second
  Mean ops_limit;               // operations per second
};

// Standard deviation of the samples; 0 below two.
double Deviation(std::span<const double> samples);

// The table as --output names it: "md", "csv", "json" (one object) or "jsonl" (one object a line).
std::string BenchTable(std::string_view format, const BenchModel& model,
                       std::span<const BenchResult> results);

// A drawing of the same: one bar a result, prompts and answers each to a scale of their own.
std::string BenchSvg(const BenchModel& model, std::span<const BenchResult> results);

}  // namespace lockstep
