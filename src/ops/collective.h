// Collectives as operations, so that they are printed, counted and costed as any other. The sharder states them (shard/shard.h); what they do on
// memory is comm/'s.
//
// A partial sum of a rank is a value [t, p, *]: p, its roots, are the maximal subtrees of the canonical tree inside the leaves that the rank owns
// (formats/segment_tree.h), ascending. In memory they lie [p, t, *], as the matrix kernels leave them. A rank that owns no leaf has no such value.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/segment_tree.h"
#include "ops/operations.h"

namespace lockstep {

// One partial value of a reduction.
struct PartialTerm {
  PartialKind kind = PartialKind::kSum;
  // That each rank of the stage owns, ascending; of a sum: all of its count() together.
  std::vector<LeafRange> leaves;
  SumLeaves sum;  // of a sum
  Shape shape;  // [t, *], of the result

  // Roots that a rank has; of a maximum 1 where the rank owns anything, and then without an axis p.
  int64_t roots(size_t rank) const;
};

// Several partial values at once: [t, p_i, *] of each term i of which this rank has roots -> [t, *], or [t, p, *] with p the terms, which
// lie so in memory.
// A rank without any root takes `tokens` instead, for the number of rows.
class Reduce final : public Operation {
 public:
  // terms: at least one, at most 8, of one shape.
  Reduce(std::vector<PartialTerm> terms, size_t rank);

  const std::vector<PartialTerm>& terms() const { return terms_; }
  size_t rank() const { return rank_; }  // its place in the stage
  // The operand that holds this rank's roots of a term, -1 where it has none.
  int operand_of(size_t term) const { return operand_of_[term]; }

  std::string_view name() const override { return "reduce"; }
  std::string_view rule() const override { return rule_; }
  std::string attributes() const override;
  FactorRule::OwnAxes own_axes() const override { return own_; }
  OperandKind operand(size_t i) const override;
  bool collective() const override { return true; }
  Split split() const override { return terms_.size() == 1 ? Split::kColumns : Split::kOwn; }
  void Run(const StepContext& step) const override;

 private:
  void AddFold(const PartialTerm& term);

  std::vector<PartialTerm> terms_;
  size_t rank_;
  std::vector<int> operand_of_;
  std::vector<std::vector<int32_t>> rank_roots_;  // of each term
  std::vector<std::optional<RootFold>> folds_;    // of each sum
  std::vector<std::vector<RootPlace>> orders_;    // of each sum
  bool empty_ = false;
  std::string rule_;
  FactorRule::OwnAxes own_;
};

// An operation done to each root of a rank's partial sum: operand `sum` and the result are [t, p, *], the operation's own [t, *].
OperationPtr MakeOverRoots(OperationPtr op, size_t sum, int64_t roots);

// One term of a Reduce of several: [t, p, *] -> [t, *].
OperationPtr MakeTerm(int64_t term);

// Columns of a row, counted in numbers.
struct ColumnRun {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const ColumnRun&) const = default;
};

// All ranks' columns side by side: this rank's part of [t, *] -> all of it. A rank that gives nothing takes `tokens` instead.
class Gather final : public Operation {
 public:
  // columns: that each rank of the stage gives, ascending, all of the row together; a rank whose columns another gives has none.
  Gather(std::vector<ColumnRun> columns, size_t rank, const Shape& mine, const Shape& whole);

  const std::vector<ColumnRun>& columns() const { return columns_; }
  bool collective() const override { return true; }

  std::string_view name() const override { return "gather"; }
  std::string_view rule() const override { return rule_; }
  FactorRule::OwnAxes own_axes() const override { return own_; }
  OperandKind operand(size_t i) const override;
  Split split() const override { return Split::kColumns; }
  void Run(const StepContext& step) const override;

 private:
  std::vector<ColumnRun> columns_;
  bool empty_;
  std::string rule_;
  FactorRule::OwnAxes own_;
};

// A rank's own columns of a value that it has whole: [t, *] -> `mine`.
OperationPtr MakeOwnPart(const ColumnRun& columns, const Shape& whole, const Shape& mine);

// Hands a value on to the same place of a later stage, all rows of a batch; the receiving node of that stage has the same tag.
class Send final : public Operation {
 public:
  Send(int32_t to_rank, int32_t tag) : to_rank_(to_rank), tag_(tag) {}
  int32_t to_rank() const { return to_rank_; }
  int32_t tag() const { return tag_; }

  std::string_view name() const override { return "send"; }
  std::string_view rule() const override { return "* ->"; }
  std::string attributes() const override;
  bool writes_state() const override { return true; }
  Split split() const override { return Split::kOwn; }
  void Run(const StepContext& step) const override;

 private:
  int32_t to_rank_, tag_;
};

// tokens -> the value sent.
class Receive final : public Operation {
 public:
  Receive(int32_t from_rank, int32_t tag, const Shape& shape);
  int32_t from_rank() const { return from_rank_; }
  int32_t tag() const { return tag_; }

  std::string_view name() const override { return "receive"; }
  std::string_view rule() const override { return rule_; }
  std::string attributes() const override;
  FactorRule::OwnAxes own_axes() const override { return own_; }
  OperandKind operand(size_t) const override { return OperandKind::kTokens; }
  // All rows come, whoever asks for them.
  bool writes_state() const override { return true; }
  Split split() const override { return Split::kOwn; }
  void Run(const StepContext& step) const override;

 private:
  int32_t from_rank_, tag_;
  std::string rule_;
  FactorRule::OwnAxes own_;
};

}  // namespace lockstep
