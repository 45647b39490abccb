#include "ops/recurrent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "ops/operations.h"
#include "ops/testing/rows.h"

namespace lockstep {
namespace {

using testing::Fenced;
using testing::FirstDifference;
using testing::kInf;
using testing::kNan;
using testing::RandomRow;

TEST(CausalConv, KernelsEqualReference) {
  for (int64_t n : {1, 15, 16, 17, 70}) {
    for (int64_t taps : {1, 2, 3, 4, 16}) {
      for (const testing::Row& row : testing::Rows(n * taps)) {
        Fenced<float> x(row.values), w(RandomRow(n * taps, 1, 2)), bias(RandomRow(n, 1, 3));
        std::vector<const float*> rows;
        for (int64_t j = 0; j < taps; ++j) rows.push_back(x.data() + j * n);
        for (const float* b :
             {static_cast<const float*>(bias.data()), static_cast<const float*>(nullptr)}) {
          Fenced<float> expected(static_cast<size_t>(n));
          CausalConvReference(rows.data(), w.data(), b, taps, n, expected.data());
          for (Isa isa : AvailableIsas()) {
            SCOPED_TRACE(fmt::format("{}, {} x {}, {}", IsaName(isa), n, taps, row.name));
            Fenced<float> found(static_cast<size_t>(n));
            KernelsFor(isa).causal_conv(rows.data(), w.data(), b, taps, n, found.data());
            ASSERT_EQ(FirstDifference(expected.values(), found.values()), -1);
            ASSERT_TRUE(found.intact());
          }
        }
      }
    }
  }
}

// Operands of one head, and what a task leaves behind.
struct Head {
  Head(int64_t dk_, int64_t dv_, int64_t decays_, int64_t rows_, const std::vector<float>& state_)
      : dk(dk_),
        dv(dv_),
        decays(decays_),
        rows(rows_),
        q(RandomRow(rows * (dk + 3), 1, 1)),
        k(RandomRow(rows * (dk + 5), 0.3f, 2)),
        v(RandomRow(rows * (dv + 1), 1, 3)),
        decay(RandomRow(rows * decays, 1, 4)),
        beta(RandomRow(rows * 2, 1, 5)),
        state(state_),
        out(static_cast<size_t>(rows * (dv + 2))) {
    for (float& d : decay) d = std::exp(-d * d);
  }

  LinearAttentionTask Task(bool delta, bool results, float* scratch) {
    LinearAttentionTask task{};
    task.dk = dk;
    task.dv = dv;
    task.delta = delta;
    task.decays = decays;
    task.scale = 0.125f;
    task.q = results ? q.data() : nullptr;
    task.k = k.data();
    task.v = v.data();
    task.decay = decay.data();
    task.beta = beta.data();
    task.out = out.data();
    task.q_stride = dk + 3;
    task.k_stride = dk + 5;
    task.v_stride = dv + 1;
    task.decay_stride = decays;
    task.beta_stride = 2;
    task.out_stride = dv + 2;
    task.rows = rows;
    task.state = state.data();
    task.scratch = scratch;
    return task;
  }

