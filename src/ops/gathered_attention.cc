#include "ops/gathered_attention.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"

namespace lockstep {
namespace {

// A page of gathered rows as the cache lays them out.
struct GatheredPage {
  KvLayout layout;
  KvPlace place;
  int64_t bytes;

  explicit GatheredPage(KvLayout of) : layout(of) {
    const int64_t k_bytes = RoundUp(layout.k_bytes(), 64);
    place = {0, layout.values_in_keys ? 0 : k_bytes};
    bytes = k_bytes + RoundUp(layout.v_bytes(), 64);
  }
};

// Rows gathered for one token, in pages; of them this thread copies those of `own`.
class Gathering {
 public:
  // table: a pointer for each page and one more.
  Gathering(const GatheredPage& page, const std::byte** table, std::byte* memory, WorkRange own)
      : page_(page), table_(table), memory_(memory), own_(own) {}

  void AddPosition(const StateView& state, const std::byte* const* pages, int64_t position) {
    std::byte* to = Page();
    if (Owns()) {
      CopyPosition(page_.layout, pages[position / kPageTokens], {state.k_offset, state.v_offset},
                   position % kPageTokens, to, page_.place, rows_ % kPageTokens);
    }
    ++rows_;
  }
  void AddEntry(const StateView& state, const std::byte* const* pages, int64_t entry) {
    const int64_t bytes = page_.layout.k_row_bytes();
    const std::byte* from = pages[state.layout->EntryPage(entry)] + state.k_offset +
                            state.layout->EntryAt(entry) * bytes;
    std::byte* to = Page() + page_.place.k_offset + rows_ % kPageTokens * bytes;
    if (Owns()) std::memcpy(to, from, static_cast<size_t>(bytes));
    ++rows_;
  }
  // The last row gathered, as a position.
  AttentionRow Place() const {
    AttentionRow row;
    row.pages = table_;
    row.position = rows_ - 1;
    return row;
  }

 private:
  bool Owns() const { return rows_ >= own_.begin && rows_ < own_.end; }
  std::byte* Page() {
    const int64_t i = rows_ / kPageTokens;
    std::byte* page = memory_ + i * page_.bytes;
    if (rows_ % kPageTokens == 0) table_[i] = page, table_[i + 1] = nullptr;
    return page;
  }

  const GatheredPage& page_;
  const std::byte** table_;
  std::byte* memory_;
  WorkRange own_;
  int64_t rows_ = 0;
};

class GatheredAttention final : public Operation {
 public:
  explicit GatheredAttention(const GatheredAttentionSettings& settings) : settings_(settings) {
    std::string rule = "tgrd!, s!gd!, s!gv!";
    kinds_ = {OperandKind::kRows, OperandKind::kState, OperandKind::kState};
    const auto take = [&](bool wanted, std::string_view term, OperandKind kind, size_t& at) {
      if (!wanted) return;
      rule += fmt::format(", {}", term);
      at = kinds_.size();
      kinds_.push_back(kind);
    };
    take(settings.positions_selected, "tn!", OperandKind::kRows, positions_);
    take(settings.with_entries, "p!gd!", OperandKind::kState, entries_);
    take(settings.entries_selected, "tm!", OperandKind::kRows, chosen_);
    take(settings.attention.sinks, "gr", OperandKind::kVector, sinks_);
    rule_ = rule + " -> tgrv";
  }
  std::string_view name() const override { return "gathered_attention"; }
  std::string_view rule() const override { return rule_; }
  std::string attributes() const override {
    const AttentionSettings& a = settings_.attention;
    return fmt::format("scale={}{}", a.scale,
                       a.window != 0 ? fmt::format(" window={}", a.window) : "");
  }
  OperandKind operand(size_t i) const override {
    return i < kinds_.size() ? kinds_[i] : OperandKind::kRows;
  }
  Split split() const override { return Split::kOwn; }
  size_t scratch_bytes(std::span<const Operand> in, int64_t) const override {
    const KvLayout& layout = *std::get<StateView>(in[1]).layout;
    return AttentionBytes(layout) + TableBytes() +
           static_cast<size_t>(Pages() * GatheredPage(layout).bytes);
  }
  bool meets() const override { return true; }
  // The rows of one token, and what the pieces of its attention leave.
  size_t shared_bytes(std::span<const Operand> in, int64_t) const override {
    const GatheredPage page(*std::get<StateView>(in[1]).layout);
    return static_cast<size_t>(Pages() * page.bytes) + PartialBytes(in, page);
  }
  void Run(const StepContext& step) const override {
    const GatheredPage page(*std::get<StateView>(step.in[1]).layout);
    const AttentionTask task = TaskOf(step.in, page);
    const int64_t items = AttentionItems(task);
    // Few items leave threads idle: then they gather each token's rows together and deal its attention by spans.
    if (step.team != nullptr && step.members > 1 && step.tokens() * items < 2 * step.members) {
      for (int64_t t = 0; t < step.tokens(); ++t) RunTogether(step, page, task, t);
      return;
    }
    const WorkRange share = step.Share(step.tokens() * items);
    for (int64_t item = share.begin; item < share.end;) {
      const int64_t t = item / items, end = std::min(share.end, (t + 1) * items);
      std::byte* memory = Table(step, page) + TableBytes();
      const AttentionRow place = Gather(step, page, t, memory, {0, settings_.most_rows});
      step.kernels.attention(TaskAt(step, task, t, &place), item - t * items, end - t * items,
                             step.scratch.data());
      item = end;
    }
  }

