#include "convert/sentencepiece.h"

#include <cstring>

#include "base/error.h"

namespace lockstep {
namespace {

// One field of a protocol buffer message: a number (varint or fixed), or bytes.
struct Field {
  uint64_t id = 0;
  uint64_t number = 0;
  std::string_view bytes;
  bool is_bytes = false;

  int32_t Integer() const { return static_cast<int32_t>(number); }
  float Float() const {
    const auto bits = static_cast<uint32_t>(number);
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
};

// Walks the fields of one message.
class Message {
 public:
  Message(std::string_view who, std::string_view bytes) : who_(who), bytes_(bytes) {}

  bool Next(Field* field) {
    if (at_ == bytes_.size()) return false;
    const uint64_t tag = Varint();
    *field = {.id = tag >> 3};
    switch (tag & 7) {
      case 0:
        field->number = Varint();
        break;
      case 1:
        field->number = Fixed(8);
        break;
      case 2:
        field->bytes = Take(Varint());
        field->is_bytes = true;
        break;
      case 5:
        field->number = Fixed(4);
        break;
      default:
        Refuse("a field");
    }
    return true;
  }
  Message Inner(const Field& field) const {
    if (!field.is_bytes) Refuse("a message");
    return Message(who_, field.bytes);
  }

 private:
  [[noreturn]] void Refuse(std::string_view what) const {
    throw Refused("{}: byte {}: expected {} of a SentencePiece model, found none",
                  Printable(who_, 4096), at_, what);
  }
  std::string_view Take(uint64_t size) {
    if (size > bytes_.size() - at_) Refuse(fmt::format("{} bytes", size));
    const std::string_view taken = bytes_.substr(at_, size);
    at_ += size;
    return taken;
  }
  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(Take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    Refuse("a number");
  }
  uint64_t Fixed(size_t size) {
    uint64_t value = 0;
    std::memcpy(&value, Take(size).data(), size);
    return value;
  }

  std::string_view who_;
  std::string_view bytes_;
  size_t at_ = 0;
};

void ReadPiece(std::string_view who, Message message, SentencePieces* model) {
  std::string text;
  float score = 0;
  int32_t type = 1;
  for (Field field; message.Next(&field);) {
    if (field.id == 1) text = field.bytes;
    if (field.id == 2) score = field.Float();
    if (field.id == 3) type = field.Integer();
  }
  if (type < 1 || type >= kTokenTypes) {
    throw Refused("{}: piece {}: expected a type of 1 to {}, found {}", Printable(who, 4096),
                  model->texts.size(), kTokenTypes - 1, type);
  }
  model->texts.push_back(std::move(text));
  model->scores.push_back(score);
  model->types.push_back(static_cast<TokenType>(type));
}

void ReadTrainer(std::string_view who, Message message, SentencePieces* model) {
  for (Field field; message.Next(&field);) {
    if (field.id == 3 && field.number != 1 && field.number != 2) {
      throw Refused("{}: expected a unigram or BPE model, found kind {}", Printable(who, 4096),
                    field.number);
    }
    if (field.id == 3) model->unigram = field.number == 1;
    if (field.id == 40) model->unknown = field.Integer();
    if (field.id == 41) model->bos = field.Integer();
    if (field.id == 42) model->eos = field.Integer();
    if (field.id == 43) model->pad = field.Integer();
  }
}

void ReadNormalization(Message message, SentencePieces* model) {
  for (Field field; message.Next(&field);) {
    if (field.id == 2) model->charsmap = field.bytes;
    if (field.id == 3) model->space_before = field.number != 0;
    if (field.id == 4) model->collapse_spaces = field.number != 0;
  }
}

}  // namespace

SentencePieces ParseSentencePieces(std::string_view who, std::string_view bytes) {
  SentencePieces model;
  Message message(who, bytes);
  for (Field field; message.Next(&field);) {
    if (field.id == 1) ReadPiece(who, message.Inner(field), &model);
    if (field.id == 2) ReadTrainer(who, message.Inner(field), &model);
    if (field.id == 3) ReadNormalization(message.Inner(field), &model);
  }
  if (model.texts.empty()) throw Refused("{}: expected pieces, found none", Printable(who, 4096));
  const auto last = static_cast<int32_t>(model.texts.size()) - 1;
  for (int32_t* id : {&model.unknown, &model.bos, &model.eos, &model.pad}) {
    if (*id < 0 || *id > last) *id = kNoToken;
  }
  return model;
}

}  // namespace lockstep
