#include "engine/build_identity.h"

#include "base/error.h"
#include "base/file.h"
#include "engine/sha256.h"

namespace lockstep {

std::string BuildIdentity() {
  try {
    return Sha256Hex(MappedFile("/proc/self/exe").bytes());
  } catch (const Error&) {
    return "unknown";
  }
}

}  // namespace lockstep
