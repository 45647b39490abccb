// A file of what is cached of one text: its tokens, whole pages of K and V, and recurrent states at their end, in the order of the model and of no
// plan. What is cached follows from the tokens alone, so a state saved on some ranks loads on any others.
//
// A safetensors file (docs/formats.md): tokens I32 [t]; of each state NAME.k and NAME.v U8 [pages, g, bytes of a head], or its numbers F32; hash U8 [16],
// XXH3-128 of all that in this order, page by page; and in __metadata__ what it belongs to.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/model.h"
#include "gguf/safetensors.h"

namespace lockstep {

class SavedState {
 public:
  // Opens and checks a file whole. Throws Refused where it is damaged, or of another model, cache type or
  // version, or has more tokens than the context has room for, or ids that are no tokens.
  SavedState(const std::string& path, const Model& model);

  const std::vector<int32_t>& tokens() const { return tokens_; }
  // Whole pages that are cached of the tokens, from the first on.
  int64_t pages() const { return pages_; }
  // Puts a page, or the recurrent states behind the last one, into a page or a snapshot of the pools of all ranks.
  void PutPage(int64_t page, RankSet& ranks, int64_t to) const;
  void PutRecurrent(RankSet& ranks, int64_t to) const;

 private:
  const SafetensorsTensor& Expect(std::string_view name, std::string_view type,
                                  const std::vector<uint64_t>& shape) const;
  void CheckMetadata(const Model& model) const;
  void CheckTensors(const Model& model);
  void CheckHash() const;
  // As images (exec/state_image.h).
  std::vector<std::byte> Page(int64_t page) const;
  std::vector<std::byte> Recurrent() const;

  const Safetensors file_;
  std::vector<int32_t> tokens_;
  int64_t pages_ = 0;
  struct Field {
    const SafetensorsTensor* tensor;
    int64_t bytes;  // in an image, one field behind the other
  };
  std::vector<Field> page_fields_, recurrent_fields_;
};

// Writes a file, whole or not at all. pages: of the first tokens; snapshot: of recurrent states behind them, where the model has some and pages is
// not empty. Throws Failed where it cannot be written.
void WriteSavedState(const std::string& path, Model& model, std::span<const int32_t> tokens,
                     std::span<const int32_t> pages, int64_t snapshot);

}  // namespace lockstep
