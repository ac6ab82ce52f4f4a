// Runs a target on every file of the folders and files named, without a fuzzing engine: how ordinary tests replay the
// seed corpora, and how a finding is looked at with any compiler.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "fuzz/check.h"

namespace {

std::vector<std::filesystem::path> files_of(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  int num_inputs = 0;
  for (int i = 1; i < argc; ++i) {
    for (const std::filesystem::path& path : files_of(argv[i])) {
      std::ifstream file(path, std::ios::binary);
      if (!file) {
        std::fprintf(stderr, "cannot read %s\n", path.c_str());
        return 1;
      }
      const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
      // An input that breaks an invariant aborts: the last name printed is the culprit.
      std::fprintf(stderr, "%s\n", path.c_str());
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
      ++num_inputs;
    }
  }
  std::printf("%d inputs replayed\n", num_inputs);
  return num_inputs > 0 ? 0 : 1;
}
