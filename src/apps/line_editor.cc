#include "apps/line_editor.h"

#include <fcntl.h>
#include <histedit.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <filesystem>

#include "apps/input.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"

namespace lockstep {
namespace {

constexpr int kHistoryLines = 1000;

// Waits until stdin has something to read, or has ended; false where Ctrl-C came first. A signal
// restarts read() but never poll(); the time limit is for one that comes just before.
bool WaitForStdin() {
  constexpr int kPollMilliseconds = 200;
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  while (!Interrupted()) {
    if (poll(&input, 1, kPollMilliseconds) > 0) return !Interrupted();
  }
  return false;
}

class PlainLines final : public LineSource {
 public:
  LineEnd Read(const std::string&, std::string* line) override {
    while (true) {
      if (const size_t end = held_.find('\n', searched_); end != std::string::npos) {
        *line = held_.substr(0, end);
        held_.erase(0, end + 1);
        searched_ = 0;
        return LineEnd::kLine;
      }
      searched_ = held_.size();
      if (ended_) break;
      if (!WaitForStdin()) return LineEnd::kInterrupted;
      Fill();
    }
    if (held_.empty()) return LineEnd::kEndOfInput;
    *line = std::move(held_);
    held_.clear();
    searched_ = 0;
    return LineEnd::kLine;
  }

 private:
  void Fill() {
    char buffer[1 << 16];
    const ssize_t size = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) return;
    if (size < 0) throw Refused("stdin: {}", SystemErrorText(errno));
    if (held_.size() + static_cast<size_t>(size) > kMaxInputBytes) {
      throw Refused("stdin: expected lines of at most {} bytes", kMaxInputBytes);
    }
    ended_ = size == 0;
    held_.append(buffer, static_cast<size_t>(size));
  }

  std::string held_;     // read, not yet given
  size_t searched_ = 0;  // bytes of it without a line end
  bool ended_ = false;
};

// Number of bytes of the UTF-8 character that starts with `byte`; 1 for what starts none.
int Utf8Length(unsigned char byte) {
  if (byte >= 0xF0 && byte < 0xF8) return 4;
  if (byte >= 0xE0) return byte < 0xF0 ? 3 : 1;
  return byte >= 0xC0 ? 2 : 1;
}

// Reads one character of the terminal for libedit: 1, or 0 at the end of input and at Ctrl-C.
int ReadCharacter(EditLine*, wchar_t* character) {
  unsigned char bytes[4];
  int size = 0, wanted = 1;
  while (size < wanted) {
    if (!WaitForStdin()) return 0;
    const ssize_t got = read(STDIN_FILENO, bytes + size, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return 0;
    if (size == 0) wanted = Utf8Length(bytes[0]);
    ++size;
  }
  std::mbstate_t state = {};
  const size_t used = std::mbrtowc(character, reinterpret_cast<const char*>(bytes),
                                   static_cast<size_t>(size), &state);
  // Bytes that are no character are shown as the replacement character.
  if (used == static_cast<size_t>(-1) || used == static_cast<size_t>(-2)) *character = 0xFFFD;
  return 1;
}

class EditedLines final : public LineSource {
 public:
  explicit EditedLines(std::string history_file) : history_file_(std::move(history_file)) {
    // libedit shows what the locale can; this locale is everywhere.
    std::setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
    history_ = history_init();
    editor_ = el_init("lockstep", stdin, stdout, stderr);
    if (history_ == nullptr || editor_ == nullptr) {
      Close();
      throw Failed("line editing: the terminal cannot be used; --simple-io does without");
    }
    HistEvent event;
    history(history_, &event, H_SETSIZE, kHistoryLines);
    history(history_, &event, H_SETUNIQUE, 1);
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT, &EditedLines::Prompt);
    el_set(editor_, EL_GETCFN, &ReadCharacter);
    el_set(editor_, EL_HIST, history, history_);
    el_set(editor_, EL_EDITOR, "emacs");
    el_source(editor_, nullptr);
    OpenHistory();
  }
  ~EditedLines() override {
    SaveHistory();
    Close();
  }

  LineEnd Read(const std::string& prompt, std::string* line) override {
    prompt_ = prompt;
    int size = 0;
    // Before the prompt shows: a Ctrl-D that meets the terminal's own line editing is lost.
    el_set(editor_, EL_PREP_TERM, 1);
    const char* text = el_gets(editor_, &size);
    if (Interrupted()) return LineEnd::kInterrupted;
    if (text == nullptr || size <= 0) return LineEnd::kEndOfInput;
    line->assign(text, static_cast<size_t>(size));
    if (line->ends_with('\n')) line->pop_back();
    if (line->find_first_not_of(" \t") != std::string::npos) {
      HistEvent event;
      history(history_, &event, H_ENTER, line->c_str());
    }
    return LineEnd::kLine;
  }

 private:
  static const char* Prompt(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return static_cast<EditedLines*>(self)->prompt_.c_str();
  }

  void OpenHistory() {
    if (history_file_.empty()) return;
    std::error_code failed;
    std::filesystem::create_directories(std::filesystem::path(history_file_).parent_path(), failed);
    // What people type is nobody else's to read.
    const int file = open(history_file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct stat info = {};
    if (file < 0 || fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
      Log(LogLevel::kWarning, "--history: {}: {}", Printable(history_file_, 4096),
          file < 0 ? SystemErrorText(errno) : "expected a file");
      history_file_.clear();
    }
    if (file >= 0) close(file);
    HistEvent event;
    if (!history_file_.empty() && info.st_size > 0) {
      history(history_, &event, H_LOAD, history_file_.c_str());
    }
  }

  void SaveHistory() {
    HistEvent event;
    if (history_file_.empty() || history_ == nullptr) return;
    if (history(history_, &event, H_SAVE, history_file_.c_str()) < 0) {
      Log(LogLevel::kWarning, "--history: {}: cannot be written", Printable(history_file_, 4096));
    }
  }

  void Close() {
    if (editor_ != nullptr) el_end(editor_);
    if (history_ != nullptr) history_end(history_);
  }

  std::string history_file_;
  std::string prompt_;
  History* history_ = nullptr;
  EditLine* editor_ = nullptr;
};

}  // namespace

std::unique_ptr<LineSource> MakePlainLines() { return std::make_unique<PlainLines>(); }

std::unique_ptr<LineSource> MakeEditedLines(std::string history) {
  return std::make_unique<EditedLines>(std::move(history));
}

std::string DefaultHistoryFile() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state == '/') return std::string(state) + "/lockstep/history";
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home != '/') return "";
  return std::string(home) + "/.local/state/lockstep/history";
}

}  // namespace lockstep
