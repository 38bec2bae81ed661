// Loads a generated library into this process: links it with the system's C compiler into a shared object, and opens
// that. For the commands and tests that run what they have built.
#pragma once

#include <filesystem>
#include <string>

#include "compiler/installation.h"

typedef struct attnc_library attnc_library;

namespace attnc {

// Links `archive` (lib<name>.a) and the installation's runtime into the file `shared`, for LoadedLibrary::open of any process.
// Throws std::runtime_error: no archive of attnc, no `cc`, or what `cc` said.
void link_library(const std::filesystem::path& archive, const Installation& installation,
                  const std::filesystem::path& shared);

class LoadedLibrary {
public:
    static LoadedLibrary open(const std::filesystem::path& shared);  // of link_library

    // Links `archive` (lib<name>.a) and the installation's runtime. The shared object is deleted at once; the mapping
    // lives as long as this object. Throws std::runtime_error: no archive of attnc, no `cc`, or what `cc` said.
    LoadedLibrary(const std::filesystem::path& archive, const Installation& installation);
    LoadedLibrary(LoadedLibrary&& other) noexcept;
    LoadedLibrary& operator=(LoadedLibrary&& other) noexcept;
    LoadedLibrary(const LoadedLibrary&) = delete;
    LoadedLibrary& operator=(const LoadedLibrary&) = delete;
    ~LoadedLibrary();

    // The library's table, for attnc_layer_create of the runtime that the caller is linked with.
    const attnc_library* library() const { return library_; }
    operator const attnc_library*() const { return library_; }

private:
    LoadedLibrary() = default;
    void open_shared(const std::filesystem::path& shared, const std::filesystem::path& named);

    void* handle_ = nullptr;
    const attnc_library* library_ = nullptr;
};

}  // namespace attnc
