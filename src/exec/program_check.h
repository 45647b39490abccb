// A second opinion on programs, for tests: what a program must keep, worked out anew from the graph, the splits and the barriers.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "exec/program.h"

namespace lockstep::test {

// A program with its parts open, so that a test can break them.
struct OpenProgram {
  OpenProgram(const Graph& of, const Program& program, std::function<bool(ValueId)> takes_codes)
      : graph(of),
        steps(program.steps()),
        slots(program.slots()),
        options(program.options()),
        arena_bytes(program.arena_bytes()),
        codes(std::move(takes_codes)) {
    results.push_back(program.result(of.logits));
    if (!options.hidden) return;
    for (ValueId id : of.hidden) results.push_back(program.result(id));
    results.push_back(program.result(of.final_hidden));
  }

  const Graph& graph;
  std::vector<Step> steps;
  std::vector<Slot> slots;
  ProgramOptions options;
  int64_t arena_bytes;
  std::function<bool(ValueId)> codes;
  std::vector<int32_t> results;  // slots
};

class ProgramCheck {
 public:
  explicit ProgramCheck(const OpenProgram& program) : p_(program) {}

  // The first promise that the program breaks, empty where it keeps all.
  std::string Fault() {
    for (auto check : {&ProgramCheck::Order, &ProgramCheck::Operands, &ProgramCheck::Nodes,
                       &ProgramCheck::RowSets, &ProgramCheck::Barriers, &ProgramCheck::States,
                       &ProgramCheck::Meetings, &ProgramCheck::Memory}) {
      if (std::string fault = (this->*check)(); !fault.empty()) return fault;
    }
    return "";
  }

 private:
  // A rectangle of rows and columns of a slot.
  struct Region {
    WorkRange rows, columns;
    bool empty() const { return rows.size() == 0 || columns.size() == 0; }
    bool Has(const Region& other) const {
      return other.empty() ||
             (rows.begin <= other.rows.begin && other.rows.end <= rows.end &&
              columns.begin <= other.columns.begin && other.columns.end <= columns.end);
    }
  };

  const Slot& SlotAt(int32_t i) const { return p_.slots[static_cast<size_t>(i)]; }
  static bool Selects(const Step& step) { return step.op->name() == "select_rows"; }
  static bool Encodes(const Step& step) { return step.op->name() == "quantize"; }

  // Every slot is written once, before it is read; results are written. Fills in writers_ and phases_.
  std::string Order() {
    writer_.assign(p_.slots.size(), -1);
    int32_t phase = 0;
    for (size_t i = 0; i < p_.steps.size(); ++i) {
      const Step& step = p_.steps[i];
      phase += step.barrier;
      phase_.push_back(phase);
      for (int32_t slot : step.in) {
        if (slot >= 0 && writer_[static_cast<size_t>(slot)] < 0)
          return fmt::format("{}: reads what is not written yet", step.name);
      }
      if (step.out < 0) continue;
      int32_t& writer = writer_[static_cast<size_t>(step.out)];
      if (writer >= 0) return fmt::format("{}: writes a slot again", step.name);
      writer = static_cast<int32_t>(i);
    }
    for (int32_t slot : p_.results) {
      if (slot < 0 || writer_[static_cast<size_t>(slot)] < 0) return "a result is never written";
      if (SlotAt(slot).quantized || SlotAt(slot).rows != RowSet::kOutputs)
        return "a result in the wrong form";
    }
    return "";
  }

  // Operands are the graph's, in the form that the operation reads.
  std::string Operands() {
    for (const Step& step : p_.steps) {
      for (size_t i = 0; i < step.in_values.size(); ++i) {
        const Value& value = p_.graph.value(step.in_values[i]);
        if ((value.kind == Value::Kind::kComputed) != (step.in[i] >= 0))
          return fmt::format("{}: operand {} has no slot", step.name, i);
        if (step.in[i] < 0) continue;
        if (SlotAt(step.in[i]).value != step.in_values[i])
          return fmt::format("{}: operand {} is another value", step.name, i);
        bool wants_codes = false;
        for (size_t weight : step.op->multiplied_by(i))
          wants_codes |= p_.codes(step.in_values[weight]);
        if (SlotAt(step.in[i]).quantized != wants_codes)
          return fmt::format("{}: operand in the wrong form", step.name);
      }
      if (step.out >= 0 && SlotAt(step.out).quantized != Encodes(step))
        return fmt::format("{}: result in the wrong form", step.name);
    }
    return "";
  }

