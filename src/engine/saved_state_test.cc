#include "engine/saved_state.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <tiny_model.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "engine/engine.h"
#include "engine/evaluator.h"
#include "gguf/temp_folder.h"
#include "models/models.h"

namespace lockstep::test {
namespace {

constexpr uint64_t kMostBytes = 1 << 28;

struct Shape {
  int ranks;
  SplitMode split = SplitMode::kTensor;
  std::vector<double> proportions = {};
};

const std::vector<Shape> kShapes = {
    {1}, {2}, {3, SplitMode::kTensor, {1, 0, 2}}, {2, SplitMode::kLayer}};

class SavedStateTest : public ::testing::Test {
 protected:
  void Make(const TinyOptions& options) { TinyModel(options).Write(folder_ / "tiny.gguf"); }

  std::unique_ptr<Engine> Open(const Shape& shape, const std::string& k_type = "f16",
                               const std::string& v_type = "f16") const {
    LoadOptions options{.path = folder_ / "tiny.gguf", .context = 320};
    options.ranks = options.threads = shape.ranks;
    options.split = shape.split;
    options.proportions = shape.proportions;
    options.micro_batch = shape.ranks == 1 ? 512 : 33;
    options.k_type = k_type;
    options.v_type = v_type;
    return std::make_unique<Engine>(options);
  }

  static Summary Run(Engine& engine, std::vector<int32_t> prompt, int64_t most = 3) {
    auto request = engine
                       .Submit({.prompt = std::move(prompt),
                                .sampling = {.temp = 0},
                                .max_tokens = most,
                                .ignore_eos = true})
                       .value();
    Event event;
    while (request->Next(&event) != Request::State::kFinished) continue;
    EXPECT_EQ(request->summary().error, "");
    return request->summary();
  }

  // Logits of all rows from index `wanted` on, behind a state where there is a name of one.
  static std::vector<float> LogitsBehind(const LoadOptions& options, const std::string& state,
                                         std::span<const int32_t> tokens, size_t wanted) {
    Model model(options);
    Evaluator evaluator(model);
    if (!state.empty()) evaluator.Load(state);
    std::vector<float> logits;
    evaluator.Run(tokens, static_cast<int64_t>(wanted), [&](const EvaluatedRows& rows) {
      logits.insert(logits.end(), rows.logits.begin(), rows.logits.end());
    });
    return logits;
  }

  std::string Bytes(const std::string& name) const { return ReadFile(folder_ / name, kMostBytes); }

