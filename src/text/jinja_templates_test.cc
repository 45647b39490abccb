// Real chat templates against the texts that Python's jinja2 prints for them, set up as
// transformers does.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <chrono>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "text/jinja.h"

namespace lockstep {
namespace {

const char kFolder[] = LOCKSTEP_SOURCE_DIR "/../shared/templates";

std::string ReadText(const std::string& path) { return ReadFile(path, 64u << 20); }

std::tm CaseTime() {
  std::tm now{};
  now.tm_year = 2026 - 1900;
  now.tm_mon = 0;
  now.tm_mday = 2;
  now.tm_hour = 3;
  now.tm_min = 4;
  now.tm_sec = 5;
  now.tm_wday = 5;
  now.tm_yday = 1;
  return now;
}

// The difference in one line, around the first byte that differs.
std::string Difference(const std::string& expected, const std::string& found) {
  size_t at = 0;
  while (at < expected.size() && at < found.size() && expected[at] == found[at]) ++at;
  size_t from = at < 40 ? 0 : at - 40;
  return fmt::format("at byte {}: expected \"{}\", found \"{}\"", at,
                     Printable(expected.substr(from), 100), Printable(found.substr(from), 100));
}

TEST(JinjaTemplates, RenderEveryRecordedCaseAsTransformersDoes) {
  if (!std::filesystem::exists(kFolder)) GTEST_SKIP() << "no shared templates here";
  boost::json::value recorded =
      ParseJson("rendered.json", ReadText(std::string(kFolder) + "/rendered.json"));
  std::tm now = CaseTime();
  int texts = 0;
  int refusals = 0;
  for (const auto& [file, rendered] : recorded.at("rendered").as_object()) {
    JinjaTemplate tmpl(std::string(file),
                       ReadText(std::string(kFolder) + "/templates/" + std::string(file)));
    for (const auto& [name, expected] : rendered.as_object()) {
      SCOPED_TRACE(std::string(file) + ", case " + std::string(name));
      boost::json::object context = recorded.at("context").as_object();
      for (const auto& [key, value] : recorded.at("cases").at(name).as_object())
        context[key] = value;
      context.erase("now");
      std::string text;
      std::string error;
      try {
        text = tmpl.Render(jinja::Value::FromJson(context), &now);
      } catch (const Error& e) {
        error = e.what();
      }
      if (const auto* wanted = expected.as_object().if_contains("text")) {
        EXPECT_EQ(error, "");
        if (error.empty()) {
          EXPECT_EQ(text, std::string(wanted->as_string()))
              << Difference(std::string(wanted->as_string()), text);
        }
        ++texts;
      } else {
        EXPECT_NE(error, "") << "expected " << expected.at("error").as_string() << ", found a text";
        ++refusals;
      }
    }
  }
  EXPECT_EQ(texts + refusals, 880);
  std::cout << "texts equal: " << texts << ", refusals: " << refusals << "\n";
}

}  // namespace
}  // namespace lockstep