  // Every node that a result or a state needs is there once, with the graph's own operands, and no other.
  std::string Nodes() {
    std::set<ValueId> needed;
    for (int32_t slot : p_.results) needed.insert(SlotAt(slot).value);
    std::set<const Node*> nodes;
    for (auto node = p_.graph.nodes.rbegin(); node != p_.graph.nodes.rend(); ++node) {
      if (!node->op->writes_state() && !needed.contains(node->output)) continue;
      nodes.insert(&*node);
      needed.insert(node->inputs.begin(), node->inputs.end());
    }
    for (const Step& step : p_.steps) {
      if (Selects(step) || Encodes(step)) {
        if (SlotAt(step.out).value != step.in_values[0])
          return fmt::format("{}: makes another value", step.name);
        continue;
      }
      const ValueId output = step.out < 0 ? kNoValue : SlotAt(step.out).value;
      auto found = std::ranges::find_if(nodes, [&](const Node* node) {
        return node->op == step.op && node->inputs == step.in_values && node->output == output;
      });
      if (found == nodes.end())
        return fmt::format("{}: no node that is needed, or one that was computed before",
                           step.name);
      nodes.erase(found);
    }
    return nodes.empty() ? ""
                         : fmt::format("{} nodes that are needed are not computed", nodes.size());
  }

  // All rows of a value are computed where a state needs them, and else only those asked for.
  std::string RowSets() {
    std::set<ValueId> all;
    for (auto node = p_.graph.nodes.rbegin(); node != p_.graph.nodes.rend(); ++node) {
      if (node->op->writes_state() || all.contains(node->output))
        all.insert(node->inputs.begin(), node->inputs.end());
    }
    for (const Step& step : p_.steps) {
      const RowSet in_rows = Selects(step) ? RowSet::kAll : step.rows;
      for (int32_t slot : step.in) {
        if (slot >= 0 && SlotAt(slot).rows != in_rows)
          return fmt::format("{}: reads rows that were left behind or are too many", step.name);
      }
      if (step.out >= 0 && SlotAt(step.out).rows != step.rows)
        return fmt::format("{}: writes other rows than it computes", step.name);
      if (Selects(step)   ? step.rows != RowSet::kOutputs
          : Encodes(step) ? false
                          : (step.rows == RowSet::kAll) != NeedsAll(step, all)) {
        return fmt::format("{}: computes the wrong rows", step.name);
      }
    }
    return "";
  }
  bool NeedsAll(const Step& step, const std::set<ValueId>& all) const {
    return step.op->writes_state() || all.contains(SlotAt(step.out).value);
  }

  // What a member reads of an operand. Where the operation does not say, that is all of it.
  static Region Read(const Step& step, const Slot& slot, int64_t out_width, int64_t rows,
                     int member, int members) {
    const Region all = {{0, rows}, {0, slot.width}};
    switch (step.op->split()) {
      case Split::kTokens:
        return {ShareOf(rows, 1, member, members), all.columns};
      case Split::kEither:
        if (step.split == Split::kTokens) return {ShareOf(rows, 1, member, members), all.columns};
        return slot.width == out_width
                   ? Region{all.rows, ShareOf(slot.width, kColumnUnit, member, members)}
                   : all;
      default:
        return all;
    }
  }
  // What a member surely writes of its step's result.
  static Region Written(const Step& step, int64_t width, int64_t rows, int member, int members) {
    switch (step.split) {
      case Split::kTokens:
        return {ShareOf(rows, 1, member, members), {0, width}};
      case Split::kColumns:
        return {{0, rows}, ShareOf(width, kColumnUnit, member, members)};
      default:
        return {};
    }
  }

