// Tensor types: what a type id in a GGUF file means in bytes. formats/ knows what it means in
// numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

// One tensor type. A row of n elements takes n / block * block_bytes bytes, and n must be a
// multiple of `block`. Ids, names and sizes: ggml's type enumeration (ids 4, 5, 31-33 and 36-38
// were withdrawn and stay unknown).
struct TensorType {
  uint32_t id;
  std::string_view name;  // as llama.cpp spells it, upper case: "Q4_K"
  uint32_t block;         // elements in a block
  uint32_t block_bytes;
};

// All types, by ascending id.
std::span<const TensorType> AllTensorTypes();
// The type with this id, or null.
const TensorType* FindTensorType(uint32_t id);

}  // namespace lockstep
