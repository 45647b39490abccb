// Draft checkpoints beside the reference checkpoints that they were made for.
#include <gtest/gtest.h>

#include <filesystem>

#include "convert/convert.h"
#include "engine/drafter.h"
#include "gguf/gguf_writer.h"
#include "gguf/safetensors.h"
#include "gguf/temp_folder.h"
#include "golden_rows.h"
#include "model_run.h"
#include "tiny_model.h"

namespace lockstep::test {
namespace {

constexpr const char* kGoldens = LOCKSTEP_SOURCE_DIR "/../shared/goldens";
constexpr int64_t kSteps = 4;

struct DraftRow {
  std::string_view name, target;
  double tolerance = kGoldenTolerance;
};
// For test names and messages.
void PrintTo(const DraftRow& row, std::ostream* out) { *out << row.name; }

constexpr DraftRow kDrafts[] = {{"gemma4-dense-assistant", "gemma4-dense", 4e-5},
                                {"mimo2-dflash", "mimo2"},
                                {"muse-glimmer-dflash", "muse-glimmer"}};

std::string FolderOf(std::string_view name) { return fmt::format("{}/{}", kGoldens, name); }

class GoldenDraft : public testing::TestWithParam<DraftRow> {
 protected:
  void SetUp() override {
    const std::string reference = FolderOf(GetParam().name) + "/reference.safetensors";
    if (!std::filesystem::exists(reference)) GTEST_SKIP() << reference << " is absent";
    ConvertCheckpoint({.folder = FolderOf(GetParam().target), .output = target_, .type = "f32"});
    ConvertCheckpoint({.folder = FolderOf(GetParam().name), .output = draft_, .type = "f32"});
    reference_.emplace(Safetensors::Open(reference));
    tokens_ = ReadTensor<int32_t>(*reference_, "tokens");
  }

  LoadOptions Options() const {
    LoadOptions options;
    options.path = target_;
    options.draft = draft_;
    options.threads = 2;
    options.context = 128;
    options.k_type = options.v_type = "f32";
    return options;
  }
  Drafted Run(const LoadOptions& options) const {
    Model model(options);
    Evaluator evaluator(model);
    Drafter drafter(evaluator);
    int32_t next = -1;
    evaluator.Run(tokens_, 0, [&](const EvaluatedRows& rows) {
      drafter.See(rows);
      const auto last = rows.logits.last(static_cast<size_t>(model.vocab()));
      next = static_cast<int32_t>(std::ranges::max_element(last) - last.begin());
    });
    return drafter.Draft(next, kSteps);
  }

