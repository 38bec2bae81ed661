#include "compiler/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace attnc {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kTemporaryPrefix = ".attnc-tmp-";
constexpr const char* kLockName = "lock";

[[noreturn]] void fail(std::string_view what, const fs::path& path, int error) {
    throw std::runtime_error(fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(error)));
}

class File {
public:
    File(const fs::path& path, int flags) : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    ~File() {
        if (descriptor_ >= 0) ::close(descriptor_);
    }
    int get() const { return descriptor_; }
    int close() {  // some file systems report a full disk only here
        int descriptor = descriptor_;
        descriptor_ = -1;
        return ::close(descriptor);
    }

private:
    int descriptor_;
};

void write_all(const File& file, const fs::path& path, std::string_view bytes) {
    while (!bytes.empty()) {
        ssize_t count = ::write(file.get(), bytes.data(), bytes.size());
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail("write", path, errno);
        bytes.remove_prefix(static_cast<size_t>(count));
    }
}

// Removes a temporary folder whose owner is gone; one whose lock is held stays.
void remove_if_abandoned(const fs::path& folder) {
    int lock = ::open((folder / kLockName).c_str(), O_RDWR | O_CLOEXEC);
    if (lock >= 0 && ::flock(lock, LOCK_EX | LOCK_NB) != 0) {
        ::close(lock);
        return;
    }
    // Without a lock file it may be one that is being made this moment; a minute later it is not.
    if (lock < 0) {
        struct stat status;
        if (::stat(folder.c_str(), &status) != 0 || ::time(nullptr) - status.st_mtime < 60) return;
    }
    std::error_code ignored;  // somebody else's rubbish must not fail this build
    fs::remove_all(folder, ignored);
    if (lock >= 0) ::close(lock);
}

void remove_abandoned(const fs::path& parent) {
    std::error_code ignored;
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(parent, ignored)) {
        if (entry.path().filename().string().starts_with(kTemporaryPrefix)) found.push_back(entry.path());
    }
    for (const fs::path& folder : found) remove_if_abandoned(folder);
}

}  // namespace

std::string read_file(const fs::path& path) {
    File file(path, O_RDONLY);
    if (file.get() < 0) fail("read", path, errno);
    std::string bytes;
    char buffer[1 << 16];
    for (;;) {
        ssize_t count = ::read(file.get(), buffer, sizeof buffer);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail("read", path, errno);
        if (count == 0) return bytes;
        bytes.append(buffer, static_cast<size_t>(count));
    }
}

void write_file(const fs::path& path, std::string_view bytes) {
    File file(path, O_WRONLY | O_CREAT | O_TRUNC);
    if (file.get() < 0) fail("write", path, errno);
    write_all(file, path, bytes);
    if (file.close() != 0) fail("write", path, errno);
}

void replace_file(const fs::path& path, std::string_view bytes) {
    const fs::path unfinished = path.parent_path() / fmt::format(".{}.tmp", path.filename().string());
    try {
        File file(unfinished, O_WRONLY | O_CREAT | O_TRUNC);
        if (file.get() < 0) fail("write", path, errno);
        struct stat old;
        if (::stat(path.c_str(), &old) == 0) ::fchmod(file.get(), old.st_mode & 07777);
        write_all(file, path, bytes);
        if (::fsync(file.get()) != 0 || file.close() != 0) fail("write", path, errno);
        move_file(unfinished, path);
    } catch (...) {
        std::error_code ignored;
        fs::remove(unfinished, ignored);
        throw;
    }
    // The name is durable once the folder is. Some file systems don't offer that; the file is whole all the same.
    const File folder(path.has_parent_path() ? path.parent_path() : fs::path("."), O_RDONLY | O_DIRECTORY);
    if (folder.get() >= 0) ::fsync(folder.get());
}

void duplicate_file(const fs::path& from, const fs::path& to) { write_file(to, read_file(from)); }

void move_file(const fs::path& from, const fs::path& to) {
    if (::rename(from.c_str(), to.c_str()) != 0) fail("write", to, errno);
}

void make_folder(const fs::path& path) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) fail("make folder", path, error.value());
    if (!fs::is_directory(path, error)) fail("make folder", path, ENOTDIR);
}

TemporaryFolder::TemporaryFolder(const fs::path& parent) {
    remove_abandoned(parent);
    std::string name = (parent / fmt::format("{}XXXXXX", kTemporaryPrefix)).string();
    if (::mkdtemp(name.data()) == nullptr) fail("write in folder", parent, errno);
    path_ = name;
    lock_ = ::open((path_ / kLockName).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock_ < 0 || ::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
        int error = errno;
        std::error_code ignored;
        fs::remove_all(path_, ignored);
        fail("write in folder", path_, error);
    }
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;  // an unremovable rest is found by the next build
    fs::remove_all(path_, ignored);
    ::close(lock_);
}

fs::path system_temporary_folder() {
    const char* folder = std::getenv("TMPDIR");
    return folder != nullptr && *folder != '\0' ? fs::path(folder) : fs::path("/tmp");
}

}  // namespace attnc
