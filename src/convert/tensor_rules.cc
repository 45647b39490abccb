// From rules to tensors: every rule in every layer, and what no rule wanted.
#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "convert/converters.h"

namespace lockstep {
namespace {

constexpr std::string_view kExpert = "{e}", kEither = ".*";

// Parts of multimodal releases that are no language model, by how their tensors' names begin.
constexpr std::string_view kOtherModels[] = {
    "model.visual.",          "visual.",
    "model.vision_tower.",    "vision_tower.",
    "vision_model.",          "model.vision_model.",
    "multi_modal_projector.", "model.multi_modal_projector.",
    "audio_tower.",           "model.audio_tower.",
    "model.embed_vision.",    "model.embed_audio.",
    "embed_vision.",          "embed_audio.",
    "model.vision_adapter.",   "model.vision_projection.",
    "vision_encoder.",        "vision_language_adapter."};
// Tensors that follow from the hyper-parameters.
constexpr std::string_view kDerived[] = {".rotary_emb.inv_freq", ".attention.masked_bias",
                                         ".self_attn.bias"};

// Applies the rules of one checkpoint.
class RuleBook {
 public:
  RuleBook(const Converter& converter, Checkpoint& checkpoint, Recipe& recipe)
      : converter_(converter), checkpoint_(checkpoint), recipe_(recipe) {
    for (std::string_view stem : converter.layer_stems) {
      if (stem_.empty() || checkpoint.HasAny(stem)) stem_ = stem;
    }
  }

  void Apply(const TensorRule& rule, int64_t layer) {
    Place place{checkpoint_.config(), layer, false};
    if (rule.where != nullptr && !rule.where(place)) return;
    if (!rule.unless.empty() && checkpoint_.Has(NameIn(layer, rule.unless))) return;
    if (!rule.from.ends_with(kEither)) {
      ApplyOne(rule, std::string(rule.from), std::string(rule.to), place, !rule.optional);
      return;
    }
    const std::string from(rule.from.substr(0, rule.from.size() - 1));
    const std::string to(rule.to.substr(0, rule.to.empty() ? 0 : rule.to.size() - 1));
    const auto named = [](const std::string& stem, const char* kind) {
      return stem.empty() ? stem : stem + kind;
    };
    ApplyOne(rule, from + "weight", named(to, "weight"), place, !rule.optional);
    place.is_bias = true;
    ApplyOne(rule, from + "bias", named(to, "bias"), place, false);
  }

 private:
  void ApplyOne(const TensorRule& rule, const std::string& from, const std::string& to,
                const Place& place, bool needed) {
    const std::string source = NameIn(place.layer, from);
    if (to.empty()) return LeaveOut(source);
    const std::optional<Values> values = Gather(rule, source, place, needed);
    if (!values) return;
    recipe_.Emit(place.layer < 0 ? to : fmt::format("blk.{}.{}", place.layer, to), *values,
                 rule.stored);
  }

  std::string NameIn(int64_t layer, std::string_view name) const {
    return (layer < 0 ? "" : LayerName(layer)) + std::string(name);
  }

  std::string LayerName(int64_t layer) const {
    return converter_.layer_name != nullptr ? converter_.layer_name(checkpoint_.config(), layer)
                                            : fmt::format("{}{}.", stem_, layer);
  }

  std::optional<Values> Gather(const TensorRule& rule, const std::string& source,
                               const Place& place, bool needed) {
    const size_t at = source.find(kExpert);
    if (at == source.npos) return TakeOne(rule, source, place, needed);
    std::vector<Values> experts;
    const int64_t count = ExpertCount();
    for (int64_t e = 0; e < count; ++e) {
      std::string name = source;
      name.replace(at, kExpert.size(), std::to_string(e));
      const auto values = TakeOne(rule, name, place, needed || e > 0);
      if (!values) return std::nullopt;
      experts.push_back(*values);
    }
    if (experts.empty()) return std::nullopt;
    return Stack(experts);
  }

  std::optional<Values> TakeOne(const TensorRule& rule, const std::string& name, const Place& place,
                                bool needed) {
    if (!needed && !checkpoint_.Has(name)) return std::nullopt;
    const Values values = recipe_.Take(name);
    return rule.transform == nullptr ? values : rule.transform(values, place);
  }

  void LeaveOut(const std::string& source) {
    const size_t at = source.find(kExpert);
    if (at == source.npos) return checkpoint_.Ignore(source);
    for (int64_t e = 0; e < ExpertCount(); ++e) {
      std::string name = source;
      checkpoint_.Ignore(name.replace(at, kExpert.size(), std::to_string(e)));
    }
  }

  int64_t ExpertCount() const {
    const int64_t count = checkpoint_.config().Count(
        {"num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"});
    // Each has a tensor of its own.
    return std::min<int64_t>(count, static_cast<int64_t>(checkpoint_.tensor_count()) + 1);
  }

  const Converter& converter_;
  Checkpoint& checkpoint_;
  Recipe& recipe_;
  std::string_view stem_;
};

void LeaveOutOthers(Checkpoint& checkpoint) {
  std::vector<std::string> known;
  size_t others = 0;
  for (const std::string& name : checkpoint.unused()) {
    const bool other = std::ranges::any_of(
        kOtherModels, [&](std::string_view prefix) { return name.starts_with(prefix); });
    const bool derived = std::ranges::any_of(
        kDerived, [&](std::string_view ending) { return name.ends_with(ending); });
    if (other || derived) known.push_back(name);
    others += other;
  }
  for (const std::string& name : known) checkpoint.Ignore(name);
  if (others > 0) {
    Log(LogLevel::kInfo, "{}: {} tensors for images and sound are left out",
        Printable(checkpoint.folder(), 4096), others);
  }
}

void RefuseUnused(const Checkpoint& checkpoint) {
  if (checkpoint.unused().empty()) return;
  std::string names;
  size_t shown = 0;
  for (const std::string& name : checkpoint.unused()) {
    if (++shown > 4) break;
    names += (names.empty() ? "" : ", ") + Printable(name);
  }
  const size_t more = checkpoint.unused().size() - std::min<size_t>(4, checkpoint.unused().size());
  throw Refused("{}: expected only tensors of the architecture, found {}{}",
                Printable(checkpoint.folder(), 4096), names,
                more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace

void ApplyConverter(const Converter& converter, Checkpoint& checkpoint, Recipe& recipe) {
  checkpoint.SetDefaults(converter.defaults);
  const Config& config = checkpoint.config();
  const int64_t layers = converter.layers != nullptr ? converter.layers(config) : config.layers();
  if (layers < 1 || static_cast<uint64_t>(layers) > checkpoint.tensor_count()) {
    config.Refuse("num_hidden_layers",
                  fmt::format("expected 1 to {}, the number of tensors, found {}",
                              checkpoint.tensor_count(), layers));
  }
  converter.keys(config, recipe.keys());
  RuleBook book(converter, checkpoint, recipe);
  for (const TensorRule& rule : converter.model_tensors) book.Apply(rule, -1);
  if (converter.more != nullptr) converter.more(recipe);
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (const TensorRule& rule : converter.layer_tensors) book.Apply(rule, layer);
  }
  LeaveOutOthers(checkpoint);
  RefuseUnused(checkpoint);
}

}  // namespace lockstep