  TempFolder folder_;
  std::string target_ = folder_ / "target.gguf", draft_ = folder_ / "draft.gguf";
  std::optional<Safetensors> reference_;
  std::vector<int32_t> tokens_;
};

TEST_P(GoldenDraft, GivesTheReferenceLogits) {
  const Drafted drafted = Run(Options());
  EXPECT_LT(RelativeDifference(drafted.logits, ReadTensor<float>(*reference_, "draft.logits")),
            GetParam().tolerance);
  if (reference_->Find("draft.hidden") != nullptr) {
    EXPECT_LT(RelativeDifference(drafted.hidden, ReadTensor<float>(*reference_, "draft.hidden")),
              GetParam().tolerance);
    EXPECT_EQ(drafted.tokens[0], ReadTensor<int32_t>(*reference_, "anchor")[0]);
  } else {
    EXPECT_EQ(drafted.tokens, ReadTensor<int32_t>(*reference_, "draft.tokens"));
  }
}

TEST_P(GoldenDraft, GivesTheSameBitsForEveryShapeOfRun) {
  const Drafted expected = Run(Options());
  for (const auto& [threads, micro_batch] : {std::pair(1, 1), {3, 7}, {2, 64}}) {
    LoadOptions options = Options();
    options.threads = threads;
    options.micro_batch = micro_batch;
    const Drafted found = Run(options);
    EXPECT_TRUE(SameBits(found.logits, expected.logits)) << micro_batch;
    EXPECT_TRUE(SameBits(found.hidden, expected.hidden)) << micro_batch;
  }
}

// Nothing of what is drafted stays: drafting again from the same place is the same.
TEST_P(GoldenDraft, LeavesTheModelAsItWas) {
  Model model(Options());
  Evaluator evaluator(model);
  Drafter drafter(evaluator);
  const auto run = [&](std::span<const int32_t> tokens) {
    std::vector<float> logits;
    evaluator.Run(tokens, 0, [&](const EvaluatedRows& rows) {
      drafter.See(rows);
      logits.insert(logits.end(), rows.logits.begin(), rows.logits.end());
    });
    return logits;
  };
  const auto first = std::span(tokens_).first(70), rest = std::span(tokens_).subspan(70);
  run(first);
  drafter.Draft(5, kSteps);
  const std::vector<float> after = run(rest);
  const Drafted drafted = drafter.Draft(7, kSteps);
  Model fresh(Options());
  Evaluator undisturbed(fresh);
  Drafter other(undisturbed);
  std::vector<float> expected;
  undisturbed.Run(tokens_, 0, [&](const EvaluatedRows& rows) {
    other.See(rows);
    expected.insert(expected.end(), rows.logits.begin(), rows.logits.end());
  });
  EXPECT_TRUE(SameBits(after, std::span(expected).last(after.size())));
  EXPECT_TRUE(SameBits(drafted.logits, other.Draft(7, kSteps).logits));
}

TEST_P(GoldenDraft, RefusesAContextWithoutRoomForIt) {
  LoadOptions options = Options();
  options.context = std::ssize(tokens_);
  EXPECT_NE(MessageOf([&] { Run(options); }).find("context: expected at least"), std::string::npos);
}

// Writes a file again without one of its keys or tensors.
void WriteWithout(const std::string& from, std::string_view left_out, const std::string& path) {
  const GgufFile file = GgufFile::Open(from);
  GgufWriter writer(path);
  for (size_t i = 0; i < file.metadata().size(); ++i) {
    const GgufEntry entry = file.metadata().at(i);
    if (entry.key != left_out) writer.Add(entry.key, entry.value);
  }
  for (const bool write : {false, true}) {
    for (const GgufTensor& tensor : file.tensors()) {
      if (tensor.name == left_out) continue;
      if (write) {
        writer.Write(tensor.data);
      } else {
        writer.AddTensor(tensor.name, tensor.type->id,
                         std::span(tensor.dims).first(static_cast<size_t>(tensor.dims_count)));
      }
    }
  }
  writer.Finish();
}

TEST_P(GoldenDraft, NamesAMissingTensor) {
  const GgufFile file = GgufFile::Open(draft_);
  LoadOptions options = Options();
  options.draft = folder_ / "part.gguf";
  for (const GgufTensor& tensor : file.tensors()) {
    // A choice of the file.
    if (tensor.name.ends_with("attn_sinks.weight") ||
        tensor.name.ends_with("layer_output_scale.weight") || tensor.name == "rope_freqs.weight") {
      continue;
    }
    WriteWithout(draft_, tensor.name, options.draft);
    EXPECT_EQ(MessageOf([&] { Model model(options); }),
              fmt::format("{}: {}: tensor is missing", options.draft, tensor.name));
  }
}

TEST_P(GoldenDraft, IsNoModelAndNoDraftOfAnother) {
  EXPECT_NE(MessageOf([&] { ModelRun run(draft_); }).find("general.architecture: expected a model"),
            std::string::npos);
  LoadOptions options = Options();
  TinyModel(TinyOptions{}).Write(folder_ / "tiny.gguf");
  options.path = folder_ / "tiny.gguf";
  const std::string text = MessageOf([&] { Model model(options); });
  EXPECT_NE(text, "");
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  std::swap(options.path, options.draft);
  options.path = target_;
  EXPECT_NE(MessageOf([&] {
              Model model(options);
            }).find("general.architecture: expected a draft, one of"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, GoldenDraft, testing::ValuesIn(kDrafts),
                         [](const auto& info) {
                           std::string name(info.param.name);
                           std::erase(name, '-');
                           return name;
                         });

TEST(Drafts, AreThoseOfTheReferenceCheckpoints) {
  std::vector<std::string_view> drafts, rows;
  for (const DraftRow& row : kDrafts) drafts.push_back(row.name);
  for (const GoldenRow& row : kGoldenRows) {
    if (!row.supported) rows.push_back(row.name);
  }
  EXPECT_EQ(drafts, rows);
}

}  // namespace
}  // namespace lockstep::test