 private:
  int64_t Pages() const { return CeilDiv(settings_.most_rows, kPageTokens); }
  size_t TableBytes() const {
    return static_cast<size_t>(RoundUp((Pages() + 1) * int64_t{sizeof(std::byte*)}, 64));
  }
  static size_t AttentionBytes(const KvLayout& layout) {
    return static_cast<size_t>(RoundUp(static_cast<int64_t>(AttentionScratchBytes(layout, 0)), 64));
  }
  static std::byte* Table(const StepContext& step, const GatheredPage& page) {
    return step.scratch.data() + AttentionBytes(page.layout);
  }
  size_t PartialBytes(std::span<const Operand> in, const GatheredPage& page) const {
    AttentionTask task = TaskOf(in, page);
    AttentionRow last;
    last.position = std::max<int64_t>(settings_.most_rows - 1, 0);
    task.rows = &last;
    return AttentionPartialBytes(task);
  }

  // One token's task, its rows not yet there.
  AttentionTask TaskOf(std::span<const Operand> in, const GatheredPage& page) const {
    AttentionTask task{};
    task.layout = page.layout;
    task.k_offset = page.place.k_offset;
    task.v_offset = page.place.v_offset;
    task.heads_per_kv = std::get<Rows>(in[0]).width / (page.layout.kv_heads * page.layout.dk);
    task.scale = settings_.attention.scale;
    task.soft_cap = settings_.attention.soft_cap;
    task.sinks =
        settings_.attention.sinks ? std::get<std::span<const float>>(in[sinks_]).data() : nullptr;
    task.q_stride = std::get<Rows>(in[0]).width;
    task.tokens = 1;
    static constexpr AttentionRow kFirst = {};
    task.rows = &kFirst;
    return task;
  }
  static AttentionTask TaskAt(const StepContext& step, AttentionTask task, int64_t t,
                              const AttentionRow* place) {
    task.rows = place;
    task.q = step.in_rows(0).row(t);
    task.out = step.out_rows().row(t);
    task.out_stride = step.out_rows().width;
    return task;
  }

  void RunTogether(const StepContext& step, const GatheredPage& page, const AttentionTask& task,
                   int64_t t) const {
    std::byte* partials = step.shared.data() + Pages() * page.bytes;
    const AttentionRow place =
        Gather(step, page, t, step.shared.data(), step.Share(settings_.most_rows));
    step.team->Barrier();
    const AttentionTask here = TaskAt(step, task, t, &place);
    const WorkRange pieces = step.Share(AttentionPieces(here)),
                    items = step.Share(AttentionItems(here));
    step.kernels.attention_spans(here, pieces.begin, pieces.end, partials, step.scratch.data());
    step.team->Barrier();
    step.kernels.attention_merge(here, items.begin, items.end, partials, step.scratch.data());
    // The next token's rows take the place of these.
    if (t + 1 < step.tokens()) step.team->Barrier();
  }

  // The rows of token t, of which those of `own` are copied to `memory`.
  AttentionRow Gather(const StepContext& step, const GatheredPage& page, int64_t t,
                      std::byte* memory, WorkRange own) const {
    Gathering gathered(page, reinterpret_cast<const std::byte**>(Table(step, page)), memory, own);
    GatherEntries(step, t, gathered);
    GatherPositions(step, t, gathered);
    return gathered.Place();
  }

  void GatherPositions(const StepContext& step, int64_t t, Gathering& gathered) const {
    const StateView& state = std::get<StateView>(step.in[1]);
    const AttentionRow& row = step.rows.places[static_cast<size_t>(t)];
    if (settings_.positions_selected) {
      ForSelected(step.in_rows(positions_), t,
                  [&](int64_t p) { gathered.AddPosition(state, row.pages, p); });
      return;
    }
    const int64_t window = settings_.attention.window, first = settings_.attention.first;
    for (int64_t p = window == 0 ? first : std::max(first, row.position - window + 1);
         p <= row.position; ++p) {
      gathered.AddPosition(state, row.pages, p);
    }
  }

  void GatherEntries(const StepContext& step, int64_t t, Gathering& gathered) const {
    if (!settings_.with_entries) return;
    const StateView& state = std::get<StateView>(step.in[entries_]);
    const AttentionRow& row = step.rows.places[static_cast<size_t>(t)];
    if (settings_.entries_selected) {
      ForSelected(step.in_rows(chosen_), t,
                  [&](int64_t e) { gathered.AddEntry(state, row.pages, e); });
      return;
    }
    for (int64_t e = 0; e < (row.position + 1) / state.layout->pool; ++e)
      gathered.AddEntry(state, row.pages, e);
  }

  template <typename F>
  static void ForSelected(const Rows& selection, int64_t t, F run) {
    for (int64_t i = 0; i < selection.width && selection.row(t)[i] >= 0; ++i)
      run(static_cast<int64_t>(selection.row(t)[i]));
  }

  GatheredAttentionSettings settings_;
  std::string rule_;
  std::vector<OperandKind> kinds_;
  size_t positions_ = 0, entries_ = 0, chosen_ = 0, sinks_ = 0;
};

}  // namespace

OperationPtr MakeGatheredAttention(const GatheredAttentionSettings& settings) {
  return std::make_shared<GatheredAttention>(settings);
}

}  // namespace lockstep