  TempFolder folder_;
};

// What a state holds is independent of ranks, in the file's bytes and in what follows, for what every architecture keeps.
TEST_F(SavedStateTest, GoesOnBitForBitOnAnyRanks) {
  for (const Architecture& architecture : Architectures()) {
    SCOPED_TRACE(architecture.name);
    Make(OptionsFor(architecture.name));
    const std::vector<int32_t> prompt = SomeTokens(150);
    std::vector<int32_t> longer = prompt;
    longer.insert(longer.end(), {7, 8, 9});
    const std::string expected = Run(*Open({1}), longer).logits_hash;
    std::string saved;
    for (const Shape& shape : kShapes) {
      const auto engine = Open(shape);
      Run(*engine, prompt);
      engine->SaveState(prompt, folder_ / "state");
      if (saved.empty()) saved = Bytes("state");
      EXPECT_EQ(Bytes("state"), saved) << shape.ranks;
      // Another engine goes on, and writes the same file again.
      const auto other = Open(shape);
      EXPECT_EQ(other->LoadState(folder_ / "state"), prompt);
      other->SaveState(prompt, folder_ / "again");
      EXPECT_EQ(Bytes("again"), saved) << shape.ranks;
      const Summary summary = Run(*other, longer);
      EXPECT_EQ(summary.cached_tokens, 128) << shape.ranks;
      EXPECT_EQ(summary.logits_hash, expected) << shape.ranks;
    }
  }
}

TEST_F(SavedStateTest, KeepsEveryTypeOfCache) {
  for (const char* model : {"gemma3", "deepseek2"}) {
    Make(OptionsFor(model));
    for (const char* type :
         {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"}) {
      const auto engine = Open({2}, type, "q8_0");
      const std::string expected = Run(*engine, SomeTokens(150)).logits_hash;
      engine->SaveState(SomeTokens(150), folder_ / "state");
      const auto other = Open({1}, type, "q8_0");
      other->LoadState(folder_ / "state");
      const Summary summary = Run(*other, SomeTokens(150));
      EXPECT_EQ(summary.cached_tokens, 128) << type;
      EXPECT_EQ(summary.logits_hash, expected) << type;
    }
  }
}

TEST_F(SavedStateTest, HoldsWholePagesOfAnyLength) {
  Make(HybridOptions());
  for (const auto& [length, cached] :
       {std::pair(1, 0), {63, 0}, {64, 0}, {65, 64}, {128, 64}, {129, 128}, {200, 192}}) {
    const auto engine = Open({1});
    const std::string expected = Run(*engine, SomeTokens(length)).logits_hash;
    engine->SaveState(SomeTokens(length), folder_ / "state");
    const auto other = Open({2});
    EXPECT_EQ(other->LoadState(folder_ / "state"), SomeTokens(length));
    const Summary summary = Run(*other, SomeTokens(length));
    EXPECT_EQ(summary.cached_tokens, cached) << length;
    EXPECT_EQ(summary.logits_hash, expected) << length;
  }
}

// An answer that is saved goes on where it ended.
TEST_F(SavedStateTest, HoldsAnswers) {
  for (const char* model : {"llama", "qwen35"}) {
    Make(OptionsFor(model));
    const auto engine = Open({1});
    const Summary whole = Run(*engine, SomeTokens(40), 100);
    const Summary half = Run(*Open({1}), SomeTokens(40), 90);
    engine->SaveState(half.tokens, folder_ / "state");
    const auto other = Open({2});
    const Summary rest = Run(*other, other->LoadState(folder_ / "state"), 10);
    EXPECT_EQ(rest.cached_tokens, 128) << model;
    EXPECT_EQ(rest.tokens, whole.tokens) << model;
    EXPECT_EQ(rest.logits_hash, whole.logits_hash) << model;
  }
}

TEST_F(SavedStateTest, DamagedFilesAreRefusedAndChangeNothing) {
  Make(HybridOptions());
  const auto engine = Open({2});
  const std::string expected = Run(*engine, SomeTokens(100)).logits_hash;
  engine->SaveState(SomeTokens(100), folder_ / "state");
  const std::string good = Bytes("state");
  const auto other = Open({2});
  const auto expect_refused = [&](const std::string& bytes, size_t at) {
    folder_.Put("bad", bytes);
    try {
      other->LoadState(folder_ / "bad");
      FAIL() << "accepted, changed at " << at;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kRefused) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  };
  const size_t step = std::max<size_t>(1, good.size() / 400);
  for (size_t at = 0; at < good.size(); at += at < 600 ? 7 : step) {
    expect_refused(good.substr(0, at), at);
    std::string flipped = good;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
    // Blanks behind the header's JSON may be any white space.
    if (good[at] != ' ') expect_refused(flipped, at);
  }
  const Summary summary = Run(*other, SomeTokens(100));
  EXPECT_EQ(summary.cached_tokens, 0);
  EXPECT_EQ(summary.logits_hash, expected);
}

TEST_F(SavedStateTest, ForeignFilesAreRefusedByName) {
  Make({});
  Run(*Open({1}), SomeTokens(10));
  const auto engine = Open({1});
  Run(*engine, SomeTokens(100));
  engine->SaveState(SomeTokens(100), folder_ / "state");
  const auto refusal = [&](Engine& other, const std::string& name) {
    try {
      other.LoadState(folder_ / name);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(refusal(*Open({1}, "q8_0"), "state").find("cache-type-k: expected Q8_0, found F16"),
            std::string::npos);
  EXPECT_NE(
      refusal(*Open({1}, "f16", "f32"), "state").find("cache-type-v: expected F32, found F16"),
      std::string::npos);
  EXPECT_NE(refusal(*engine, "absent").find("absent"), std::string::npos);
  EXPECT_NE(refusal(*engine, "tiny.gguf").find("tiny.gguf"), std::string::npos);
  // A file whose tokens are none, with everything else in order.
  const Safetensors file = Safetensors::Open(folder_ / "state");
  std::vector<SafetensorsItem> items;
  std::vector<int32_t> tokens = SomeTokens(100);
  tokens[50] = 300;
  for (const SafetensorsTensor& tensor : file.tensors()) {
    items.push_back({tensor.name, tensor.type->name, tensor.shape, tensor.data});
    if (tensor.name == "tokens") items.back().data = std::as_bytes(std::span(tokens));
  }
  WriteSafetensors(folder_ / "tokens", items, file.metadata());
  EXPECT_NE(refusal(*engine, "tokens").find("tokens: expected ids below 300, found 300 at 50"),
            std::string::npos);
  items.push_back({"more", "U8", {0}, {}});
  WriteSafetensors(folder_ / "more", items, file.metadata());
  EXPECT_NE(refusal(*engine, "more"), "accepted");

  TinyOptions wide;
  wide.ff_width = 128;
  Make(wide);
  EXPECT_NE(refusal(*Open({1}), "state").find("model: expected "), std::string::npos);
}

TEST_F(SavedStateTest, TextsBeyondTheContextAreRefused) {
  Make({});
  const auto engine = Open({1});
  const Summary whole = Run(*engine, SomeTokens(310), -1);
  EXPECT_EQ(whole.tokens.size(), 320u);
  engine->SaveState(whole.tokens, folder_ / "full");
  EXPECT_EQ(Open({2})->LoadState(folder_ / "full"), whole.tokens);
  Engine smaller({.path = folder_ / "tiny.gguf", .context = 319});
  try {
    smaller.LoadState(folder_ / "full");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRefused);
    EXPECT_NE(std::string(error.what()).find("expected at most 319, the context, found 320"),
              std::string::npos)
        << error.what();
  }
}

// What an evaluator writes is what an engine writes, and either goes on from it wherever it ends.
TEST_F(SavedStateTest, EvaluatorsSaveAndLoadAtAnyPosition) {
  for (const Architecture& architecture : Architectures()) {
    SCOPED_TRACE(architecture.name);
    Make(OptionsFor(architecture.name));
    const std::vector<int32_t> tokens = SomeTokens(150);
    LoadOptions options{.path = folder_ / "tiny.gguf", .context = 320, .micro_batch = 48};
    const std::vector<float> expected = LogitsBehind(options, "", tokens, tokens.size() - 9);
    for (const size_t length : {63, 64, 141}) {
      options.ranks = options.threads = length % 2 == 0 ? 2 : 1;
      Model model(options);
      Evaluator evaluator(model);
      evaluator.Run(std::span(tokens).first(length));
      evaluator.Save(folder_ / "state");
      options.ranks = options.threads = 1 + length % 3;
      const std::vector<float> rest =
          LogitsBehind(options, folder_ / "state", std::span(tokens).subspan(length),
                       tokens.size() - 9 - length);
      EXPECT_EQ(rest, expected) << length;
    }
    const auto engine = Open({2});
    engine->LoadState(folder_ / "state");
    EXPECT_EQ(Run(*engine, tokens).cached_tokens, 128);
    engine->SaveState(std::span(tokens).first(141), folder_ / "again");
    EXPECT_EQ(Bytes("again"), Bytes("state"));
  }
}

TEST_F(SavedStateTest, EvaluatorsGoBackBeforeWhatTheyLoaded) {
  Make(HybridOptions());
  const std::vector<int32_t> tokens = SomeTokens(128);
  const LoadOptions options{.path = folder_ / "tiny.gguf", .context = 320};
  Model model(options);
  const auto last_row = [&](Evaluator& evaluator, std::span<const int32_t> rows) {
    std::vector<float> logits;
    evaluator.Run(rows, std::ssize(rows) - 1, [&](const EvaluatedRows& row) {
      logits.assign(row.logits.begin(), row.logits.end());
    });
    return logits;
  };
  Evaluator first(model);
  const std::vector<float> expected = last_row(first, tokens);
  first.Save(folder_ / "state");
  for (const int64_t position : {0, 50, 64, 127, 128}) {
    Evaluator other(model);
    other.Load(folder_ / "state");
    other.Rewind(position);
    if (position < 128) {
      EXPECT_EQ(last_row(other, std::span(tokens).subspan(static_cast<size_t>(position))), expected)
          << position;
    }
    other.Save(folder_ / "again");
    EXPECT_EQ(Bytes("again"), Bytes("state")) << position;
  }
}

TEST_F(SavedStateTest, AFullDiskLeavesNothingBehind) {
  Make({});
  const auto save = [&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    std::string message = "written";
    try {
      Open({1})->SaveState(SomeTokens(2000), folder_ / "state");
    } catch (const Error& error) {
      message = error.what();
    }
    std::fprintf(stderr, "%s\n", message.c_str());
    std::_Exit(3);
  };
  // A process of its own: the limit holds for all of one.
  EXPECT_EXIT(save(), ::testing::ExitedWithCode(3), "state: ");
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(std::string(folder_ / "")))
    ++files;
  EXPECT_EQ(files, 1u);
}

TEST_F(SavedStateTest, OutputsThatCannotBeWrittenLeaveNothingBehind) {
  Make({});
  const auto engine = Open({1});
  Run(*engine, SomeTokens(100));
  for (const std::string& path :
       {std::string("/dev/full"), std::string(folder_ / "no/such/folder/state"),
        std::string(folder_ / "")}) {
    EXPECT_THROW(engine->SaveState(SomeTokens(100), path), Error) << path;
  }
  EXPECT_EQ(Run(*engine, SomeTokens(100)).cached_tokens, 64);
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(std::string(folder_ / "")))
    ++files;
  EXPECT_EQ(files, 1u);
}

}  // namespace
}  // namespace lockstep::test
