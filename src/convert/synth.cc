#include "convert/synth.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "base/split_mix.h"
#include "convert/quantize_mix.h"
#include "exec/weights.h"
#include "gguf/gguf_writer.h"
#include "models/models.h"

namespace lockstep {
namespace {

constexpr uint32_t kF32 = 0;  // type id

// Random numbers that do not depend on any library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    state_ += kSplitMixStep;
    return SplitMix(state_);
  }
  // Near enough to a normal distribution of deviation 1: a sum of twelve.
  float Normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(Next() >> 11) * 0x1p-53;
    return static_cast<float>(sum);
  }

 private:
  uint64_t state_;
};

std::vector<std::string_view> Words(std::string_view text, char separator) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t end = text.find(separator);
    if (end != 0) words.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return words;
}

template <typename T>
T Number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  LOCKSTEP_CHECK(error == std::errc() && end == text.data() + text.size(), "{}", text);
  return value;
}

// ---- Metadata ----

void AddKey(const std::string& key, std::string_view value, GgufWriter& writer) {
  if (value == "true" || value == "false") {
    writer.Add(key, value == "true");
  } else if (value.starts_with('"')) {
    writer.Add(key, value.substr(1, value.size() - 2));
  } else if (value.find(',') != std::string_view::npos) {
    std::vector<uint32_t> numbers;
    for (std::string_view word : Words(value, ',')) numbers.push_back(Number<uint32_t>(word));
    writer.Add(key, GgufArrayData::Of<uint32_t>(numbers));
  } else if (value.find_first_of(".e") != std::string_view::npos) {
    writer.Add(key, Number<float>(value));
  } else {
    writer.Add(key, Number<uint32_t>(value));
  }
}

// The bytes as byte-level BPE spells them: printable ones as themselves, the others from U+0100 on.
std::string ByteToken(int byte, int& next) {
  const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
  const int point = printable ? byte : next++;
  if (point < 128) return std::string(1, static_cast<char>(point));
  return {static_cast<char>(0xC0 | (point >> 6)), static_cast<char>(0x80 | (point & 63))};
}

// A vocabulary that can read any text: three control tokens, all bytes, pairs of letters with
// merges, and names of nothing.
void AddTokenizer(uint32_t vocab, GgufWriter& writer) {
  constexpr int32_t kNormal = 1, kControl = 3, kUnused = 5;
  std::vector<std::string> tokens = {"<pad>", "<s>", "</s>"}, merges;
  for (int byte = 0, next = 256; byte < 256; ++byte) tokens.push_back(ByteToken(byte, next));
  std::vector<int32_t> types(tokens.size(), kNormal);
  std::fill_n(types.begin(), 3, kControl);
  for (int i = 0; i < 26 * 26 && tokens.size() < vocab; ++i) {
    const std::string left(1, static_cast<char>('a' + i / 26)),
        right(1, static_cast<char>('a' + i % 26));
    tokens.push_back(left + right);
    types.push_back(kNormal);
    merges.push_back(left + " " + right);
  }
  while (tokens.size() < vocab) {
    tokens.push_back(fmt::format("[UNUSED{}]", tokens.size()));
    types.push_back(kUnused);
  }
  writer.Add("tokenizer.ggml.model", "gpt2");
  writer.Add("tokenizer.ggml.pre", "gpt-2");
  writer.Add("tokenizer.ggml.tokens",
             GgufArrayData::OfStrings(std::span<const std::string>(tokens)));
  writer.Add("tokenizer.ggml.token_type", GgufArrayData::Of<int32_t>(types));
  writer.Add("tokenizer.ggml.merges",
             GgufArrayData::OfStrings(std::span<const std::string>(merges)));
  writer.Add("tokenizer.ggml.bos_token_id", uint32_t{1});
  writer.Add("tokenizer.ggml.eos_token_id", uint32_t{2});
  writer.Add("tokenizer.ggml.padding_token_id", uint32_t{0});
  writer.Add("tokenizer.ggml.add_bos_token", false);
}

void AddMetadata(const SynthModel& model, const Mix& mix, GgufWriter& writer) {
  writer.Add("general.architecture", model.architecture);
  writer.Add("general.type", "model");
  writer.Add("general.name", fmt::format("random weights in the shape of {}", model.model));
  writer.Add("general.file_type", mix.number);
  writer.Add("general.quantization_version", uint32_t{2});
  for (std::string_view word : Words(model.keys, ' ')) {
    const size_t equals = word.find('=');
    AddKey(fmt::format("{}.{}", model.architecture, word.substr(0, equals)),
           word.substr(equals + 1), writer);
  }
  AddTokenizer(model.vocab, writer);
}

