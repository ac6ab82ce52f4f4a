// A queue that allocates only while it grows.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace holdfast::lab {

template <class Item>
class Ring {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  Item& operator[](std::size_t index) { return items_[(first_ + index) & (items_.size() - 1)]; }
  Item& front() { return (*this)[0]; }
  Item& back() { return (*this)[size_ - 1]; }

  void push_back(const Item& item) {
    if (size_ == items_.size()) grow();
    ++size_;
    back() = item;
  }
  void pop_front() {
    first_ = (first_ + 1) & (items_.size() - 1);
    --size_;
  }

 private:
  void grow() {
    std::vector<Item> larger(items_.empty() ? 16 : items_.size() * 2);
    for (std::size_t i = 0; i < size_; ++i) larger[i] = (*this)[i];
    items_ = std::move(larger);
    first_ = 0;
  }

  std::vector<Item> items_;  // a power of two of them
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace holdfast::lab
