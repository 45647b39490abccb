// Weights on their way from a checkpoint to a file: what a tensor's numbers are, made where they are
// asked for, so that no tensor needs to be in memory as a whole.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "formats/format.h"

namespace lockstep {

// A tensor as f32 numbers that are computed on request; cheap to copy. What it was made from must
// outlive it.
class Values {
 public:
  using Dims = std::vector<uint64_t>;  // slowest first
  // Gives the elements [begin, begin + count) in row-major order.
  using Reader = std::function<void(uint64_t begin, uint64_t count, float* out)>;

  // `name`: of the checkpoint, for messages. `own`: the format in which nothing of it is lost.
  Values(std::string name, Dims dims, const Format& own, Reader reader);
  // A small tensor of the converter's own making.
  static Values Of(std::string name, Dims dims, std::vector<float> numbers);

  const std::string& name() const { return name_; }
  const Dims& dims() const { return dims_; }
  const Format& own() const { return *own_; }
  uint64_t size() const;
  void Read(uint64_t begin, uint64_t count, float* out) const { (*reader_)(begin, count, out); }

 private:
  std::string name_;
  Dims dims_;
  const Format* own_;
  std::shared_ptr<const Reader> reader_;
};

// Transforms. Each throws Refused "NAME: expected ..., found ..." where the shape does not fit.

// Entries of one axis, chosen and ordered: entry i of the result is entry index(i) of `values`,
// which must be one.
Values Pick(const Values& values, size_t axis, uint64_t count,
            std::function<uint64_t(uint64_t)> index);
// Entries begin, begin + step, ... of an axis.
Values Slice(const Values& values, size_t axis, uint64_t begin, uint64_t count, uint64_t step = 1);
// The `part`-th of `parts` equal runs of an axis: the gate is Part(v, 0, 0, 2) of [gate; up].
Values Part(const Values& values, size_t axis, uint64_t part, uint64_t parts);
// Rows of each head from two halves to neighbouring pairs: checkpoints of transformers rotate
// element i with i + half, files of the llama family i with i + 1. Axis 0 is [heads * head_dim].
Values PairHalves(const Values& values, int64_t heads);
// The same for the last `n_rot` rows of each head only, those before stay.
Values PairLastHalves(const Values& values, int64_t heads, int64_t n_rot);
// Swaps the last two axes.
Values Transpose(const Values& values);
// The same numbers in the same order.
Values Reshape(const Values& values, Values::Dims dims);
// Tensors of one shape behind each other on an axis of their own, the slowest.
Values Stack(const std::vector<Values>& parts);
// Tensors behind each other on their slowest axis.
Values Concat(const std::vector<Values>& parts);
// Every number through a function; the format becomes F32 as the results need not fit another.
Values Map(const Values& values, std::function<float(float)> function);

}  // namespace lockstep
