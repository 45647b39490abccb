// Ctrl-C: the first asks the work in hand to stop, the second ends the program.
#pragma once

namespace lockstep {

// Makes SIGINT and SIGTERM set a flag that long work polls. A second signal before ClearInterrupt()
// ends the process at once with exit code 130: files registered with RemoveOnInterrupt are deleted,
// nothing else is cleaned up.
void InstallInterruptHandler();

// True from the first signal on until ClearInterrupt(). One relaxed load: cheap enough for inner
// loops.
bool Interrupted();

// Throws Error(kInterrupted) where Interrupted().
void ThrowIfInterrupted();

// Forgets a signal that was answered, so that the next one is again the first (chat: Ctrl-C ends
// the answer only).
void ClearInterrupt();

// Ends the process as a second signal does, from any thread, whatever the others are doing.
[[noreturn]] void ExitAtOnce(int code);

// While alive, a second signal and ExitAtOnce() remove the file. `path` must outlive the object and is not copied.
// At most kMaxInterruptFiles are watched at a time; further ones are left behind.
inline constexpr int kMaxInterruptFiles = 16;
class RemoveOnInterrupt {
 public:
  explicit RemoveOnInterrupt(const char* path);
  RemoveOnInterrupt(const RemoveOnInterrupt&) = delete;
  RemoveOnInterrupt& operator=(const RemoveOnInterrupt&) = delete;
  ~RemoveOnInterrupt();

 private:
  int slot_ = -1;
};

}  // namespace lockstep
