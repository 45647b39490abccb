#include "apps/bench_report.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "base/error.h"
#include "text/jinja_string.h"
#include "text/json_text.h"
#include "text/unicode.h"

namespace lockstep {
namespace {

constexpr double kGiga = 1e9;

bool PureAnswer(const BenchTest& test) { return test.prompt == 0; }

std::string Number(const Mean& value, double unit) {
  return value.count() == 0 ? "" : fmt::format("{:.1f}", value.mean() / unit);
}

// "61 % of 55.3 GB/s"
std::string LimitText(const BenchResult& result) {
  if (result.share.count() == 0) return "";
  const bool answer = PureAnswer(result.test);
  return fmt::format("{:.0f} % of {:.1f} {}", 100 * result.share.mean(),
                     (answer ? result.read_limit : result.ops_limit).mean() / kGiga,
                     answer ? "GB/s" : "GOP/s");
}

std::string SizeText(uint64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 1024 ? fmt::format("{:.2f} MiB", mib) : fmt::format("{:.2f} GiB", mib / 1024);
}

std::string CountText(uint64_t parameters) {
  const auto count = static_cast<double>(parameters);
  return count < 1e9 ? fmt::format("{:.2f} M", count / 1e6) : fmt::format("{:.2f} B", count / 1e9);
}

// Characters of UTF-8 text, as fmt counts them when it pads.
size_t Columns(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

std::string MarkdownTable(const BenchModel& model, std::span<const BenchResult> results) {
  std::vector<std::vector<std::string>> rows = {
      {"model", "size", "params", "isa", "threads", "test", "t/s", "GB/s", "GOP/s", "of limit"}};
  for (const BenchResult& result : results) {
    rows.push_back(
        {Printable(model.name, 60), SizeText(model.bytes), CountText(model.parameters), model.isa,
         fmt::format("{}", result.threads), result.test.name(),
         fmt::format("{:.2f} ± {:.2f}", result.tokens_per_s.mean(), Deviation(result.samples)),
         Number(result.bytes_per_s, kGiga), Number(result.ops_per_s, kGiga), LimitText(result)});
  }
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], Columns(row[i]));
    }
  }
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    text += '|';
    for (size_t i = 0; i < rows[r].size(); ++i)
      text += fmt::format(" {:<{}} |", rows[r][i], widths[i]);
    text += '\n';
    if (r != 0) continue;
    text += '|';
    for (size_t i = 0; i < widths.size(); ++i) {
      text += fmt::format(" {:->{}}{} |", "", widths[i] - 1, i < 4 ? "-" : ":");
    }
    text += '\n';
  }
  return text;
}

boost::json::object Object(const BenchResult& result) {
  boost::json::object out = {{"test", result.test.name()},
                             {"n_prompt", result.test.prompt},
                             {"n_gen", result.test.gen},
                             {"n_depth", result.test.depth},
                             {"threads", result.threads},
                             {"tokens_per_s", result.tokens_per_s.mean()},
                             {"tokens_per_s_deviation", Deviation(result.samples)}};
  boost::json::array samples;
  for (double sample : result.samples) samples.emplace_back(sample);
  out["samples_tokens_per_s"] = std::move(samples);
  auto add = [&](std::string_view key, const Mean& value) {
    if (value.count() != 0) out[key] = value.mean();
  };
  add("bytes_per_s", result.bytes_per_s);
  add("ops_per_s", result.ops_per_s);
  add("share_of_limit", result.share);
  add("limit_bytes_per_s", result.read_limit);
  add("limit_ops_per_s", result.ops_limit);
  return out;
}

boost::json::object Object(const BenchModel& model) {
  return {{"file", ReplaceInvalidUtf8(model.file)},
          {"name", ReplaceInvalidUtf8(model.name)},
          {"bytes", model.bytes},
          {"parameters", model.parameters},
          {"isa", model.isa}};
}

