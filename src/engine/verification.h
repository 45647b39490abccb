// Proof, on the machine at hand, that the shape of a run changes no bit: the same tokens in runs of many shapes, and one hash of the logits of each.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "engine/model.h"

namespace lockstep {

// How a model is opened.
struct OpenedShape {
  int ranks = 1;  // of each process
  SplitMode split = SplitMode::kTensor;
  // Of the ranks in turn, again from the first where there are more; empty: equal. 0: nothing.
  std::vector<double> proportions = {};
  ExpertSplit experts = ExpertSplit::kSlices;
  int threads = 1;  // of each process
  Isa isa = Isa::kPortable;
  bool once = false;  // run alone, in one size of batches: instruction sets that are slow
};

// What a sequence runs beside, or after.
enum class Company : uint8_t {
  kAlone,
  kPrefix,  // after the longest prefix of whole pages, which another sequence has left in the cache
  kMates,   // among sequences of other lengths in the same batches
};
// "alone", "after a prefix", "among mates"
std::string_view CompanyName(Company company);

struct VerifiedRun {
  OpenedShape opened;
  int64_t micro_batch = 0;  // rows of the sequence in a batch at most
  Company company = Company::kAlone;
  std::string hash;  // SHA-256 of the logits of all positions, f32 [t, v], hexadecimal
  // The first position whose logits have other bits than in the first run.
  std::optional<int64_t> differs_at;
};

struct Verification {
  LoadOptions load;             // the shape in it is not looked at
  std::vector<int32_t> tokens;  // of the sequence, [t]
  std::vector<OpenedShape> shapes;
  std::vector<int64_t> micro_batches;  // the last is that of shapes which run once
};

// Shapes for a machine with these instruction sets, the plainest first. every: all combinations of plans, threads and instruction sets, not each
// of them at least once.
std::vector<OpenedShape> ShapesToVerify(std::span<const Isa> isas, bool every);

// Opens the model in each shape, but not with whole experts where it has none, and runs the tokens in each micro-batch and company; `visit` sees every run as it ends. Processes that do not lead
// follow, and see none. Returns whether all runs had the same bits. Throws as Model and Evaluator::Run() do.
bool Verify(const Verification& verification,
            FunctionRef<std::unique_ptr<Model>(const LoadOptions&)> open,
            FunctionRef<void(const VerifiedRun&)> visit);

}  // namespace lockstep
