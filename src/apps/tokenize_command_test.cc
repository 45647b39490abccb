#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/input.h"
#include "apps/program_run.h"
#include "base/file.h"
#include "gguf/gguf_writer.h"

namespace lockstep {
namespace {

// A SentencePiece vocabulary of 256 byte tokens and a few pieces.
class Tokenize : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "tokenize_" + std::to_string(getpid()) + ".gguf";
    text_path_ = path_ + ".txt";
    std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
    std::vector<int32_t> types = {2, 3, 3};
    for (int byte = 0; byte < 256; ++byte) {
      tokens.push_back(fmt::format("<0x{:02X}>", byte));
      types.push_back(6);
    }
    for (std::string_view piece : {"\xE2\x96\x81", "a", "b", "ab"}) {
      tokens.emplace_back(piece);
      types.push_back(1);
    }
    std::vector<float> scores(tokens.size(), 0);
    GgufWriter writer(path_);
    writer.Add("general.architecture", "llama");
    writer.Add("tokenizer.ggml.model", "llama");
    writer.Add("tokenizer.ggml.tokens", GgufArrayData::OfStrings(tokens));
    writer.Add("tokenizer.ggml.scores", GgufArrayData::Of<float>(scores));
    writer.Add("tokenizer.ggml.token_type", GgufArrayData::Of<int32_t>(types));
    writer.Add("tokenizer.ggml.bos_token_id", uint32_t{1});
    writer.Add("tokenizer.ggml.eos_token_id", uint32_t{2});
    writer.Add("tokenizer.ggml.add_bos_token", true);
    writer.Finish();
  }
  void TearDown() override {
    unlink(path_.c_str());
    unlink(text_path_.c_str());
  }
  std::string path_;
  std::string text_path_;
};

TEST_F(Tokenize, PrintsIdsAndPieces) {
  struct Case {
    std::vector<std::string_view> arguments;
    std::string output;
  };
  const Case cases[] = {
      {{"-p", "ab"}, "     1 -> '<s>'\n   259 -> ' '\n   262 -> 'ab'\n"},
      {{"-p", "ab", "--ids"}, "[1, 259, 262]\n"},
      {{"-p", "ab", "--ids", "--no-bos"}, "[259, 262]\n"},
      {{"-p", "\\n", "--ids", "--no-bos"}, "[259, 13]\n"},
      {{"-p", "ab", "--ids", "--show-count"}, "[1, 259, 262]\n3 tokens\n"},
      {{"-p", "</s>", "--ids", "--no-bos"}, "[2]\n"},
      {{"-p", "", "--ids", "--no-bos"}, "[]\n"},
      {{"--detokenize", "--tokens", "259,262,13"}, "ab\n"},
      {{"--detokenize", "-p", "[259, 262]"}, "ab"},
      {{"--detokenize", "-p", "262 262", "--json"}, "{\"text\": \"abab\"}\n"},
  };
  for (const Case& c : cases) {
    std::vector<std::string_view> arguments = {"tokenize", "-m", path_};
    arguments.insert(arguments.end(), c.arguments.begin(), c.arguments.end());
    ProgramRun run = RunProgram(arguments);
    EXPECT_EQ(run.code, 0) << run.messages;
    EXPECT_EQ(run.output, c.output) << c.arguments[1];
  }
}

TEST_F(Tokenize, JsonHoldsPiecesThatAreNoUtf8) {
  ProgramRun run = RunProgram({"tokenize", "-m", path_, "-p", "a\xC3\xA9", "--json"});
  boost::json::object object = boost::json::parse(run.output).as_object();
  EXPECT_EQ(object["count"], 5);
  EXPECT_EQ(object["tokens"].as_array()[4].as_object()["piece"], "\xEF\xBF\xBD");
}