  int64_t dk, dv, decays, rows;
  std::vector<float> q, k, v, decay, beta;
  Fenced<float> state, out;
};

TEST(LinearAttention, KernelsEqualReference) {
  constexpr std::pair<int64_t, int64_t> kSizes[] = {{1, 1},   {8, 16},  {17, 15},  {32, 33},
                                                    {48, 64}, {16, 80}, {24, 200}, {128, 128}};
  for (const auto& [dk, dv] : kSizes) {
    std::vector<float> scratch(static_cast<size_t>(LinearAttentionScratch(dk)));
    for (const testing::Row& state : testing::Rows(dk * dv)) {
      for (bool delta : {true, false}) {
        for (int64_t decays : {int64_t{1}, dk}) {
          for (int64_t rows : {1, 3, 4, 7}) {
            for (bool results : {true, false}) {
              Head expected(dk, dv, decays, rows, state.values);
              LinearAttentionReference(expected.Task(delta, results, nullptr));
              for (Isa isa : AvailableIsas()) {
                SCOPED_TRACE(fmt::format("{}, {} x {}, {} rows, {} decays, delta {}, {}",
                                         IsaName(isa), dk, dv, rows, decays, delta, state.name));
                Head found(dk, dv, decays, rows, state.values);
                KernelsFor(isa).linear_attention(found.Task(delta, results, scratch.data()));
                ASSERT_EQ(FirstDifference(expected.state.values(), found.state.values()), -1);
                ASSERT_EQ(FirstDifference(expected.out.values(), found.out.values()), -1);
                ASSERT_TRUE(found.state.intact() && found.out.intact());
              }
            }
          }
        }
      }
    }
  }
}

// Against the equations in double. A state is a sum over the tokens before, each rounded a few times: 2^-24 of its magnitude a time.
TEST(LinearAttention, ComputesItsEquations) {
  for (bool delta : {true, false}) {
    for (int64_t decays : {1, 8}) {
      Head head(8, 5, decays, 40, std::vector<float>(40));
      LinearAttentionReference(head.Task(delta, true, nullptr));
      std::vector<double> s(40);
      for (int64_t t = 0; t < 40; ++t) {
        auto at = [t](const std::vector<float>& x, int64_t stride, int64_t i) {
          return double{x[static_cast<size_t>(t * stride + i)]};
        };
        for (int64_t c = 0; c < 5; ++c) {
          double read = 0, out = 0, size = 0;
          for (int64_t i = 0; i < 8; ++i) {
            double& state = s[static_cast<size_t>(i * 5 + c)];
            state *= at(head.decay, decays, decays == 1 ? 0 : i);
            read += state * at(head.k, 13, i);
          }
          const double u = (at(head.v, 6, c) - (delta ? read : 0)) * at(head.beta, 2, 0);
          for (int64_t i = 0; i < 8; ++i) {
            double& state = s[static_cast<size_t>(i * 5 + c)];
            state += at(head.k, 13, i) * u;
            out += state * at(head.q, 11, i) * 0.125;
            size += std::fabs(state * at(head.q, 11, i) * 0.125);
          }
          EXPECT_NEAR(head.out.data()[t * 7 + c], out, (size + 1) * 40 * 8 * 0x1p-24)
              << t << ' ' << c;
        }
      }
    }
  }
}

// A recurrent operation over one layer's slots, as the executor runs it.
class Layer {
 public:
  Layer(OperationPtr op, RecurrentView view, std::vector<int64_t> widths, int64_t out_width)
      : op_(std::move(op)), view_(view), widths_(std::move(widths)), out_width_(out_width) {}

  int64_t slot_floats() const { return view_.log + kDropRows * view_.row_floats; }

  // Sequence s is in rows [from, to) of what it is given. Returns rows [from, to) of results.
  struct Piece {
    RecurrentSlot* slot;
    uint32_t seed;  // of its tokens
    int64_t from, to;
  };
  std::vector<std::vector<float>> Run(const std::vector<Piece>& pieces, int members = 1) {
    std::vector<AttentionRow> places;
    std::vector<std::vector<float>> values(widths_.size());
    std::vector<int32_t> index;
    for (const Piece& piece : pieces) {
      for (int64_t t = piece.from; t < piece.to; ++t) {
        index.push_back(static_cast<int32_t>(places.size()));
        places.push_back({nullptr, t, piece.slot});
        for (size_t i = 0; i < widths_.size(); ++i) {
          const auto seed =
              static_cast<uint32_t>(piece.seed * 1000 + i * 200 + static_cast<uint32_t>(t));
          const std::vector<float> row = RandomRow(widths_[i], 0.4f, seed);
          for (float x : row) values[i].push_back(i == 3 ? std::exp(-x * x) : x);
        }
      }
    }
    std::vector<float> out(places.size() * static_cast<size_t>(out_width_), kNan);
    std::vector<Operand> in, results = {Rows{out.data(), out_width_}};
    for (size_t i = 0; i < widths_.size(); ++i) in.emplace_back(Rows{values[i].data(), widths_[i]});
    for (const auto& weight : weights) in.emplace_back(std::span<const float>(weight));
    in.emplace_back(view_);
    std::vector<std::byte> scratch(op_->scratch_bytes(in, std::ssize(places)) + 64);
    const std::vector<int32_t> tokens(places.size());
    for (int member = 0; member < members; ++member) {
      op_->Run({KernelsFor(BestIsa()),
                member,
                members,
                Split::kOwn,
                in,
                results,
                {tokens, places},
                index,
                scratch,
                &faults,
                3});
    }
    ForEachRun(places, [](const RecurrentRun& run) {
      run.slot->checkpoint = run.CheckpointAfter();
      run.slot->position = run.start + run.count;
    });
    std::vector<std::vector<float>> rows;
    for (size_t t = 0; t < places.size(); ++t) {
      const auto begin = out.begin() + static_cast<int64_t>(t) * out_width_;
      rows.emplace_back(begin, begin + out_width_);
    }
    return rows;
  }

