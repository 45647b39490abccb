#include "ops/linear_attention.h"

#include <cmath>
#include <cstring>

#include "ops/finite.h"
#include "ops/operations.h"

namespace lockstep {

void LinearAttentionReference(const LinearAttentionTask& task) {
  for (int64_t row = 0; row < task.rows; ++row) {
    const float* k = task.k + row * task.k_stride;
    auto decay = [&](int64_t i) {
      return task.decay[row * task.decay_stride + (task.decays == 1 ? 0 : i)];
    };
    for (int64_t c = 0; c < task.dv; ++c) {
      float u = task.v[row * task.v_stride + c];
      if (task.delta) {
        float m = 0;
        for (int64_t i = 0; i < task.dk; ++i)
          m = std::fma(task.state[i * task.dv + c], k[i] * decay(i), m);
        u = u - m;
      }
      const float w = u * task.beta[row * task.beta_stride];
      float out = 0;
      for (int64_t i = 0; i < task.dk; ++i) {
        float& s = task.state[i * task.dv + c];
        s = std::fma(k[i], w, s * decay(i));
        if (task.q != nullptr) out = std::fma(s, task.q[row * task.q_stride + i], out);
      }
      if (task.q != nullptr) task.out[row * task.out_stride + c] = out * task.scale;
    }
  }
}

namespace {

// What the log keeps of one head and token, side by side: k, v, decay, beta.
int64_t LogWidth(const LinearAttentionSettings& s) {
  return s.dk + s.dv + (s.channel_decay ? s.dk : 1) + 1;
}

// One head of one sequence (TakeIn).
class HeadPart {
 public:
  HeadPart(const StepContext& step, const RecurrentRun& run,
           const LinearAttentionSettings& settings, int64_t head)
      : step_(step), settings_(settings) {
    const int64_t dk = settings.dk, dv = settings.dv;
    const int64_t key_heads = step.in_rows(0).width / dk, heads = step.in_rows(2).width / dv;
    const int64_t key_head = settings.tiled ? head % key_heads : head / (heads / key_heads);
    const auto& view = std::get<RecurrentView>(step.in[5]);
    auto* slot = reinterpret_cast<float*>(run.slot->data);
    state_ = slot + view.state + head * dk * dv;
    snapshot_ = reinterpret_cast<float*>(run.slot->snapshot);
    offset_ = state_ - slot;
    kept_ = slot + view.kept + head * dk * dv;
    log_ = slot + view.log + head * LogWidth(settings);
    log_stride_ = view.row_floats;
    task_.dk = dk;
    task_.dv = dv;
    task_.delta = settings.delta;
    task_.decays = settings.channel_decay ? dk : 1;
    task_.scale = settings.scale;
    task_.state = state_;
    task_.scratch = reinterpret_cast<float*>(step.scratch.data());
    task_.q = step.in_rows(0).data + key_head * dk;
    task_.k = step.in_rows(1).data + key_head * dk;
    task_.v = step.in_rows(2).data + head * dv;
    task_.decay = step.in_rows(3).data + head * task_.decays;
    task_.beta = step.in_rows(4).data + head;
    task_.out = step.out_rows().data + head * dv;
    task_.q_stride = step.in_rows(0).width;
    task_.k_stride = step.in_rows(1).width;
    task_.v_stride = step.in_rows(2).width;
    task_.decay_stride = step.in_rows(3).width;
    task_.beta_stride = step.in_rows(4).width;
    task_.out_stride = step.out_rows().width;
  }

