#include "engine/verification.h"

#include <algorithm>
#include <numeric>

#include "base/checked.h"
#include "base/error.h"
#include "comm/communicator.h"
#include "engine/evaluator.h"
#include "engine/sequence_rows.h"
#include "engine/sha256.h"

namespace lockstep {
namespace {

constexpr Company kCompanies[] = {Company::kAlone, Company::kPrefix, Company::kMates};
// The sequence itself, and two beside it.
constexpr int64_t kSequences = 3;

// The bits of logits: one number for all rows, and one for each.
class RowHashes {
 public:
  void Add(std::span<const float> rows, int64_t width) {
    all_.Add(std::as_bytes(rows));
    for (size_t at = 0; at < rows.size(); at += static_cast<size_t>(width)) {
      const auto* bytes = reinterpret_cast<const char*>(rows.data() + at);
      rows_.push_back(std::hash<std::string_view>{}({bytes, static_cast<size_t>(width) * 4}));
    }
  }
  std::string Hex() { return all_.Hex(); }
  const std::vector<size_t>& rows() const { return rows_; }

 private:
  Sha256 all_;
  std::vector<size_t> rows_;
};

// Tokens of a sequence from position `first` on.
struct Feed {
  std::span<const int32_t> tokens;
  BatchSequence sequence;
  int64_t first = 0;
};

class ShapeRuns {
 public:
  ShapeRuns(Model& model, std::span<const int32_t> tokens) : model_(model), tokens_(tokens) {
    const auto pages = static_cast<size_t>(CeilDiv(model.context(), kPageTokens));
    for (auto& table : pages_) table.resize(pages);
    // In an order of its own, so that nothing may rest on neighbours.
    int32_t next = static_cast<int32_t>(pages * kSequences);
    for (size_t page = 0; page < pages; ++page) {
      for (auto& table : pages_) table[page] = --next;
    }
  }

  bool Has(Company company) const { return company != Company::kPrefix || prefix() > 0; }

  // The result is valid until the next run.
  RowHashes& Run(Company company, int64_t micro_batch) {
    hashes_.emplace();
    switch (company) {
      case Company::kAlone:
        RunBatches({FeedOf(1, tokens_)}, 0, micro_batch);
        break;
      case Company::kPrefix:
        RunPrefix(micro_batch);
        break;
      case Company::kMates: {
        const std::vector<int32_t> backwards(tokens_.rbegin(), tokens_.rend());
        const std::span<const int32_t> third = tokens_.first((tokens_.size() + 2) / 3);
        RunBatches({FeedOf(0, backwards), FeedOf(1, tokens_), FeedOf(2, third)}, 1, micro_batch);
        break;
      }
    }
    return *hashes_;
  }

 private:
  // The last token of a sequence is never taken from the cache.
  int64_t prefix() const { return (std::ssize(tokens_) - 1) / kPageTokens * kPageTokens; }

  Feed FeedOf(size_t sequence, std::span<const int32_t> tokens) const {
    return {tokens, {pages_[sequence], static_cast<int64_t>(sequence)}};
  }

  void RunPrefix(int64_t micro_batch) {
    const auto length = static_cast<size_t>(prefix());
    Feed before = FeedOf(2, tokens_.first(length)), after = FeedOf(0, tokens_.subspan(length));
    after.first = prefix();
    if (model_.ranks().recurrent()) {
      before.sequence.save = after.sequence.restore = 0;
      before.sequence.save_at = prefix();
    }
    std::vector<int32_t> shared = pages_[0];
    std::copy_n(pages_[2].begin(), length / kPageTokens, shared.begin());
    after.sequence.pages = shared;
    RunBatches({before}, 0, micro_batch);
    RunBatches({after}, 0, micro_batch);
  }

  // Runs all sequences side by side until they end, and takes the logits of one.
  void RunBatches(std::vector<Feed> feeds, size_t wanted, int64_t micro_batch) {
    const ProgramOptions& limits = model_.ranks().options();
    const int64_t most =
        std::min({micro_batch, limits.max_tokens / std::ssize(feeds), limits.max_outputs});
    for (int64_t done = 0;; done += most) {
      Batch batch;
      for (size_t s = 0; s < feeds.size(); ++s) {
        Feed& feed = feeds[s];
        const int64_t end = std::min(done + most, std::ssize(feed.tokens));
        // A sequence that has ended is not in the batch.
        if (done >= end) continue;
        for (int64_t i = done; i < end; ++i) {
          if (s == wanted) batch.outputs.push_back(static_cast<int32_t>(batch.tokens.size()));
          batch.tokens.push_back(feed.tokens[static_cast<size_t>(i)]);
          batch.places.push_back({static_cast<int32_t>(batch.sequences.size()), feed.first + i});
        }
        batch.sequences.push_back(feed.sequence);
        // A snapshot is taken by the batch that has its position.
        if (feed.sequence.save_at > feed.first + end || feed.sequence.save_at <= feed.first + done)
          batch.sequences.back().save = -1;
        feed.sequence.restore = -1;
      }
      if (batch.tokens.empty()) return;
      RunFinite(batch, model_.ranks());
      if (!batch.outputs.empty())
        hashes_->Add(model_.ranks().Result(model_.graph().logits), model_.vocab());
    }
  }

