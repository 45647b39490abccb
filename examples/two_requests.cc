// The engine as a library: opens a model, lets two requests share its batch, streams both, and
// cancels the second half-way.
//
//   example_two_requests MODEL.gguf
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <memory>
#include <string>

#include "engine/engine.h"

namespace {

using lockstep::Engine;
using lockstep::Request;

constexpr int kTokensUntilCancelled = 16;

std::shared_ptr<Request> Ask(Engine& engine, std::string_view prompt) {
  lockstep::RequestOptions options;
  options.prompt = engine.tokenizer().Encode(prompt, {.add_special = true});
  options.sampling.seed = 1;
  options.max_tokens = 48;
  // Throws what was refused; Submit() itself never does.
  return engine.Submit(options).value();
}

void RunBoth(Engine& engine) {
  struct Stream {
    std::string_view prompt;
    std::shared_ptr<Request> request;
    std::string text;
    int tokens = 0;
    bool finished = false;
  };
  std::array<Stream, 2> streams = {Stream{"Once upon a time"}, Stream{"The sea is"}};
  for (Stream& stream : streams) stream.request = Ask(engine, stream.prompt);

  while (!streams[0].finished || !streams[1].finished) {
    for (Stream& stream : streams) {
      lockstep::Event event;
      const Request::State state = stream.request->Next(&event, std::chrono::milliseconds(10));
      if (state == Request::State::kFinished) stream.finished = true;
      if (state != Request::State::kEvent) continue;
      stream.text += event.text;
      ++stream.tokens;
      if (&stream == &streams[1] && stream.tokens == kTokensUntilCancelled) {
        stream.request->Cancel();
      }
    }
  }
  for (const Stream& stream : streams) {
    const lockstep::Summary& summary = stream.request->summary();
    fmt::print("{}{}{}\n  [{} tokens, {}]\n", stream.prompt, stream.text, summary.tail,
               summary.generated_tokens,
               summary.reason == lockstep::FinishReason::kCancelled ? "cancelled" : "complete");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: {} MODEL.gguf\n", argv[0]);
    return 2;
  }
  try {
    lockstep::LoadOptions options;
    options.path = argv[1];
    options.context = 256;
    options.sequences = 2;
    Engine engine(options);
    RunBoth(engine);
    return 0;
  } catch (const lockstep::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.kind());
  }
}
