#include "models/ngrams.h"

#include "base/error.h"
#include "models/short_conv.h"

namespace lockstep {

std::vector<std::optional<NgramSpec>> ReadNgrams(const ModelSource& source, size_t layers) {
  std::vector<std::optional<NgramSpec>> ngrams(layers);
  const GgufMetadata& metadata = source.metadata();
  const auto listed =
      metadata.OptionalArray<int64_t>(source.Key("ple.layers"), GgufLength{0, layers});
  if (!listed || listed->empty()) return ngrams;
  NgramSpec spec;
  const int64_t size = source.Count("ple.ngram_size", 2),
                per_order = source.Count("ple.heads_per_ngram");
  if (size > 16 || per_order > 1024) {
    source.Refuse(
        "ple.ngram_size",
        fmt::format("expected at most 16 tokens and 1024 heads, found {} and {}", size, per_order));
  }
  spec.orders = size - 1;
  spec.taps = ReadConvTaps(source, "ple.conv_kernel");
  spec.settings.d = source.Count("embedding_length_per_layer_input");
  spec.table_rows = source.RowCount("per_layer_token_embd.weight");
  const std::string end = source.Key("ple.eos_token_id");
  spec.end = metadata.Required<int32_t>(
      metadata.Find(end) ? end : "tokenizer.ggml.eos_token_id", {0, (1 << 24) - 1});
  const auto heads = static_cast<size_t>(spec.orders * per_order);
  auto numbers = [&](std::string_view key, size_t each) {
    return metadata.RequiredArray<uint64_t>(source.Key(key),
                                            GgufLength::Exactly(each * listed->size()));
  };
  const auto multipliers = numbers("ple.layer_multipliers", static_cast<size_t>(size));
  const auto sizes = numbers("ple.head_vocab_sizes", heads),
             offsets = numbers("ple.head_offsets", heads);
  const auto rows = static_cast<uint64_t>(spec.table_rows);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] >= 1 && sizes[i] <= rows && offsets[i] <= rows - sizes[i]) continue;
    source.Refuse("ple.head_offsets",
                  fmt::format("expected rows within the table's {}, found {} from {}", rows,
                              sizes[i], offsets[i]));
  }
  auto part = [](const std::vector<uint64_t>& all, size_t i, size_t each) {
    const auto begin = all.begin() + static_cast<int64_t>(i * each);
    return std::vector<uint64_t>(begin, begin + static_cast<int64_t>(each));
  };
  for (size_t i = 0; i < listed->size(); ++i) {
    const int64_t layer = (*listed)[i];
    if (layer < 0 || layer >= static_cast<int64_t>(layers)) {
      source.Refuse("ple.layers", fmt::format("expected layers below {}, found {}", layers, layer));
    }
    spec.settings.multipliers = part(multipliers, i, static_cast<size_t>(size));
    spec.settings.sizes = part(sizes, i, heads);
    spec.settings.offsets = part(offsets, i, heads);
    ngrams[static_cast<size_t>(layer)] = spec;
  }
  return ngrams;
}

ValueId BuildNgrams(Parts& parts, const NgramSpec& spec) {
  GraphBuilder& build = parts.build();
  const Shape history{Axis{'s', spec.orders, spec.orders}};
  const ValueId state = build.RecurrentState("ngram_tokens", history, {Axis{'s', 1, 1}});
  const ValueId previous = parts.Apply("ngram_previous", MakePreviousTokens(spec.orders, spec.end),
                                       {build.tokens(), state});
  const ValueId table =
      build.Weight({"per_layer_token_embd.weight"}, {Axis{'v', spec.table_rows, 1}, spec.d()});
  return parts.Apply("ngrams", MakeNgramEmbed(spec.settings), {build.tokens(), previous, table});
}

}  // namespace lockstep
