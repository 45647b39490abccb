#include "convert/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <span>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "convert/converters.h"
#include "convert/tokenizer_keys.h"
#include "gguf/gguf_writer.h"

namespace lockstep {
namespace {

// A type of --type, and llama.cpp's number for files mostly of it (general.file_type).
struct FileType {
  std::string_view name;
  std::string_view format;
  uint32_t number;
};
constexpr FileType kFileTypes[] = {{"f32", "F32", 0},
                                   {"f16", "F16", 1},
                                   {"q8_0", "Q8_0", 7},
                                   {"bf16", "BF16", 32},
                                   {"mxfp4", "MXFP4", 38}};
constexpr std::string_view kOwnType = "auto";

// Numbers are made and encoded in pieces of about this many.
constexpr uint64_t kPiece = uint64_t{1} << 18;
// Pages of the checkpoint are given back after this many numbers.
constexpr uint64_t kReleaseNumbers = uint64_t{1} << 28;

const Format& F32() { return *FindFormat(std::string_view("F32")); }

uint64_t RowLength(const Values& values) {
  return values.dims().empty() ? 1 : values.dims().back();
}

// The wanted format, or the nearest plain one where rows are no whole blocks.
const Format& Fitting(const Format& wanted, const Values& values) {
  const bool fits = RowLength(values) % static_cast<uint64_t>(wanted.block) == 0;
  return fits ? wanted : *FindFormat(std::string_view("F16"));
}

const Format& FormatOf(const RecipeTensor& tensor, std::string_view type) {
  if (tensor.stored == Stored::kI32) return *FindFormat(std::string_view("I32"));
  if (tensor.stored == Stored::kF32 || tensor.values.dims().size() < 2) return F32();
  return Fitting(type == kOwnType ? tensor.values.own() : *FindFormat(type), tensor.values);
}

// The type of most numbers.
uint32_t FileTypeNumber(const std::vector<RecipeTensor>& tensors, std::string_view type) {
  std::map<std::string_view, uint64_t> sizes;
  for (const RecipeTensor& tensor : tensors) {
    sizes[FormatOf(tensor, type).name] += tensor.values.size();
  }
  const auto most =
      std::ranges::max_element(sizes, {}, [](const auto& pair) { return pair.second; });
  const auto found = std::ranges::find(kFileTypes, most->first, &FileType::format);
  return found == std::end(kFileTypes) ? 0 : found->number;
}

// A count with two digits at least, as llama.cpp's names have it: "8.0B", "135M".
std::string RoundedCount(double count) {
  static constexpr std::pair<double, char> kUnits[] = {
      {1e12, 'T'}, {1e9, 'B'}, {1e6, 'M'}, {1e3, 'K'}};
  for (const auto& [unit, letter] : kUnits) {
    if (count < unit && unit > 1e3) continue;
    const double scaled = count / unit;
    return fmt::format("{:.{}f}{}", scaled, std::round(scaled) < 10 ? 1 : 0, letter);
  }
  return "";
}

// "1.2B", or "8x7B": experts and the size of a model with one of them.
std::string SizeLabel(const std::vector<RecipeTensor>& tensors) {
  uint64_t shared = 0, one_expert = 0, experts = 0;
  for (const RecipeTensor& tensor : tensors) {
    if (tensor.values.dims().size() == 3 && tensor.name.find("_exps.") != std::string::npos) {
      experts = tensor.values.dims()[0];
      one_expert += tensor.values.size() / experts;
    } else {
      shared += tensor.values.size();
    }
  }
  const std::string size = RoundedCount(static_cast<double>(shared + one_expert));
  return experts == 0 ? size : fmt::format("{}x{}", experts, size);
}

void SetGeneralKeys(const ConvertOptions& options, const Recipe& recipe, Keys& keys) {
  std::filesystem::path folder(options.folder);
  if (!folder.has_filename()) folder = folder.parent_path();
  keys.SetFull("general.type", std::string("model"));
  keys.SetFull("general.name", Printable(folder.filename().string()));
  keys.SetFull("general.size_label", SizeLabel(recipe.tensors()));
  keys.SetFull("general.file_type", FileTypeNumber(recipe.tensors(), options.type));
  keys.SetFull("general.quantization_version", uint32_t{2});
}

void EncodeWholeNumbers(std::span<const float> numbers, std::byte* out) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto number = static_cast<int32_t>(numbers[i]);
    std::memcpy(out + i * sizeof(number), &number, sizeof(number));
  }
}

