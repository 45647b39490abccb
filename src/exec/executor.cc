#include "exec/executor.h"

#include <chrono>
#include <cstring>
#include <numeric>

#include "base/checked.h"
#include "base/error.h"

namespace lockstep {
namespace {

// Cuts a slot's bytes into the parts of its form.
Operand SlotOperand(const Slot& slot, std::byte* arena, int64_t rows) {
  std::byte* at = arena + slot.offset;
  if (!slot.quantized) return Rows{reinterpret_cast<float*>(at), slot.width};
  return QuantizedRows::At(at, rows, slot.width);
}

}  // namespace

Executor::Executor(const Graph& graph, const Program& program, const WeightStore& weights,
                   KvPool& pool, RecurrentPool& recurrent, ThreadTeam& team, const Kernels& kernels,
                   Communicator& comm)
    : graph_(graph),
      program_(program),
      pool_(pool),
      recurrent_(recurrent),
      team_(team),
      kernels_(kernels),
      comm_(comm),
      arena_(Size(static_cast<uint64_t>(program.arena_bytes())), "buffers"),
      faults_(program.options().max_tokens) {
  const ProgramOptions& options = program.options();
  auto operand_of = [&](int32_t slot_index) {
    const Slot& slot = program.slots()[static_cast<size_t>(slot_index)];
    return SlotOperand(slot, arena_.data(),
                       slot.rows == RowSet::kAll ? options.max_tokens : options.max_outputs);
  };
  size_t shared_bytes = 0;
  for (const Step& step : program.steps()) {
    std::vector<Operand> in;
    for (size_t i = 0; i < step.in_values.size(); ++i) {
      const Value& value = graph.value(step.in_values[i]);
      switch (value.kind) {
        case Value::Kind::kTokens:
          in.emplace_back();
          break;
        case Value::Kind::kWeight:
          in.push_back(weights.Get(step.in_values[i], step.op->operand(i)));
          break;
        case Value::Kind::kState: {
          const StateSpec& state = graph.states[static_cast<size_t>(value.state_slot)];
          const int32_t slot = pool.slot(state.name);
          if (state.kind == StateSpec::Kind::kKv) {
            in.emplace_back(pool.view(slot));
          } else {
            in.emplace_back(recurrent.view(slot));
            moves_slots_ = true;
          }
          break;
        }
        case Value::Kind::kComputed:
        case Value::Kind::kInput:
          in.push_back(operand_of(step.in[i]));
          break;
      }
    }
    const int64_t rows = step.rows == RowSet::kAll ? options.max_tokens : options.max_outputs;
    scratch_bytes_ = std::max(scratch_bytes_, step.op->scratch_bytes(in, rows));
    shared_bytes = std::max(shared_bytes, step.op->shared_bytes(in, rows));
    in_.push_back(std::move(in));
    out_.push_back(step.out >= 0 ? std::vector<Operand>{operand_of(step.out)}
                                 : std::vector<Operand>{});
  }
  scratch_bytes_ = static_cast<size_t>(RoundUp(static_cast<int64_t>(scratch_bytes_), 4096));
  scratch_ = Buffer(Size(scratch_bytes_) * Size(static_cast<uint64_t>(team.size())), "scratch");
  shared_ = Buffer(Size(shared_bytes), "scratch");
  all_index_.resize(static_cast<size_t>(options.max_tokens));
  std::iota(all_index_.begin(), all_index_.end(), 0);
  step_seconds_.assign(program.steps().size(), 0);
}

void Executor::PlaceRows(const Batch& batch) {
  pages_.clear();
  std::vector<size_t> first_page;
  for (const BatchSequence& sequence : batch.sequences) {
    first_page.push_back(pages_.size());
    for (int32_t page : sequence.pages) pages_.push_back(pool_.page(page));
  }
  places_.clear();
  for (const BatchPlace& place : batch.places) {
    places_.push_back(
        {pages_.data() + first_page[static_cast<size_t>(place.sequence)], place.position});
  }
}

void Executor::Run(const Batch& batch) {
  LOCKSTEP_CHECK(static_cast<int64_t>(batch.tokens.size()) <= program_.options().max_tokens,
                 "{} tokens", batch.tokens.size());
  LOCKSTEP_CHECK(static_cast<int64_t>(batch.outputs.size()) <= program_.options().max_outputs,
                 "{} outputs", batch.outputs.size());
  PlaceRows(batch);
  BeginSlots(batch);
  output_tokens_.clear();
  output_places_.clear();
  for (int32_t row : batch.outputs) {
    output_tokens_.push_back(batch.tokens[static_cast<size_t>(row)]);
    output_places_.push_back(places_[static_cast<size_t>(row)]);
  }
  rows_[static_cast<size_t>(RowSet::kAll)] = {batch.tokens, places_};
  rows_[static_cast<size_t>(RowSet::kOutputs)] = {output_tokens_, output_places_};
  index_[static_cast<size_t>(RowSet::kAll)] = std::span(all_index_).first(batch.tokens.size());
  index_[static_cast<size_t>(RowSet::kOutputs)] = batch.outputs;
  TakeInput(batch);
  faults_.Clear();
  team_.Run([this](int member) { RunMember(member); });
  MoveSlots();
}

void Executor::TakeInput(const Batch& batch) {
  if (program_.input() < 0) return;
  const Slot& slot = program_.slots()[static_cast<size_t>(program_.input())];
  LOCKSTEP_CHECK(std::ssize(batch.input) == std::ssize(batch.tokens) * slot.width, "{} numbers",
                 batch.input.size());
  std::memcpy(arena_.data() + slot.offset, batch.input.data(), batch.input.size_bytes());
}

void Executor::BeginSlots(const Batch& batch) {
  if (!moves_slots_) return;
  for (size_t row = 0; row < places_.size(); ++row) {
    const int64_t slot = batch.sequences[static_cast<size_t>(batch.places[row].sequence)].slot;
    LOCKSTEP_CHECK(slot >= 0 && slot < recurrent_.slots(), "slot {} of {}", slot,
                   recurrent_.slots());
    places_[row].recurrent = &recurrent_.slot(slot);
  }
  ForEachRun(places_, [&](const RecurrentRun& run) {
    const auto sequence = static_cast<size_t>(batch.places[static_cast<size_t>(run.first)].sequence);
    recurrent_.Begin(run, batch.sequences[sequence].restore, batch.sequences[sequence].save,
                     batch.sequences[sequence].save_at);
  });
}

void Executor::MoveSlots() {
  if (!moves_slots_) return;
  ForEachRun(places_, [](const RecurrentRun& run) {
    run.slot->checkpoint = run.CheckpointAfter();
    run.slot->position = run.start + run.count;
  });
}

// Other ranks wait for this one: they must hear why it does not come.
void Executor::RunMember(int member) {
  try {
    RunSteps(member);
  } catch (const std::exception& error) {
    comm_.Abort(error.what());
    throw;
  } catch (...) {
    comm_.Abort("another thread has failed");
    throw;
  }
}

void Executor::RunSteps(int member) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point start = Clock::now();
  for (size_t i = 0; i < program_.steps().size(); ++i) {
    const Step& step = program_.steps()[i];
    if (step.barrier && !step.op->collective()) team_.Barrier();
    const auto set = static_cast<size_t>(step.rows);
    const StepContext context{
        kernels_,
        member,
        team_.size(),
        step.split,
        in_[i],
        out_[i],
        rows_[set],
        index_[set],
        {scratch_.data() + scratch_bytes_ * static_cast<size_t>(member), scratch_bytes_},
        &faults_,
        static_cast<int32_t>(i),
        shared_.bytes(),
        &team_,
        &comm_};
    step.op->Run(context);
    if (observer_) Observe(context, step);
    if (tracing_ && member == 0) {
      const Clock::time_point now = Clock::now();
      step_seconds_[i] += std::chrono::duration<double>(now - start).count();
      start = now;
    }
  }
}

void Executor::Observe(const StepContext& context, const Step& step) {
  team_.Barrier();
  if (context.member == 0) {
    step.op->ShowMultiplied(context, [&](size_t weight, int64_t expert, std::span<const float> x) {
      observer_(step.in_values[weight], expert, x);
    });
  }
  team_.Barrier();
}

std::span<const float> Executor::Result(ValueId value) const {
  const Slot& slot = program_.slots()[static_cast<size_t>(program_.result(value))];
  return {
      reinterpret_cast<const float*>(arena_.data() + slot.offset),
      rows_[static_cast<size_t>(RowSet::kOutputs)].tokens.size() * static_cast<size_t>(slot.width)};
}

const Step* Executor::Fault(int64_t row) const {
  const int32_t step = faults_.step(row);
  return step < 0 ? nullptr : &program_.steps()[static_cast<size_t>(step)];
}

}  // namespace lockstep
