// What a sequence keeps, as bytes in which no plan has a part: a page of K and V, or recurrent states, of the whole model. Ranks give and take runs
// of such an image, those of the heads and axes that they have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "exec/kv_pool.h"

namespace lockstep {

// One state's part of an image.
struct StateField {
  std::string name;  // "blk.3.kv.k"; of a recurrent state its name
  std::vector<uint64_t>
      dims;  // K, V: KV heads and bytes of one; of a recurrent state its f32 numbers
  int64_t begin = 0, bytes = 0;
  int64_t pool = 1;  // K, V: positions of an entry
};

// Bytes of an image that lie together on a rank.
struct StateRun {
  int64_t image = 0;   // where they begin in the image
  int32_t slot = 0;    // of the rank's states
  bool value = false;  // V, not K
  int64_t local = 0;   // where they begin in what the rank has of it
  int64_t bytes = 0;
};

class StateImages {
 public:
  // states: of the whole graph.
  StateImages(const std::vector<StateSpec>& states, const KvTypes& types);

  // Of a page, and of a snapshot of recurrent states.
  const std::vector<StateField>& page_fields() const { return page_fields_; }
  const std::vector<StateField>& recurrent_fields() const { return recurrent_fields_; }
  int64_t page_bytes() const { return BytesOf(page_fields_); }
  int64_t recurrent_bytes() const { return BytesOf(recurrent_fields_); }

  // The runs that a rank with this graph has, ascending.
  std::vector<StateRun> PageRuns(const Graph& rank) const;
  std::vector<StateRun> RecurrentRuns(const Graph& rank) const;

  // Clears what nothing was written to in the page with this number in its sequence: entries of pools that end in a later page.
  void ClearUnwritten(int64_t page, std::span<std::byte> image) const;

 private:
  static int64_t BytesOf(const std::vector<StateField>& fields) {
    return fields.empty() ? 0 : fields.back().begin + fields.back().bytes;
  }
  const StateField* Find(const std::vector<StateField>& fields, const std::string& name) const;

  KvTypes types_;
  std::vector<StateField> page_fields_, recurrent_fields_;
};

}  // namespace lockstep
