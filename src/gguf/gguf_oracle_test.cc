// Copies files of another implementation through our reader and writer;
// tests/oracles/gguf_oracle.py compares both sides.
#include <gtest/gtest.h>

#include <cstdlib>

#include "gguf/gguf_writer.h"
#include "gguf/safetensors.h"

namespace lockstep::test {
namespace {

constexpr const char* kSkip = "needs the paths that tests/oracles/gguf_oracle.py sets";

TEST(GgufOracle, CopiesAGgufFile) {
  const char* in = std::getenv("LOCKSTEP_ORACLE_GGUF_IN");
  const char* out = std::getenv("LOCKSTEP_ORACLE_GGUF_OUT");
  if (in == nullptr || out == nullptr) GTEST_SKIP() << kSkip;
  GgufFile file = GgufFile::Open(in);
  GgufWriter writer(out, file.metadata().OptionalOr<uint32_t>(kGgufAlignmentKey, 32));
  for (size_t i = 0; i < file.metadata().size(); ++i) {
    GgufEntry entry = file.metadata().at(i);
    if (entry.key != kGgufAlignmentKey) writer.Add(entry.key, entry.value);
  }
  for (GgufTensor tensor : file.tensors()) {
    writer.AddTensor(tensor.name, tensor.type->id, std::span(tensor.dims).first(tensor.dims_count));
  }
  for (GgufTensor tensor : file.tensors()) writer.Write(tensor.data);
  writer.Finish();
  EXPECT_EQ(GgufFile::Open(out).tensor_count(), file.tensor_count());
}

TEST(GgufOracle, CopiesASafetensorsFile) {
  const char* in = std::getenv("LOCKSTEP_ORACLE_SAFETENSORS_IN");
  const char* out = std::getenv("LOCKSTEP_ORACLE_SAFETENSORS_OUT");
  if (in == nullptr || out == nullptr) GTEST_SKIP() << kSkip;
  Safetensors set = Safetensors::Open(in);
  std::vector<SafetensorsItem> items;
  for (const SafetensorsTensor& tensor : set.tensors()) {
    items.push_back({tensor.name, tensor.type->name, tensor.shape, tensor.data});
  }
  WriteSafetensors(out, items, set.metadata());
  EXPECT_EQ(Safetensors::Open(out).tensors().size(), set.tensors().size());
}

}  // namespace
}  // namespace lockstep::test
