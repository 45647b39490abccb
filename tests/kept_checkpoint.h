// The reference checkpoints that are kept here (data/goldens): their weights are a function of their names; data/make_goldens.py says what
// the files hold.
#pragma once

#include <string>
#include <vector>

#include "golden_rows.h"

namespace lockstep::test {

inline constexpr const char* kKept = LOCKSTEP_SOURCE_DIR "/tests/data/goldens";

// The folder of a row, whether or not it is kept.
inline std::string KeptFolder(const GoldenRow& row) {
  return std::string(kKept) + "/" + std::string(row.name);
}

// Rows that are supported and kept, variations among them.
std::vector<GoldenRow> KeptRows();

// Writes the checkpoint that a kept folder describes into `folder`, which is there.
void WriteCheckpoint(const std::string& kept, const std::string& folder);

// The same, converted to f32: writes `path`, and the checkpoint beside it.
void WriteKeptModel(const GoldenRow& row, const std::string& path);

}  // namespace lockstep::test
