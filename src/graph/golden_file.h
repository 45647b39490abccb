// Prints held to golden files, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/file.h"

namespace lockstep::test {

// Expects `text` to be what the file holds. Where LOCKSTEP_WRITE_GOLDENS is set the file is written
// anew instead, for a look at what has changed since the last commit.
inline void ExpectGolden(const std::string& path, const std::string& text) {
  if (std::getenv("LOCKSTEP_WRITE_GOLDENS") != nullptr) {
    AtomicFile file(path);
    file.Write(text);
    file.Commit();
    return;
  }
  EXPECT_EQ(text, ReadFile(path, 1 << 20));
}

}  // namespace lockstep::test
