#include <boost/json.hpp>
#include <cmath>
#include <map>

#include "apps/command.h"
#include "apps/model_options.h"
#include "apps/placements_report.h"
#include "apps/terminal.h"
#include "base/interrupt.h"
#include "engine/planning.h"
#include "gguf/gguf_file.h"
#include "models/models.h"
#include "text/json_text.h"
#include "text/unicode.h"

namespace lockstep {
namespace {

constexpr size_t kShownElements = 8;
constexpr size_t kShownBytes = 200;
constexpr int kLabelColumns = 20;

struct SummaryRow {
  std::string_view label;
  std::string_view key;  // "%" stands for the architecture
};
constexpr SummaryRow kSummaryRows[] = {
    {"name", "general.name"},
    {"architecture", "general.architecture"},
    {"context", "%.context_length"},
    {"layers", "%.block_count"},
    {"width", "%.embedding_length"},
    {"feed-forward width", "%.feed_forward_length"},
    {"heads", "%.attention.head_count"},
    {"KV heads", "%.attention.head_count_kv"},
    {"experts", "%.expert_count"},
    {"experts used", "%.expert_used_count"},
    {"tokenizer", "tokenizer.ggml.model"},
    {"pre-tokenizer", "tokenizer.ggml.pre"},
};

std::string KeyOf(const SummaryRow& row, std::string_view architecture) {
  if (!row.key.starts_with('%')) return std::string(row.key);
  return fmt::format("{}{}", architecture, row.key.substr(1));
}

std::string BytesText(uint64_t bytes) {
  if (bytes < (uint64_t{1} << 20))
    return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024);
  if (bytes < (uint64_t{1} << 30))
    return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
}

// A value for people, on one line; long ones are cut.
std::string ValueText(const GgufValue& value) {
  struct Visitor {
    std::string operator()(uint64_t v) const { return fmt::format("{}", v); }
    std::string operator()(int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const { return fmt::format("{}", v); }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(std::string_view v) const {
      return fmt::format("\"{}\"", Printable(v, kShownBytes));
    }
    std::string operator()(const GgufArray& array) const {
      std::string text = "[";
      size_t shown = 0;
      for (GgufValue element : array) {
        if (shown == kShownElements || text.size() > kShownBytes) break;
        text += fmt::format("{}{}", shown == 0 ? "" : ", ", ValueText(element));
        ++shown;
      }
      if (shown < array.count) text += fmt::format(", ... {} in all", array.count);
      return text + "]";
    }
  };
  // As written by whoever had it in single precision: 1e-05, not 9.999999747378752e-06.
  if (value.type == GgufValueType::kFloat32) {
    return fmt::format("{}", static_cast<float>(std::get<double>(value.data)));
  }
  return std::visit(Visitor{}, value.data);
}

// "uint32", "array of string"
std::string TypeText(const GgufValue& value) {
  const auto* array = std::get_if<GgufArray>(&value.data);
  if (array == nullptr) return std::string(GgufValueTypeName(value.type));
  return fmt::format("array of {}", GgufValueTypeName(array->element));
}

std::string ShapeText(const GgufTensor& tensor) {
  std::string text = "[";
  for (int i = 0; i < tensor.dims_count; ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", tensor.dims[static_cast<size_t>(i)]);
  }
  return text + "]";
}

struct FormatTotal {
  uint64_t tensors = 0;
  uint64_t bytes = 0;
};

struct Totals {
  uint64_t parameters = 0;
  uint64_t tensor_bytes = 0;
  std::map<std::string_view, FormatTotal> formats;
};

// Sums stay in range: each tensor lies in the file, so that bytes are below its size and elements
// below eight times it (no format has less than one bit an element).
Totals CountTensors(const GgufFile& file) {
  Totals totals;
  for (GgufTensor tensor : file.tensors()) {
    ThrowIfInterrupted();
    totals.parameters += tensor.elements();
    totals.tensor_bytes += tensor.data.size();
    FormatTotal& format = totals.formats[tensor.type->name];
    ++format.tensors;
    format.bytes += tensor.data.size();
  }
  return totals;
}

std::string Architecture(const GgufFile& file) {
  std::optional<GgufValue> value = file.metadata().Find("general.architecture");
  const auto* text = value ? std::get_if<std::string_view>(&value->data) : nullptr;
  return text == nullptr ? "" : std::string(*text);
}

void PrintSummary(const GgufFile& file) {
  std::string architecture = Architecture(file);
  Totals totals = CountTensors(file);
  auto line = [](std::string_view label, std::string_view text) {
    Print(fmt::format("{:<{}}{}\n", label, kLabelColumns, text));
  };
  line("file", Printable(file.name(), 4096));
  line("format",
       fmt::format("GGUF version {}, {} in {} file{}", file.version(), BytesText(file.file_bytes()),
                   file.shard_count(), file.shard_count() == 1 ? "" : "s"));
  for (const SummaryRow& row : kSummaryRows) {
    std::optional<GgufValue> value = file.metadata().Find(KeyOf(row, architecture));
    if (value) line(row.label, ValueText(*value));
  }
  std::optional<GgufValue> tokens = file.metadata().Find("tokenizer.ggml.tokens");
  const auto* array = tokens ? std::get_if<GgufArray>(&tokens->data) : nullptr;
  if (array != nullptr) line("vocabulary", fmt::format("{}", array->count));
  line("chat template", file.metadata().Has("tokenizer.chat_template") ? "yes" : "no");
  line("parameters", fmt::format("{} in {} tensors", totals.parameters, file.tensor_count()));
  for (const auto& [name, total] : totals.formats) {
    line(fmt::format("  {}", name),
         fmt::format("{} tensors, {}", total.tensors, BytesText(total.bytes)));
  }
}

void PrintMetadata(const GgufFile& file) {
  for (size_t i = 0; i < file.metadata().size(); ++i) {
    ThrowIfInterrupted();
    GgufEntry entry = file.metadata().at(i);
    Print(fmt::format("{} ({}) = {}\n", Printable(entry.key, kShownBytes), TypeText(entry.value),
                      ValueText(entry.value)));
  }
}

void PrintTensors(const GgufFile& file) {
  for (GgufTensor tensor : file.tensors()) {
    ThrowIfInterrupted();
    Print(fmt::format("{:<40} {:<8} {:<24} {}\n", Printable(tensor.name, kShownBytes),
                      tensor.type->name, ShapeText(tensor), BytesText(tensor.data.size())));
  }
}

// What the model computes, and what a run executes: stations 3 and 7, from the file's keys and the
// directory of its tensors.
void PrintModel(const GgufFile& file, bool graph, bool program) {
  const Graph stated = BuildGraph(ModelSource(file, ModelOptions{}));
  if (graph) Print(stated.Print());
  if (!program) return;
  const std::vector<WeightUse> uses = FindWeights(stated, file);
  const Program compiled(stated, TakesCodes(uses), ProgramOptionsFor(stated, LoadOptions{}));
  Print(compiled.Print(stated));
}

// Stations 4, 5 and 7 of a model cut over ranks.
void PrintCutModel(const OptionValues& options) {
  LoadOptions load{.path = options.Require<std::string>(Opt::kModel)};
  ReadSplit(options, load);
  load.ranks = static_cast<int>(options.Get<int64_t>(Opt::kPlanRanks));
  const Plan plan = MakePlan(load.split, load.ranks, load.proportions, load.experts);
  const PlannedModel model(load);
  const PlannedRun run = model.Cut(plan);
  if (options.Get<bool>(Opt::kJson)) {
    Print(JsonText(PlacementsObject(model.graph(), run.sharded)) + "\n");
    return;
  }
  Print(run.sharded.Print(model.graph()));
  if (!options.Get<bool>(Opt::kProgram)) return;
  for (int32_t rank = 0; rank < plan.mesh.ranks(); ++rank) {
    const RankSet set(run.sharded, model.file(), rank, 1, ProgramOptionsFor(model.graph(), load));
    Print(fmt::format("rank {}\n{}", rank, set.program(0).Print(set.graph(0))));
  }
}

void WriteValue(JsonWriter& json, const GgufValue& value) {
  struct Visitor {
    JsonWriter& json;
    void operator()(uint64_t v) const { json.Literal(fmt::format("{}", v)); }
    void operator()(int64_t v) const { json.Literal(fmt::format("{}", v)); }
    void operator()(double v) const {
      // JSON has no NaN and no infinity.
      if (std::isfinite(v)) {
        json.Float(v);
      } else {
        json.Literal("null");
      }
    }
    void operator()(bool v) const { json.Literal(v ? "true" : "false"); }
    void operator()(std::string_view v) const { json.String(ReplaceInvalidUtf8(v)); }
    void operator()(const GgufArray& array) const {
      json.Begin('[');
      for (GgufValue element : array) WriteValue(json, element);
      json.End(']');
    }
  };
  std::visit(Visitor{json}, value.data);
}

void WriteMetadata(JsonWriter& json, const GgufFile& file) {
  json.Key("metadata");
  json.Begin('{');
  for (size_t i = 0; i < file.metadata().size(); ++i) {
    ThrowIfInterrupted();
    GgufEntry entry = file.metadata().at(i);
    json.Key(ReplaceInvalidUtf8(entry.key));
    WriteValue(json, entry.value);
  }
  json.End('}');
}

void WriteTensors(JsonWriter& json, const GgufFile& file) {
  json.Key("tensors");
  json.Begin('[');
  for (GgufTensor tensor : file.tensors()) {
    ThrowIfInterrupted();
    json.Begin('{');
    json.Key("name");
    json.String(ReplaceInvalidUtf8(tensor.name));
    json.Key("type");
    json.String(tensor.type->name);
    json.Key("shape");
    json.Begin('[');
    for (int i = 0; i < tensor.dims_count; ++i) {
      json.Literal(fmt::format("{}", tensor.dims[static_cast<size_t>(i)]));
    }
    json.End(']');
    json.Key("bytes");
    json.Literal(fmt::format("{}", tensor.data.size()));
    json.Key("shard");
    json.Literal(fmt::format("{}", tensor.shard));
    json.End('}');
  }
  json.End(']');
}

void PrintJson(const GgufFile& file, bool metadata, bool tensors) {
  std::string out;
  const JsonStyle style;
  JsonWriter json(out, style);
  Totals totals = CountTensors(file);
  auto number = [&](std::string_view key, uint64_t value) {
    json.Key(key);
    json.Literal(fmt::format("{}", value));
  };
  json.Begin('{');
  json.Key("file");
  json.String(ReplaceInvalidUtf8(file.name()));
  json.Key("architecture");
  json.String(ReplaceInvalidUtf8(Architecture(file)));
  number("version", file.version());
  number("shard_count", file.shard_count());
  number("file_bytes", file.file_bytes());
  number("tensor_count", file.tensor_count());
  number("tensor_bytes", totals.tensor_bytes);
  number("parameters", totals.parameters);
  if (metadata) WriteMetadata(json, file);
  if (tensors) WriteTensors(json, file);
  json.End('}');
  Print(out + "\n");
}

}  // namespace

int RunInspect(const OptionValues& options, Positional) {
  GgufFile file = GgufFile::Open(options.Require<std::string>(Opt::kModel));
  bool metadata = options.Get<bool>(Opt::kMetadata);
  bool tensors = options.Get<bool>(Opt::kTensors);
  bool graph = options.Get<bool>(Opt::kGraph);
  bool program = options.Get<bool>(Opt::kProgram);
  const bool cut = options.Given(Opt::kPlanRanks);
  if (options.Get<bool>(Opt::kJson) && !cut) {
    PrintJson(file, metadata, tensors);
    return 0;
  }
  if (metadata) PrintMetadata(file);
  if (tensors) PrintTensors(file);
  if (cut) {
    PrintCutModel(options);
  } else if (graph || program) {
    PrintModel(file, graph, program);
  } else if (!metadata && !tensors) {
    PrintSummary(file);
  }
  return 0;
}

}  // namespace lockstep
