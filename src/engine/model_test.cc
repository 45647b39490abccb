#include "engine/model.h"

#include <gtest/gtest.h>
#include <model_run.h>
#include <sys/wait.h>
#include <tiny_model.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "exec/program_check.h"
#include "gguf/temp_folder.h"
#include "models/models.h"

namespace lockstep::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // with memory of the sanitizer's own
#else
constexpr bool kSanitized = false;
#endif

constexpr int64_t kGigabyte = 1'000'000'000;

class ModelTest : public testing::Test {
 protected:
  ModelTest() {
    options_.path = folder_ / "model.gguf";
    options_.threads = 1;
    TinyModel(TinyOptions{}).Write(options_.path);
  }
  std::string RefusalOf(const LoadOptions& options) {
    return MessageOf([&] { Model model(options); });
  }

  TempFolder folder_;
  LoadOptions options_;
};

TEST_F(ModelTest, TakesTheContextOfTheFileWhereNoneIsAsked) {
  EXPECT_EQ(Model(options_).context(), 512);
  options_.context = 100;
  EXPECT_EQ(Model(options_).context(), 100);
  EXPECT_EQ(Model(options_).trained_context(), 512);
}

TEST_F(ModelTest, RefusesOptionsOutOfRange) {
  struct Case {
    std::function<void(LoadOptions&)> set;
    const char* message;
  };
  const Case cases[] = {
      {[](LoadOptions& o) { o.context = -1; }, "context: expected 0 to 2147483647, found -1"},
      {[](LoadOptions& o) { o.context = int64_t{1} << 31; },
       "context: expected 0 to 2147483647, found 2147483648"},
      {[](LoadOptions& o) { o.context = INT64_MAX; },
       "context: expected 0 to 2147483647, found 9223372036854775807"},
      {[](LoadOptions& o) { o.micro_batch = 0; }, "micro-batch: expected 1 to 1048576, found 0"},
      {[](LoadOptions& o) { o.micro_batch = INT64_MAX; },
       "micro-batch: expected 1 to 1048576, found 9223372036854775807"},
      {[](LoadOptions& o) { o.sequences = 0; }, "sequences: expected 1 to 1048576, found 0"},
      {[](LoadOptions& o) { o.sequences = -5; }, "sequences: expected 1 to 1048576, found -5"},
      {[](LoadOptions& o) { o.threads = -1; }, "threads: expected 0 to 4096, found -1"},
      {[](LoadOptions& o) { o.threads = 5000; }, "threads: expected 0 to 4096, found 5000"},
      {[](LoadOptions& o) { o.memory_limit = -1; },
       "memory limit: expected 0 to 9223372036854775807, found -1"},
  };
  for (const Case& c : cases) {
    LoadOptions options = options_;
    c.set(options);
    EXPECT_EQ(RefusalOf(options), c.message);
  }
}

TEST_F(ModelTest, RefusesTypesThatCannotCacheKeysAndValues) {
  for (const char* type : {"q4_k", "q6_k", "i32", "f64", "", "nonsense\n", "mxfp4"}) {
    for (auto member : {&LoadOptions::k_type, &LoadOptions::v_type}) {
      LoadOptions options = options_;
      options.*member = type;
      EXPECT_EQ(RefusalOf(options), fmt::format("cache type: expected one of f32 f16 bf16 q8_0 "
                                                "q4_0 q4_1 q5_0 q5_1 iq4_nl, found \"{}\"",
                                                Printable(type)));
    }
  }
  for (const char* type :
       {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "Q8_0"}) {
    options_.k_type = options_.v_type = type;
    EXPECT_EQ(RefusalOf(options_), "") << type;
  }
}

TEST_F(ModelTest, IsRefusedBeforeReadingWhereMemoryIsShort) {
  int64_t reads = 0;
  options_.progress = [&](int64_t, int64_t) { ++reads; };
  options_.memory_limit = kGigabyte / 10;
  const std::string message = RefusalOf(options_);
  EXPECT_TRUE(
      message.starts_with(Printable(options_.path) +
                          ": expected 0.21 GB of free memory (0.21 GB for weights and buffers, "))
      << message;
  EXPECT_TRUE(message.ends_with(" for 1 x 512 positions), found 0.10 GB")) << message;
  // Positions that are asked for are given or refused, never cut.
  options_.memory_limit = kGigabyte;
  for (int64_t context : {int64_t{INT32_MAX}, int64_t{100'000'000}}) {
    options_.context = context;
    EXPECT_NE(RefusalOf(options_).find(fmt::format("1 x {} positions), found 1.00 GB", context)),
              std::string::npos);
  }
  options_.context = INT32_MAX;
  options_.sequences = 1 << 20;
  EXPECT_NE(RefusalOf(options_).find("1048576 x 2147483647 positions"), std::string::npos);
  EXPECT_EQ(reads, 0);
}

