// An invariant that did not hold, in words.
#pragma once

#include <string>
#include <vector>

namespace holdfast::sim {

class Violations {
 public:
  void add(const char* invariant, const std::string& what) {
    ++count_;
    if (texts_.size() < max_texts) texts_.push_back(std::string(invariant) + ": " + what);
  }
  bool empty() const { return count_ == 0; }
  std::size_t count() const { return count_; }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  static constexpr std::size_t max_texts = 20;  // one broken rule tends to be broken a thousand times
  std::size_t count_ = 0;
  std::vector<std::string> texts_;
};

}  // namespace holdfast::sim