// ---- Shapes ----

std::string WithKind(std::string_view name) {
  const bool has = name.ends_with(".bias") || name.ends_with(".weight");
  return std::string(name) + (has ? "" : ".weight");
}

int64_t LayersOf(const SynthModel& model) {
  for (std::string_view word : Words(model.keys, ' ')) {
    if (word.starts_with("block_count=")) return Number<int64_t>(word.substr(12));
  }
  return 0;
}

// Names of the tensors that say what a file's layers have.
std::vector<std::string> Extras(const SynthModel& model) {
  const int64_t layers = LayersOf(model);
  std::vector<std::string> names;
  for (std::string_view word : Words(model.extras, ' ')) {
    const size_t colon = word.find(':');
    if (colon == std::string_view::npos) {
      names.push_back(WithKind(word));
      continue;
    }
    const std::string_view run = word.substr(3, colon - 3), name = word.substr(colon + 1);
    const size_t dash = run.find('-');
    const int64_t first = run.empty() ? 0 : Number<int64_t>(run.substr(0, dash));
    const int64_t last = run.empty() ? layers - 1 : Number<int64_t>(run.substr(dash + 1));
    for (int64_t i = first; i <= last; ++i) {
      names.push_back(fmt::format("blk.{}.{}", i, WithKind(name)));
    }
  }
  // A graph has no more layers than its file has tensors.
  for (int64_t i = 0; i < layers; ++i) names.push_back(fmt::format("blk.{}.attn_norm.weight", i));
  return names;
}

// A file that has the keys, the vocabulary's size and the names of tensors, for the architecture to
// state its graph from. It lies beside the output for as long as it takes to map it.
GgufFile OpenOutline(const SynthModel& model, const Mix& mix, const std::string& output) {
  const std::string path = output + ".outline";
  GgufWriter writer(path);
  AddMetadata(model, mix, writer);
  uint64_t bytes = writer.AddTensor("token_embd.weight", kF32, {1, model.vocab});
  for (const std::string& name : Extras(model)) bytes += writer.AddTensor(name, kF32, {8});
  writer.Write(std::vector<std::byte>(bytes));
  writer.Finish();
  GgufFile file = GgufFile::Open(path);
  std::filesystem::remove(path);
  return file;
}

// ---- Weights ----

// Encoded blocks that tensors are filled from, again and again from other places: making new ones
// for hundreds of gigabytes would take hours and show nothing more.
class Pool {
 public:
  // Weights of deviation 1 / sqrt(width), so that sums keep the size of what enters them.
  Pool(const Format& format, uint64_t width, uint64_t seed) : format_(format) {
    constexpr int64_t kWeights = int64_t{1} << 18;
    Random random(seed ^ (uint64_t{format.id} << 32) ^ width);
    const float deviation = 1 / std::sqrt(static_cast<float>(width));
    std::vector<float> weights(kWeights);
    for (float& weight : weights) weight = deviation * random.Normal();
    bytes_.resize(static_cast<size_t>(format.RowBytes(kWeights)));
    format.encode(weights.data(), kWeights / format.block, bytes_.data());
  }

  // Fills whole blocks from a random one on.
  void Fill(Random& random, std::span<std::byte> out) const {
    const auto block = static_cast<size_t>(format_.block_bytes);
    while (!out.empty()) {
      const size_t from = random.Next() % (bytes_.size() / block) * block;
      const size_t run = std::min(out.size(), bytes_.size() - from);
      std::memcpy(out.data(), bytes_.data() + from, run);
      out = out.subspan(run);
    }
  }

 private:
  const Format& format_;
  std::vector<std::byte> bytes_;
};

// What a vector's numbers are in trained models, near enough for activations to keep their size.
float VectorNumber(std::string_view name, Random& random) {
  if (name.ends_with("norm.weight")) return 1 + 0.05f * random.Normal();
  if (name.ends_with("ssm_a")) return -0.5f + 0.1f * random.Normal();
  return 0.02f * random.Normal();
}

class Filler {
 public:
  Filler(uint64_t seed, GgufWriter& writer) : seed_(seed), random_(seed), writer_(writer) {}

