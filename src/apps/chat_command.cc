#include "apps/answer.h"
#include "apps/command.h"
#include "apps/conversation.h"
#include "apps/input.h"
#include "apps/line_editor.h"
#include "apps/model_options.h"
#include "apps/state_files.h"
#include "apps/terminal.h"
#include "base/interrupt.h"
#include "base/log.h"

namespace lockstep {
namespace {

// What is seen of the conversation so far.
struct ChatTotals {
  int64_t answers = 0;
  int64_t computed_tokens = 0;  // of prompts
  int64_t cached_tokens = 0;
  int64_t generated_tokens = 0;
  Summary last;
};

class Chat {
 public:
  Chat(const OptionValues& options, Engine& engine)
      : options_(options),
        engine_(engine),
        conversation_(options, engine.model()),
        sampling_(ReadSamplingParams(options)),
        lines_(MakeLines(options)) {}

  // Null before the first answer.
  const Summary* last_answer() const { return totals_.answers == 0 ? nullptr : &totals_.last; }

  void Run() {
    const bool single = options_.Get<bool>(Opt::kSingleTurn);
    if (options_.Given(Opt::kPrompt) || options_.Given(Opt::kFile)) {
      Say(ReadInputText(options_));
      if (single) return;
    } else if (StdinIsTerminal()) {
      Log(LogLevel::kInfo, "/help lists what can be typed besides messages; Ctrl-D ends");
    }
    std::string message;
    while (ReadMessage(&message)) {
      if (message.find_first_not_of(" \t\n") == std::string::npos) continue;
      if (message.starts_with('/')) {
        if (!Obey(message)) return;
        continue;
      }
      Say(message);
      if (single) return;
    }
  }

 private:
  struct ChatWord {
    std::string_view name;
    std::string_view help;
    // Returns whether the conversation goes on.
    bool (Chat::*run)(std::string_view argument);
  };
  static std::span<const ChatWord> Words();

  static std::unique_ptr<LineSource> MakeLines(const OptionValues& options) {
    const bool edited =
        StdinIsTerminal() && StdoutIsTerminal() && !options.Get<bool>(Opt::kSimpleIo);
    if (!edited) return MakePlainLines();
    const std::string history = options.GetOr(Opt::kHistory, DefaultHistoryFile());
    return MakeEditedLines(history == "none" ? "" : history);
  }

  // The next line; false at the end of input. The first Ctrl-C on a terminal warns, a second ends.
  bool ReadLine(const std::string& prompt, std::string* line) {
    for (int interrupts = 0;;) {
      switch (lines_->Read(prompt, line)) {
        case LineEnd::kLine:
          return true;
        case LineEnd::kEndOfInput:
          if (StdinIsTerminal()) Print("\n");
          return false;
        case LineEnd::kInterrupted:
          if (!StdinIsTerminal() || ++interrupts == 2) ThrowIfInterrupted();
          ClearInterrupt();
          Print("\n");
          Log(LogLevel::kInfo, "Ctrl-C again, or /exit, ends the conversation");
      }
    }
  }

  // A message: a line, those that follow while one ends in a backslash, and with --multiline-input
  // all up to an empty one.
  bool ReadMessage(std::string* message) {
    const bool until_empty = options_.Get<bool>(Opt::kMultilineInput);
    message->clear();
    std::string line;
    for (bool first = true;; first = false) {
      if (!ReadLine(first ? "> " : ". ", &line)) return !first && !message->empty();
      const bool goes_on = line.ends_with('\\');
      if (goes_on) line.pop_back();
      if (until_empty && !goes_on && line.empty()) return true;
      *message += (first ? "" : "\n") + line;
      const bool is_word = first && line.starts_with('/');
      if (!goes_on && (!until_empty || is_word)) return true;
    }
  }

  void Say(std::string_view message) {
    conversation_.AddUser(message);
    if (!Answer(sampling_)) conversation_.RemoveLast("user");
  }

  // Gives the answer to the conversation as it stands; false where there is none, for a reason that
  // was reported.
  bool Answer(const SamplingParams& sampling) {
    RequestOptions request;
    const std::string prompt = conversation_.Prompt();
    if (options_.Get<bool>(Opt::kVerbosePrompt)) Log(LogLevel::kInfo, "prompt: {}", prompt);
    request.prompt = conversation_.Encode(prompt);
    if (std::ssize(request.prompt) >= engine_.model().context()) {
      return ReportFull(std::ssize(request.prompt));
    }
    request.sampling = sampling;
    request.max_tokens = std::max<int64_t>(-1, options_.Get<int64_t>(Opt::kPredict));
    request.ignore_eos = options_.Get<bool>(Opt::kIgnoreEos);
    request.show_special = options_.Get<bool>(Opt::kSpecial);
    request.cache_prompt = options_.Get<bool>(Opt::kCachePrompt);
    if (options_.Given(Opt::kReversePrompt)) {
      request.stop = options_.Get<std::vector<std::string>>(Opt::kReversePrompt);
    }
    auto submitted = engine_.Submit(std::move(request)).value();
    conversation_.AddAnswer(StreamAnswer(*submitted));
    Account(submitted->summary());
    return true;
  }