TEST_F(ModelTest, FitsTheContextOfTheFileToMemory) {
  TinyOptions tiny;
  tiny.context = 1 << 30;
  TinyModel(tiny).Write(options_.path);
  options_.memory_limit = kGigabyte;
  const Model model(options_);
  EXPECT_EQ(model.trained_context(), 1 << 30);
  EXPECT_GE(model.context(), 1024);
  EXPECT_LT(model.context() * model.kv_bytes_per_position(), kGigabyte / 2);
  EXPECT_GT(model.context() * model.kv_bytes_per_position(), kGigabyte / 4);
}

// B070, and rows of hostile sizes: one line that names the key or tensor.
TEST_F(ModelTest, RefusesSizesThatTheTensorsDoNotHave) {
  struct Case {
    const char* key;
    uint32_t value;
  };
  for (const Case& c : {Case{"attention.head_count", 1u << 31},
                        {"attention.head_count", 3},
                        {"attention.head_count_kv", 0},
                        {"feed_forward_length", 1u << 31},
                        {"feed_forward_length", 0},
                        {"embedding_length", 1u << 31},
                        {"attention.key_length", 1025},
                        {"block_count", 1u << 31},
                        {"context_length", 0}}) {
    TinyModel model{TinyOptions{}};
    model.key(c.key) = c.value;
    model.Write(options_.path);
    const std::string message = RefusalOf(options_);
    EXPECT_FALSE(message.empty()) << c.key << " " << c.value;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

// A number from /proc/self/status, in bytes.
int64_t StatusBytes(std::string_view name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(name)) continue;
    int64_t kilobytes = 0;
    const size_t digits = line.find_first_of("0123456789");
    std::from_chars(line.data() + digits, line.data() + line.size(), kilobytes);
    return kilobytes * 1024;
  }
  return 0;
}

