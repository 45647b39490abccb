#include <algorithm>
#include <cstring>
#include <optional>

#include "apps/command.h"
#include "apps/input.h"
#include "apps/model_options.h"
#include "apps/terminal.h"
#include "base/log.h"
#include "base/progress.h"
#include "engine/drafter.h"
#include "engine/evaluator.h"
#include "engine/sha256.h"
#include "gguf/safetensors.h"

namespace lockstep {
namespace {

// The tensor `tokens` of a safetensors file, int32 or int64, [t].
std::vector<int32_t> ReadTokens(const std::string& path) {
  const Safetensors file = Safetensors::Open(path);
  const SafetensorsTensor& tensor = file.Require("tokens");
  const std::string name = Printable(path, 4096);
  const bool wide = tensor.type->name == "I64";
  if (!wide && tensor.type->name != "I32") {
    throw Refused("{}: tokens: expected I32 or I64, found {}", name, tensor.type->name);
  }
  if (tensor.shape.size() != 1) {
    throw Refused("{}: tokens: expected one dimension, found {}", name, tensor.shape.size());
  }
  std::vector<int32_t> tokens;
  for (uint64_t i = 0; i < tensor.shape[0]; ++i) {
    int64_t token = 0;
    if (wide) {
      std::memcpy(&token, tensor.data.data() + i * 8, 8);
    } else {
      int32_t narrow = 0;
      std::memcpy(&narrow, tensor.data.data() + i * 4, 4);
      token = narrow;
    }
    if (token < 0 || token > INT32_MAX) {
      throw Refused("{}: tokens: expected ids from 0 to {}, found {} at {}", name, INT32_MAX, token,
                    i);
    }
    tokens.push_back(static_cast<int32_t>(token));
  }
  return tokens;
}

// What the options say before the model is open: ids, or nothing where a text has to be encoded.
std::vector<int32_t> GivenTokens(const OptionValues& options) {
  const bool ids = options.Given(Opt::kTokens), file = options.Given(Opt::kTokensFrom);
  const bool text = options.Given(Opt::kPrompt) || options.Given(Opt::kFile);
  if (ids + file + text != 1) {
    throw Refused("logits: expected one of --tokens, --tokens-from, --prompt and --file, found {}",
                  ids + file + text == 0 ? "none" : "several");
  }
  for (const Opt state : {Opt::kLoadState, Opt::kSaveState}) {
    if (!options.Given(state) || !(options.Get<bool>(Opt::kMtp) || options.Given(Opt::kDraftModel)))
      continue;
    throw Refused(
        "logits: expected one of {} and {}, found both; a state has nothing of what drafts cache",
        state == Opt::kLoadState ? "--load-state" : "--save-state",
        options.Get<bool>(Opt::kMtp) ? "--mtp" : "--model-draft");
  }
  if (file) return ReadTokens(options.Get<std::string>(Opt::kTokensFrom));
  return ids ? ReadTokenIds(options) : std::vector<int32_t>{};
}

// What is drafted behind a sequence by a model that was opened with a draft.
class DraftTensors {
 public:
  DraftTensors(const LoadOptions& load, int64_t most)
      : drafts_(!load.draft.empty()), hidden_(load.hidden), most_(most) {}

  void Plan(const Model& model, std::vector<SafetensorsPlan>& plan) {
    if (!drafts_) return;
    const DraftModel& draft = *model.draft();
    const auto size = [](int64_t n) { return static_cast<uint64_t>(n); };
    first_ = plan.size();
    plan.push_back({"draft.tokens", "I32", {size(draft.rows(most_)) + 1}});
    plan.push_back({"draft.logits", "F32", {size(draft.rows(most_)), size(model.vocab())}});
    if (hidden_) {
      plan.push_back(
          {"draft.hidden", "F32", {size(draft.hidden_rows(most_)), size(draft.hidden_width())}});
    }
  }

  void See(Evaluator& evaluator, const EvaluatedRows& rows) {
    if (!drafts_) return;
    if (!drafter_) drafter_.emplace(evaluator);
    drafter_->See(rows);
    const auto last = rows.logits.last(rows.logits.size() / static_cast<size_t>(rows.rows));
    next_ = static_cast<int32_t>(std::ranges::max_element(last) - last.begin());
  }

  // After the likeliest token behind the rows seen.
  void Write(SafetensorsWriter& writer) {
    if (!drafts_) return;
    const Drafted drafted = drafter_->Draft(next_, most_);
    writer.Append(first_, std::as_bytes(std::span(drafted.tokens)));
    writer.Append(first_ + 1, std::as_bytes(std::span(drafted.logits)));
    if (hidden_) writer.Append(first_ + 2, std::as_bytes(std::span(drafted.hidden)));
  }

