// What a file will hold: keys, and tensors each with its numbers still to be made.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/checkpoint.h"
#include "convert/keys.h"

namespace lockstep {

// How a tensor is stored. Vectors and single numbers are always F32.
enum class Stored {
  kByType,  // as --type says
  kF32,     // always: routers, small tensors of recurrences, whatever steers more than it weighs
  kI32,     // always: tables of numbers of other things
};

struct RecipeTensor {
  std::string name;
  Values values;
  Stored stored;
};

// A file in the making. The checkpoint outlives it.
class Recipe {
 public:
  Recipe(Checkpoint& checkpoint, Keys& keys) : checkpoint_(checkpoint), keys_(keys) {}

  const Config& config() const { return checkpoint_.config(); }
  Keys& keys() { return keys_; }
  bool Has(std::string_view name) const { return checkpoint_.Has(name); }
  // A tensor of the checkpoint, which counts as used. Refused where there is none.
  Values Take(std::string_view name) { return checkpoint_.Take(name); }
  void Ignore(std::string_view name) { checkpoint_.Ignore(name); }
  // A tensor of the file. Refused where it has one of that name.
  void Emit(std::string name, Values values, Stored stored = Stored::kByType);

  const std::vector<RecipeTensor>& tensors() const { return tensors_; }
  const RecipeTensor* Find(std::string_view name) const;

 private:
  Checkpoint& checkpoint_;
  Keys& keys_;
  std::vector<RecipeTensor> tensors_;
  std::set<std::string, std::less<>> names_;
};

}  // namespace lockstep