  std::vector<std::vector<float>> weights;
  FaultLog faults{1024};

 private:
  OperationPtr op_;
  RecurrentView view_;
  std::vector<int64_t> widths_;
  int64_t out_width_;
};

RecurrentView ViewOf(int64_t state, int64_t row) {
  return {state, row, 16, 16 + state, 16 + 2 * state};
}

// Slots whose memory was used before.
struct Slots {
  Slots(const Layer& layer, size_t count)
      : memory(count, std::vector<float>(static_cast<size_t>(layer.slot_floats()), kNan)),
        slots(count) {
    for (size_t i = 0; i < count; ++i)
      slots[i].data = reinterpret_cast<std::byte*>(memory[i].data());
  }
  std::vector<std::vector<float>> memory;
  std::vector<RecurrentSlot> slots;
};

std::vector<std::pair<std::string, std::unique_ptr<Layer>>> Layers() {
  std::vector<std::pair<std::string, std::unique_ptr<Layer>>> layers;
  for (bool channel : {false, true}) {
    for (bool tiled : {false, true}) {
      const LinearAttentionSettings settings = {
          .dk = 8, .dv = 6, .delta = !tiled, .channel_decay = channel, .tiled = tiled};
      const int64_t heads = 6, decays = channel ? 8 : 1;
      layers.emplace_back(
          fmt::format("channel {} tiled {}", channel, tiled),
          std::make_unique<Layer>(
              MakeLinearAttention(settings), ViewOf(heads * 48, heads * (15 + decays)),
              std::vector<int64_t>{16, 16, heads * 6, heads * decays, heads}, heads * 6));
    }
  }
  for (const auto& [taps, dilation] : {std::pair<int64_t, int64_t>{1, 1}, {4, 1}, {5, 1}, {4, 3}}) {
    const CausalConvSettings settings = {.dilation = dilation, .activation = Activation::kSilu};
    layers.emplace_back(
        fmt::format("{} taps, dilation {}", taps, dilation),
        std::make_unique<Layer>(MakeCausalConv(settings), ViewOf((taps - 1) * dilation * 70, 70),
                                std::vector<int64_t>{70}, 70));
    layers.back().second->weights.push_back(RandomRow(taps * 70, 1, 9));
  }
  return layers;
}

TEST(Recurrent, GivesTheSameBitsHoweverTokensArriveAndAreDropped) {
  constexpr int64_t kTokens = 150;
  // From where to where each batch reaches; a step back drops rows.
  const std::vector<std::vector<std::pair<int64_t, int64_t>>> schedules = {
      {{0, 1}, {1, 7}, {7, 40}, {40, 150}},
      {{0, 100}, {70, 90}, {90, 91}, {75, 150}},
      {{0, 33}, {1, 2}, {2, 3}, {2, 3}, {2, 30}, {2, 10}, {9, 150}},
      {{0, 150}, {118, 150}, {140, 141}, {118, 150}},
      {{0, 20}, {0, 150}},
  };
  for (const auto& [name, layer] : Layers()) {
    SCOPED_TRACE(name);
    Slots whole(*layer, 1);
    const auto expected = layer->Run({{&whole.slots[0], 1, 0, kTokens}});
    auto expect = [&](const std::vector<std::vector<float>>& rows, int64_t from, size_t first = 0) {
      for (size_t i = first; i < rows.size(); ++i)
        ASSERT_EQ(FirstDifference(rows[i], expected[static_cast<size_t>(from) + i - first]), -1)
            << "row " << from << " + " << i;
    };
    for (int members : {1, 2, 3, 7}) {
      for (size_t s = 0; s < schedules.size(); ++s) {
        SCOPED_TRACE(fmt::format("{} members, schedule {}", members, s));
        Slots slots(*layer, 2);
        for (const auto& [from, to] : schedules[s]) {
          // A mate at another position, before it in the batch.
          const int64_t mate = slots.slots[1].position;
          const auto rows = layer->Run(
              {{&slots.slots[1], 2, mate, mate + 2}, {&slots.slots[0], 1, from, to}}, members);
          expect(rows, from, 2);
        }
      }
      // One by one, and each time the latest few are dropped again.
      Slots slots(*layer, 1);
      for (int64_t t = 0; t < kTokens; ++t) {
        expect(layer->Run({{&slots.slots[0], 1, t, t + 1}}, members), t);
        if (t % 7 != 0 || t < 20) continue;
        const int64_t back = std::max(slots.slots[0].checkpoint, t - 5);
        expect(layer->Run({{&slots.slots[0], 1, back, t + 1}}, members), back);
      }
    }
  }
}

TEST(Recurrent, LeavesTheLastRowsOfEveryBatchDroppable) {
  RecurrentSlot slot;
  int64_t at = 0;
  for (int64_t count : {1, 1, 5, 32, 33, 500, 1, 1, 2, 40}) {
    const RecurrentRun run{0, count, at, &slot};
    EXPECT_LE(run.CheckpointAfter(), std::max(at, at + count - kDropRows));
    EXPECT_GE(run.CheckpointAfter(), at + count - kDropRows);
    slot.checkpoint = run.CheckpointAfter();
    slot.position = at += count;
  }
  for (int64_t i = 0; i < 200; ++i) {
    const RecurrentRun run{0, 1, at, &slot};
    EXPECT_GE(run.CheckpointAfter(), at + 1 - kDropRows);
    slot.checkpoint = run.CheckpointAfter();
    slot.position = ++at;
  }
}

TEST(Recurrent, FindsNumbersThatAreNotFinite) {
  for (const auto& [name, layer] : Layers()) {
    SCOPED_TRACE(name);
    Slots slots(*layer, 1);
    layer->Run({{&slots.slots[0], 1, 0, 5}});
    for (int32_t t = 0; t < 5; ++t) EXPECT_EQ(layer->faults.step(t), -1);
  }
  for (float poison : {kNan, kInf, -kInf}) {
    std::vector<float> x(5 * 16, 1), w(16, 1), y(5 * 16), memory(128);
    x[3 * 16 + 5] = poison;
    RecurrentSlot slot{reinterpret_cast<std::byte*>(memory.data())};
    std::vector<AttentionRow> places;
    for (int64_t t = 0; t < 5; ++t) places.push_back({nullptr, t, &slot});
    const std::vector<int32_t> tokens(5), index = {0, 1, 2, 3, 4};
    const std::vector<Operand> in = {Rows{x.data(), 16}, std::span<const float>(w),
                                     RecurrentView{0, 1, 0, 0, 0}},
                               out = {Rows{y.data(), 16}};
    std::vector<std::byte> scratch(4096);
    FaultLog faults(5);
    MakeCausalConv({})->Run({KernelsFor(BestIsa()),
                             0,
                             1,
                             Split::kOwn,
                             in,
                             out,
                             {tokens, places},
                             index,
                             scratch,
                             &faults,
                             3});
    for (int32_t t = 0; t < 5; ++t) EXPECT_EQ(faults.step(t), t == 3 ? 3 : -1) << poison;
  }
}

}  // namespace
}  // namespace lockstep