 private:
  const bool drafts_, hidden_;
  const int64_t most_;
  size_t first_ = 0;  // of its tensors in the file
  std::optional<Drafter> drafter_;
  int32_t next_ = -1;
};

// Writes the rows of a sequence as they are computed, so that memory does not grow with its length.
class LogitsFile {
 public:
  LogitsFile(const std::string& path, const Model& model, std::span<const int32_t> tokens,
             const LoadOptions& load, int64_t most_drafted)
      : tokens_(tokens),
        hidden_(load.hidden),
        next_token_(load.next_token),
        draft_(load, most_drafted),
        layers_(load.hidden ? std::ssize(model.graph().hidden) : 0),
        writer_(path, Plan(model)) {
    writer_.Append(0, std::as_bytes(tokens));
  }

  void Add(Evaluator& evaluator, const EvaluatedRows& rows) {
    sha_.Add(std::as_bytes(rows.logits));
    writer_.Append(1, std::as_bytes(rows.logits));
    for (int64_t layer = 0; layer < layers_; ++layer) {
      writer_.Append(static_cast<size_t>(2 + layer), std::as_bytes(evaluator.Hidden(layer)));
    }
    if (next_token_) AddNextToken(evaluator, rows);
    draft_.See(evaluator, rows);
  }

  // Completes the file; the SHA-256 of the logits' bytes.
  std::string Finish() {
    draft_.Write(writer_);
    writer_.Commit();
    return sha_.Hex();
  }

 private:
  void AddNextToken(Evaluator& evaluator, const EvaluatedRows& rows) {
    const auto at = static_cast<size_t>(2 + layers_);
    const auto next = tokens_.subspan(static_cast<size_t>(rows.first) + 1);
    evaluator.RunNextToken(rows, next, [&](const EvaluatedRows& block) {
      writer_.Append(at, std::as_bytes(block.logits));
      if (hidden_) writer_.Append(at + 1, std::as_bytes(evaluator.NextTokenHidden()));
    });
  }

  std::vector<SafetensorsPlan> Plan(const Model& model) {
    const Graph& graph = model.graph();
    const Shape& shape = graph.value(graph.final_hidden).shape;
    const auto rows = std::size(tokens_), vocab = static_cast<uint64_t>(model.vocab()),
               width = static_cast<uint64_t>(shape[shape.rank() - 1].size);
    std::vector<SafetensorsPlan> plan = {{"tokens", "I32", {rows}},
                                         {"logits", "F32", {rows, vocab}}};
    for (int64_t layer = 0; layer < layers_; ++layer) {
      plan.push_back({fmt::format("hidden.{}", layer), "F32", {rows, width}});
    }
    if (next_token_) plan.push_back({"mtp.logits", "F32", {rows - 1, vocab}});
    if (next_token_ && hidden_) plan.push_back({"mtp.hidden", "F32", {rows - 1, width}});
    draft_.Plan(model, plan);
    return plan;
  }

  const std::span<const int32_t> tokens_;
  const bool hidden_, next_token_;
  DraftTensors draft_;
  const int64_t layers_;
  SafetensorsWriter writer_;
  Sha256 sha_;
};

}  // namespace

int RunLogits(const OptionValues& options, Positional) {
  const std::string& output = options.Require<std::string>(Opt::kOutput);
  std::vector<int32_t> tokens = GivenTokens(options);
  LoadOptions load = ReadLoadOptions(options);
  load.hidden = options.Get<bool>(Opt::kHidden);
  load.next_token = options.Get<bool>(Opt::kMtp);
  load.draft = options.GetOr<std::string>(Opt::kDraftModel, "");
  const bool text = options.Given(Opt::kPrompt) || options.Given(Opt::kFile);
  const std::string prompt = text ? ReadInputText(options) : "";
  std::optional<LogitsFile> file;
  load.accept = [&](const Model& model) {
    if (text) {
      tokens = model.tokenizer().Encode(
          prompt, {.add_special = options.Get<bool>(Opt::kBos) && !options.Given(Opt::kLoadState),
                   .parse_special = options.Get<bool>(Opt::kParseSpecial)});
    }
    const size_t least = load.next_token ? 2 : 1;
    if (tokens.size() < least) {
      throw Refused("logits: expected at least {}, found {}",
                    least == 1 ? "one token" : "two tokens",
                    tokens.empty() ? "none" : std::to_string(tokens.size()));
    }
    Evaluator::Expect(model, tokens);
    file.emplace(output, model, tokens, load, options.Get<int64_t>(Opt::kDraftMax));
  };
  auto model = OpenWithProgress<Model>(load);
  if (!model) return 0;

  Evaluator evaluator(*model);
  if (options.Given(Opt::kLoadState)) evaluator.Load(options.Get<std::string>(Opt::kLoadState));
  Progress bar("computing", tokens.size(), {.unit = ProgressUnit::kTokens});
  evaluator.Run(tokens, 0, [&](const EvaluatedRows& rows) {
    file->Add(evaluator, rows);
    bar.Add(static_cast<uint64_t>(rows.rows));
  });
  const std::string hash = file->Finish();
  if (options.Given(Opt::kSaveState)) evaluator.Save(options.Get<std::string>(Opt::kSaveState));
  Print(hash + "\n");
  return 0;
}

}  // namespace lockstep