  // Between a write and a read of another member there is a barrier.
  std::string Barriers() {
    for (size_t i = 0; i < p_.steps.size(); ++i) {
      const Step& step = p_.steps[i];
      const bool either = step.op->split() == Split::kEither;
      if (either ? step.split != Split::kTokens && step.split != Split::kColumns
                 : step.split != step.op->split()) {
        return fmt::format("{}: split in a way that its operation does not know", step.name);
      }
      for (int32_t slot : step.in) {
        if (slot < 0) continue;
        const auto writer = static_cast<size_t>(writer_[static_cast<size_t>(slot)]);
        if (phase_[writer] == phase_[i] && !OwnPart(p_.steps[writer], step, SlotAt(slot))) {
          return fmt::format("{}: reads what another thread wrote in {} without a barrier",
                             step.name, p_.steps[writer].name);
        }
      }
    }
    return "";
  }
  bool OwnPart(const Step& writer, const Step& reader, const Slot& slot) const {
    if (writer.rows != reader.rows) return false;
    const int64_t out_width = reader.out < 0 ? 0 : SlotAt(reader.out).width;
    for (int members : {2, 3, 5}) {
      for (int64_t rows : {1, 3, 8}) {
        for (int member = 0; member < members; ++member) {
          const Region written = Written(writer, slot.width, rows, member, members);
          if (!written.Has(Read(reader, slot, out_width, rows, member, members))) return false;
        }
      }
    }
    return true;
  }

  // Steps that use the memory of the team stand in different phases.
  std::string Meetings() {
    int32_t last = -1;
    for (size_t i = 0; i < p_.steps.size(); ++i) {
      if (!p_.steps[i].op->meets()) continue;
      if (phase_[i] == last)
        return fmt::format("{}: takes the team's memory while it may be read", p_.steps[i].name);
      last = phase_[i];
    }
    return "";
  }

  // A state is read behind a barrier after its rows were appended.
  std::string States() {
    std::map<int32_t, int32_t> appended;  // phase by state
    for (size_t i = 0; i < p_.steps.size(); ++i) {
      const Step& step = p_.steps[i];
      for (ValueId id : step.in_values) {
        const Value& value = p_.graph.value(id);
        if (value.kind != Value::Kind::kState) continue;
        auto at = appended.find(value.state_slot);
        if (step.op->writes_state()) {
          appended[value.state_slot] = phase_[i];
        } else if (at == appended.end() || at->second == phase_[i]) {
          return fmt::format("{}: reads a state without a barrier after it was written", step.name);
        }
      }
    }
    return "";
  }

  // Slots that share memory live in different phases: what one member still reads, another does not overwrite.
  std::string Memory() {
    std::vector<int32_t> last(p_.slots.size(), -1);
    for (size_t i = 0; i < p_.steps.size(); ++i) {
      for (int32_t slot : p_.steps[i].in) {
        if (slot >= 0) last[static_cast<size_t>(slot)] = phase_[i];
      }
      if (p_.steps[i].out >= 0) last[static_cast<size_t>(p_.steps[i].out)] = phase_[i];
    }
    for (int32_t slot : p_.results) last[static_cast<size_t>(slot)] = INT32_MAX;
    for (size_t a = 0; a < p_.slots.size(); ++a) {
      const Slot& slot = p_.slots[a];
      if (slot.offset < 0 || slot.offset % 64 != 0 || slot.offset + Bytes(slot) > p_.arena_bytes) {
        return fmt::format("slot {} of {} does not lie in the arena", a,
                           p_.graph.value(slot.value).name);
      }
      for (size_t b = 0; b < a; ++b) {
        const Slot& other = p_.slots[b];
        if (slot.offset >= other.offset + Bytes(other) || other.offset >= slot.offset + Bytes(slot))
          continue;
        const int32_t from_a = phase_[static_cast<size_t>(writer_[a])],
                      from_b = phase_[static_cast<size_t>(writer_[b])];
        if (last[a] < from_b || last[b] < from_a) continue;
        return fmt::format("{} and {} share memory while both live",
                           p_.graph.value(slot.value).name, p_.graph.value(other.value).name);
      }
    }
    return "";
  }
  // 4 bytes a number; in codes a byte a number and 7 numbers of 4 bytes a block, as formats/gemm.h lists them.
  int64_t Bytes(const Slot& slot) const {
    const int64_t rows = slot.rows == RowSet::kAll ? p_.options.max_tokens : p_.options.max_outputs;
    return rows * (slot.quantized ? slot.width + (slot.width + 31) / 32 * 28 : slot.width * 4);
  }

  const OpenProgram& p_;
  std::vector<int32_t> writer_;  // step, of each slot
  std::vector<int32_t> phase_;   // barriers passed, of each step
};

}  // namespace lockstep::test
