// The vocabulary of a checkpoint folder: tokenizer.json of the Hugging Face tokenizers library, and
// what tokenizer_config.json and generation_config.json add.
#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "text/json_text.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json_node.h"

namespace lockstep {
namespace {

constexpr uint64_t kMaxFileBytes = 512u << 20;
constexpr int64_t kMaxId = (1 << 24) - 1;

// A parsed file, and its root for JsonNode.
struct Document {
  boost::json::monotonic_resource memory;
  boost::json::value root;
  std::string path;

  explicit Document(const std::string& file) : path(Printable(file) + ": ") {
    const std::string text = ReadFile(file, kMaxFileBytes);
    boost::json::error_code error;
    boost::json::parse_options options;
    options.max_depth = 32;
    boost::json::stream_parser parser(&memory, options);
    parser.write(text, error);
    if (!error.failed()) parser.finish(error);
    if (error.failed()) {
      throw Refused("{}expected JSON, found {}", path, error.message());
    }
    root = parser.release();
  }
  JsonNode node() const { return JsonNode(root, path); }
};

// Puts `text` at `id`, growing the vocabulary; ids that no text has are unused tokens.
void SetToken(const JsonNode& where, int64_t id, std::string_view text, Vocab* vocab) {
  const size_t at = static_cast<size_t>(id);
  if (at >= vocab->tokens.size()) {
    vocab->tokens.resize(at + 1);
    vocab->types.resize(at + 1, TokenType::kUnused);
  }
  std::string& token = vocab->tokens[at];
  if (vocab->types[at] != TokenType::kUnused && token != text) {
    throw Refused("{}: id {}: expected one token, found {} and {}", where.path(), id,
                  Printable(token), Printable(text));
  }
  token = text;
  vocab->types[at] = TokenType::kNormal;
}

void ReadTokenMap(const JsonNode& node, Vocab* vocab) {
  for (const auto& [text, id] : node.Object()) {
    const JsonNode where(id, node.path());
    SetToken(node, where.Count(kMaxId), text, vocab);
  }
}

void ReadMerges(const JsonNode& node, Vocab* vocab) {
  if (!node.value().is_array()) node.Expected("an array");
  const boost::json::array& list = node.value().get_array();
  vocab->merges.reserve(list.size());
  for (const boost::json::value& item : list) {
    std::string_view left;
    std::string_view right;
    if (item.is_string()) {
      const std::string_view text = item.get_string();
      const size_t space = std::min(text.find(' '), text.size());
      left = text.substr(0, space);
      right = text.substr(std::min(space + 1, text.size()));
    } else if (item.is_array() && item.get_array().size() == 2 && item.get_array()[0].is_string() &&
               item.get_array()[1].is_string()) {
      left = item.get_array()[0].get_string();
      right = item.get_array()[1].get_string();
    }
    if (left.empty() || right.empty()) {
      JsonNode(item, fmt::format("{}[{}]", node.path(), vocab->merges.size()))
          .Expected("two tokens");
    }
    vocab->merges.push_back({std::string(left), std::string(right)});
  }
}

// A field that this reader does not implement must be absent, null or empty.
void RequireEmpty(const JsonNode& model, std::string_view key) {
  const auto field = model.Find(key);
  if (field && !field->String().empty()) field->Expected("none");
}

void ReadUnknownToken(const JsonNode& model, Vocab* vocab) {
  const auto text = model.Find("unk_token");
  if (!text) return;
  const auto token = std::find(vocab->tokens.begin(), vocab->tokens.end(), text->String());
  if (token != vocab->tokens.end()) {
    vocab->special_id(Special::kUnknown) = static_cast<int32_t>(token - vocab->tokens.begin());
  }
}

void ReadBpeRules(const JsonNode& model, Vocab* vocab) {
  vocab->kind = ModelKind::kBpe;
  RequireEmpty(model, "continuing_subword_prefix");
  RequireEmpty(model, "end_of_word_suffix");
  vocab->byte_fallback = model.BoolOr("byte_fallback", false);
  vocab->ignore_merges = model.BoolOr("ignore_merges", false);
  vocab->fuse_unknown = model.BoolOr("fuse_unk", false);
}

void ReadBpeTokens(const JsonNode& model, Vocab* vocab) {
  ReadTokenMap(model.At("vocab"), vocab);
  ReadMerges(model.At("merges"), vocab);
  ReadUnknownToken(model, vocab);
}

void ReadUnigramRules(const JsonNode& model, Vocab* vocab) {
  vocab->kind = ModelKind::kUnigram;
  vocab->byte_fallback = model.BoolOr("byte_fallback", false);
}

void ReadUnigramTokens(const JsonNode& model, Vocab* vocab) {
  for (const JsonNode& item : model.At("vocab").Items()) {
    const std::vector<JsonNode> pair = item.Items();
    if (pair.size() != 2) item.Expected("a text and a score");
    vocab->tokens.emplace_back(pair[0].String());
    vocab->scores.push_back(static_cast<float>(pair[1].Number()));
  }
  vocab->types.assign(vocab->tokens.size(), TokenType::kNormal);
  if (const auto unknown = model.Find("unk_id")) {
    const int64_t last = static_cast<int64_t>(vocab->tokens.size()) - 1;
    vocab->special_id(Special::kUnknown) = static_cast<int32_t>(unknown->Count(last));
  }
}

void ReadWordPieceTokens(const JsonNode& model, Vocab* vocab) {
  ReadTokenMap(model.At("vocab"), vocab);
  ReadUnknownToken(model, vocab);
}

void ReadWordPieceRules(const JsonNode& model, Vocab* vocab) {
  vocab->kind = ModelKind::kWordPiece;
  vocab->continuation = model.StringOr("continuing_subword_prefix", "##");
  const auto most = model.Find("max_input_chars_per_word");
  vocab->max_word_chars = static_cast<size_t>(most ? most->Count(kMaxId) : 100);
}

// Older files have no type: the fields tell.
std::string ModelType(const JsonNode& model) {
  if (const auto type = model.Find("type")) return std::string(type->String());
  if (model.Find("merges")) return "BPE";
  return model.Find("unk_id") ? "Unigram" : "WordPiece";
}

struct Model {
  std::string_view type;
  void (*read_rules)(const JsonNode& model, Vocab* vocab);
  void (*read_tokens)(const JsonNode& model, Vocab* vocab);
};

const Model& ModelOf(const JsonNode& model) {
  static constexpr Model kModels[] = {{"BPE", ReadBpeRules, ReadBpeTokens},
                                      {"Unigram", ReadUnigramRules, ReadUnigramTokens},
                                      {"WordPiece", ReadWordPieceRules, ReadWordPieceTokens}};
  const std::string type = ModelType(model);
  for (const Model& row : kModels) {
    if (row.type == type) return row;
  }
  model.At("type").Expected("BPE, Unigram or WordPiece");
}

void ReadModel(const JsonNode& model, Vocab* vocab) {
  ModelOf(model).read_rules(model, vocab);
  ModelOf(model).read_tokens(model, vocab);
  if (vocab->byte_fallback) {
    for (size_t id = 0; id < vocab->tokens.size(); ++id) {
      if (ByteOfToken(vocab->tokens[id]) >= 0) vocab->types[id] = TokenType::kByte;
    }
  }
}

AddedToken ReadAddedToken(const JsonNode& item) {
  return {.id = static_cast<int32_t>(item.At("id").Count(kMaxId)),
          .strip_left = item.BoolOr("lstrip", false),
          .strip_right = item.BoolOr("rstrip", false),
          .single_word = item.BoolOr("single_word", false),
          .normalized = item.BoolOr("normalized", !item.BoolOr("special", false))};
}

void ReadAddedTokens(const JsonNode& list, Vocab* vocab) {
  for (const JsonNode& item : list.Items()) {
    const int64_t id = item.At("id").Count(kMaxId);
    SetToken(item, id, item.At("content").String(), vocab);
    const bool special = item.BoolOr("special", false);
    vocab->types[static_cast<size_t>(id)] = special ? TokenType::kControl : TokenType::kUserDefined;
    vocab->added.push_back(ReadAddedToken(item));
  }
}

// "bos_token": "<s>", or an object with its content.
void ReadConfig(const JsonNode& config, Vocab* vocab) {
  static constexpr std::pair<std::string_view, Special> kKeys[] = {
      {"cls_token", Special::kBos},  {"bos_token", Special::kBos},
      {"eos_token", Special::kEos},  {"unk_token", Special::kUnknown},
      {"pad_token", Special::kPad},  {"sep_token", Special::kSeparator},
      {"mask_token", Special::kMask}};
  for (const auto& [key, which] : kKeys) {
    const auto field = config.Find(key);
    if (!field) continue;
    const std::string_view text =
        field->value().is_object() ? field->At("content").String() : field->String();
    const auto token = std::find(vocab->tokens.begin(), vocab->tokens.end(), text);
    if (token != vocab->tokens.end()) {
      vocab->special_id(which) = static_cast<int32_t>(token - vocab->tokens.begin());
    }
  }
}

// "eos_token_id": one id, or a list of ids that all end an answer.
void ReadGeneration(const JsonNode& config, Vocab* vocab) {
  const auto field = config.Find("eos_token_id");
  if (!field) return;
  const std::vector<JsonNode> ids =
      field->value().is_array() ? field->Items() : std::vector<JsonNode>{*field};
  const int64_t last = static_cast<int64_t>(vocab->tokens.size()) - 1;
  for (const JsonNode& id : ids) {
    vocab->end_of_generation.push_back(static_cast<int32_t>(id.Count(last)));
  }
}

void ReadBeside(const std::filesystem::path& path, void (*read)(const JsonNode&, Vocab*),
                Vocab* vocab) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return;
  const Document document(path.string());
  read(document.node(), vocab);
}

// What happens before, after and around the model.
void ReadSteps(const JsonNode& root, Vocab* vocab) {
  if (const auto normalizer = root.Find("normalizer")) ReadNormalizer(*normalizer, vocab);
  if (const auto pre = root.Find("pre_tokenizer")) ReadPreTokenizer(*pre, vocab);
  if (const auto post = root.Find("post_processor")) ReadPostProcessor(*post, vocab);
  if (const auto decoder = root.Find("decoder")) {
    ReadDecoder(*decoder, vocab);
  } else {
    // Without a decoder tokens are joined with spaces: as words, none of which continues another.
    vocab->decoding = {.words = true, .continuation = "\xFF", .strip_spaces = 1};
  }
}

}  // namespace

