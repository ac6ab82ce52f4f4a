// The smallest test harness that does the job: registered cases, checks that say where and what, a filter by name.
#pragma once

#include <cstdio>
#include <cstring>
#include <exception>
#include <sstream>
#include <string>
#include <vector>

namespace holdfast::testing {

struct Case {
  const char* name;
  void (*body)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> registered;
  return registered;
}

inline int& failures() {
  static int count = 0;
  return count;
}

struct Register {
  Register(const char* name, void (*body)()) { cases().push_back({name, body}); }
};

template <class Left, class Right>
void expect_equal(const Left& left, const Right& right, const char* text, const char* file, int line) {
  if (left == right) return;
  std::ostringstream message;
  message << file << ":" << line << ": " << text << "\n    left  " << left << "\n    right " << right;
  std::fprintf(stderr, "%s\n", message.str().c_str());
  ++failures();
}

inline void expect(bool holds, const char* text, const char* file, int line) {
  if (holds) return;
  std::fprintf(stderr, "%s:%d: %s does not hold\n", file, line, text);
  ++failures();
}

inline int run(int argc, char** argv) {
  int ran = 0, failed = 0;
  for (const Case& test : cases()) {
    if (argc > 1 && std::strstr(test.name, argv[1]) == nullptr) continue;
    const int before = failures();
    try {
      test.body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: threw %s\n", test.name, error.what());
      ++failures();
    }
    ++ran;
    if (failures() != before) {
      ++failed;
      std::fprintf(stderr, "FAILED %s\n", test.name);
    }
  }
  std::printf("%d native cases, %d failed\n", ran, failed);
  return failed == 0 && ran > 0 ? 0 : 1;
}

}  // namespace holdfast::testing

#define HF_CASE(name)                                                      \
  static void name();                                                      \
  static const ::holdfast::testing::Register register_##name{#name, name}; \
  static void name()
#define HF_CHECK(condition) ::holdfast::testing::expect((condition), #condition, __FILE__, __LINE__)
#define HF_EQUAL(left, right) \
  ::holdfast::testing::expect_equal((left), (right), #left " == " #right, __FILE__, __LINE__)
#define HF_THROWS(expression, Exception) \
  ::holdfast::testing::expect(           \
      [&] {                              \
        try {                            \
          (void)(expression);            \
        } catch (const Exception&) {     \
          return true;                   \
        }                                \
        return false;                    \
      }(),                               \
      #expression " throws " #Exception, __FILE__, __LINE__)
#define HF_TEST_MAIN \
  int main(int argc, char** argv) { return ::holdfast::testing::run(argc, argv); }
