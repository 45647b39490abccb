// Importance matrices: for each matrix of a model the mean square of what each of its columns is
// multiplied by, over some text. Quantising with them spends precision where it counts.
//
// Files are llama.cpp's: GGUF with tensors NAME.in_sum2 [n, experts] and NAME.counts [1, experts],
// both f32, or its older binary format, which is read only.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Of one matrix, or of a stack of them, one an expert.
struct ImatrixEntry {
  std::vector<double> sums;    // [experts, n] of squares
  std::vector<double> counts;  // [experts] rows that were summed

  uint64_t width() const { return counts.empty() ? 0 : sums.size() / counts.size(); }
};

class Imatrix {
 public:
  // Reads a file of either format. Refused naming file and entry where it is damaged, empty, or
  // holds numbers that are negative or not finite.
  static Imatrix Read(const std::string& path);
  // Writes the GGUF form; entries by ascending name. The file appears whole or not at all.
  void Write(const std::string& path) const;

  // Adds another one's sums and counts. Refused where an entry has another shape there.
  void Merge(const Imatrix& other, std::string_view who);

  // The entry of a matrix; made with zeros at the first call, of the given shape.
  ImatrixEntry& Add(std::string_view name, uint64_t experts, uint64_t n);
  const ImatrixEntry* Find(std::string_view name) const;
  // Drops the entries for which `drop(name)`.
  template <typename Predicate>
  void DropIf(Predicate drop) {
    std::erase_if(entries_, [&](const auto& entry) { return drop(std::string_view(entry.first)); });
  }
  const std::map<std::string, ImatrixEntry, std::less<>>& entries() const { return entries_; }

  // The means that Format::fit takes. [experts, n]; experts of which no row was seen have ones.
  static std::vector<float> Means(const ImatrixEntry& entry);

  // Of what it was computed: names of texts, pieces of them, and tokens in a piece.
  std::vector<std::string> datasets;
  uint32_t chunks = 0;
  uint32_t chunk_tokens = 512;

 private:
  static Imatrix ReadGguf(const std::string& path);
  static Imatrix ReadOld(const std::string& path);

  std::map<std::string, ImatrixEntry, std::less<>> entries_;
};

}  // namespace lockstep
