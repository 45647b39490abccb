#include "exec/state_image.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

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

// Calls run(whole, local, count) for numbers that lie together in both arrays.
template <typename F>
void ForEachRun(const Shape& local, const Part& part, F run) {
  const Shape& whole = part.cut() ? part.whole : local;
  // Axes behind the innermost cut one are together.
  size_t inner = local.rank();
  int64_t together = 1;
  while (inner > 0 && local[inner - 1].size == whole[inner - 1].size)
    together *= local[--inner].size;
  if (inner == 0) return run(0, 0, together);
  together *= local[inner - 1].size;
  int64_t runs = 1;
  for (size_t i = 0; i + 1 < inner; ++i) runs *= local[i].size;
  for (int64_t index = 0; index < runs; ++index) {
    int64_t rest = index, at = part.begin[inner - 1], stride = 1;
    for (size_t i = inner; i < local.rank(); ++i) stride *= whole[i].size;
    at *= stride;
    stride *= whole[inner - 1].size;
    for (size_t i = inner - 1; i-- > 0; stride *= whole[i].size) {
      at += (rest % local[i].size + part.begin[i]) * stride;
      rest /= local[i].size;
    }
    run(at, index * together, together);
  }
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
    ForEachRun(
        state.shape, ValueOf(rank, slot).part, [&](int64_t whole, int64_t local, int64_t count) {
          if (count > 0)
            runs.push_back(
                {field->begin + whole * kFloat, slot, false, local * kFloat, count * kFloat});
        });
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
