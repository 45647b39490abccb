#include <cmath>

#include "base/error.h"
#include "gguf/gguf_writer.h"
#include "noise.h"
#include "rule_cases.h"

namespace lockstep::test {
namespace {

constexpr int64_t kColumns = 12;

// Rows that look random: a function of the token and the column.
class Source final : public Operation {
 public:
  std::string_view name() const override { return "source"; }
  std::string_view rule() const override { return "t -> ts"; }
  FactorRule::OwnAxes own_axes() const override { return {{'s', Axis{'s', kColumns, 1}}}; }
  OperandKind operand(size_t) const override { return OperandKind::kTokens; }
  Split split() const override { return Split::kTokens; }
  void Run(const StepContext& step) const override {
    const Rows& y = step.out_rows();
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      for (int64_t c = 0; c < y.width; ++c) {
        const auto token = static_cast<uint64_t>(step.rows.tokens[static_cast<size_t>(t)]);
        y.row(t)[c] = static_cast<float>(Noise(token * 977 + 5, static_cast<uint64_t>(c) + 1));
      }
    }
  }
};

std::vector<int32_t> Prompt() {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 40; ++i) tokens.push_back(i * 71 % kBenchVocab);
  return tokens;
}

const std::vector<double> kShares[] = {{1, 1}, {1, 1, 1}, {1, 1, 1, 1}, {1, 3}, {0, 1, 1}};

}  // namespace

Bench::Bench() : source_(build_.Apply("source", std::make_shared<Source>(), {build_.tokens()})) {}

void WriteWeights(const Graph& graph, const std::string& path) {
  GgufWriter writer(path);
  const std::vector<ExpectedTensor> tensors = ExpectedTensors(graph);
  for (const ExpectedTensor& tensor : tensors)
    writer.AddTensor(tensor.name, FindFormat("F32")->id, tensor.dims);
  for (const ExpectedTensor& tensor : tensors) {
    uint64_t count = 1;
    for (uint64_t dim : tensor.dims) count *= dim;
    std::vector<float> values(count);
    const double scale = 1 / std::sqrt(static_cast<double>(tensor.dims[0]));
    for (uint64_t i = 0; i < count; ++i)
      values[i] = static_cast<float>(scale * Noise(NameHash(tensor.name, 7), i + 1));
    writer.Write(std::as_bytes(std::span(values)));
  }
  writer.Finish();
}

std::vector<float> Results(ModelRun& model, const std::vector<double>& shares,
                           const std::string& seeds) {
  RunOptions options;
  options.ranks = static_cast<int>(shares.size());
  options.proportions = shares;
  options.seeds = seeds;
  options.threads = shares.size() == 2 ? 2 : 1;
  return model.Run({Prompt()}, options)[0].logits;
}

std::set<char> LeafNames(const Graph& graph) {
  std::set<char> names;
  for (const Value& value : graph.values) {
    if (value.kind == Value::Kind::kComputed) continue;
    for (const Axis& axis : value.shape) names.insert(axis.name);
  }
  names.erase('t');
  names.erase('s');
  return names;
}

std::string RankDifference(ModelRun& model, const std::set<char>& names) {
  const std::vector<float> expected = Results(model, {1}, Plan{}.seeds);
  for (char name : names) {
    for (const std::vector<double>& shares : kShares) {
      const std::vector<float> found = Results(model, shares, std::string(1, name));
      if (SameBits(found, expected)) continue;
      return fmt::format("{} over {} ranks: differs by {}", name, shares.size(),
                         RelativeDifference(found, expected));
    }
  }
  return "";
}

bool Divides(const ModelRun& model, char name) {
  Plan plan = MakePlan(SplitMode::kTensor, 2, {});
  plan.seeds = std::string(1, name);
  const Graph& graph = model.graph();
  const Cuts cuts(graph, plan, [&](const WeightSource& source) -> const Format& {
    return WeightFormat(model.file(), source);
  });
  auto divides = [&](auto tested) -> std::optional<bool> {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      if (tested(graph.nodes[n].output)) return cuts.divides(n);
    }
    return std::nullopt;
  };
  if (const auto found =
          divides([&](ValueId id) { return id != kNoValue && graph.value(id).name == "tested"; }))
    return *found;
  if (const auto found = divides([&](ValueId id) { return id == kNoValue; })) return *found;
  throw Failed("bench: expected an operation under test, found none");
}

}  // namespace lockstep::test
