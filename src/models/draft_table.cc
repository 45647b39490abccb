#include "models/drafts.h"

#include "base/error.h"

namespace lockstep {
namespace {

// X(function, "general.architecture")
#define LOCKSTEP_FOR_EACH_DRAFT(X) \
  X(Dflash, "dflash")              \
  X(Gemma4Assistant, "gemma4-assistant")

}  // namespace

#define LOCKSTEP_DECLARE(function, name) \
  DraftGraphs Build##function(const ModelSource& source, const DraftTarget& target);
LOCKSTEP_FOR_EACH_DRAFT(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE

namespace {

struct DraftRow {
  std::string_view name;
  DraftGraphs (*build)(const ModelSource& source, const DraftTarget& target);
};
#define LOCKSTEP_ROW(function, name) {name, Build##function},
constexpr DraftRow kRows[] = {LOCKSTEP_FOR_EACH_DRAFT(LOCKSTEP_ROW)};
#undef LOCKSTEP_ROW

}  // namespace

void ExpectModel(const ModelSource& source) {
  for (const DraftRow& row : kRows) {
    if (row.name != source.architecture()) continue;
    throw Refused(
        "{}: general.architecture: expected a model, found {}, which drafts for one "
        "(--model-draft)",
        Printable(source.file().name(), 4096), row.name);
  }
}

DraftGraphs BuildDraft(const ModelSource& source, const DraftTarget& target) {
  std::string known;
  for (const DraftRow& row : kRows) {
    if (row.name == source.architecture()) return row.build(source, target);
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  throw Refused("{}: general.architecture: expected a draft, one of {}, found \"{}\"",
                Printable(source.file().name(), 4096), known, Printable(source.architecture()));
}

}  // namespace lockstep
