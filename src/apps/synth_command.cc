#include "apps/command.h"
#include "apps/terminal.h"
#include "base/error.h"
#include "convert/synth.h"

namespace lockstep {

int RunSynth(const OptionValues& options, Positional) {
  const SynthOptions synth{.architecture = options.Require<std::string>(Opt::kArch),
                           .size = options.Get<std::string>(Opt::kSize),
                           .type = options.Get<std::string>(Opt::kSynthType),
                           .output = options.Require<std::string>(Opt::kOutput),
                           .seed = static_cast<uint64_t>(options.Get<int64_t>(Opt::kSeed)),
                           .hollow = options.Get<bool>(Opt::kHollow),
                           .dry_run = options.Get<bool>(Opt::kDryRun)};
  const SynthResult result = WriteSynth(synth);
  Print(fmt::format(
      "{}: {}, {} tensors, {:.3f} G weights, {:.2f} GiB{}\n", Printable(synth.output, 4096),
      result.model, result.tensors, static_cast<double>(result.weights) * 1e-9,
      static_cast<double>(result.bytes) / 0x1p30, synth.dry_run ? " (not written)" : ""));
  return 0;
}

}  // namespace lockstep
