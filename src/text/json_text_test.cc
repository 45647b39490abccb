#include "text/json_text.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace lockstep {
namespace {

TEST(JsonText, PrintsFloatsAsPythonDoes) {
  struct Row {
    double value;
    std::string_view text;
  };
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const Row kRows[] = {
      {0.8, "0.8"},
      {1.0, "1.0"},
      {-0.0, "-0.0"},
      {1e15, "1000000000000000.0"},
      {1e16, "1e+16"},
      {1.5e16, "1.5e+16"},
      {0.0001, "0.0001"},
      {0.00001, "1e-05"},
      {1.25e-7, "1.25e-07"},
      {1e100, "1e+100"},
      {5e-324, "5e-324"},
      {1.7976931348623157e308, "1.7976931348623157e+308"},
      {0.1 + 0.2, "0.30000000000000004"},
      {123456.789, "123456.789"},
      {9007199254740993.0, "9007199254740992.0"},
      {kInf, "inf"},
      {-kInf, "-inf"},
  };
  for (const Row& row : kRows) EXPECT_EQ(PythonFloat(row.value), row.text);
  EXPECT_EQ(PythonFloat(std::nan("")), "nan");
}

TEST(JsonText, QuotesStringsAsPythonDoes) {
  EXPECT_EQ(PythonQuoted("a"), "'a'");
  EXPECT_EQ(PythonQuoted("it's"), "\"it's\"");
  EXPECT_EQ(PythonQuoted("'\""), "'\\'\"'");
  EXPECT_EQ(PythonQuoted("\n\t\r\\\b\x1f\x7f"), "'\\n\\t\\r\\\\\\x08\\x1f\\x7f'");
  EXPECT_EQ(PythonQuoted("é\u00a0\u200b🙂"), "'é\\xa0\\u200b🙂'");
}

TEST(JsonText, KeepsKeyOrderAndLaysOutAsAsked) {
  boost::json::value value = ParseJson(
      "test",
      R"({"b": [1, 2.50, {}, []], "a": {"é\n": null, "t": true}, "u": 18446744073709551615})");
  EXPECT_EQ(JsonText(value),
            R"({"b": [1, 2.5, {}, []], "a": {"é\n": null, "t": true}, "u": 18446744073709551615})");
  EXPECT_EQ(JsonText(value, JsonStyle::Compact()),
            R"({"b":[1,2.5,{},[]],"a":{"é\n":null,"t":true},"u":18446744073709551615})");
  JsonStyle style;
  style.ascii = true;
  style.sort_keys = true;
  EXPECT_EQ(
      JsonText(value, style),
      R"({"a": {"t": true, "\u00e9\n": null}, "b": [1, 2.5, {}, []], "u": 18446744073709551615})");
  style = {};
  style.indent = "  ";
  style.item_separator = ",";
  EXPECT_EQ(JsonText(value.at("b"), style), "[\n  1,\n  2.5,\n  {},\n  []\n]");
  style.ascii = true;
  EXPECT_EQ(JsonText("🙂", style), "\"\\ud83d\\ude42\"");
}

TEST(JsonText, RefusesWhatIsNotJson) {
  std::string deep(100, '[');
  for (std::string_view text :
       {std::string_view(""), std::string_view("{"), std::string_view("1 2"),
        std::string_view("{'a': 1}"), std::string_view("\"\xFF\""), std::string_view("\"\\ud800\""),
        std::string_view("nul"), std::string_view(deep)}) {
    EXPECT_THROW(ParseJson("test", text), Error) << text;
  }
}

}  // namespace
}  // namespace lockstep
