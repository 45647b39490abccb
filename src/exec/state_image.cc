#include "exec/state_image.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "exec/weight_rows.h"

namespace lockstep {
namespace {

uint64_t Unsigned(int64_t n) { return static_cast<uint64_t>(n); }

// The value of a state in a rank's graph: what part of the whole it is.
const Value& ValueOf(const Graph& rank, int32_t slot) {
  const auto at = std::ranges::find_if(rank.values, [&](const Value& value) {
    return value.kind == Value::Kind::kState && value.state_slot == slot;
  });
  LOCKSTEP_CHECK(at != rank.values.end(), "no value of state {}", slot);
  return *at;
}

}  // namespace

StateImages::StateImages(const std::vector<StateSpec>& states, const KvTypes& types)
    : types_(types) {
  auto add = [](std::vector<StateField>& fields, StateField field) {
    field.begin = BytesOf(fields);
    if (field.bytes > 0) fields.push_back(std::move(field));
  };
  for (const StateSpec& state : states) {
    if (state.kind == StateSpec::Kind::kRecurrent) {
      StateField field{.name = state.name, .bytes = sizeof(float)};
      for (const Axis& axis : state.shape) {
        field.dims.push_back(Unsigned(axis.size));
        field.bytes *= axis.size;
      }
      add(recurrent_fields_, std::move(field));
      continue;
    }
    const KvLayout layout = KvLayoutOf(state, types);
    add(page_fields_, {state.name + ".k",
                       {Unsigned(layout.kv_heads), Unsigned(layout.k_head_bytes())},
                       0,
                       layout.k_bytes(),
                       layout.pool});
    if (layout.values_in_keys) continue;
    add(page_fields_, {state.name + ".v",
                       {Unsigned(layout.kv_heads), Unsigned(layout.v_head_bytes())},
                       0,
                       layout.v_bytes(),
                       layout.pool});
  }
}

const StateField* StateImages::Find(const std::vector<StateField>& fields,
                                    const std::string& name) const {
  const auto at = std::ranges::find(fields, name, &StateField::name);
  return at == fields.end() ? nullptr : &*at;
}

std::vector<StateRun> StateImages::PageRuns(const Graph& rank) const {
  std::vector<StateRun> runs;
  for (int32_t slot = 0; slot < std::ssize(rank.states); ++slot) {
    const StateSpec& state = rank.states[static_cast<size_t>(slot)];
    if (state.kind != StateSpec::Kind::kKv || state.kv_heads == 0) continue;
    const Part& part = ValueOf(rank, slot).part;
    const int64_t head = part.cut() ? part.begin[1] : 0;
    const KvLayout layout = KvLayoutOf(state, types_);
    if (const StateField* keys = Find(page_fields_, state.name + ".k"))
      runs.push_back(
          {keys->begin + head * layout.k_head_bytes(), slot, false, 0, layout.k_bytes()});
    if (const StateField* values = Find(page_fields_, state.name + ".v"))
      runs.push_back(
          {values->begin + head * layout.v_head_bytes(), slot, true, 0, layout.v_bytes()});
  }
  return runs;
}

std::vector<StateRun> StateImages::RecurrentRuns(const Graph& rank) const {
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  std::vector<StateRun> runs;
  for (int32_t slot = 0; slot < std::ssize(rank.states); ++slot) {
    const StateSpec& state = rank.states[static_cast<size_t>(slot)];
    const StateField* field = Find(recurrent_fields_, state.name);
    if (state.kind != StateSpec::Kind::kRecurrent || field == nullptr) continue;
    int64_t local = 0;
    for (const IndexRun& run : RunsOf(ValueOf(rank, slot), 0, state.shape.rank())) {
      if (run.size > 0)
        runs.push_back({field->begin + run.begin * kFloat, slot, false, local, run.size * kFloat});
      local += run.size * kFloat;
    }
  }
  return runs;
}

void StateImages::ClearUnwritten(int64_t page, std::span<std::byte> image) const {
  for (const StateField& field : page_fields_) {
    if (field.pool <= kPageTokens || (page + 1) * kPageTokens % field.pool == 0) continue;
    std::memset(image.data() + field.begin, 0, static_cast<size_t>(field.bytes));
  }
}

}  // namespace lockstep
