#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <filesystem>
#include <map>

#include "apps/command.h"
#include "apps/terminal.h"
#include "base/error.h"
#include "base/log.h"
#include "convert/quantize.h"
#include "text/json_text.h"

namespace lockstep {
namespace {

// IN [OUT] TYPE [THREADS], as llama-quantize has it.
struct Arguments {
  std::string input, output;
  const Mix* mix = nullptr;
  int threads = 0;
};

int ParseThreads(const std::string& text) {
  const auto [end, last] = std::pair(text.find_first_not_of("0123456789"), text.size());
  if (end == std::string::npos && last > 0 && last < 6) return std::stoi(text);
  throw Refused("quantize: expected a number of threads after the type, found '{}'",
                Printable(text));
}

Arguments ReadArguments(const OptionValues& options, Positional positional) {
  if (positional.size() < 2) {
    throw Refused("quantize: expected IN [OUT] TYPE, found {} arguments", positional.size());
  }
  Arguments arguments;
  arguments.input = positional[0];
  arguments.mix = FindMix(positional[1]);
  const bool named = arguments.mix == nullptr || (positional.size() > 2 && FindMix(positional[2]));
  size_t next = 2;
  if (named) {
    if (positional.size() < 3) arguments.mix = &RequireMix(positional[1]);
    arguments.output = positional[1];
    arguments.mix = &RequireMix(positional[2]);
    next = 3;
  } else {
    const auto folder = std::filesystem::path(arguments.input).parent_path();
    arguments.output = (folder / fmt::format("ggml-model-{}.gguf", arguments.mix->name)).string();
  }
  arguments.threads =
      static_cast<int>(std::max<int64_t>(0, options.GetOr<int64_t>(Opt::kThreads, -1)));
  if (positional.size() > next) arguments.threads = ParseThreads(positional[next]);
  return arguments;
}

std::vector<std::string> Texts(const OptionValues& options, Opt option) {
  return options.GetOr<std::vector<std::string>>(option, {});
}

MixOptions ReadMixOptions(const OptionValues& options, const Mix* mix) {
  MixOptions out;
  out.mix = mix;
  out.has_imatrix = options.Given(Opt::kImatrix);
  out.pure = options.Get<bool>(Opt::kPure);
  out.leave_output = options.Get<bool>(Opt::kLeaveOutputTensor);
  out.strict = options.Get<bool>(Opt::kStrict);
  out.output_format = options.GetOr<std::string>(Opt::kOutputTensorType, "");
  out.embedding_format = options.GetOr<std::string>(Opt::kTokenEmbeddingType, "");
  for (const std::string& text : Texts(options, Opt::kTensorType)) {
    const size_t at = text.rfind('=');
    if (at == std::string::npos || at == 0) {
      throw Refused("--tensor-type: expected PATTERN=TYPE, found '{}'", Printable(text));
    }
    out.overrides.emplace_back(text.substr(0, at), text.substr(at + 1));
  }
  return out;
}

Imatrix ReadImatrix(const OptionValues& options) {
  Imatrix matrix = Imatrix::Read(options.Get<std::string>(Opt::kImatrix));
  const std::vector<std::string> included = Texts(options, Opt::kIncludeWeights);
  const std::vector<std::string> excluded = Texts(options, Opt::kExcludeWeights);
  const auto any = [](const std::vector<std::string>& parts, std::string_view name) {
    return std::ranges::any_of(
        parts, [&](const std::string& part) { return name.find(part) != std::string_view::npos; });
  };
  matrix.DropIf([&](std::string_view name) {
    return any(excluded, name) || (!included.empty() && !any(included, name));
  });
  return matrix;
}

// Sums over the tensors of one format.
struct FormatSums {
  uint64_t tensors = 0, weights = 0, bytes = 0;
  double squares = 0, errors = 0, weighted_squares = 0, weighted_errors = 0;

