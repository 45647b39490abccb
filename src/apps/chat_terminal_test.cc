// `lockstep chat` on a terminal, as a person uses it.
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <termios.h>
#include <tiny_model.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "gguf/temp_folder.h"

namespace lockstep {
namespace {

using test::TempFolder;
using test::TinyModel;
using test::TinyOptions;

// Types into a chat and reads what it shows. All waiting ends after a while; `report` then says what was seen.
class ChatTerminal {
 public:
  ChatTerminal(const std::string& model, const std::string& history) {
    pid_ = forkpty(&terminal_, nullptr, nullptr, nullptr);
    if (pid_ != 0) return;
    setenv("TERM", "xterm", 1);
    execl(LOCKSTEP_PROGRAM, "lockstep", "chat", "-m", model.c_str(), "-n", "4", "--temp", "0",
          "--history", history.c_str(), "--no-progress", "--config", "none", nullptr);
    _exit(99);
  }
  ChatTerminal(const ChatTerminal&) = delete;
  ChatTerminal& operator=(const ChatTerminal&) = delete;
  ~ChatTerminal() {
    if (terminal_ >= 0) close(terminal_);
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  void Type(std::string_view text) {
    EXPECT_EQ(write(terminal_, text.data(), text.size()), std::ssize(text));
  }
  // Reads until `text` has been seen since the last call.
  bool Sees(std::string_view text) {
    while (true) {
      if (const size_t at = seen_.find(text); at != seen_.npos) {
        seen_.erase(0, at + text.size());
        return true;
      }
      if (!ReadMore()) return false;
    }
  }
  // Whether keys reach the program as they are typed.
  bool TakesKeys() const {
    termios modes = {};
    return tcgetattr(terminal_, &modes) == 0 && (modes.c_lflag & ICANON) == 0;
  }
  // The exit code, once the program has ended; -1 where it does not end.
  int Code() {
    while (ReadMore()) continue;
    if (overdue_) return -1;
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string report() const {
    return fmt::format("{}; not expected so far: \"{}\"", overdue_ ? "time is up" : "in time",
                       Printable(seen_, 4096));
  }

 private:
  // False where the program has closed the terminal, or is silent for too long.
  bool ReadMore() {
    constexpr int kSilenceMilliseconds = 60'000;
    pollfd output = {terminal_, POLLIN, 0};
    if (poll(&output, 1, kSilenceMilliseconds) <= 0) {
      overdue_ = true;
      return false;
    }
    char buffer[4096];
    const ssize_t size = read(terminal_, buffer, sizeof(buffer));
    if (size <= 0) return false;
    seen_.append(buffer, static_cast<size_t>(size));
    return true;
  }

  int terminal_ = -1;
  pid_t pid_ = -1;
  bool overdue_ = false;
  std::string seen_;
};

class ChatOnATerminal : public ::testing::Test {
 protected:
  ChatOnATerminal() : model_(folder_ / "tiny.gguf") {
    TinyModel model((TinyOptions()));
    model.keys["tokenizer.chat_template"] =
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]";
    model.Write(model_);
  }

  TempFolder folder_;
  std::string model_;
};

TEST_F(ChatOnATerminal, EditsLinesAndKeepsThem) {
  const std::string history = folder_ / "state/lockstep/history";
  {
    ChatTerminal chat(model_, history);
    ASSERT_TRUE(chat.Sees("> ")) << chat.report();
    // The left arrow goes back over the c.
    chat.Type("ac\x1b[Db\r");
    ASSERT_TRUE(chat.Sees("positions")) << chat.report();
    ASSERT_TRUE(chat.Sees("> ")) << chat.report();
    chat.Type("\x04");
    EXPECT_EQ(chat.Code(), 0) << chat.report();
  }
  EXPECT_NE(ReadFile(history, 1 << 16).find("abc\n"), std::string::npos);
  EXPECT_EQ(std::filesystem::status(history).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  // The up arrow brings it back, in the next run.
  ChatTerminal chat(model_, history);
  ASSERT_TRUE(chat.Sees("> ")) << chat.report();
  chat.Type("\x1b[A");
  EXPECT_TRUE(chat.Sees("abc")) << chat.report();
  chat.Type("\r");
  EXPECT_TRUE(chat.Sees("positions")) << chat.report();
  chat.Type("/exit\r");
  EXPECT_EQ(chat.Code(), 0) << chat.report();
}

// Keys that come between the prompt and raw mode would be the terminal's: it drops a Ctrl-D.
TEST_F(ChatOnATerminal, EveryPromptMeansThatKeysAreRead) {
  ChatTerminal chat(model_, "none");
  for (int line = 0; line < 20; ++line) {
    ASSERT_TRUE(chat.Sees("> ")) << chat.report();
    ASSERT_TRUE(chat.TakesKeys()) << "line " << line;
    chat.Type("/clear\r");
  }
  ASSERT_TRUE(chat.Sees("> ")) << chat.report();
  chat.Type("\x04");
  EXPECT_EQ(chat.Code(), 0) << chat.report();
}

TEST_F(ChatOnATerminal, CtrlCAtThePromptWarnsThenEndsTheChat) {
  ChatTerminal chat(model_, "none");
  ASSERT_TRUE(chat.Sees("> ")) << chat.report();
  chat.Type("half a li\x03");
  ASSERT_TRUE(chat.Sees("Ctrl-C again")) << chat.report();
  ASSERT_TRUE(chat.Sees("> ")) << chat.report();
  chat.Type("a\r");
  ASSERT_TRUE(chat.Sees("positions")) << chat.report();
  ASSERT_TRUE(chat.Sees("> ")) << chat.report();
  chat.Type("\x03");
  ASSERT_TRUE(chat.Sees("Ctrl-C again")) << chat.report();
  ASSERT_TRUE(chat.Sees("> ")) << chat.report();
  chat.Type("\x03");
  EXPECT_EQ(chat.Code(), 130) << chat.report();
}

}  // namespace
}  // namespace lockstep
