// What llama.cpp's converter and its forerunners write in other layouts than ours: the same numbers, so the same bits of every logit. Files
// of the kept goldens are rewritten into each layout that applies to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

#include "gguf/gguf_file.h"
#include "gguf/gguf_writer.h"
#include "gguf/safetensors.h"
#include "gguf/temp_folder.h"
#include "kept_checkpoint.h"
#include "model_run.h"

namespace lockstep::test {
namespace {

struct Item {
  std::string name;
  uint32_t type = 0;
  std::vector<uint64_t> dims;  // fastest first
  std::vector<std::byte> bytes;

  uint64_t row_bytes() const { return dims[0] * sizeof(float); }
};

// A file of f32 in the making.
class Layout {
 public:
  explicit Layout(const GgufFile& file) : file_(file) {
    for (const GgufTensor& tensor : file.tensors()) {
      const auto dims = std::span(tensor.dims).first(static_cast<size_t>(tensor.dims_count));
      items_.push_back({std::string(tensor.name),
                        tensor.type->id,
                        {dims.begin(), dims.end()},
                        {tensor.data.begin(), tensor.data.end()}});
    }
  }

  std::string architecture() const {
    return file_.metadata().Required<std::string>("general.architecture");
  }
  int64_t Count(const std::string& key) const {
    return file_.metadata().Optional<int64_t>(architecture() + "." + key).value_or(0);
  }
  // Whether a key has this number, or is a list of layers of which each `number`-th is none.
  bool Says(const std::string& key, double number) const {
    const std::string full = architecture() + "." + key;
    const auto value = file_.metadata().Find(full);
    if (!value) return false;
    if (!std::holds_alternative<GgufArray>(value->data))
      return file_.metadata().Required<float>(full) == static_cast<float>(number);
    const auto length = static_cast<uint64_t>(Count("block_count"));
    const auto flags = file_.metadata().RequiredArray<bool>(full, GgufLength::Exactly(length));
    for (size_t i = 0; i < flags.size(); ++i) {
      if (flags[i] != ((i + 1) % static_cast<size_t>(number) != 0)) return false;
    }
    return true;
  }
  void SetKey(const std::string& key, uint32_t value) { keys_[architecture() + "." + key] = value; }
  void RemoveKey(const std::string& key) { keys_[architecture() + "." + key] = std::nullopt; }

  std::vector<Item>& items() { return items_; }
  Item* Find(const std::string& name) {
    const auto at = std::ranges::find(items_, name, &Item::name);
    return at == items_.end() ? nullptr : &*at;
  }
  Item Take(const std::string& name) {
    const auto at = std::ranges::find(items_, name, &Item::name);
    Item item = std::move(*at);
    items_.erase(at);
    return item;
  }
  void Add(Item item) { items_.push_back(std::move(item)); }

  // "blk.N." of every layer.
  std::vector<std::string> Blocks() const {
    std::vector<std::string> blocks;
    for (int64_t i = 0; i < Count("block_count"); ++i) blocks.push_back(fmt::format("blk.{}.", i));
    return blocks;
  }

  void Write(const std::string& path) const {
    GgufWriter writer(path);
    for (size_t i = 0; i < file_.metadata().size(); ++i) {
      const GgufEntry entry = file_.metadata().at(i);
      if (!keys_.contains(std::string(entry.key))) writer.Add(entry.key, entry.value);
    }
    for (const auto& [key, value] : keys_) {
      if (value) writer.Add(key, *value);
    }
    for (const Item& item : items_) writer.AddTensor(item.name, item.type, item.dims);
    for (const Item& item : items_) writer.Write(item.bytes);
    writer.Finish();
  }

