// Files and folders as a build needs them: every failure becomes one line that names the file and the system's reason,
// and what is unfinished lies in a temporary folder that goes away.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace attnc {

// The whole of a file. Throws std::runtime_error: "cannot read x: No such file or directory".
std::string read_file(const std::filesystem::path& path);

// Replaces a file. Throws std::runtime_error: "cannot write x: No space left on device".
void write_file(const std::filesystem::path& path, std::string_view bytes);

// Replaces a file so that it has the old bytes or the new ones whatever happens, a loss of power too. The new ones lie in
// .NAME.tmp beside it meanwhile: only one process at a time may do this to a file. Throws as write_file does, and leaves
// the old file then.
void replace_file(const std::filesystem::path& path, std::string_view bytes);

void duplicate_file(const std::filesystem::path& from, const std::filesystem::path& to);
void move_file(const std::filesystem::path& from,
               const std::filesystem::path& to);  // in one file system; replaces

// Makes a folder and its parents. Throws std::runtime_error: "cannot make folder x: Permission denied".
void make_folder(const std::filesystem::path& path);

// A hidden folder for unfinished work, removed with its contents by the destructor. The owner holds a lock in it; what
// a killed process left in `parent` holds none any more and is removed when the next one is made there.
class TemporaryFolder {
public:
    explicit TemporaryFolder(const std::filesystem::path& parent);
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    ~TemporaryFolder();

    const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
    int lock_ = -1;
};

// The system's folder for temporary files.
std::filesystem::path system_temporary_folder();

}  // namespace attnc