  Model& model_;
  const std::span<const int32_t> tokens_;
  std::vector<int32_t> pages_[kSequences];
  std::optional<RowHashes> hashes_;
};

bool HasExperts(const Graph& graph) {
  return std::ranges::any_of(graph.values, [](const Value& value) {
    return value.kind == Value::Kind::kWeight &&
           std::ranges::any_of(value.shape, [](const Axis& axis) { return axis.name == 'e'; });
  });
}

LoadOptions OptionsOf(const Verification& verification, const OpenedShape& shape) {
  LoadOptions load = verification.load;
  load.ranks = shape.ranks;
  load.split = shape.split;
  load.experts = shape.experts;
  load.threads = shape.threads;
  load.isa = shape.isa;
  load.proportions.clear();
  for (int i = 0; i < shape.ranks * Processes() && !shape.proportions.empty(); ++i)
    load.proportions.push_back(
        shape.proportions[static_cast<size_t>(i) % shape.proportions.size()]);
  load.sequences = kSequences;
  load.snapshots = 1;
  const auto length = std::ssize(verification.tokens);
  load.context = length + 1;
  load.micro_batch = kSequences * *std::ranges::max_element(verification.micro_batches);
  load.micro_batch = std::min(load.micro_batch, kSequences * length);
  load.outputs = std::min(load.micro_batch / kSequences, length);
  return load;
}

}  // namespace

std::string_view CompanyName(Company company) {
  constexpr std::string_view kNames[] = {"alone", "after a prefix", "among mates"};
  return kNames[static_cast<size_t>(company)];
}

std::vector<OpenedShape> ShapesToVerify(std::span<const Isa> isas, bool every) {
  using enum SplitMode;
  const OpenedShape plans[] = {{1},
                               {2},
                               {2, kTensor, {1, 3}},
                               {3},
                               {4},
                               {2, kTensor, {7, 1}},
                               {2, kTensor, {1, 0}},
                               {2, kTensor, {}, ExpertSplit::kWhole},
                               {2, kLayer},
                               {3, kLayer, {2, 0, 1}}};
  const Isa best = isas.back();
  std::vector<OpenedShape> shapes;
  for (const OpenedShape& plan : plans) {
    for (int threads : {1, 2}) {
      for (auto isa = isas.rbegin(); isa != isas.rend(); ++isa) {
        // Lesser instruction sets by themselves and with a cut; the other plans have one number of threads and the other in turn.
        const bool first = &plan - plans < 1, second = &plan - plans == 2;
        const bool in_turn = threads == 1 + (&plan - plans) % 2;
        const bool wanted = *isa == best ? first || in_turn : threads == 2 && (first || second);
        if (!every && !wanted) continue;
        shapes.push_back(plan);
        shapes.back().threads = threads * plan.ranks;
        shapes.back().isa = *isa;
        shapes.back().once = !every && *isa != best;
      }
    }
  }
  return shapes;
}

bool Verify(const Verification& verification,
            FunctionRef<std::unique_ptr<Model>(const LoadOptions&)> open,
            FunctionRef<void(const VerifiedRun&)> visit) {
  std::vector<size_t> expected;
  bool same = true, experts = true;
  for (const OpenedShape& shape : verification.shapes) {
    if (shape.experts == ExpertSplit::kWhole && !experts) continue;
    const std::unique_ptr<Model> model = open(OptionsOf(verification, shape));
    experts = HasExperts(model->graph());
    if (!model->leads()) {
      model->Follow();
      continue;
    }
    Evaluator::Expect(*model, verification.tokens);
    ShapeRuns runs(*model, verification.tokens);
    const size_t sizes = shape.once ? 1 : verification.micro_batches.size();
    for (int64_t micro_batch : std::span(verification.micro_batches).last(sizes)) {
      for (Company company : std::span(kCompanies).first(shape.once ? 1 : std::size(kCompanies))) {
        if (!runs.Has(company)) continue;
        RowHashes& found = runs.Run(company, micro_batch);
        if (expected.empty()) expected = found.rows();
        const auto [here, there] = std::ranges::mismatch(found.rows(), expected);
        VerifiedRun run{shape, micro_batch, company, found.Hex(), std::nullopt};
        if (here != found.rows().end() || there != expected.end())
          run.differs_at = here - found.rows().begin();
        same = same && !run.differs_at;
        visit(run);
      }
    }
  }
  return same;
}

}  // namespace lockstep
