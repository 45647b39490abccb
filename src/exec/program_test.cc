#include "exec/program.h"

#include <gtest/gtest.h>
#include <model_run.h>
#include <tiny_model.h>

#include "exec/program_check.h"
#include "gguf/temp_folder.h"
#include "graph/golden_file.h"

namespace lockstep::test {
namespace {

constexpr const char* kTestdata = LOCKSTEP_SOURCE_DIR "/src/exec/testdata/";

Graph GraphOf(const TinyOptions& options) {
  TempFolder folder;
  TinyModel(options).Write(folder / "model.gguf");
  return ModelRun(folder / "model.gguf").graph();
}

bool Codes(ValueId) { return true; }
bool Floats(ValueId) { return false; }

TEST(Program, PrintsStepsBarriersAndBuffers) {
  TinyOptions options;
  options.layers = 2;
  const Graph graph = GraphOf(options);
  ExpectGolden(std::string(kTestdata) + "llama_codes.txt",
               Program(graph, Codes, {64, 4, false, true}).Print(graph));
  ExpectGolden(std::string(kTestdata) + "llama_hidden.txt",
               Program(graph, Floats, {64, 4, true, true}).Print(graph));
}

std::string FaultOf(const OpenProgram& program) { return ProgramCheck(program).Fault(); }

TEST(Program, KeepsItsPromisesForEveryOption) {
  for (const TinyOptions& options : {TinyOptions{}, WindowedOptions()}) {
    const Graph graph = GraphOf(options);
    for (bool hidden : {false, true}) {
      for (int64_t outputs : {1, 3, 64}) {
        for (auto codes : {Codes, Floats}) {
          const Program program(graph, codes, {64, outputs, hidden, true});
          EXPECT_EQ(FaultOf({graph, program, codes}), "")
              << outputs << " outputs" << (hidden ? ", hidden" : "");
        }
      }
    }
  }
}

TEST(Program, MixesWeightsWithAndWithoutCodes) {
  const Graph graph = GraphOf({});
  for (ValueId bits = 0; bits < 32; ++bits) {
    auto codes = [bits](ValueId id) { return (id * 2654435761u >> (bits % 29) & 1) != 0; };
    const Program program(graph, codes, {64, 3, bits % 2 == 0, true});
    EXPECT_EQ(FaultOf({graph, program, codes}), "") << bits;
  }
}

TEST(Program, ReusesMemory) {
  TinyOptions options;
  const int64_t two = Program(GraphOf(options), Codes, {64, 4, false, true}).arena_bytes();
  options.layers = 6;
  EXPECT_EQ(Program(GraphOf(options), Codes, {64, 4, false, true}).arena_bytes(), two);
}

TEST(Program, LeavesRowsBehindOnceTheLastStateIsWritten) {
  const Graph graph = GraphOf({});
  const Program program(graph, Codes, {64, 4, false, true});
  auto last_append = std::ranges::find_if(program.steps().rbegin(), program.steps().rend(),
                                          [](const Step& step) { return step.op->writes_state(); });
  int after = 0;
  for (auto step = last_append.base(); step != program.steps().end(); ++step, ++after)
    EXPECT_EQ(step->rows, RowSet::kOutputs) << step->name;
  EXPECT_GT(after, 5);
}

// The checker is worth what it catches: programs broken on purpose.
class BrokenProgram : public testing::Test {
 protected:
  BrokenProgram() : graph_(GraphOf({})), program_(graph_, Codes, {64, 4, false, true}) {}

  OpenProgram Open() const { return {graph_, program_, Codes}; }
  static size_t StepNamed(const OpenProgram& program, std::string_view name) {
    auto at = std::ranges::find(program.steps, name, &Step::name);
    return static_cast<size_t>(at - program.steps.begin());
  }
  Slot& OutOf(OpenProgram& program, std::string_view name) {
    return program.slots[static_cast<size_t>(program.steps[StepNamed(program, name)].out)];
  }

  Graph graph_;
  Program program_;
};

// So no barrier is there in vain either.
TEST_F(BrokenProgram, WithoutAnyOneOfItsBarriersIsCaught) {
  for (size_t i = 0; i < program_.steps().size(); ++i) {
    OpenProgram broken = Open();
    if (!broken.steps[i].barrier) continue;
    broken.steps[i].barrier = false;
    EXPECT_NE(FaultOf(broken), "") << broken.steps[i].name;
  }
}

TEST_F(BrokenProgram, WithStepsInAnotherOrderIsCaught) {
  OpenProgram broken = Open();
  std::swap(broken.steps[StepNamed(broken, "blk.0.norm")],
            broken.steps[StepNamed(broken, "blk.0.q")]);
  EXPECT_EQ(FaultOf(broken), "blk.0.q: reads what is not written yet");
}

TEST_F(BrokenProgram, WithLivingSlotsInOnePlaceIsCaught) {
  OpenProgram broken = Open();
  OutOf(broken, "blk.0.gate").offset = OutOf(broken, "blk.0.up").offset;
  EXPECT_NE(FaultOf(broken).find("share memory while both live"), std::string::npos);
}

TEST_F(BrokenProgram, WithMemoryTakenBeforeABarrierIsCaught) {
  // The slot's last reader stands in the same phase as the new writer: fine for one thread, not for two.
  OpenProgram broken = Open();
  OutOf(broken, "blk.0.q_rope").offset = OutOf(broken, "blk.0.q").offset;
  EXPECT_NE(FaultOf(broken).find("share memory while both live"), std::string::npos);
}

TEST_F(BrokenProgram, ThatLeavesNeededRowsBehindIsCaught) {
  OpenProgram broken = Open();
  broken.steps[StepNamed(broken, "blk.1.k")].rows = RowSet::kOutputs;
  OutOf(broken, "blk.1.k").rows = RowSet::kOutputs;
  EXPECT_NE(FaultOf(broken), "");
}

TEST_F(BrokenProgram, ThatComputesRowsForNobodyIsCaught) {
  OpenProgram broken = Open();
  for (size_t i = StepNamed(broken, "blk.1.heads"); i < broken.steps.size(); ++i) {
    broken.steps[i].rows = RowSet::kAll;
    broken.slots[static_cast<size_t>(broken.steps[i].out)].rows = RowSet::kAll;
  }
  EXPECT_NE(FaultOf(broken), "");
}

TEST_F(BrokenProgram, WithAnotherSplitIsCaught) {
  OpenProgram broken = Open();
  broken.steps[StepNamed(broken, "blk.0.x1")].split = Split::kTokens;
  EXPECT_NE(FaultOf(broken), "");
}

TEST_F(BrokenProgram, WithASmallArenaIsCaught) {
  OpenProgram broken = Open();
  broken.arena_bytes -= 64;
  EXPECT_NE(FaultOf(broken).find("does not lie in the arena"), std::string::npos);
}

TEST_F(BrokenProgram, WithoutAStepIsCaught) {
  for (size_t i = 0; i < program_.steps().size(); ++i) {
    OpenProgram broken = Open();
    const std::string name = broken.steps[i].name;
    if (i + 1 < broken.steps.size()) broken.steps[i + 1].barrier = true;
    broken.steps.erase(broken.steps.begin() + static_cast<int64_t>(i));
    EXPECT_NE(FaultOf(broken), "") << name;
  }
}

}  // namespace
}  // namespace lockstep::test
