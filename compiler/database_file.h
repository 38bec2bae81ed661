// Tuning records in files. A file always holds a whole database: it is replaced in one step, and those who change it
// wait for one another.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "schedules/tuning_database.h"

namespace attnc {

// All of a file's records. Throws DatabaseError for what is in it, std::runtime_error for a file that can't be read.
TuningDatabase load_database(const std::filesystem::path& path);

// Reads the file, none being an empty database, lets `change` alter it, and writes it if its text is another one then.
// Holds a lock meanwhile, for which it waits: no other process's change is lost. When it throws, the file is as it was.
// Throws as load_database and write_file do, what `change` throws, and Interrupted.
void change_database(const std::filesystem::path& path, const std::function<void(TuningDatabase&)>& change);

// Adds records by the rule of TuningDatabase::add.
struct AddedRecords {
    int added = 0;     // of a key that wasn't there
    int replaced = 0;  // better than what was there
    int kept = 0;      // what was there stays
};
AddedRecords add_records(const std::filesystem::path& path, const std::vector<TuningRecord>& records);

}  // namespace attnc