TEST_F(Tokenize, WrongUsageIsRefusedInOneLine) {
  struct Case {
    std::vector<std::string_view> arguments;
    std::string message;
  };
  const Case cases[] = {
      {{}, "lockstep: tokenize: expected a text: --prompt TEXT or --file FILE\n"},
      {{"-p", "x", "-f", "y"},
       "lockstep: tokenize: expected one text, found several of --prompt, --file and --stdin\n"},
      {{"-f", "/no/such/file"}, "lockstep: /no/such/file: No such file or directory\n"},
      {{"--detokenize", "-p", "1 x"},
       "lockstep: tokenize: expected token ids, found 'x' as id 1\n"},
      {{"--detokenize", "-p", "99999999999"},
       "lockstep: tokenize: expected token ids, found '99999999999' as id 0\n"},
  };
  for (const Case& c : cases) {
    std::vector<std::string_view> arguments = {"tokenize", "-m", path_};
    arguments.insert(arguments.end(), c.arguments.begin(), c.arguments.end());
    ProgramRun run = RunProgram(arguments);
    EXPECT_EQ(run.code, 2);
    EXPECT_EQ(run.messages, c.message);
  }
  ProgramRun run = RunProgram({"tokenize", "-m", path_, "--detokenize", "--tokens", "100000"});
  EXPECT_EQ(run.code, 2);
  EXPECT_EQ(std::count(run.messages.begin(), run.messages.end(), '\n'), 1) << run.messages;
}

TEST_F(Tokenize, FilesAreTakenByteForByte) {
  AtomicFile file(text_path_);
  file.Write(std::string_view("a\\n\0\xff\n", 6));
  file.Commit();
  ProgramRun run = RunProgram({"tokenize", "-m", path_, "-f", text_path_, "--ids", "--no-bos"});
  EXPECT_EQ(run.code, 0) << run.messages;
  // U+FFFD, three byte tokens, stands for the byte that is no UTF-8.
  EXPECT_EQ(run.output, "[259, 260, 95, 113, 3, 242, 194, 192, 13]\n");
}

TEST_F(Tokenize, InterruptWhileWaitingForInputExitsWith130) {
  int input[2];
  int messages[2];
  ASSERT_EQ(pipe(input), 0);
  ASSERT_EQ(pipe(messages), 0);
  pid_t child = fork();
  if (child == 0) {
    dup2(input[0], STDIN_FILENO);
    dup2(messages[1], STDERR_FILENO);
    close(input[1]);
    close(messages[0]);
    execl(LOCKSTEP_PROGRAM, "lockstep", "tokenize", "-m", path_.c_str(), "-f", "-", "--config",
          "none", nullptr);
    _exit(99);
  }
  close(messages[1]);
  // The text is taken from the pipe when the program waits for more of it.
  ASSERT_EQ(write(input[1], "ab", 2), 2);
  int unread = 2;
  for (int i = 0; i < 3000 && unread > 0; ++i) {
    usleep(10000);
    ioctl(input[1], FIONREAD, &unread);
  }
  EXPECT_EQ(unread, 0);
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  char text[64] = {};
  ssize_t size = read(messages[0], text, sizeof(text));
  EXPECT_EQ(std::string(text, static_cast<size_t>(std::max<ssize_t>(size, 0))),
            "lockstep: interrupted\n");
  close(input[0]);
  close(input[1]);
  close(messages[0]);
}

TEST(Input, EscapesAreRead) {
  struct Case {
    std::string_view text;
    std::string_view expected;
  };
  const Case cases[] = {{"a\\nb", "a\nb"},
                        {"\\t\\r\\\"\\'\\\\", "\t\r\"'\\"},
                        {"\\x41\\xff", "A\xff"},
                        {"\\q", "\\q"},
                        {"\\", "\\"},
                        {"\\x4", "\\x4"},
                        {"\\xzz", "\\xzz"},
                        {"\\\\n", "\\n"},
                        {"", ""}};
  for (const Case& c : cases) EXPECT_EQ(Unescape(c.text), c.expected) << c.text;
}

TEST(TokenizeCommand, AgreesWithRecordedIdsOfARealVocabulary) {
  std::string folder = std::string(LOCKSTEP_SOURCE_DIR) + "/../shared/tokenizers/";
  std::string model = folder + "ggml-vocab-llama-spm.gguf";
  if (!std::filesystem::exists(model)) GTEST_SKIP() << "the shared tokenizers are not here";
  ProgramRun run = RunProgram({"tokenize", "-m", model, "-p", "Hello world", "--ids"});
  EXPECT_EQ(run.code, 0) << run.messages;
  EXPECT_EQ(run.output, "[1, 15043, 3186]\n");
}

}  // namespace
}  // namespace lockstep