  void Add(const QuantizedTensor& tensor) {
    ++tensors;
    weights += tensor.weights;
    bytes += tensor.bytes_after;
    squares += tensor.squares;
    errors += tensor.square_errors;
    weighted_squares += tensor.weighted_squares;
    weighted_errors += tensor.weighted_errors;
  }
  static double Root(double errors, double squares) {
    return squares > 0 ? std::sqrt(errors / squares) : 0;
  }
};

std::map<std::string, FormatSums> SumFormats(const QuantizeResult& result) {
  std::map<std::string, FormatSums> sums;
  for (const QuantizedTensor& tensor : result.tensors) {
    sums[std::string(tensor.to->name)].Add(tensor);
  }
  return sums;
}

boost::json::object ErrorsJson(double squares, double errors, double weighted_squares,
                               double weighted_errors) {
  boost::json::object out = {{"relative_error", FormatSums::Root(errors, squares)}};
  if (weighted_squares > 0) {
    out["weighted_relative_error"] = FormatSums::Root(weighted_errors, weighted_squares);
  }
  return out;
}

void PrintJson(const Arguments& arguments, const QuantizeResult& result, bool dry_run) {
  boost::json::array tensors;
  for (const QuantizedTensor& tensor : result.tensors) {
    boost::json::object row = ErrorsJson(tensor.squares, tensor.square_errors,
                                         tensor.weighted_squares, tensor.weighted_errors);
    row["name"] = Printable(tensor.name);
    row["from"] = tensor.from->name;
    row["to"] = tensor.to->name;
    row["bytes_before"] = tensor.bytes_before;
    row["bytes"] = tensor.bytes_after;
    row["fallback"] = tensor.fell_back();
    if (!tensor.unseen_experts.empty())
      row["unseen_experts"] = boost::json::value_from(tensor.unseen_experts);
    row["largest_error"] = tensor.largest_error;
    tensors.push_back(std::move(row));
  }
  boost::json::object formats;
  for (const auto& [name, sums] : SumFormats(result)) {
    boost::json::object row =
        ErrorsJson(sums.squares, sums.errors, sums.weighted_squares, sums.weighted_errors);
    row["tensors"] = sums.tensors;
    row["bytes"] = sums.bytes;
    row["weights"] = sums.weights;
    formats[name] = std::move(row);
  }
  boost::json::object out = {{"output", Printable(arguments.output, 4096)},
                             {"type", arguments.mix->name},
                             {"written", !dry_run},
                             {"bytes_before", result.bytes_before},
                             {"bytes", result.bytes_after},
                             {"formats", std::move(formats)},
                             {"tensors", std::move(tensors)}};
  Print(JsonText(out) + "\n");
}

constexpr double kMib = 0x1p20;

// What a reader of the figures should know, each once.
void WarnOfFallbacks(const QuantizeResult& result) {
  size_t count = 0;
  uint64_t weights = 0, all = 0, bytes = 0;
  double meant = 0;
  for (const QuantizedTensor& tensor : result.tensors) {
    all += tensor.weights;
    if (!tensor.fell_back()) continue;
    ++count;
    weights += tensor.weights;
    bytes += tensor.bytes_after;
    meant += static_cast<double>(tensor.weights) * static_cast<double>(tensor.meant->block_bytes) /
             static_cast<double>(tensor.meant->block);
  }
  if (count == 0) return;
  Log(LogLevel::kWarning,
      "{} of {} tensors, {:.1f} % of the weights, have rows that fit no whole blocks of the format "
      "meant for them and got a larger one: {:.2f} MiB and not {:.2f} MiB",
      count, result.tensors.size(), 100 * static_cast<double>(weights) / static_cast<double>(all),
      static_cast<double>(bytes) / kMib, meant / kMib);
}

void WarnOfUnseenExperts(const QuantizeResult& result) {
  const QuantizedTensor* first = nullptr;
  size_t count = 0;
  for (const QuantizedTensor& tensor : result.tensors) {
    count += tensor.unseen_experts.size();
    if (first == nullptr && !tensor.unseen_experts.empty()) first = &tensor;
  }
  if (first == nullptr) return;
  Log(LogLevel::kWarning,
      "{}: no data for expert {} in the importance matrix, as for {} more: their columns count "
      "alike",
      Printable(first->name), first->unseen_experts[0], count - 1);
}

void LogTensors(const QuantizeResult& result) {
  for (const QuantizedTensor& tensor : result.tensors) {
    if (tensor.from == tensor.to) continue;
    Log(LogLevel::kDebug, "{}: {} -> {}, error {:.4f} %{}", Printable(tensor.name),
        tensor.from->name, tensor.to->name, 100 * tensor.relative_error(),
        tensor.fell_back() ? ", instead of the format meant for it" : "");
  }
  WarnOfFallbacks(result);
  WarnOfUnseenExperts(result);
}

void PrintText(const Arguments& arguments, const QuantizeResult& result, bool dry_run) {
  LogTensors(result);
  uint64_t weights = 0;
  for (const auto& [name, sums] : SumFormats(result)) {
    weights += sums.weights;
    std::string errors;
    if (sums.errors > 0) {
      errors = fmt::format(", error {:.4f} %", 100 * FormatSums::Root(sums.errors, sums.squares));
    }
    if (sums.weighted_errors > 0) {
      errors += fmt::format(", weighted {:.4f} %",
                            100 * FormatSums::Root(sums.weighted_errors, sums.weighted_squares));
    }
    Print(fmt::format("{:<8} {:>5} tensors, {:>10.2f} MiB{}\n", name, sums.tensors,
                      static_cast<double>(sums.bytes) / kMib, errors));
  }
  Print(fmt::format(
      "{}: {}, {:.2f} MiB of {:.2f} MiB, {:.3f} bits a weight{}\n",
      Printable(arguments.output, 4096), arguments.mix->name,
      static_cast<double>(result.bytes_after) / kMib,
      static_cast<double>(result.bytes_before) / kMib,
      weights == 0 ? 0.0
                   : 8.0 * static_cast<double>(result.bytes_after) / static_cast<double>(weights),
      dry_run ? " (not written)" : ""));
}

}  // namespace

int RunQuantize(const OptionValues& options, Positional positional) {
  const Arguments arguments = ReadArguments(options, positional);
  std::optional<Imatrix> matrix;
  if (options.Given(Opt::kImatrix)) matrix = ReadImatrix(options);
  const QuantizeOptions quantize{.input = arguments.input,
                                 .output = arguments.output,
                                 .mix = ReadMixOptions(options, arguments.mix),
                                 .imatrix = matrix ? &*matrix : nullptr,
                                 .imatrix_name = options.GetOr<std::string>(Opt::kImatrix, ""),
                                 .allow_requantize = options.Get<bool>(Opt::kAllowRequantize),
                                 .keep_split = options.Get<bool>(Opt::kKeepSplit),
                                 .dry_run = options.Get<bool>(Opt::kDryRun),
                                 .threads = arguments.threads};
  const QuantizeResult result = QuantizeFile(quantize);
  if (options.Get<bool>(Opt::kJson)) {
    PrintJson(arguments, result, quantize.dry_run);
  } else {
    PrintText(arguments, result, quantize.dry_run);
  }
  return 0;
}

}  // namespace lockstep