void WriteTensor(const RecipeTensor& tensor, const Format& format, GgufWriter& writer,
                 Progress& bar) {
  const uint64_t row = RowLength(tensor.values), size = tensor.values.size();
  // Whole rows where they are short, whole blocks of one row where they are long.
  const auto block = static_cast<uint64_t>(format.block);
  const uint64_t piece = row <= kPiece ? kPiece / row * row : kPiece / block * block;
  std::vector<float> numbers(std::min(piece, size));
  std::vector<std::byte> bytes(numbers.size() / block * static_cast<uint64_t>(format.block_bytes));
  for (uint64_t at = 0; at < size; at += piece) {
    ThrowIfInterrupted();
    const uint64_t count = std::min(piece, size - at);
    tensor.values.Read(at, count, numbers.data());
    const auto blocks = static_cast<int64_t>(count / block);
    if (tensor.stored == Stored::kI32) {
      EncodeWholeNumbers(std::span(numbers).first(count), bytes.data());
    } else {
      format.encode(numbers.data(), blocks, bytes.data());
    }
    const auto written = static_cast<size_t>(blocks * format.block_bytes);
    writer.Write(std::span(bytes).first(written));
    bar.Add(written);
  }
}

uint64_t Declare(const Recipe& recipe, std::string_view type, GgufWriter& writer) {
  uint64_t bytes = 0;
  for (const RecipeTensor& tensor : recipe.tensors()) {
    std::vector<uint64_t> dims(tensor.values.dims().rbegin(), tensor.values.dims().rend());
    bytes += writer.AddTensor(tensor.name, FormatOf(tensor, type).id, dims);
  }
  return bytes;
}

void CheckType(std::string_view type) {
  if (type == kOwnType) return;
  std::string known(kOwnType);
  for (const FileType& row : kFileTypes) {
    if (row.name == type) return;
    known += fmt::format(", {}", row.name);
  }
  throw Refused("convert: --type: expected one of {}, found {}", known, Printable(type));
}

}  // namespace

ConvertResult ConvertCheckpoint(const ConvertOptions& options) {
  CheckType(options.type);
  Checkpoint checkpoint = Checkpoint::Open(options.folder);
  const Converter& converter = FindConverter(checkpoint.config());
  Keys keys(converter.architecture);
  Recipe recipe(checkpoint, keys);
  ApplyConverter(converter, checkpoint, recipe);
  SetGeneralKeys(options, recipe, keys);
  SetSamplingKeys(checkpoint, keys);
  const RecipeTensor* embedding = recipe.Find("token_embd.weight");
  if (embedding != nullptr && !(converter.of_model && LacksTokenizer(checkpoint))) {
    SetTokenizerKeys(checkpoint, embedding->values.dims()[0], keys);
  }

  ConvertResult result{converter.architecture, recipe.tensors().size(), 0};
  GgufWriter writer(options.output);
  keys.WriteTo(writer);
  result.bytes = Declare(recipe, options.type, writer);
  if (options.dry_run) return result;
  Progress bar("converting", result.bytes, {.unit = ProgressUnit::kBytes});
  uint64_t since_release = 0;
  for (const RecipeTensor& tensor : recipe.tensors()) {
    WriteTensor(tensor, FormatOf(tensor, options.type), writer, bar);
    since_release += tensor.values.size();
    if (since_release < kReleaseNumbers) continue;
    checkpoint.ReleasePages();
    since_release = 0;
  }
  writer.Finish();
  return result;
}

}  // namespace lockstep
