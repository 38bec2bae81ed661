#include "compiler/database_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "compiler/files.h"
#include "compiler/interrupt.h"

namespace attnc {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(std::string_view what, const fs::path& path, std::string_view reason) {
    throw std::runtime_error(fmt::format("cannot {} {}: {}", what, path.string(), reason));
}

[[noreturn]] void fail(std::string_view what, const fs::path& path, int error) {
    fail(what, path, std::strerror(error));
}

bool is_same_file(int descriptor, const fs::path& path) {
    struct stat open, named;
    return ::fstat(descriptor, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
           open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

// The lock on a database is one on the file itself, so that nothing else lies beside it in a repository. Since writing
// replaces the file, what was locked may no longer be the file of that name; then it starts anew.
class LockedDatabase {
public:
    explicit LockedDatabase(fs::path path) : path_(std::move(path)) {
        while (!try_lock()) check_interrupt();
    }
    LockedDatabase(const LockedDatabase&) = delete;
    LockedDatabase& operator=(const LockedDatabase&) = delete;
    ~LockedDatabase() {
        if (made_ && !written_ && is_same_file(descriptor_, path_)) ::unlink(path_.c_str());
        ::close(descriptor_);
    }

    TuningDatabase read() const { return load_database(path_); }
    void write(const std::string& text) {
        replace_file(path_, text);
        written_ = true;
    }

private:
    bool try_lock() {
        made_ = false;
        int descriptor = ::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
        if (descriptor < 0 && errno == ENOENT) {
            descriptor = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
            if (descriptor < 0 && errno == EEXIST) return false;  // made by another one this moment
            made_ = descriptor >= 0;
        }
        if (descriptor < 0) fail("write", path_, errno);
        descriptor_ = descriptor;
        struct stat status;
        if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
            ::close(descriptor);
            fail("write", path_, "it is not a plain file");
        }
        if (::flock(descriptor, LOCK_EX) == 0 && is_same_file(descriptor, path_)) return true;
        ::close(descriptor);
        return false;
    }

    fs::path path_;
    int descriptor_ = -1;
    bool made_ = false;     // empty, by this object
    bool written_ = false;  // what was locked is no longer the file of that name
};

// The file that a link leads to: a link is not to be replaced.
fs::path behind_links(const fs::path& path) {
    std::error_code error;
    fs::path found = fs::weakly_canonical(path, error);
    return error ? path : found;
}

}  // namespace

TuningDatabase load_database(const fs::path& path) {
    std::error_code error;
    if (fs::exists(path, error) && !fs::is_regular_file(path, error)) {
        fail("read", path, "it is not a plain file");
    }
    const auto bytes = fs::file_size(path, error);
    if (!error && bytes > kLargestDatabase) {  // unread
        fail("read", path,
             fmt::format("it has {} bytes, a database has at most {}", bytes, kLargestDatabase));
    }
    return parse_database(read_file(path), path.string());
}

void change_database(const fs::path& path, const std::function<void(TuningDatabase&)>& change) {
    LockedDatabase file(behind_links(path));
    TuningDatabase database = file.read();
    const std::string before = database.text();
    change(database);
    check_interrupt();
    const std::string after = database.text();
    if (after.size() > kLargestDatabase) {
        fail(
            "write", path,
            fmt::format("it would have {} bytes, a database has at most {}", after.size(), kLargestDatabase));
    }
    if (after != before) file.write(after);
}

AddedRecords add_records(const fs::path& path, const std::vector<TuningRecord>& records) {
    AddedRecords count;
    change_database(path, [&](TuningDatabase& database) {
        for (const TuningRecord& record : records) {
            switch (database.add(record)) {
                case TuningDatabase::Added::kNew:
                    ++count.added;
                    break;
                case TuningDatabase::Added::kReplaced:
                    ++count.replaced;
                    break;
                case TuningDatabase::Added::kKept:
                    ++count.kept;
                    break;
            }
        }
    });
    return count;
}

}  // namespace attnc