std::string DescribeTokenizer(const std::string& path) {
  const Document document(path);
  boost::json::object root = document.node().Object();
  boost::json::object model = document.node().At("model").Object();
  model["type"] = ModelType(document.node().At("model"));
  model.erase("vocab");
  model.erase("merges");
  root["model"] = model;
  return boost::json::serialize(root);
}

void ReadDescription(const std::string& who, std::string_view text, Vocab* vocab) {
  const boost::json::value document = ParseJson(who, text, 32);
  const JsonNode root(document, who + ": ");
  ModelOf(root.At("model")).read_rules(root.At("model"), vocab);
  if (const auto added = root.Find("added_tokens")) {
    for (const JsonNode& item : added->Items()) vocab->added.push_back(ReadAddedToken(item));
  }
  ReadSteps(root, vocab);
}

Vocab VocabFromTokenizerJson(const std::string& path) {
  std::error_code error;
  std::filesystem::path file(path);
  if (std::filesystem::is_directory(file, error)) file /= "tokenizer.json";
  const Document document(file.string());
  const JsonNode root = document.node();

  Vocab vocab;
  vocab.name = Printable(file.string());
  vocab.key_prefix = "model.";
  ReadModel(root.At("model"), &vocab);
  if (const auto added = root.Find("added_tokens")) ReadAddedTokens(*added, &vocab);
  if (vocab.kind == ModelKind::kUnigram) vocab.scores.resize(vocab.tokens.size(), 0.0f);
  ReadSteps(root, &vocab);
  const int32_t unknown = vocab.special_id(Special::kUnknown);
  if (unknown != kNoToken) vocab.types[static_cast<size_t>(unknown)] = TokenType::kUnknown;
  ReadBeside(file.parent_path() / "tokenizer_config.json", ReadConfig, &vocab);
  ReadBeside(file.parent_path() / "generation_config.json", ReadGeneration, &vocab);
  return vocab;
}

}  // namespace lockstep
