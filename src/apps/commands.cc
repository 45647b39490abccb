#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <new>
#include <system_error>
#include <thread>

#include "apps/command.h"
#include "apps/completions.h"
#include "apps/manual.h"
#include "apps/terminal.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/progress.h"
#include "comm/communicator.h"

namespace lockstep {
namespace {

// Commands that all processes of a run do together.
constexpr CommandSet kRunsOnRanks = {Cmd::kRun, Cmd::kChat,  Cmd::kLogits,
                                     Cmd::kPpl, Cmd::kBench, Cmd::kVerify};

int RunHelp(const OptionValues&, Positional positional);
int RunMan(const OptionValues&, Positional);
int RunCompletions(const OptionValues&, Positional positional);
int RunVersion(const OptionValues&, Positional);

constexpr Command kCommands[] = {
    {Cmd::kRun, "one completion of a prompt, streamed", "-m FILE -p TEXT [options]",
     "The prompt is continued as it stands, without a chat template. The last line on stderr gives "
     "speeds, the share of the "
     "measured memory bandwidth, and the hash of the last logits.",
     0, RunRun},
    {Cmd::kChat, "a conversation on the terminal", "-m FILE [options]",
     "Lines are edited and remembered where stdin is a terminal; a line that ends in a backslash "
     "goes on in the next. "
     "Ctrl-C stops an answer, twice it ends the program. /help lists what can be typed besides "
     "messages.",
     0, RunChat},
    {Cmd::kLogits, "write the logits of given tokens to a file",
     "-m FILE (--tokens IDS | --tokens-from FILE | -p TEXT) -o FILE [options]",
     "Writes a safetensors file with tokens int32 [t] and logits f32 [t, v]; --hidden adds "
     "hidden.L f32 [t, n], the "
     "residual stream after the embedding (L = 0) and after each layer, the last one after the "
     "final norm. Prints the "
     "SHA-256 of the logits' bytes.",
     0, RunLogits},
    {Cmd::kPpl, "perplexity of a text, and divergence from another run",
     "-m FILE -f TEXT [options]",
     "The text is cut into pieces of --ctx-size tokens, 512 where that is not given. --kl-base "
     "saves all logits as "
     "safetensors, exactly; --kl-from computes the same pieces again and compares.",
     0, RunPpl},
    {Cmd::kTokenize, "token ids and pieces of a text, or a text from ids",
     "-m FILE -p TEXT [options]",
     "Pieces are printed with control characters as \\xNN. --detokenize reads ids from --tokens, "
     "--prompt or "
     "--file and prints the text alone.",
     0, RunTokenize},
    {Cmd::kInspect, "what a model file holds, without running it", "-m FILE [options]",
     "Without options: a summary. With --json: one object.", 0, RunInspect},
    {Cmd::kPlan, "what ranks would hold, exchange and reach", "-m FILE --ranks N [options]",
     "Reads the head of the file, no weight. Speeds are upper bounds: what memory, products and "
     "collectives leave at the "
     "speeds of machines that are measured here or given.",
     0, RunPlan},
    {Cmd::kBench, "speed of prompts and answers, against the limits of the machine",
     "-m FILE [options]",
     "Repetitions are interleaved, and before each round the memory bandwidth and the rate of "
     "8-bit products are "
     "measured: speeds are also given as shares of these.",
     0, RunBench},
    {Cmd::kVerify, "prove that the shape of a run changes no bit", "-m FILE [options]",
     "Runs the same tokens over numbers of ranks and proportions, threads, instruction sets, sizes "
     "of batches, behind a "
     "cached prefix and among other sequences, and prints the hash of the logits of each run. Any "
     "difference is exit "
     "code 1. With --ranks, --split-mode, --tensor-split or --threads only that shape is compared "
     "with the plainest; "
     "without a text the tokens are random.",
     0, RunVerify},
    {Cmd::kConvert, "make a GGUF file of a checkpoint folder", "FOLDER -o FILE [--type TYPE]",
     "The folder holds config.json, safetensors and a tokenizer, as Hugging Face releases do. "
     "Vectors, norms and routers "
     "stay f32 whatever the type.",
     1, RunConvert},
    {Cmd::kQuantize, "write a model in a smaller format", "IN [OUT] TYPE [THREADS] [options]",
     "TYPE is a mix of llama.cpp, such as Q4_K_M, IQ2_M or Q8_0: which tensor gets which format. "
     "Formats below three bits want an importance matrix (lockstep imatrix). Prints the error of "
     "each format's tensors, with --verbosity 4 that of each tensor.",
     4, RunQuantize},
    {Cmd::kImatrix, "collect what columns of a model's matrices matter, over a text",
     "-m FILE -f TEXT -o FILE [options]",
     "Writes a GGUF file in llama.cpp's form: for each matrix the squares of what its columns are "
     "multiplied by, and of experts each its own. Without a text, files of --in-file are put "
     "together.",
     0, RunImatrix},
    {Cmd::kSynth, "write a file of true shape with random weights",
     "--arch NAME --size SIZE -o FILE [--type TYPE]",
     "For benchmarks and plans: the sizes are those of a published model; a wrong name or size "
     "lists the known ones.",
     0, RunSynth},
    {Cmd::kHelp, "explain a command and its options", "[COMMAND]", "", 1, RunHelp},
    {Cmd::kMan, "print the manual page", "", "To read it: lockstep man | man -l -", 0, RunMan},
    {Cmd::kCompletions, "print completions for a shell", "bash|zsh|fish",
     "To use them in bash: source <(lockstep completions bash)", 1, RunCompletions},
    {Cmd::kVersion, "print the version", "", "", 0, RunVersion},
};

int RunHelp(const OptionValues&, Positional positional) {
  if (positional.empty()) {
    Print(OverviewText(Commands(), HelpColumns()));
    return 0;
  }
  const Command* command = FindCommand(positional[0]);
  if (command == nullptr) throw UnknownCommand(positional[0]);
  Print(CommandHelp(*command, HelpColumns()));
  return 0;
}

int RunMan(const OptionValues&, Positional) {
  Print(ManPage(Commands()));
  return 0;
}

int RunCompletions(const OptionValues&, Positional positional) {
  if (positional.empty()) throw Refused("completions: expected a shell: bash, zsh or fish");
  Print(Completions(positional[0], Commands()));
  return 0;
}

int RunVersion(const OptionValues&, Positional) {
  Print(VersionText());
  return 0;
}

void ApplyGeneralOptions(const OptionValues& options) {
  LogOptions log;
  log.level = static_cast<LogLevel>(options.Get<int64_t>(Opt::kVerbosity));
  if (options.Get<bool>(Opt::kVerbose)) log.level = LogLevel::kTrace;
  if (options.Get<bool>(Opt::kQuiet)) log.level = LogLevel::kError;
  // Who follows has nothing to say that the leader does not.
  if (ThisProcess() != 0) log.level = std::min(log.level, LogLevel::kError);
  log.timestamps = options.Get<bool>(Opt::kLogTimestamps);
  log.json_lines = options.Get<bool>(Opt::kLogJsonl);
  log.file = options.GetOr<std::string>(Opt::kLogFile, "");
  ConfigureLog(log);
  SetProgressEnabled(options.Get<bool>(Opt::kProgress) && !options.Get<bool>(Opt::kQuiet));
}

// Options that the program understands without a command.
bool RunGlobalOption(std::string_view argument) {
  OptionMatch match = FindOption(argument, Cmd::kHelp);
  if (match.row == nullptr || match.row->kind != Kind::kAction) return false;
  Print(match.row->id == Opt::kVersion ? VersionText() : OverviewText(Commands(), HelpColumns()));
  return true;
}

}  // namespace

std::span<const Command> Commands() { return kCommands; }

const Command* FindCommand(std::string_view name) {
  for (const Command& command : kCommands) {
    if (CommandName(command.id) == name) return &command;
  }
  return nullptr;
}

int RunLockstep(std::span<const std::string_view> arguments, const Environment& environment) {
  if (arguments.empty()) throw Refused("expected a command; 'lockstep help' lists them");
  std::string_view name = arguments[0];
  if (name.starts_with('-')) {
    if (RunGlobalOption(name)) return 0;
    throw Refused("expected a command before {}; 'lockstep help' lists them", Printable(name));
  }
  const Command* command = FindCommand(name);
  if (command == nullptr) throw UnknownCommand(name);

  ParsedCommand parsed = ParseOptions(command->id, arguments.subspan(1), environment);
  if (parsed.options.Get<bool>(Opt::kHelp)) {
    Print(CommandHelp(*command, HelpColumns()));
    return 0;
  }
  if (parsed.options.Get<bool>(Opt::kVersion)) {
    Print(VersionText());
    return 0;
  }
  if (parsed.positional.size() > command->max_positional) {
    throw Refused("{}: expected {}, found '{}' too", name,
                  command->max_positional == 0
                      ? "options only"
                      : fmt::format("at most {} arguments", command->max_positional),
                  Printable(parsed.positional[command->max_positional]));
  }
  // Of several processes the first does what needs no other.
  if (ThisProcess() != 0 && !kRunsOnRanks.Has(command->id)) return 0;
  ApplyGeneralOptions(parsed.options);
  for (const std::string& notice : parsed.notices) Log(LogLevel::kWarning, "{}", notice);
  return command->run(parsed.options, parsed.positional);
}

namespace {

// What all processes find, the first says, and the others are ended meanwhile. Returns whether this one is the first, or is left alone.
bool Speaks() {
  constexpr std::chrono::milliseconds kPatience(3000), kStep(20);
  for (std::chrono::milliseconds waited(0); ThisProcess() != 0 && waited < kPatience;
       waited += kStep) {
    if (Interrupted()) return false;
    std::this_thread::sleep_for(kStep);
  }
  return true;
}

int Report(ErrorKind kind, std::string_view text) {
  EndAlone();
  if (!Speaks()) return static_cast<int>(kind);
  // What was printed before the failure stands before the message.
  std::fflush(stdout);
  ClearProgressLine();
  fmt::print(stderr, "lockstep: {}\n", Printable(text, 16384));
  return static_cast<int>(kind);
}

}  // namespace

int GuardedMain(std::span<const std::string_view> arguments, const Environment& environment) {
  try {
    int code = RunLockstep(arguments, environment);
    FinishOutput();
    return code;
  } catch (const OutputClosed&) {
    return 0;
  } catch (const Error& error) {
    return Report(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return Report(ErrorKind::kFailed, "out of memory");
  } catch (const std::system_error& error) {
    if (error.code().value() == EPIPE) return 0;
    return Report(ErrorKind::kFailed, error.what());
  } catch (const std::exception& error) {
    return Report(ErrorKind::kFailed, error.what());
  }
}

}  // namespace lockstep
