// The hyper-parameters of a checkpoint: config.json in every spelling that releases use.
#pragma once

#include <boost/json.hpp>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_json_node.h"

namespace lockstep {

// The spellings of one key, the newest first.
class KeyNames {
 public:
  KeyNames(const char* name) : names_{name} {}                                // NOLINT
  KeyNames(std::initializer_list<std::string_view> names) : names_(names) {}  // NOLINT
  std::string_view newest() const { return names_.front(); }
  auto begin() const { return names_.begin(); }
  auto end() const { return names_.end(); }

 private:
  std::vector<std::string_view> names_;
};

// One set of hyper-parameters. A key with the value null counts as absent. Getters throw Refused
// "FILE: KEY: expected ..., found ..." naming the newest spelling where a key is needed and absent,
// the spelling found where its value does not fit.
class Config {
 public:
  // `file`: for messages. The members of a "text_config" stand before those around it.
  static Config Parse(std::string_view file, std::string_view text);
  Config(std::string file, boost::json::object members);

  // The same with members of `defaults`, a JSON object, where keys are absent.
  Config WithDefaults(std::string_view defaults) const;

  const boost::json::object& members() const { return *members_; }
  bool Has(const KeyNames& names) const { return Find(names).has_value(); }
  std::optional<JsonNode> Find(const KeyNames& names) const;
  JsonNode At(const KeyNames& names) const;

  // Sizes and counts: 0 to 2^31.
  int64_t Count(const KeyNames& names) const;
  std::optional<int64_t> OptionalCount(const KeyNames& names) const;
  int64_t CountOr(const KeyNames& names, int64_t otherwise) const;
  // Finite numbers.
  double Number(const KeyNames& names) const;
  std::optional<double> OptionalNumber(const KeyNames& names) const;
  double NumberOr(const KeyNames& names, double otherwise) const;
  bool BoolOr(const KeyNames& names, bool otherwise) const;
  std::string String(const KeyNames& names) const;
  std::string StringOr(const KeyNames& names, std::string_view otherwise) const;
  // Lists; empty where the key is absent.
  std::vector<int64_t> Counts(const KeyNames& names) const;
  std::vector<double> Numbers(const KeyNames& names) const;
  std::vector<std::string> Strings(const KeyNames& names) const;

  // Layers, and the width of a head (head_dim, or width over heads).
  int64_t layers() const { return Count("num_hidden_layers"); }
  int64_t head_dim() const;
  // Whether layer i sees a window only, from "layer_types"; [layers], all false without that key.
  std::vector<bool> WindowedLayers() const;

  // Rotary parameters as transformers 5 spells them: rope_type, rope_theta, factor,
  // partial_rotary_factor ..., from "rope_parameters" (of that kind of layer where kinds have their
  // own), or from the older flat keys "rope_theta", "rope_scaling" and "partial_rotary_factor".
  Config Rope(std::string_view kind = "full_attention") const;

  // Throws Refused "FILE: KEY: text".
  [[noreturn]] void Refuse(std::string_view key, std::string_view text) const;

 private:
  std::string path_;  // "config.json: "
  std::shared_ptr<const boost::json::object> members_;
};

}  // namespace lockstep
