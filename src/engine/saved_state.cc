#include "engine/saved_state.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "base/checked.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/progress.h"

namespace lockstep {
namespace {

// Changes where what is cached of a text changes: a reference, a layout of pages, this file's form.
constexpr const char* kVersion = "1";

class Hash {
 public:
  Hash() : state_(XXH3_createState(), XXH3_freeState) { XXH3_128bits_reset(state_.get()); }
  void Add(std::span<const std::byte> bytes) {
    XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
  }
  std::array<std::byte, 16> Digest() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
    std::array<std::byte, 16> digest;
    std::memcpy(digest.data(), canonical.digest, digest.size());
    return digest;
  }

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

// What a state belongs to.
std::map<std::string, std::string> MetadataOf(const Model& model) {
  const ModelOptions& graph = model.graph_options();
  return {{"format", "lockstep state"},
          {"version", kVersion},
          {"architecture", model.graph().name},
          {"model", FileIdentity(model.file())},
          {"cache-type-k", std::string(model.kv_types().k->name)},
          {"cache-type-v", std::string(model.kv_types().v->name)},
          {"kv-rotate", fmt::format("{} {}", graph.rotate_keys, graph.rotate_values)}};
}

std::vector<uint64_t> PagesOf(const StateField& field, int64_t pages) {
  std::vector<uint64_t> shape = {static_cast<uint64_t>(pages)};
  shape.insert(shape.end(), field.dims.begin(), field.dims.end());
  return shape;
}

std::span<const std::byte> Bytes(std::span<const std::byte> bytes, int64_t begin, int64_t size) {
  return bytes.subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
}

}  // namespace

SavedState::SavedState(const std::string& path, const Model& model)
    : file_(Safetensors::Open(path)) {
  CheckMetadata(model);
  CheckTensors(model);
  CheckHash();
}

void SavedState::CheckMetadata(const Model& model) const {
  for (const auto& [key, expected] : MetadataOf(model)) {
    const auto at = file_.metadata().find(key);
    const std::string found = at == file_.metadata().end() ? "none" : at->second;
    if (found != expected) {
      throw Refused("{}: {}: expected {}, found {}", Printable(file_.name(), 4096), key, expected,
                    Printable(found));
    }
  }
}

const SafetensorsTensor& SavedState::Expect(std::string_view name, std::string_view type,
                                            const std::vector<uint64_t>& shape) const {
  const SafetensorsTensor& tensor = file_.Require(name);
  if (tensor.type->name != type || tensor.shape != shape) {
    throw Refused("{}: {}: expected {} [{}], found {} [{}]", Printable(file_.name(), 4096), name,
                  type, fmt::join(shape, ", "), tensor.type->name, fmt::join(tensor.shape, ", "));
  }
  return tensor;
}

void SavedState::CheckTensors(const Model& model) {
  const SafetensorsTensor& tokens = file_.Require("tokens");
  Expect("tokens", "I32", {tokens.data.size() / sizeof(int32_t)});
  tokens_.resize(tokens.data.size() / sizeof(int32_t));
  std::ranges::copy(tokens.data, std::as_writable_bytes(std::span(tokens_)).begin());
  if (std::ssize(tokens_) > model.context()) {
    throw Refused("{}: tokens: expected at most {}, the context, found {}; --ctx-size makes room",
                  Printable(file_.name(), 4096), model.context(), tokens_.size());
  }
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i] >= 0 && tokens_[i] < model.vocab()) continue;
    throw Refused("{}: tokens: expected ids below {}, found {} at {}",
                  Printable(file_.name(), 4096), model.vocab(), tokens_[i], i);
  }
  const StateImages& images = model.ranks().images();
  // All fields have as many pages as the first.
  const SafetensorsTensor* first =
      images.page_fields().empty() ? nullptr : &file_.Require(images.page_fields()[0].name);
  const uint64_t pages = first == nullptr || first->shape.empty() ? 0 : first->shape[0];
  if (pages > tokens_.size() / kPageTokens) {
    throw Refused("{}: expected at most {} pages of {} tokens, found {}",
                  Printable(file_.name(), 4096), tokens_.size() / kPageTokens, tokens_.size(),
                  pages);
  }
  pages_ = static_cast<int64_t>(pages);
  for (const StateField& field : images.page_fields()) {
    page_fields_.push_back({&Expect(field.name, "U8", PagesOf(field, pages_)), field.bytes});
  }
  for (const StateField& field : images.recurrent_fields()) {
    if (pages_ > 0)
      recurrent_fields_.push_back({&Expect(field.name, "F32", field.dims), field.bytes});
  }
  Expect("hash", "U8", {16});
  // Beside tokens and hash.
  const size_t expected = 2 + page_fields_.size() + recurrent_fields_.size();
  if (file_.tensors().size() != expected) {
    throw Refused("{}: expected {} tensors, found {}", Printable(file_.name(), 4096), expected,
                  file_.tensors().size());
  }
}

