// The public library: open a model, submit requests, stream tokens.
//
//   Engine engine(LoadOptions{.path = "model.gguf"});
//   auto request = engine.Submit({.prompt = engine.tokenizer().Encode("Once upon", {.add_special = true})});
//   Event event;
//   while (request->Next(&event) == Request::State::kEvent) std::cout << event.text;
//
// All requests share one batch (continuous batching) and the cached pages of common prefixes; neither changes a bit of any
// answer. All members may be called from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/model.h"
#include "engine/sampler.h"

namespace lockstep {

struct RequestOptions {
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  int64_t max_tokens = -1;        // generated at most; below 0: as the context allows
  std::vector<std::string> stop;  // texts that end the answer
  bool include_stop = false;      // the stop text is part of the answer
  bool ignore_eos = false;
  bool show_special = false;  // control tokens appear in the text
  bool cache_prompt = true;   // use and leave pages of common prefixes
};

// One generated token.
struct Event {
  int32_t token = -1;
  std::string text;  // what became certain with it, perhaps empty
  double logprob = 0;
  std::vector<TokenLogProb> top;
};

enum class FinishReason { kStop, kLength, kCancelled, kError };

struct Summary {
  FinishReason reason = FinishReason::kStop;
  std::string error;      // one line, where reason is kError
  std::string tail;       // text held back for a stop string that did not come
  std::string stop_text;  // the stop string that was met
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt, taken from cached pages
  int64_t generated_tokens = 0;
  double prompt_seconds = 0;    // from the first computed row to the first token
  double generate_seconds = 0;  // from the first token to the last
  std::vector<int32_t> tokens;  // prompt and answer
  std::string logits_hash;      // SHA-256 of the last row of logits, hexadecimal
};

// A request under way. Dropping the handle does not cancel it.
class Request {
 public:
  enum class State { kEvent, kWaiting, kFinished };

  virtual ~Request() = default;
  // Waits for the next event, `timeout` at most. kFinished comes after the last event, and again each time.
  virtual State Next(Event* event, std::chrono::milliseconds timeout = std::chrono::hours(24)) = 0;
  // Ends the request at the next step.
  virtual void Cancel() = 0;
  // Valid once Next() has given kFinished.
  virtual const Summary& summary() const = 0;
};

// Why Submit() would refuse a prompt: it is empty, longer than the context, or has ids that are no tokens. For LoadOptions::accept.
std::optional<Error> PromptRefusal(const Model& model, std::span<const int32_t> prompt);

class Engine {
 public:
  // Throws as Model does.
  explicit Engine(const LoadOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  // Cancels what is under way.
  ~Engine();

  // As Model's: where several processes run one model, all but one follow.
  bool leads() const;
  void Follow();

  // Writes what is cached of a text's tokens to a file: of a prompt that was computed, or of one with its answer (Summary::tokens). Waits for the step
  // under way. Throws Failed where it cannot be written.
  void SaveState(std::span<const int32_t> tokens, const std::string& path);
  // Puts what a file holds into the cache, where requests find it as they find prefixes of others, and returns its tokens. Throws Refused for a file
  // that is damaged or of another model, Failed where no pages are free; nothing has changed then.
  std::vector<int32_t> LoadState(const std::string& path);

  // Refused for an empty prompt, a prompt longer than the context, ids that are no tokens and sampling parameters out of range.
  Result<std::shared_ptr<Request>> Submit(RequestOptions options);

  const Model& model() const;
  const Tokenizer& tokenizer() const;
  // The team, for measurements while no request is under way.
  ThreadTeam& team();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
