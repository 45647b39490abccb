#include "engine/importance.h"

#include "base/error.h"

namespace lockstep {
namespace {

// Matrices whose columns are those of the file's tensor.
bool HasColumns(const Value& value, const ImportanceOptions& options) {
  const std::string& name = value.source.tensor;
  return !value.source.transposed && (options.output || name.starts_with("blk."));
}

}  // namespace

ImportanceCollector::ImportanceCollector(Model& model, const ImportanceOptions& options)
    : model_(model), options_(options) {
  const auto count = model.graph().values.size();
  entries_.assign(count, nullptr);
  wanted_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const Value& value = model.graph().values[i];
    wanted_[i] = value.kind == Value::Kind::kWeight && HasColumns(value, options_);
  }
  if (model.ranks().local_ranks() != 1) {
    throw Refused("imatrix: expected one rank, which sees whole rows, found {}",
                  model.ranks().local_ranks());
  }
  model_.ranks().executor(0).SetObserver(
      [this](ValueId weight, int64_t expert, std::span<const float> x) { See(weight, expert, x); });
}

ImportanceCollector::~ImportanceCollector() { model_.ranks().executor(0).SetObserver({}); }

void ImportanceCollector::See(ValueId weight, int64_t expert, std::span<const float> x) {
  const auto at = static_cast<size_t>(weight);
  if (!wanted_[at]) return;
  const Value& value = model_.graph().value(weight);
  const size_t star = value.source.tensor.find('*');
  ImatrixEntry* entry = entries_[at];
  if (star != std::string::npos) {
    // Each expert has a tensor of its own.
    std::string name = value.source.tensor;
    name.replace(star, 1, std::to_string(expert));
    entry = &matrix_.Add(name, 1, x.size());
    expert = 0;
  } else if (entry == nullptr) {
    const bool stacked = value.shape.rank() == 3 && value.shape[0].name == 'e';
    const auto experts = stacked ? static_cast<uint64_t>(value.shape[0].size) : 1;
    entry = entries_[at] = &matrix_.Add(value.source.tensor, experts, x.size());
  }
  const auto e = static_cast<size_t>(expert);
  LOCKSTEP_CHECK(e < entry->counts.size() && entry->width() == x.size(), "{}: {} of {}",
                 value.source.tensor, e, entry->counts.size());
  double* sums = entry->sums.data() + e * x.size();
  for (size_t i = 0; i < x.size(); ++i) sums[i] += static_cast<double>(x[i]) * x[i];
  ++entry->counts[e];
}

}  // namespace lockstep
