#include "convert/recipe.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

void Recipe::Emit(std::string name, Values values, Stored stored) {
  if (!names_.insert(name).second) {
    throw Refused("{}: {}: expected one tensor for {}, found another",
                  Printable(checkpoint_.folder(), 4096), Printable(values.name()), Printable(name));
  }
  tensors_.push_back({std::move(name), std::move(values), stored});
}

const RecipeTensor* Recipe::Find(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &RecipeTensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

}  // namespace lockstep