  void Clear() { std::fill_n(state_, state_floats(), 0.0f); }
  void Keep() { std::copy_n(state_, state_floats(), kept_); }
  void Restore() { std::copy_n(kept_, state_floats(), state_); }
  void Save() { std::copy_n(state_, state_floats(), snapshot_ + offset_); }
  void Replay(int64_t rows) {
    LinearAttentionTask replay = task_;
    replay.q = nullptr;
    replay.k = log_;
    replay.v = replay.k + task_.dk;
    replay.decay = replay.v + task_.dv;
    replay.beta = replay.decay + task_.decays;
    replay.k_stride = replay.v_stride = replay.decay_stride = replay.beta_stride = log_stride_;
    replay.rows = rows;
    step_.kernels.linear_attention(replay);
  }
  void Advance(int64_t first, int64_t end) {
    LinearAttentionTask rows = task_;
    rows.q += first * rows.q_stride;
    rows.k += first * rows.k_stride;
    rows.v += first * rows.v_stride;
    rows.decay += first * rows.decay_stride;
    rows.beta += first * rows.beta_stride;
    rows.out += first * rows.out_stride;
    rows.rows = end - first;
    step_.kernels.linear_attention(rows);
    // A number that is not finite enters every later result, and the state outlives the batch.
    for (int64_t t = first; t < end; ++t) {
      if (!AllFinite(task_.out + t * task_.out_stride, task_.dv))
        step_.faults->Report(step_.row_index[static_cast<size_t>(t)], step_.step);
    }
  }
  void Log(int64_t row, int64_t index) {
    float* to = log_ + index * log_stride_;
    auto append = [&to](const float* from, int64_t count) {
      std::copy_n(from, count, to);
      to += count;
    };
    append(task_.k + row * task_.k_stride, task_.dk);
    append(task_.v + row * task_.v_stride, task_.dv);
    append(task_.decay + row * task_.decay_stride, task_.decays);
    append(task_.beta + row * task_.beta_stride, 1);
  }

 private:
  int64_t state_floats() const { return task_.dk * task_.dv; }

  const StepContext& step_;
  const LinearAttentionSettings& settings_;
  LinearAttentionTask task_{};
  float* state_;
  float* kept_;
  float* snapshot_;
  int64_t offset_;  // of the state in its slot, and in a snapshot
  float* log_;
  int64_t log_stride_;
};

class LinearAttentionOperation final : public Operation {
 public:
  explicit LinearAttentionOperation(const LinearAttentionSettings& settings)
      : settings_(settings) {}
  std::string_view name() const override { return "linear_attention"; }
  // q, k, v, decay, beta, state. Columns of v share the log of their head, so they stay together.
  std::string_view rule() const override {
    if (settings_.tiled) {
      return settings_.channel_decay ? "t!gk!, t!gk!, t!rgv!, t!rgk!, t!rg, rgk!v! -> t!rgv!"
                                     : "t!gk!, t!gk!, t!rgv!, t!rg, t!rg, rgk!v! -> t!rgv!";
    }
    return settings_.channel_decay ? "t!gk!, t!gk!, t!grv!, t!grk!, t!gr, grk!v! -> t!grv!"
                                   : "t!gk!, t!gk!, t!grv!, t!gr, t!gr, grk!v! -> t!grv!";
  }
  std::string attributes() const override {
    return fmt::format("{}{}scale={}", settings_.delta ? "delta " : "",
                       settings_.tiled ? "tiled " : "", settings_.scale);
  }
  OperandKind operand(size_t i) const override {
    return i < 5 ? OperandKind::kRows : OperandKind::kState;
  }
  bool writes_state() const override { return true; }
  Split split() const override { return Split::kOwn; }
  size_t scratch_bytes(std::span<const Operand>, int64_t) const override {
    return static_cast<size_t>(LinearAttentionScratch(settings_.dk)) * sizeof(float);
  }
  void Run(const StepContext& step) const override {
    const WorkRange heads = step.Share(step.in_rows(2).width / settings_.dv);
    ForEachRun(step.rows.places, [&](const RecurrentRun& run) {
      for (int64_t head = heads.begin; head < heads.end; ++head)
        TakeIn(run, HeadPart(step, run, settings_, head));
    });
  }

 private:
  LinearAttentionSettings settings_;
};

}  // namespace

Shape LinearAttentionLogRow(const LinearAttentionSettings& settings, const Axis& outer,
                            const Axis& inner) {
  const int64_t width = LogWidth(settings);
  return {outer, inner, Axis{'d', width, width}};
}

OperationPtr MakeLinearAttention(const LinearAttentionSettings& settings) {
  return std::make_shared<LinearAttentionOperation>(settings);
}

}  // namespace lockstep
