// For tests: runs a command line in this process and keeps what it prints.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "apps/command.h"

namespace lockstep {

struct ProgramRun {
  int code = 0;
  std::string output;    // stdout
  std::string messages;  // stderr
};

// With an empty environment, so that no config file of the machine is read.
inline ProgramRun RunProgram(std::vector<std::string_view> arguments) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  ProgramRun run;
  run.code = GuardedMain(arguments, [](const std::string&) { return std::nullopt; });
  run.output = ::testing::internal::GetCapturedStdout();
  run.messages = ::testing::internal::GetCapturedStderr();
  return run;
}

struct ShellRun {
  int code = 0;        // -1: a signal ended it
  std::string output;  // stdout; stderr where the command says so
};

// Runs a command in a shell, where no config file of the machine is read.
inline ShellRun RunShell(const std::string& command) {
  FILE* pipe = popen(("export HOME=/no/such/folder; " + command).c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  std::string output;
  char buffer[4096];
  while (size_t size = std::fread(buffer, 1, sizeof(buffer), pipe)) output.append(buffer, size);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

}  // namespace lockstep
