#include <string_view>
#include <vector>

#include "apps/command.h"
#include "apps/terminal.h"
#include "base/interrupt.h"

int main(int argc, char** argv) {
  lockstep::PrepareStandardStreams();
  lockstep::InstallInterruptHandler();
  std::vector<std::string_view> arguments;
  for (int i = 1; i < argc; ++i) arguments.emplace_back(argv[i]);
  return lockstep::GuardedMain(arguments, lockstep::ProcessEnvironment());
}
