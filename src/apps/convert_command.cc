#include "apps/command.h"
#include "apps/terminal.h"
#include "base/error.h"
#include "convert/convert.h"

namespace lockstep {

int RunConvert(const OptionValues& options, Positional positional) {
  if (positional.empty()) throw Refused("convert: expected the folder of a checkpoint, found none");
  ConvertOptions convert{.folder = positional[0],
                         .output = options.Require<std::string>(Opt::kOutput),
                         .type = options.Get<std::string>(Opt::kConvertType),
                         .dry_run = options.Get<bool>(Opt::kDryRun)};
  const ConvertResult result = ConvertCheckpoint(convert);
  Print(fmt::format("{}: {}, {} tensors of {} bytes{}\n", Printable(convert.output, 4096),
                    result.architecture, result.tensors, result.bytes,
                    convert.dry_run ? " (not written)" : ""));
  return 0;
}

}  // namespace lockstep
