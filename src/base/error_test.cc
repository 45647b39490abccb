#include "base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>

namespace lockstep {
namespace {

TEST(Error, CarriesItsKindAndItsText) {
  Error refused = Refused("{}: expected {}, found {}", "a.gguf", 3, 4);
  EXPECT_EQ(refused.kind(), ErrorKind::kRefused);
  EXPECT_STREQ(refused.what(), "a.gguf: expected 3, found 4");
  Error failed = Failed("disk");
  EXPECT_EQ(failed.kind(), ErrorKind::kFailed);
}

TEST(Error, KindsAreTheExitCodesOfThePrograms) {
  EXPECT_EQ(static_cast<int>(ErrorKind::kFailed), 1);
  EXPECT_EQ(static_cast<int>(ErrorKind::kRefused), 2);
  EXPECT_EQ(static_cast<int>(ErrorKind::kInterrupted), 130);
}

TEST(Error, NamesSystemErrorsInWords) {
  EXPECT_EQ(SystemErrorText(ENOSPC), "No space left on device");
  EXPECT_EQ(SystemErrorText(ENOENT), "No such file or directory");
}

TEST(Result, HoldsAValueOrAnError) {
  Result<int> value = 7;
  EXPECT_TRUE(value.ok());
  EXPECT_TRUE(static_cast<bool>(value));
  EXPECT_EQ(*value, 7);
  EXPECT_EQ(value.value(), 7);

  Result<int> error = Failed("step 3: NaN");
  EXPECT_FALSE(error.ok());
  EXPECT_STREQ(error.error().what(), "step 3: NaN");
  EXPECT_THROW(error.value(), Error);
}

TEST(Result, ThrowsItsErrorWithTheKindKept) {
  Result<std::string> result = Refused("no");
  try {
    std::move(result).value();
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRefused);
  }
}

TEST(Result, MovesOutWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 5);
}

struct PrintableCase {
  std::string text;
  const char* printed;
};

TEST(Printable, KeepsTextAndEscapesTheRest) {
  const PrintableCase cases[] = {
      {"", ""},
      {"plain text", "plain text"},
      {"a\nb\tc\r", "a\\x0Ab\\x09c\\x0D"},
      {std::string("a\0b", 3), "a\\x00b"},
      {"\x1b[31mred", "\\x1B[31mred"},
      {"\x7f", "\\x7F"},
      {"h\xc3\xa9llo \xe2\x82\xac \xf0\x9f\x98\x80", "h\xc3\xa9llo \xe2\x82\xac \xf0\x9f\x98\x80"},
      {"\x80", "\\x80"},                             // continuation without a start
      {"\xc0\xaf", "\\xC0\\xAF"},                    // overlong '/'
      {"\xc1\x81", "\\xC1\\x81"},                    // overlong 'A'
      {"\xe0\x80\xaf", "\\xE0\\x80\\xAF"},           // overlong in three bytes
      {"\xf0\x80\x80\xaf", "\\xF0\\x80\\x80\\xAF"},  // overlong in four bytes
      {"\xed\xa0\x80", "\\xED\\xA0\\x80"},           // a surrogate
      {"\xf4\x90\x80\x80", "\\xF4\\x90\\x80\\x80"},  // above U+10FFFF
      {"\xf5\x80\x80\x80", "\\xF5\\x80\\x80\\x80"},
      {"\xe2\x82", "\\xE2\\x82"},  // cut off
      {"\xff", "\\xFF"},
  };
  for (const PrintableCase& c : cases) EXPECT_EQ(Printable(c.text, 1000), c.printed);
}

TEST(Printable, CutsLongTextWithoutSplittingACharacter) {
  EXPECT_EQ(Printable("abcdef", 6), "abcdef");
  EXPECT_EQ(Printable("abcdefg", 6), "abcdef...");
  EXPECT_EQ(Printable("\xe2\x82\xac\xe2\x82\xac", 2), "\xe2\x82\xac...");
  EXPECT_EQ(Printable(std::string(1 << 20, '\n')).size(), 123u);
}

TEST(CheckDeathTest, PrintsConditionAndValues) {
  int found = 3;
  LOCKSTEP_CHECK(found == 3);
  EXPECT_DEATH(LOCKSTEP_CHECK(found == 4, "found {}", found),
               "CHECK\\(found == 4\\) failed found 3");
}

}  // namespace
}  // namespace lockstep
