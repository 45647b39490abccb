// For tests: a command under mpirun, its ranks' processes, and what is left of them.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {

inline bool HasMpi() { return std::system("command -v mpirun >/dev/null 2>&1") == 0; }

// `mpirun -n PROCESSES LOCKSTEP`, which this machine has fewer cores for, and no privileges.
inline std::vector<std::string> MpirunCommand(int processes) {
  return {"mpirun",
          "--allow-run-as-root",
          "--oversubscribe",
          "--mca",
          "btl_vader_single_copy_mechanism",
          "none",
          "-n",
          std::to_string(processes),
          LOCKSTEP_PROGRAM};
}

class MpiRun {
 public:
  // stderr goes to a file; stdin is a pipe that stays open.
  MpiRun(int processes, const std::vector<std::string>& arguments, std::string messages)
      : messages_(std::move(messages)) {
    std::vector<std::string> command = MpirunCommand(processes);
    command.insert(command.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& argument : command) argv.push_back(argument.data());
    argv.push_back(nullptr);
    int input[2];
    if (pipe(input) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      dup2(input[0], STDIN_FILENO);
      if (freopen("/dev/null", "w", stdout) == nullptr) _exit(99);
      if (freopen(messages_.c_str(), "w", stderr) == nullptr) _exit(99);
      close(input[1]);
      execvp(argv[0], argv.data());
      _exit(99);
    }
    close(input[0]);
    input_ = input[1];
  }
  MpiRun(const MpiRun&) = delete;
  MpiRun& operator=(const MpiRun&) = delete;
  ~MpiRun() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    for (pid_t rank : ranks_) {
      if (Lives(rank)) kill(rank, SIGKILL);
    }
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    if (input_ >= 0) close(input_);
  }

  // Waits until there are so many ranks and returns their processes by number; fewer where that takes too long.
  const std::vector<pid_t>& AwaitRanks(size_t count) {
    Await([&] {
      ranks_.clear();
      for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        const int process = std::atoi(entry.path().filename().c_str());
        if (process > 0 && StatusOf(process).parent == pid_) ranks_.push_back(process);
      }
      std::ranges::sort(ranks_);
      return ranks_.size() == count;
    });
    return ranks_;
  }

  // Until a condition holds, for a minute at most; whether it does.
  template <typename F>
  static bool Await(F holds, double seconds = 60) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!holds()) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

  // Files of shared memory that the ranks have open now.
  std::set<std::string> SharedMemory() const {
    std::set<std::string> files;
    for (pid_t rank : ranks_) {
      std::ifstream maps("/proc/" + std::to_string(rank) + "/maps");
      for (std::string line; std::getline(maps, line);) {
        const size_t at = line.find("/dev/shm/");
        if (at != std::string::npos) files.insert(line.substr(at));
      }
    }
    return files;
  }

  // Waits for the ranks and mpirun, and returns its exit code, 128 and the number for a signal; -1 where a rank does not end in time. Once all ranks
  // have ended, an mpirun that goes on is ended, too: now and then two threads of its library wait for each other.
  int AwaitEnd(double seconds) {
    int status = 0;
    const bool ended = Await([&] { return waitpid(pid_, &status, WNOHANG) == pid_; }, seconds);
    if (!ended && left() > 0) return -1;
    if (!ended) {
      kill(pid_, SIGKILL);
      waitpid(pid_, &status, 0);
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  // Ranks that still live.
  size_t left() const { return static_cast<size_t>(std::ranges::count_if(ranks_, Lives)); }
  std::string messages() const {
    std::ifstream file(messages_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Interrupt() const { kill(pid_, SIGINT); }

 private:
  // Of a process of the program; of others, and of those that have ended, all zero. (proc(5), stat)
  struct Status {
    char state = 0;
    pid_t parent = 0;
  };
  static Status StatusOf(pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const size_t at = text.rfind(')');
    if (at == std::string::npos || text.find("(lockstep)") == std::string::npos) return {};
    return {text[at + 2], std::atoi(text.c_str() + at + 3)};
  }
  // Numbers of processes are used again: only a process of the program counts.
  static bool Lives(pid_t rank) {
    const char state = StatusOf(rank).state;
    return state != 0 && state != 'Z';
  }

  std::string messages_;
  pid_t pid_ = -1;
  int input_ = -1;
  std::vector<pid_t> ranks_;
};

}  // namespace lockstep
