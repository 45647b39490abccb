// What every architecture states its graph with: weights by llama.cpp's names, norms, projections, ropes. Larger pieces stand in files
// of their own (attention.h, feed_forward.h ...) and take a Parts.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "models/source.h"

namespace lockstep {

struct NormSpec {
  enum class Kind { kRms, kLayer };  // kLayer: mean and variance, a bias where the file has one
  Kind kind = Kind::kRms;
  float eps = 1e-5f;
};

struct RopeSpec {
  RopeOptions options;
  RopePairing pairing = RopePairing::kHalves;
  RopePlaces places = {};
};

// A weight of the layer at hand that may be a run of rows of a fused tensor, or many runs where heads are woven (WeightSource).
struct Fused {
  std::string_view tensor = {};  // "attn_qkv"; empty: never fused
  int64_t row = 0;               // first of the weight's rows in it
  int64_t rows = 0;              // of the whole tensor
  int64_t run_rows = 0;          // of each of several runs, 0: one run
  int64_t run_stride = 0;
};

class Parts {
 public:
  // width: of the model; states: of the graph beside which this one runs. The source must outlive the parts.
  Parts(const ModelSource& source, int64_t width, int64_t vocab, const NormSpec& norm, std::vector<StateSpec> states = {});

  const ModelSource& source() const { return source_; }
  GraphBuilder& build() { return build_; }
  const NormSpec& norm() const { return norm_; }

  // The first position of which this graph's layers cache something; sequences have no rows before it.
  void SetFirstPosition(int64_t position) { first_position_ = position; }
  int64_t first_position() const { return first_position_; }

  Axis Width() const { return {'k', width_, width_}; }
  Axis Vocab() const { return {'v', vocab_, 1}; }

  // "blk.3.attn_q.weight" of the layer at hand, and whether the file has it.
  std::string Tensor(std::string_view name, std::string_view kind = "weight") const;
  // "blk.3.ssm_a": of the few tensors that are no one's weight or bias.
  std::string BareTensor(std::string_view name) const;
  bool Has(std::string_view name, std::string_view kind = "weight") const { return source_.HasTensor(Tensor(name, kind)); }

  // Angles of a rope, for all layers; the index that layers name it by. Must be called outside layers.
  size_t AddRope(const RopeSpec& rope);
  const RopeSpec& rope(size_t i) const { return ropes_[i]; }
  ValueId angles(size_t i) const { return angles_[i]; }

  // Operations whose attributes come from the file's keys; what they refuse names the file.
  ValueId Apply(std::string_view name, OperationPtr op, std::vector<ValueId> inputs) {
    return build_.Apply(name, std::move(op), std::move(inputs));
  }
  // x * factor, x itself for 1.
  ValueId Scale(std::string_view name, ValueId x, float factor);
  // The norm of x's last axes, named by the layer's tensor. axes: those of the norm's weight.
  ValueId Norm(std::string_view name, ValueId x, std::string_view tensor, const Shape& axes);
  ValueId Norm(std::string_view name, ValueId x, std::string_view tensor) { return Norm(name, x, tensor, {Width()}); }
  ValueId Norm(std::string_view name, ValueId x, std::string_view tensor, const Shape& axes, const NormSpec& norm);

  // The norm of x's last axis, without a weight.
  ValueId PlainNorm(std::string_view name, ValueId x);

  // Heads of d numbers as the cache holds them where the run rotates its keys or values (ModelOptions), or back again, as the rotation is its own
  // inverse; else x itself. Queries go with keys, what attention gives with values; where a cached key has its value in it both are keys.
  ValueId RotatedKeys(std::string_view name, ValueId x, int64_t d) {
    return Rotated(name, x, d, source_.options().rotate_keys);
  }
  ValueId RotatedValues(std::string_view name, ValueId x, int64_t d) {
    return Rotated(name, x, d, source_.options().rotate_values);
  }

  // The K of a layer's cache, V being the value behind it, for layers that see another's.
  void SetKv(ValueId state) { kv_[build_.layer()] = state; }
  ValueId kv(int32_t layer) const { return kv_.at(layer); }

  // A projection of x [t, k] to `axes`, from the layer's `tensor` or from the rows of a fused one, with its bias where the file has one.
  // Without a name of its own (empty) the weight is always in the fused tensor.
  ValueId Project(std::string_view name, ValueId x, std::string_view tensor, const std::vector<Axis>& axes, const Fused& fused = {});
  // A projection of x [t, axes] back to the model's width. A plan may cut the axes at multiples of `unit` (numbers, 0: it may not).
  ValueId ProjectBack(std::string_view name, ValueId x, std::string_view tensor, const std::vector<Axis>& axes, int64_t unit);

 private:
  ValueId Rotated(std::string_view name, ValueId x, int64_t d, bool rotates);

  const ModelSource& source_;
  int64_t width_, vocab_;
  NormSpec norm_;
  GraphBuilder build_;
  std::vector<RopeSpec> ropes_;
  std::vector<ValueId> angles_;
  std::map<int32_t, ValueId> kv_;
  int64_t first_position_ = 0;
};

}  // namespace lockstep
