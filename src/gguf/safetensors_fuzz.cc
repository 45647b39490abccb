// Any bytes: they load and can be read whole, or are refused in one line.
#include "gguf/test_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::test::RefusalOf<lockstep::Safetensors>({reinterpret_cast<const char*>(data), size},
                                                   "fuzz.safetensors");
  return 0;
}