  void Account(const Summary& summary) {
    if (summary.reason == FinishReason::kError) throw Failed("{}", summary.error);
    totals_.answers += 1;
    totals_.computed_tokens += summary.prompt_tokens - summary.cached_tokens;
    totals_.cached_tokens += summary.cached_tokens;
    totals_.generated_tokens += summary.generated_tokens;
    totals_.last = summary;
    if (Interrupted()) {
      // Ctrl-C stopped the answer only, as long as somebody is there to go on.
      if (!StdinIsTerminal() || options_.Get<bool>(Opt::kSingleTurn)) ThrowIfInterrupted();
      ClearInterrupt();
      return;
    }
    const int64_t used = summary.prompt_tokens + summary.generated_tokens;
    if (summary.reason == FinishReason::kLength && used >= engine_.model().context()) {
      ReportFull(used);
    }
    if (options_.Get<bool>(Opt::kShowTimings)) {
      Log(LogLevel::kInfo, "prompt {} ({} cached); answer {}; {} of {} positions",
          SpeedText(summary.prompt_tokens - summary.cached_tokens, summary.prompt_seconds),
          summary.cached_tokens,
          SpeedText(std::max<int64_t>(0, summary.generated_tokens - 1), summary.generate_seconds),
          used, engine_.model().context());
    }
  }

  bool ReportFull(int64_t tokens) {
    const std::string text =
        fmt::format("the conversation has {} tokens and the context {} positions", tokens,
                    engine_.model().context());
    if (!StdinIsTerminal()) throw Failed("{}; --ctx-size makes room for more", text);
    Log(LogLevel::kWarning, "{}; /clear starts anew, --ctx-size makes room for more", text);
    return false;
  }

  // Does what a line that starts with '/' says; false where that ends the conversation.
  bool Obey(std::string_view line) {
    const std::string_view name = line.substr(0, line.find_first_of(" \n"));
    std::string_view argument = line.substr(name.size());
    argument.remove_prefix(std::min(argument.find_first_not_of(" \n"), argument.size()));
    for (const ChatWord& word : Words()) {
      if (word.name == name) return (this->*word.run)(argument);
    }
    Log(LogLevel::kWarning,
        "{}: no such command; /help lists them, a blank before it makes a message",
        Printable(name));
    return true;
  }

  bool Help(std::string_view) {
    for (const ChatWord& word : Words()) {
      Print(fmt::format("{:<10}{}\n", word.name, word.help));
    }
    Print(
        "A line that ends in \\ goes on in the next. Ctrl-C stops an answer, twice it ends the "
        "program.\n");
    FlushOutput();
    return true;
  }
  bool ClearAll(std::string_view) {
    conversation_.Clear();
    return true;
  }
  bool Exit(std::string_view) { return false; }
  bool Regenerate(std::string_view) {
    if (!conversation_.RemoveLast("assistant")) {
      Log(LogLevel::kWarning, "/regen: there is no answer yet");
      return true;
    }
    // A seed that was given would draw the same answer.
    SamplingParams sampling = sampling_;
    if (sampling.seed >= 0) sampling.seed = (sampling.seed + ++regenerations_) & UINT32_MAX;
    Answer(sampling);
    return true;
  }
  bool System(std::string_view text) {
    conversation_.SetSystem(std::string(text));
    return true;
  }
  bool Stats(std::string_view) {
    if (totals_.answers == 0) {
      Print("no answer yet\n");
    } else {
      Print(
          fmt::format("{} answers, {} tokens; prompts: {} tokens computed, {} taken from the "
                      "cache\nlast: {}\n",
                      totals_.answers, totals_.generated_tokens, totals_.computed_tokens,
                      totals_.cached_tokens, SpeedReport(engine_, totals_.last)));
    }
    FlushOutput();
    return true;
  }

  const OptionValues& options_;
  Engine& engine_;
  Conversation conversation_;
  SamplingParams sampling_;
  std::unique_ptr<LineSource> lines_;
  ChatTotals totals_;
  int64_t regenerations_ = 0;
};

std::span<const Chat::ChatWord> Chat::Words() {
  static constexpr ChatWord kWords[] = {
      {"/help", "this list", &Chat::Help},
      {"/clear", "forget the conversation", &Chat::ClearAll},
      {"/regen", "answer the last message again", &Chat::Regenerate},
      {"/system", "TEXT: the system message from now on; none removes it", &Chat::System},
      {"/stats", "tokens and speeds so far", &Chat::Stats},
      {"/exit", "end the program; so does Ctrl-D", &Chat::Exit},
  };
  return kWords;
}

}  // namespace

int RunChat(const OptionValues& options, Positional) {
  auto engine = OpenWithProgress<Engine>(ReadLoadOptions(options));
  if (!engine) return 0;
  LoadStateFiles(options, *engine);
  Chat chat(options, *engine);
  chat.Run();
  if (const Summary* last = chat.last_answer()) SaveStateFiles(options, *engine, *last);
  return 0;
}

}  // namespace lockstep