 private:
  const GgufFile& file_;
  std::vector<Item> items_;
  std::map<std::string, std::optional<uint32_t>> keys_;
};

void Append(std::span<const std::byte> part, std::vector<std::byte>& bytes) {
  bytes.insert(bytes.end(), part.begin(), part.end());
}

// Rows of two tensors of as many matrices each: those of `a` and then those of `b`, matrix by matrix.
Item Merge(const Item& a, const Item& b, std::string name) {
  Item both{std::move(name), a.type, a.dims, {}};
  both.dims[1] += b.dims[1];
  const uint64_t matrices = a.dims.size() > 2 ? a.dims[2] : 1;
  for (uint64_t i = 0; i < matrices; ++i) {
    for (const Item* part : {&a, &b}) {
      const uint64_t bytes = part->bytes.size() / matrices;
      Append(std::span(part->bytes).subspan(i * bytes, bytes), both.bytes);
    }
  }
  return both;
}

// Replaces `first` and `second` of every layer that has both by `merged`.
bool MergeEverywhere(Layout& layout, const std::string& first, const std::string& second,
                     const std::string& merged) {
  bool changed = false;
  for (const std::string& block : layout.Blocks()) {
    if (!layout.Find(block + first) || !layout.Find(block + second)) continue;
    const Item a = layout.Take(block + first), b = layout.Take(block + second);
    layout.Add(Merge(a, b, block + merged));
    changed = true;
  }
  return changed;
}

bool MergeExperts(Layout& layout) {
  return MergeEverywhere(layout, "ffn_gate_exps.weight", "ffn_up_exps.weight",
                         "ffn_gate_up_exps.weight");
}

// Rows [begin, begin + count) of a matrix or of a vector's elements.
Item RowsOf(const Item& all, std::string name, uint64_t begin, uint64_t count) {
  const uint64_t bytes = all.bytes.size() / all.dims.back();
  const auto part = std::span(all.bytes).subspan(begin * bytes, count * bytes);
  Item item{std::move(name), all.type, all.dims, {part.begin(), part.end()}};
  item.dims.back() = count;
  return item;
}

// Phi-3 and GLM-4 have gate and up in one tensor.
bool SplitDense(Layout& layout) {
  bool changed = false;
  for (const std::string& block : layout.Blocks()) {
    if (layout.Find(block + "ffn_gate.weight") || !layout.Find(block + "ffn_up.weight")) continue;
    const Item both = layout.Take(block + "ffn_up.weight");
    const uint64_t width = both.dims[1] / 2;
    layout.Add(RowsOf(both, block + "ffn_gate.weight", 0, width));
    layout.Add(RowsOf(both, block + "ffn_up.weight", width, width));
    changed = true;
  }
  return changed;
}

bool MergeQkv(Layout& layout) {
  bool changed = false;
  for (const char* kind : {"weight", "bias"}) {
    for (const std::string& block : layout.Blocks()) {
      const auto name = [&](const char* which) {
        return fmt::format("{}attn_{}.{}", block, which, kind);
      };
      if (!layout.Find(name("q")) || !layout.Find(name("k")) || !layout.Find(name("v"))) continue;
      Item all = layout.Take(name("q"));
      for (const char* which : {"k", "v"}) {
        const Item part = layout.Take(name(which));
        all.dims.back() += part.dims.back();
        Append(part.bytes, all.bytes);
      }
      all.name = name("qkv");
      layout.Add(std::move(all));
      changed = true;
    }
  }
  return changed;
}

// attn_k_b and attn_v_b as the checkpoint's kv_b: rows of each head's key, then of its value, [rank].
bool JoinKeysAndValues(Layout& layout) {
  bool changed = false;
  for (const std::string& block : layout.Blocks()) {
    if (!layout.Find(block + "attn_k_b.weight")) continue;
    const Item k = layout.Take(block + "attn_k_b.weight"),
               v = layout.Take(block + "attn_v_b.weight");
    const uint64_t nope = k.dims[0], rank = k.dims[1], heads = k.dims[2];
    Item rows{"", k.type, {rank, nope, heads}, std::vector<std::byte>(k.bytes.size())};
    for (uint64_t i = 0; i < heads * nope * rank; ++i) {
      const uint64_t head = i / (nope * rank), n = i / rank % nope, c = i % rank;
      std::memcpy(rows.bytes.data() + i * sizeof(float),
                  k.bytes.data() + ((head * rank + c) * nope + n) * sizeof(float), sizeof(float));
    }
    Item both = Merge(rows, v, block + "attn_kv_b.weight");
    both.dims = {rank, both.dims[1] * heads};
    layout.Add(std::move(both));
    changed = true;
  }
  return changed;
}

// As files were before keys and values were absorbed: sizes are those of a head in the checkpoint.
bool JoinUnderOlderKeys(Layout& layout) {
  if (!JoinKeysAndValues(layout) || layout.Count("attention.key_length_mla") == 0) return false;
  for (const char* which : {"key", "value"}) {
    const std::string length = fmt::format("attention.{}_length", which);
    layout.SetKey(length, static_cast<uint32_t>(layout.Count(length + "_mla")));
    layout.RemoveKey(length + "_mla");
  }
  return true;
}

// Whether the rows of a tensor's matrices can be one matrix's: not those of experts, which are addressed one by one.
bool IsFoldable(const Item& item) { return item.name.find("_exps") == std::string::npos; }

bool FoldMatrices(Layout& layout) {
  bool changed = false;
  for (Item& item : layout.items()) {
    if (item.dims.size() != 3 || !IsFoldable(item)) continue;
    item.dims = {item.dims[0], item.dims[1] * item.dims[2]};
    changed = true;
  }
  return changed;
}

// Filters of convolutions with the axis of size 1 that checkpoints have, in both places where files have had it.
template <size_t place>
bool UnfoldFilters(Layout& layout) {
  bool changed = false;
  for (Item& item : layout.items()) {
    if (item.name.find("conv") == std::string::npos || !item.name.ends_with(".weight") ||
        item.dims.size() != 2 || item.dims[0] > 8)
      continue;
    item.dims.insert(item.dims.begin() + place, 1);
    changed = true;
  }
  return changed;
}

// Experts as files had them before they were stacked: "ffn_gate.0.weight".
bool SeparateExperts(Layout& layout) {
  bool changed = false;
  for (const std::string& block : layout.Blocks()) {
    // Nothing else of theirs has a name for each.
    if (layout.Find(block + "ffn_down_exps.bias") || layout.Find(block + "ffn_down_exps.scale"))
      continue;
    for (const char* which : {"gate", "up", "down"}) {
      const std::string stacked = fmt::format("{}ffn_{}_exps.weight", block, which);
      if (!layout.Find(stacked)) continue;
      const Item all = layout.Take(stacked);
      const uint64_t bytes = all.bytes.size() / all.dims[2];
      for (uint64_t e = 0; e < all.dims[2]; ++e) {
        const auto part = std::span(all.bytes).subspan(e * bytes, bytes);
        layout.Add({fmt::format("{}ffn_{}.{}.weight", block, which, e),
                    all.type,
                    {all.dims[0], all.dims[1]},
                    {part.begin(), part.end()}});
      }
      changed = true;
    }
  }
  return changed;
}

// A head that is the embedding, stored once more.
bool RepeatEmbedding(Layout& layout) {
  if (layout.Find("output.weight")) return false;
  Item head = *layout.Find("token_embd.weight");
  head.name = "output.weight";
  layout.Add(std::move(head));
  return true;
}

// Qwen3-Next's queries, keys, values and gates of each key head side by side, as its first files had them.
bool WeaveDeltaHeads(Layout& layout) {
  if (layout.architecture() != "qwen3next") return false;
  const auto keys = static_cast<uint64_t>(layout.Count("ssm.group_count")),
             dk = static_cast<uint64_t>(layout.Count("ssm.state_size")),
             values = static_cast<uint64_t>(layout.Count("ssm.inner_size"));
  for (const std::string& block : layout.Blocks()) {
    if (!layout.Find(block + "attn_gate.weight")) continue;
    const Item qkv = layout.Take(block + "attn_qkv.weight"),
               z = layout.Take(block + "attn_gate.weight");
    Item woven{block + "ssm_in.weight", qkv.type, {qkv.dims[0], qkv.dims[1] + z.dims[1]}, {}};
    const auto rows = [&](const Item& from, uint64_t begin, uint64_t count) {
      Append(std::span(from.bytes).subspan(begin * from.row_bytes(), count * from.row_bytes()),
             woven.bytes);
    };
    const uint64_t each = values / keys;
    for (uint64_t head = 0; head < keys; ++head) {
      rows(qkv, head * dk, dk);
      rows(qkv, (keys + head) * dk, dk);
      rows(qkv, 2 * keys * dk + head * each, each);
      rows(z, head * each, each);
    }
    layout.Add(std::move(woven));
  }
  return true;
}

// Keys that say what files without them mean: those of releases before the key was written.
struct SaidAnyway {
  const char* architecture;
  const char* key;
  double number;  // for which it says no more than its absence; a pattern of windows: the period
};
constexpr SaidAnyway kSaidAnyway[] = {
    {"cohere2moe", "attention.sliding_window_pattern", 4},
    {"mellum", "attention.sliding_window_pattern", 4},
    {"gemma3", "rope.freq_base", 1e6},
    {"gemma4", "rope.freq_base_swa", 1e4},
    {"step35", "rope.freq_base_swa", 1e4},
};

bool LeaveOutWhatIsMeant(Layout& layout) {
  bool changed = false;
  for (const SaidAnyway& row : kSaidAnyway) {
    if (layout.architecture() != row.architecture || !layout.Says(row.key, row.number)) continue;
    layout.RemoveKey(row.key);
    changed = true;
  }
  return changed;
}

// Returns false where the file has nothing to change.
struct LayoutRow {
  const char* name;
  bool (*rewrite)(Layout& layout);
  size_t at_least;  // goldens that it applies to
};

constexpr LayoutRow kLayouts[] = {
    {"experts' gate and up in one tensor", MergeExperts, 15},
    {"a tensor for each expert", SeparateExperts, 15},
    {"gate and up apart", SplitDense, 2},
    {"queries, keys and values in one tensor", MergeQkv, 20},
    {"keys and values of a latent in one tensor", JoinKeysAndValues, 6},
    {"the same under older keys", JoinUnderOlderKeys, 6},
    {"matrices of heads as one", FoldMatrices, 6},
    {"filters with an axis of size 1 between", UnfoldFilters<1>, 4},
    {"an embedding stored again as the head", RepeatEmbedding, 4},
    {"delta networks' heads side by side", WeaveDeltaHeads, 1},
    {"no key for what is meant without", LeaveOutWhatIsMeant, 3},
};

TEST(Layouts, ChangeNoBitOfTheLogits) {
  std::map<std::string, size_t> applied;
  for (const GoldenRow& row : KeptRows()) {
    TempFolder folder;
    WriteKeptModel(row, folder / "model.gguf");
    const auto tokens = ReadTensor<int32_t>(
        Safetensors::Open(KeptFolder(row) + "/reference.safetensors"), "tokens");
    ModelRun model(folder / "model.gguf");
    const RunOptions two{.threads = 2};
    const std::vector<float> expected = model.Run({tokens}, two)[0].logits;
    for (const LayoutRow& layout : kLayouts) {
      SCOPED_TRACE(fmt::format("{}: {}", row.name, layout.name));
      Layout file(model.file());
      if (!layout.rewrite(file)) continue;
      file.Write(folder / "other.gguf");
      try {
        ModelRun other(folder / "other.gguf");
        EXPECT_TRUE(SameBits(other.Run({tokens}, two)[0].logits, expected));
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
      ++applied[layout.name];
    }
  }
  for (const LayoutRow& layout : kLayouts)
    EXPECT_GE(applied[layout.name], layout.at_least) << layout.name;
}

}  // namespace
}  // namespace lockstep::test
