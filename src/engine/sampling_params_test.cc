#include "engine/sampling_params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

constexpr int64_t kVocab = 300;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::string ErrorOf(const SamplingParams& params) {
  auto error = params.Validate(kVocab);
  return error ? error->what() : "";
}

TEST(SamplingParams, DefaultsAreThoseOfLlamaCppAndValid) {
  SamplingParams p;
  EXPECT_EQ(ErrorOf(p), "");
  EXPECT_EQ(p.temp, 0.8f);
  EXPECT_EQ(p.top_k, 40);
  EXPECT_EQ(p.top_p, 0.95f);
  EXPECT_EQ(p.min_p, 0.05f);
  std::string order;
  for (SamplerKind kind : p.samplers) order += std::string(SamplerName(kind)) + ";";
  EXPECT_EQ(order, "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature;");
}

TEST(SamplingParams, EveryFieldRefusesValuesOutsideItsRangeByName) {
  for (const SamplingField& field : SamplingFields()) {
    auto check = [&](auto member, auto value, bool acceptable) {
      SamplingParams p;
      p.*member = value;
      std::string error = ErrorOf(p);
      EXPECT_EQ(error.empty(), acceptable) << field.name << " " << value << ": " << error;
      if (!acceptable) {
        EXPECT_NE(error.find(" " + std::string(field.name) + ": expected "), std::string::npos)
            << error;
        EXPECT_NE(error.find(fmt::format("found {}", value)), std::string::npos) << error;
      }
    };
    if (auto* real = std::get_if<float SamplingParams::*>(&field.member)) {
      auto low = static_cast<float>(field.min), high = static_cast<float>(field.max);
      check(*real, low, true);
      check(*real, high, true);
      for (float bad :
           {std::nextafter(low, -kInf), std::nextafter(high, kInf), kNan, kInf, -kInf}) {
        check(*real, bad, false);
      }
    } else {
      auto member = std::get<int32_t SamplingParams::*>(field.member);
      check(member, static_cast<int32_t>(field.min), true);
      check(member, static_cast<int32_t>(field.max), true);
      check(member, static_cast<int32_t>(field.min) - 1, false);
      check(member, std::numeric_limits<int32_t>::min(), false);
    }
  }
}

TEST(SamplingParams, B119BiasOutsideTheVocabularyIsRefusedNamingTheId) {
  const struct {
    int64_t token;
    float bias;
    std::string_view expected;  // part of the error, empty where valid
  } kCases[] = {
      {0, 1, ""},
      {kVocab - 1, 1, ""},
      {5, 1e9f, ""},
      {5, -1e9f, ""},
      {5, -kInf, ""},
      {-1, 1, "logit_bias: expected token ids 0 to 299, found -1"},
      {kVocab, 1, "logit_bias: expected token ids 0 to 299, found 300"},
      {int64_t{1} << 31, 1, "logit_bias: expected token ids 0 to 299, found 2147483648"},
      {std::numeric_limits<int64_t>::min(), 1, "found -9223372036854775808"},
      {17, kNan, "logit_bias: token 17: expected a number, found nan"},
  };
  for (const auto& c : kCases) {
    SamplingParams p;
    p.logit_bias = {{c.token, c.bias}};
    std::string error = ErrorOf(p);
    EXPECT_EQ(error.empty(), c.expected.empty()) << error;
    EXPECT_NE(error.find(c.expected), std::string::npos) << error;
  }
  SamplingParams p;
  p.logit_bias.assign(kVocab, {3, 1});
  EXPECT_EQ(ErrorOf(p), "");
  p.logit_bias.assign(kVocab + 1, {3, 1});
  EXPECT_EQ(ErrorOf(p), "sampling: logit_bias: expected at most 300 entries, found 301");
}

TEST(SamplingParams, VocabulariesThatCannotBeAreRefused) {
  for (int64_t size : {int64_t{0}, int64_t{-1}, int64_t{1} << 31}) {
    EXPECT_TRUE(SamplingParams().Validate(size)) << size;
  }
}

TEST(SamplingParams, OrdersParseFromNamesAndLetters) {
  using K = SamplerKind;
  const struct {
    std::string_view text;
    std::vector<SamplerKind> expected;
  } kCases[] = {
      {"", {}},
      {";;", {}},
      {"min_p;temperature", {K::kMinP, K::kTemperature}},
      {"top_k;;top_k;", {K::kTopK, K::kTopK}},
      {"edskypmxt",
       {K::kPenalties, K::kDry, K::kTopNSigma, K::kTopK, K::kTypicalP, K::kTopP, K::kMinP, K::kXtc,
        K::kTemperature}},
      {"a", {K::kAdaptiveP}},
      {"temp", {K::kTemperature}},  // a name, though each letter is one too
      {"typ", {K::kTypicalP}},
      {"nucleus;top-k;typical;adaptive-p;top-n-sigma",
       {K::kTopP, K::kTopK, K::kTypicalP, K::kAdaptiveP, K::kTopNSigma}},
  };
  for (const auto& c : kCases) {
    auto order = ParseSamplerOrder(c.text);
    ASSERT_TRUE(order.ok()) << c.text << ": " << order.error().what();
    EXPECT_EQ(*order, c.expected) << c.text;
  }
}

TEST(SamplingParams, UnknownSamplersAreRefusedOnOneLine) {
  for (std::string_view text : {"nope", "top_k;nope", "TOP_K", "kq", "top_k temperature", "i",
                                "infill", "\n\x01;\xff", " top_k"}) {
    auto order = ParseSamplerOrder(text);
    ASSERT_FALSE(order.ok()) << text;
    std::string error = order.error().what();
    EXPECT_EQ(order.error().kind(), ErrorKind::kRefused);
    EXPECT_NE(error.find("samplers: expected a sampler such as top_k, found"), std::string::npos);
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
}

TEST(SamplingParams, OrdersOfAnyLengthStaySmall) {
  EXPECT_EQ(ParseSamplerOrder(std::string(256, 'k')).value().size(), 256u);
  EXPECT_FALSE(ParseSamplerOrder(std::string(257, 'k')).ok());
  std::string names;
  for (int i = 0; i < 257; ++i) names += "top_k;";
  EXPECT_FALSE(ParseSamplerOrder(names).ok());
  EXPECT_TRUE(ParseSamplerOrder(std::string(1 << 20, ';')).value().empty());
  SamplingParams p;
  p.samplers.assign(257, SamplerKind::kTopK);
  EXPECT_NE(ErrorOf(p).find("samplers: expected at most 256, found 257"), std::string::npos);
  p.samplers = {static_cast<SamplerKind>(200)};
  EXPECT_NE(ErrorOf(p).find("found number 200"), std::string::npos);
  p = SamplingParams();
  p.dry_sequence_breakers.assign(257, "x");
  EXPECT_NE(ErrorOf(p).find("dry_sequence_breakers: expected at most 256"), std::string::npos);
}

TEST(SamplingParams, NamesReadBack) {
  for (int i = 0; i < kSamplerKinds; ++i) {
    auto kind = static_cast<SamplerKind>(i);
    EXPECT_EQ(ParseSamplerName(SamplerName(kind)).value(), kind);
  }
}

}  // namespace
}  // namespace lockstep
