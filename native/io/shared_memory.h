// Memory that several processes map: made without a name, so nothing is left of it when the last of them ends, however.
#pragma once

#include <cstddef>
#include <cstdint>

#include "io/file_descriptor.h"

namespace holdfast::io {

// Zeros, as many bytes as asked for, and for good: nobody who is given the descriptor can change the size, which would
// kill the others when they touch what is gone. The pages are there at once, or std::system_error says that they
// cannot.
FileDescriptor create_shared_memory(std::size_t num_bytes);

// A view of such memory. Throws std::invalid_argument for a descriptor of anything else, or of another size.
class SharedMemory {
 public:
  SharedMemory(int descriptor, std::size_t num_bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::uint8_t* data() const { return data_; }
  std::size_t size() const { return num_bytes_; }

 private:
  std::uint8_t* data_;
  std::size_t num_bytes_;
};

}  // namespace holdfast::io