void SavedState::CheckHash() const {
  Hash hash;
  hash.Add(std::as_bytes(std::span(tokens_)));
  for (int64_t page = 0; page < pages_; ++page) {
    ThrowIfInterrupted();
    hash.Add(Page(page));
  }
  hash.Add(Recurrent());
  const std::array<std::byte, 16> digest = hash.Digest();
  if (!std::ranges::equal(file_.Require("hash").data, digest)) {
    throw Refused("{}: hash: expected that of the data, found another: the file is damaged",
                  Printable(file_.name(), 4096));
  }
}

std::vector<std::byte> SavedState::Page(int64_t page) const {
  std::vector<std::byte> image;
  for (const Field& field : page_fields_) {
    const auto bytes = Bytes(field.tensor->data, page * field.bytes, field.bytes);
    image.insert(image.end(), bytes.begin(), bytes.end());
  }
  return image;
}

std::vector<std::byte> SavedState::Recurrent() const {
  std::vector<std::byte> image;
  for (const Field& field : recurrent_fields_)
    image.insert(image.end(), field.tensor->data.begin(), field.tensor->data.end());
  return image;
}

void SavedState::PutPage(int64_t page, RankSet& ranks, int64_t to) const {
  std::vector<std::byte> image = Page(page);
  ranks.MoveStates(RankSet::StateMove::kWritePage, to, image);
}

void SavedState::PutRecurrent(RankSet& ranks, int64_t to) const {
  std::vector<std::byte> image = Recurrent();
  ranks.MoveStates(RankSet::StateMove::kWriteSnapshot, to, image);
}

void WriteSavedState(const std::string& path, Model& model, std::span<const int32_t> tokens,
                     std::span<const int32_t> pages, int64_t snapshot) {
  RankSet& ranks = model.ranks();
  const StateImages& images = ranks.images();
  const bool recurrent = !images.recurrent_fields().empty() && !pages.empty();
  std::vector<SafetensorsPlan> plan = {{"tokens", "I32", {tokens.size()}}};
  for (const StateField& field : images.page_fields())
    plan.push_back({field.name, "U8", PagesOf(field, std::ssize(pages))});
  const size_t first_recurrent = plan.size();
  for (const StateField& field : images.recurrent_fields()) {
    if (recurrent) plan.push_back({field.name, "F32", field.dims});
  }
  plan.push_back({"hash", "U8", {16}});

  SafetensorsWriter writer(path, plan, MetadataOf(model));
  Hash hash;
  writer.Append(0, std::as_bytes(tokens));
  hash.Add(std::as_bytes(tokens));
  std::vector<std::byte> image(static_cast<size_t>(images.page_bytes()));
  Progress bar("saving", static_cast<uint64_t>(std::ssize(pages) * images.page_bytes()),
               {.unit = ProgressUnit::kBytes});
  for (size_t page = 0; page < pages.size(); ++page) {
    ThrowIfInterrupted();
    ranks.MoveStates(RankSet::StateMove::kReadPage, pages[page], image);
    images.ClearUnwritten(static_cast<int64_t>(page), image);
    hash.Add(image);
    for (size_t i = 0; i < images.page_fields().size(); ++i) {
      const StateField& field = images.page_fields()[i];
      writer.Append(1 + i, Bytes(image, field.begin, field.bytes));
    }
    bar.Add(image.size());
  }
  if (recurrent) {
    image.resize(static_cast<size_t>(images.recurrent_bytes()));
    ranks.MoveStates(RankSet::StateMove::kReadSnapshot, snapshot, image);
    hash.Add(image);
    for (size_t i = 0; i < images.recurrent_fields().size(); ++i) {
      const StateField& field = images.recurrent_fields()[i];
      writer.Append(first_recurrent + i, Bytes(image, field.begin, field.bytes));
    }
  }
  writer.Append(plan.size() - 1, hash.Digest());
  writer.Commit();
}

}  // namespace lockstep
