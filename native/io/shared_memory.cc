#include "io/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <stdexcept>

namespace holdfast::io {
namespace {

constexpr int fixed_size = F_SEAL_SHRINK | F_SEAL_GROW;

}  // namespace

FileDescriptor create_shared_memory(std::size_t num_bytes) {
  FileDescriptor memory(::memfd_create("holdfast", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (memory.get() < 0) throw_errno("create shared memory");
  // Reserved now: a page that is missing later is a signal, not an error.
  if (::fallocate(memory.get(), 0, 0, static_cast<off_t>(num_bytes)) != 0) throw_errno("reserve shared memory");
  if (::fcntl(memory.get(), F_ADD_SEALS, fixed_size | F_SEAL_SEAL) != 0) throw_errno("fix the size of shared memory");
  return memory;
}

SharedMemory::SharedMemory(int descriptor, std::size_t num_bytes) : num_bytes_(num_bytes) {
  struct stat facts{};
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & fixed_size) != fixed_size || ::fstat(descriptor, &facts) != 0 ||
      static_cast<std::size_t>(facts.st_size) != num_bytes) {
    throw std::invalid_argument("not the shared memory that was agreed on");
  }
  void* mapped = ::mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, 0);
  if (mapped == MAP_FAILED) throw_errno("map shared memory");
  data_ = static_cast<std::uint8_t*>(mapped);
}

SharedMemory::~SharedMemory() { ::munmap(data_, num_bytes_); }

}  // namespace holdfast::io