// Runs in a process of its own, whose memory is counted apart; true where `run` gives true.
bool InChild(const std::function<bool()>& run) {
  const pid_t child = fork();
  if (child == 0) {
    bool good = false;
    try {
      good = run();
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());
    }
    _exit(good ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(ModelTest, TakesLittleMoreMemoryThanItsWeightsWhileLoading) {
  if (kSanitized) GTEST_SKIP() << "sanitizers take memory of their own";
  ASSERT_TRUE(InChild([&] {
    TinyOptions tiny;
    tiny.width = 1024;
    tiny.ff_width = 4096;
    tiny.layers = 4;
    tiny.heads = 16;
    tiny.kv_heads = 16;
    tiny.head_dim = 64;
    tiny.vocab = 4000;
    TinyModel(tiny).Write(options_.path);
    return true;
  }));
  ASSERT_GT(std::filesystem::file_size(options_.path), 280u << 20);
  EXPECT_TRUE(InChild([&] {
    const Model model(options_);
    const int64_t peak = StatusBytes("VmHWM"), weights = model.weight_bytes();
    fmt::print(stderr, "peak {} MB for {} MB of weights\n", peak >> 20, weights >> 20);
    return peak > weights &&
           static_cast<double>(peak) < 1.05 * static_cast<double>(weights) + 200e6;
  }));
}

TEST(ProgramOfEveryArchitecture, KeepsItsPromises) {
  TempFolder folder;
  for (const Architecture& architecture : Architectures()) {
    SCOPED_TRACE(architecture.name);
    TinyModel(OptionsFor(architecture.name)).Write(folder / "f32.gguf");
    WriteInFormat(GgufFile::Open(folder / "f32.gguf"), *FindFormat("Q8_0"), folder / "q8.gguf");
    for (const char* name : {"f32.gguf", "q8.gguf"}) {
      const ModelRun run(folder / name);
      const std::vector<WeightUse> uses = FindWeights(run.graph(), run.file());
      for (bool hidden : {false, true}) {
        const Program program(run.graph(), TakesCodes(uses), {64, 4, hidden, true});
        EXPECT_EQ(ProgramCheck(OpenProgram(run.graph(), program, TakesCodes(uses))).Fault(), "")
            << name;
      }
    }
  }
}

// B083: activations far above what f16 holds, up to the end of f32, in the widest projection.
TEST(ModelReports, B083LargeActivationsGiveFiniteLogitsInEveryFormat) {
  TempFolder folder;
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 40; ++i) prompt.push_back(3 + i * 7 % 290);
  for (float scale : {1.0f, 1e5f, 1e30f}) {
    TinyModel model{TinyOptions{}};
    for (float& weight : model.tensor("blk.0.ffn_up.weight").values) weight *= scale;
    model.Write(folder / "f32.gguf");
    ModelRun reference(folder / "f32.gguf");
    const std::vector<float> expected = reference.Run({prompt}, {})[0].logits;
    for (const char* kv_type : {"F32", "F16", "BF16", "Q8_0"}) {
      const RunResult result = reference.Run({prompt}, {.kv_type = kv_type})[0];
      EXPECT_EQ(result.fault, "") << scale << ", K/V " << kv_type;
      EXPECT_LT(RelativeDifference(result.logits, expected), 3e-2) << scale << ", K/V " << kv_type;
    }
    // Codes of 8 bits are within a part in 254 of a block's largest number, on either side of each product.
    WriteInFormat(GgufFile::Open(folder / "f32.gguf"), *FindFormat("Q8_0"), folder / "q8.gguf",
                  "ffn_up");
    ModelRun coded(folder / "q8.gguf");
    for (Isa isa : AvailableIsas()) {
      const RunResult result = coded.Run({prompt}, {.isa = isa})[0];
      EXPECT_EQ(result.fault, "") << scale << ", " << IsaName(isa);
      EXPECT_LT(RelativeDifference(result.logits, expected), 5e-2) << scale << ", " << IsaName(isa);
    }
  }
}

// B083 in the cache: values past 65504 stay finite in every type, and accurate but in those that hold them, or a block's least, in f16.
TEST(ModelReports, B083LargeValuesAreCachedAsFiniteNumbers) {
  TempFolder folder;
  TinyModel model{TinyOptions{}};
  for (float& weight : model.tensor("blk.0.attn_v.weight").values) weight *= 1e5f;
  model.Write(folder / "f32.gguf");
  ModelRun run(folder / "f32.gguf");
  const std::vector<int32_t> prompt = {5, 80, 12, 290, 77, 200};
  const std::vector<float> expected = run.Run({prompt}, {})[0].logits;
  struct Case {
    const char* kv_type;
    bool accurate;
  };
  for (const Case& c : {Case{"F32", true},
                        {"BF16", true},
                        {"Q8_0", true},
                        {"Q4_0", true},
                        {"F16", false},
                        {"Q5_1", false}}) {
    const RunResult result = run.Run({prompt}, {.kv_type = c.kv_type})[0];
    EXPECT_EQ(result.fault, "") << c.kv_type;
    const double difference = RelativeDifference(result.logits, expected);
    EXPECT_TRUE(std::isfinite(difference)) << c.kv_type;
    EXPECT_EQ(difference < 0.2, c.accurate) << c.kv_type << ": " << difference;
  }
}

// B092, B089: with one windowed layer, row p depends on exactly the positions p - window + 1 .. p, however rows are batched.
TEST(ModelReports, B092EachRowSeesExactlyItsWindow) {
  constexpr int64_t kWindow = 8;
  TempFolder folder;
  TinyOptions tiny = OptionsFor("phi3");
  tiny.layers = 1;
  tiny.window = kWindow;
  TinyModel(tiny).Write(folder / "model.gguf");
  ModelRun run(folder / "model.gguf");
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const size_t length = 26 + random() % 110;
    std::vector<int32_t> tokens(length);
    for (int32_t& token : tokens) token = static_cast<int32_t>(3 + random() % 290);
    std::vector<int32_t> changed = tokens;
    const size_t at = random() % length;
    changed[at] = changed[at] == 5 ? 6 : 5;
    const int64_t micro_batch = std::array{1, 6, 33, 200}[random() % 4];
    const auto a = run.Run({tokens}, {.micro_batch = micro_batch})[0].logits;
    const auto b =
        run.Run({changed}, {.micro_batch = 1 + static_cast<int64_t>(random() % 40)})[0].logits;
    const auto width = static_cast<size_t>(run.vocab());
    for (size_t p = 0; p < length; ++p) {
      const bool sees = at <= p && p < at + kWindow;
      const bool same =
          SameBits(std::span(a).subspan(p * width, width), std::span(b).subspan(p * width, width));
      ASSERT_EQ(same, !sees) << "position " << p << ", change at " << at << " of " << length;
    }
  }
}

}  // namespace
}  // namespace lockstep::test
