// For tests: runs a command line in this process and keeps what it prints.
#pragma once

#include <gtest/gtest.h>

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

}  // namespace lockstep