std::string CsvField(std::string_view text) {
  std::string quoted = "\"";
  for (char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string CsvTable(const BenchModel& model, std::span<const BenchResult> results) {
  std::string text =
      "model,bytes,parameters,isa,threads,test,n_prompt,n_gen,n_depth,tokens_per_s,"
      "tokens_per_s_deviation,bytes_per_s,ops_per_s,share_of_limit\n";
  auto number = [](const Mean& value) {
    return value.count() == 0 ? "" : fmt::format("{:.6g}", value.mean());
  };
  for (const BenchResult& r : results) {
    text += fmt::format("{},{},{},{},{},{},{},{},{},{:.6g},{:.6g},{},{},{}\n",
                        CsvField(Printable(model.name)), model.bytes, model.parameters, model.isa,
                        r.threads, CsvField(r.test.name()), r.test.prompt, r.test.gen, r.test.depth,
                        r.tokens_per_s.mean(), Deviation(r.samples), number(r.bytes_per_s),
                        number(r.ops_per_s), number(r.share));
  }
  return text;
}

std::string JsonTable(const BenchModel& model, std::span<const BenchResult> results) {
  boost::json::array list;
  for (const BenchResult& result : results) list.push_back(Object(result));
  return JsonText(boost::json::object{{"model", Object(model)}, {"results", std::move(list)}}) +
         "\n";
}

std::string JsonLines(const BenchModel& model, std::span<const BenchResult> results) {
  std::string text;
  for (const BenchResult& result : results) {
    boost::json::object line = Object(result);
    line["model"] = Object(model);
    text += JsonText(line) + "\n";
  }
  return text;
}

std::string XmlText(std::string_view text) {
  return jinja::EscapeHtml(ReplaceInvalidUtf8(Printable(text, 200)));
}

}  // namespace

std::string BenchTest::name() const {
  std::string text;
  if (prompt > 0) text += fmt::format("pp{}", prompt);
  if (gen > 0) text += fmt::format("{}tg{}", text.empty() ? "" : "+", gen);
  if (depth > 0) text += fmt::format(" @ d{}", depth);
  return text;
}

double Deviation(std::span<const double> samples) {
  if (samples.size() < 2) return 0;
  double mean = 0, squares = 0;
  for (double sample : samples) mean += sample / static_cast<double>(samples.size());
  for (double sample : samples) squares += (sample - mean) * (sample - mean);
  return std::sqrt(squares / static_cast<double>(samples.size() - 1));
}

std::string BenchTable(std::string_view format, const BenchModel& model,
                       std::span<const BenchResult> results) {
  struct FormatRow {
    std::string_view name;
    std::string (*write)(const BenchModel&, std::span<const BenchResult>);
  };
  constexpr FormatRow kFormats[] = {
      {"md", MarkdownTable}, {"csv", CsvTable}, {"json", JsonTable}, {"jsonl", JsonLines}};
  for (const FormatRow& row : kFormats) {
    if (row.name == format) return row.write(model, results);
  }
  throw Refused("--output: expected md, csv, json or jsonl, found '{}'", Printable(format));
}

std::string BenchSvg(const BenchModel& model, std::span<const BenchResult> results) {
  constexpr double kWidth = 800, kLeft = 200, kBars = 430, kLine = 28, kTop = 50;
  double greatest[2] = {0, 0};  // of prompts, of answers
  for (const BenchResult& result : results) {
    double& of_kind = greatest[PureAnswer(result.test)];
    of_kind = std::max(of_kind, result.tokens_per_s.mean() + Deviation(result.samples));
  }
  const double height = kTop + kLine * static_cast<double>(results.size()) + 20;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" font-size=\"13\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
      "<text x=\"16\" y=\"26\" font-size=\"16\">{2}, tokens per second</text>\n",
      kWidth, height, XmlText(model.name));
  double y = kTop;
  for (const BenchResult& result : results) {
    const bool answer = PureAnswer(result.test);
    const double scale = kBars / std::max(greatest[answer], 1e-9);
    const double mean = result.tokens_per_s.mean(), deviation = Deviation(result.samples);
    svg += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}, {} thread{}</text>\n"
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"18\" fill=\"{}\"/>\n"
        "<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"black\"/>\n"
        "<text x=\"{:.1f}\" y=\"{:.1f}\">{:.1f}{}{}</text>\n",
        kLeft - 8, y + 14, XmlText(result.test.name()), result.threads,
        result.threads == 1 ? "" : "s", kLeft, y, mean * scale, answer ? "#4c78a8" : "#f58518",
        kLeft + (mean - deviation) * scale, kLeft + (mean + deviation) * scale, y + 9, y + 9,
        kLeft + (mean + deviation) * scale + 6, y + 14, mean, result.share.count() ? ", " : "",
        XmlText(LimitText(result)));
    y += kLine;
  }
  return svg + "</svg>\n";
}

}  // namespace lockstep
