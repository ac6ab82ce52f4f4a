// Ownership of a file descriptor, and the one way this folder turns errno into an exception.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace holdfast::io {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// `action` completes "could not ...".
[[noreturn]] inline void throw_errno(const std::string& action) {
  const int error = errno;
  throw std::system_error(error, std::generic_category(), "could not " + action);
}

}  // namespace holdfast::io