  void Write(const PlannedTensor& plan, Progress& bar) {
    const GgufTensor& tensor = plan.tensor;
    uint64_t left = tensor.elements() / static_cast<uint64_t>(plan.to->block) *
                    static_cast<uint64_t>(plan.to->block_bytes);
    const auto block = static_cast<uint64_t>(plan.to->block_bytes);
    while (left > 0) {
      ThrowIfInterrupted();
      const uint64_t some = std::min<uint64_t>(left, kPieceBytes / block * block);
      buffer_.resize(some);
      tensor.dims_count < 2 ? FillVector(tensor) : FillMatrix(plan);
      writer_.Write(buffer_);
      bar.Add(some);
      left -= some;
    }
  }

 private:
  static constexpr uint64_t kPieceBytes = uint64_t{1} << 24;

  void FillVector(const GgufTensor& tensor) {
    for (size_t i = 0; i < buffer_.size(); i += sizeof(float)) {
      const float number = VectorNumber(tensor.name, random_);
      std::memcpy(buffer_.data() + i, &number, sizeof(float));
    }
  }

  void FillMatrix(const PlannedTensor& plan) {
    const auto key = std::pair(plan.to->id, plan.tensor.dims[0]);
    auto at = pools_.find(key);
    if (at == pools_.end())
      at = pools_.try_emplace(key, *plan.to, plan.tensor.dims[0], seed_).first;
    at->second.Fill(random_, buffer_);
  }

  uint64_t seed_;
  Random random_;
  GgufWriter& writer_;
  std::vector<std::byte> buffer_;
  std::map<std::pair<uint32_t, uint64_t>, Pool> pools_;
};

const SynthModel& FindModel(const SynthOptions& options) {
  std::string architectures, sizes;
  std::string_view last;
  for (const SynthModel& model : SynthModels()) {
    if (model.architecture == options.architecture) {
      if (model.size == options.size) return model;
      sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", model.size);
    }
    if (model.architecture == last) continue;
    last = model.architecture;
    architectures += fmt::format("{}{}", architectures.empty() ? "" : ", ", last);
  }
  if (sizes.empty()) {
    throw Refused("--arch: expected one of {}, found '{}'", architectures,
                  Printable(options.architecture));
  }
  throw Refused("--size: expected one of {} for {}, found '{}'", sizes, options.architecture,
                Printable(options.size));
}

std::vector<GgufTensor> AsTensors(const std::vector<ExpectedTensor>& shapes) {
  std::vector<GgufTensor> tensors;
  for (const ExpectedTensor& shape : shapes) {
    GgufTensor tensor;
    tensor.name = shape.name;
    tensor.type = FindTensorType(kF32);
    tensor.dims_count = static_cast<int>(shape.dims.size());
    std::ranges::copy(shape.dims, tensor.dims.begin());
    tensors.push_back(tensor);
  }
  return tensors;
}

}  // namespace

SynthResult WriteSynth(const SynthOptions& options) {
  const SynthModel& model = FindModel(options);
  const Mix& mix = RequireMix(options.type);
  const GgufFile outline = OpenOutline(model, mix, options.output);
  const std::vector<ExpectedTensor> shapes = ExpectedTensors(BuildGraph(ModelSource(outline, {})));
  const std::vector<GgufTensor> tensors = AsTensors(shapes);
  MixOptions mix_options;
  mix_options.mix = &mix;
  mix_options.has_imatrix = true;  // random weights need none
  GgufWriter writer(options.output);
  AddMetadata(model, mix, writer);
  const std::vector<PlannedTensor> plan = PlanFormats(tensors, outline.metadata(), mix_options);
  SynthResult result{model.model, plan.size(), 0, 0};
  for (const PlannedTensor& row : plan) {
    result.weights += row.tensor.elements();
    result.bytes += writer.AddTensor(
        row.tensor.name, row.to->id,
        std::span(row.tensor.dims).first(static_cast<size_t>(row.tensor.dims_count)));
  }
  if (options.dry_run) return result;
  if (options.hollow) {
    writer.FinishHollow();
    return result;
  }
  Progress bar("writing", result.bytes, {.unit = ProgressUnit::kBytes});
  Filler filler(options.seed, writer);
  for (const PlannedTensor& row : plan) filler.Write(row, bar);
  writer.Finish();
  return result;
}

}  // namespace lockstep
