// Safetensors files that lie, end early or are no such files: one line each, and never a crash. A sanitizer
// build of this program checks the "never" for thousands of random mutations.
#include "support/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "support/random.h"

namespace attnc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SafetensorsFiles : public ::testing::Test {
protected:
    SafetensorsFiles() {
        folder_ =
            std::filesystem::path(::testing::TempDir()) / ("attnc_safetensors_" + std::to_string(getpid()));
        std::filesystem::create_directories(folder_);
    }
    ~SafetensorsFiles() override {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }

    std::string path(const std::string& name = "file.safetensors") const { return (folder_ / name).string(); }

    static std::string with_length(const std::string& header, const std::string& data) {
        const uint64_t length = header.size();
        return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
    }

    void write(const std::string& bytes) const {
        std::filesystem::remove(path());  // some file systems wait for the disk when a file is overwritten
        std::ofstream file(path(), std::ios::binary);
        file << bytes;
    }

    // The message behind "FILE: ", or "no error".
    std::string error() const {
        try {
            SafetensorsFile file(path());
        } catch (const SafetensorsError& e) {
            const std::string what = e.what();
            EXPECT_TRUE(what.starts_with(path() + ": ")) << what;
            EXPECT_EQ(what.find('\n'), std::string::npos) << what;
            return what.substr(path().size() + 2);
        }
        return "no error";
    }
    std::string error_of(const std::string& bytes) const {
        write(bytes);
        return error();
    }
    std::string error_of_header(const std::string& header, size_t data_bytes = 8) const {
        return error_of(with_length(header, std::string(data_bytes, 'x')));
    }

    std::filesystem::path folder_;
};

using Safetensors = SafetensorsFiles;

TEST_F(Safetensors, ReadsWhatItWrites) {
    const std::vector<float> a = {1, -2, 3, 0.5F, 1e30F, 0};
    const uint8_t b[3] = {1, 0, 7};
    const std::vector<int64_t> c = {int64_t{1} << 60, -1};
    const std::vector<double> scalar = {0.1};
    const TensorToStore tensors[] = {{"b", StoredType::kBool, {3}, b},
                                     {"a", StoredType::kF32, {2, 3}, a.data()},
                                     {"empty", StoredType::kF32, {0, 5}, nullptr},
                                     {"scalar", StoredType::kF64, {}, scalar.data()},
                                     {"c", StoredType::kI64, {2}, c.data()}};
    write_safetensors(path(), {{"note", "a \"quoted\" line\n"}}, tensors);

    const SafetensorsFile file(path());
    EXPECT_EQ(file.metadata().at("note"), "a \"quoted\" line\n");
    EXPECT_EQ(file.tensors().size(), 5U);
    EXPECT_EQ(file.to_f32(file.at("a")), a);
    EXPECT_THAT(file.f32("a", {2, 3}), ElementsAre(1, -2, 3, 0.5F, 1e30F, 0));
    EXPECT_EQ(file.to_i64(file.at("c")), c);
    EXPECT_THAT(file.to_i64(file.at("b")), ElementsAre(1, 0, 1));
    EXPECT_EQ(file.to_f64(file.at("scalar")), scalar);
    EXPECT_EQ(file.at("empty").elements, 0);
    EXPECT_EQ(file.find("d"), nullptr);
    for (const StoredTensor& tensor : file.tensors()) {
        EXPECT_EQ(std::bit_cast<uintptr_t>(tensor.data) % 64, 0U) << tensor.name;
    }
}

TEST_F(Safetensors, WritesEqualBytesForEqualTensors) {
    const std::vector<float> a = {1, 2};
    const TensorToStore one[] = {{"a", StoredType::kF32, {2}, a.data()},
                                 {"b", StoredType::kF32, {1}, a.data()}};
    const TensorToStore two[] = {one[1], one[0]};
    const auto bytes = [&](std::span<const TensorToStore> tensors) {
        write_safetensors(path(), {}, tensors);
        std::ifstream file(path(), std::ios::binary);
        return std::string(std::istreambuf_iterator<char>(file), {});
    };
    EXPECT_EQ(bytes(one), bytes(two));
}

TEST_F(Safetensors, ReadsHalfPrecision) {
    const uint16_t half[] = {0x3c00, 0xc000, 0x0001, 0x7c00, 0x8000, 0x7bff};
    const uint16_t brain[] = {0x3f80, 0xc000};
    const TensorToStore tensors[] = {{"half", StoredType::kF16, {6}, half},
                                     {"brain", StoredType::kBF16, {2}, brain}};
    write_safetensors(path(), {}, tensors);
    const SafetensorsFile file(path());
    EXPECT_THAT(file.to_f32(file.at("half")),
                ElementsAre(1, -2, 0x1p-24F, std::numeric_limits<float>::infinity(), -0.0F, 65504));
    EXPECT_THAT(file.to_f32(file.at("brain")), ElementsAre(1, -2));
}

TEST_F(Safetensors, ReadsTensorsThatAreNotAligned) {
    write(with_length(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("f":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
                      std::string("\x07\x00\x00\x80\x3f", 5)));
    const SafetensorsFile file(path());
    EXPECT_THAT(file.f32("f", {1}), ElementsAre(1));
}

TEST_F(Safetensors, NamesWhatIsMissingOrOfAnotherKind) {
    const float a[2] = {1, 2};
    const TensorToStore tensors[] = {{"a", StoredType::kF32, {2}, a}};
    write_safetensors(path(), {}, tensors);
    const SafetensorsFile file(path());
    const auto message = [&](auto call) -> std::string {
        try {
            call();
        } catch (const SafetensorsError& e) {
            return std::string(e.what()).substr(path().size());
        }
        return "no error";
    };
    EXPECT_EQ(message([&] { (void)file.at("b"); }), ": no tensor 'b'");
    EXPECT_EQ(message([&] { (void)file.f32("a", {1, 2}); }), ": tensor 'a' is F32[2], wanted F32[1,2]");
    EXPECT_EQ(message([&] { (void)file.to_i64(file.at("a")); }), ": tensor 'a' is F32, wanted integers");
}

TEST_F(Safetensors, RefusesWhatIsNoFile) {
    EXPECT_EQ(error(), "cannot open: No such file or directory");
    EXPECT_THROW(SafetensorsFile("/"), SafetensorsError);
    ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
    EXPECT_EQ(error(), "not a regular file");
}

TEST_F(Safetensors, RefusesBadLengths) {
    EXPECT_EQ(error_of(""), "file of 0 bytes is too short for a header length");
    EXPECT_EQ(error_of("1234567"), "file of 7 bytes is too short for a header length");
    EXPECT_EQ(error_of(std::string(8, '\xff')),
              "header length 18446744073709551615 is beyond the limit of 100000000");
    EXPECT_EQ(error_of(std::string("\x10\0\0\0\0\0\0\0{}", 10)),
              "header length 16 is beyond the end of the file");
    EXPECT_EQ(error_of(std::string(8, '\0')), "header does not begin with '{'");
}

TEST_F(Safetensors, RefusesHeadersThatAreNotJson) {
    EXPECT_EQ(error_of_header(" {}"), "header does not begin with '{'");
    EXPECT_EQ(error_of_header("{"), "header is not valid JSON at byte 2");
    EXPECT_EQ(error_of_header("{} {}"), "header is not valid JSON at byte 4");
    EXPECT_THAT(error_of_header("{\"a\xff\":1}"), HasSubstr("header is not valid JSON at byte"));
    EXPECT_THAT(error_of_header("{\"a\":1e999}"), HasSubstr("header is not valid JSON at byte"));
    EXPECT_EQ(error_of_header("{}  ", 0), "no error");
}

TEST_F(Safetensors, StopsAtDeepNesting) {
    const std::string deep(1'000'000, '[');
    EXPECT_EQ(error_of_header("{\"a\":" + deep), "tensor 'a' is an array, wanted an object");
    EXPECT_EQ(error_of_header(R"({"a":{"dtype":"U8","data_offsets":[0,8],"shape":[)" + deep),
              "shape of tensor 'a' holds an array, wanted whole numbers");
}

TEST_F(Safetensors, RefusesEntriesOfAnotherForm) {
    EXPECT_EQ(error_of_header(R"({"a":1})"), "tensor 'a' is a number, wanted an object");
    EXPECT_EQ(error_of_header(R"({"a":{}})"), "tensor 'a' has no dtype");
    EXPECT_EQ(error_of_header(R"({"a":{"dtype":"U8"}})"), "tensor 'a' has no shape");
    EXPECT_EQ(error_of_header(R"({"a":{"dtype":"U8","shape":[8]}})"), "tensor 'a' has no data_offsets");
    EXPECT_EQ(error_of_header(R"({"a":{"dtype":3}})"), "dtype of tensor 'a' is a number, wanted text");
    EXPECT_EQ(error_of_header(R"({"a":{"dtype":"F8"}})"), "tensor 'a' has unknown dtype 'F8'");
    EXPECT_EQ(error_of_header(R"({"a":{"shape":8}})"), "shape of tensor 'a' is a number, wanted an array");
    EXPECT_EQ(error_of_header(R"({"a":{"shape":[-8]}})"),
              "shape of tensor 'a' holds a negative number, wanted whole numbers");
    EXPECT_EQ(error_of_header(R"({"a":{"shape":[8.0]}})"),
              "shape of tensor 'a' holds a fraction, wanted whole numbers");
    EXPECT_EQ(error_of_header(R"({"a":{"data_offsets":[0]}})"), "tensor 'a' has 1 data_offsets, wanted 2");
    EXPECT_EQ(error_of_header(R"({"a":{"data_offsets":[0,1,2]}})"),
              "tensor 'a' has more than two data_offsets");
    EXPECT_EQ(error_of_header(R"({"a":{"strides":[1]}})"), "tensor 'a' has unknown field 'strides'");
    EXPECT_EQ(error_of_header(R"({"__metadata__":3})"), "__metadata__ is a number, wanted an object");
    EXPECT_EQ(error_of_header(R"({"__metadata__":{"a":null}})"), "__metadata__ 'a' is null, wanted text");
    std::string ones = "1";
    for (int n = 1; n < 33; ++n) ones += ",1";
    EXPECT_EQ(error_of_header(R"({"a":{"shape":[)" + ones + "]}}"), "tensor 'a' has more than 32 dimensions");
}

TEST_F(Safetensors, RefusesDuplicates) {
    const std::string entry = R"("a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]})";
    EXPECT_EQ(error_of_header("{" + entry + "," + entry + "}"), "duplicate key 'a'");
    EXPECT_EQ(error_of_header(R"({"__metadata__":{"n":"1","n":"2"}})"), "duplicate key 'n' in __metadata__");
    EXPECT_EQ(error_of_header(R"({"__metadata__":{},"__metadata__":{}})"), "duplicate key '__metadata__'");
    EXPECT_EQ(error_of_header(R"({"a":{"dtype":"U8","dtype":"U8"}})"), "tensor 'a' has field 'dtype' twice");
}

TEST_F(Safetensors, RefusesOffsetsThatDisagree) {
    const auto one = [](const std::string& shape, const std::string& offsets) {
        return R"({"a":{"dtype":"F32","shape":[)" + shape + R"(],"data_offsets":[)" + offsets + "]}}";
    };
    EXPECT_EQ(error_of_header(one("2", "0,8")), "no error");
    EXPECT_EQ(error_of_header(one("2", "8,0")),
              "tensor 'a' has data_offsets 8..0, which end before they begin");
    EXPECT_EQ(error_of_header(one("3", "0,12")),
              "tensor 'a' has data_offsets 0..12, but the file holds 8 bytes of data");
    EXPECT_EQ(error_of_header(one("1", "0,8")), "tensor 'a' has data_offsets 0..8, but F32[1] takes 4 bytes");
    EXPECT_EQ(error_of_header(one("4611686018427387904", "0,8")),
              "tensor 'a' has shape [4611686018427387904], whose size overflows");
    EXPECT_EQ(error_of_header(one("2", "0,18446744073709551615")),
              "tensor 'a' has number 18446744073709551615, beyond 64-bit signed");
    EXPECT_EQ(error_of_header(one("1", "4,8")), "tensor 'a' begins at 4, after a gap from 0");
    EXPECT_EQ(error_of_header(one("1", "0,4")), "4 bytes at the end belong to no tensor");
    EXPECT_EQ(error_of_header(R"({"a":{"dtype":"U8","shape":[6],"data_offsets":[0,6]},)"
                              R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})"),
              "tensor 'b' begins at 4, inside the tensor that ends at 6");
}

TEST_F(Safetensors, EscapesNamesInMessages) {
    EXPECT_EQ(error_of_header("{\"a\\n\\u001bb\":1}"), "tensor 'a\\x0a\\x1bb' is a number, wanted an object");
    EXPECT_EQ(error_of_header("{\"" + std::string(100, 'n') + "\":1}"),
              "tensor '" + std::string(60, 'n') + "...' is a number, wanted an object");
}

TEST_F(Safetensors, WriterLeavesNothingBehindWhenItFails) {
    const float a[1] = {1};
    const auto message = [&](const std::string& to, std::vector<TensorToStore> tensors,
                             std::map<std::string, std::string> metadata = {}) -> std::string {
        try {
            write_safetensors(to, metadata, tensors);
        } catch (const SafetensorsError& e) {
            return std::string(e.what()).substr(to.size());
        }
        return "no error";
    };
    const TensorToStore good = {"a", StoredType::kF32, {1}, a};
    EXPECT_EQ(message(path("missing/file"), {good}), ": cannot write: No such file or directory");
    EXPECT_EQ(message(path(), {good, good}), ": duplicate tensor 'a'");
    EXPECT_EQ(message(path(), {{"__metadata__", StoredType::kF32, {1}, a}}),
              ": a tensor cannot be named '__metadata__'");
    EXPECT_EQ(message(path(), {{"a", StoredType::kF32, {-1}, a}}), ": tensor 'a' cannot have shape [-1]");
    EXPECT_EQ(message(path(), {good}, {{"note", "\xff"}}), ": a name or attribute is not UTF-8");
    ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
    EXPECT_EQ(message(path("pipe"), {good}), ": not a regular file");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(Safetensors, SurvivesRandomMutations) {
    constexpr uint64_t kSeed = 20261129;
    constexpr int kMutations = 4000;
    std::string good;
    {
        std::vector<float> a(12, 1);
        const uint8_t b[5] = {1, 0, 1, 1, 0};
        const TensorToStore tensors[] = {{"wq", StoredType::kF32, {3, 4}, a.data()},
                                         {"mask", StoredType::kBool, {5}, b},
                                         {"none", StoredType::kI64, {0}, nullptr}};
        write_safetensors(path(), {{"format", "test"}}, tensors);
        std::ifstream file(path(), std::ios::binary);
        good.assign(std::istreambuf_iterator<char>(file), {});
    }
    const size_t header_end = good.rfind('}') + 1;
    // Pieces that mean something in a header reach further into the parser than random bytes do.
    const std::string pieces[] = {"{",       "}",          "[",     "]",       ",",
                                  ":",       "\"",         "0",     "-1",      "9223372036854775807",
                                  "1.5",     "1e9",        "\\",    "null",    "true",
                                  "\"F64\"", "\"shape\":", "[0,0]", "\"wq\":", "\xff"};
    Random random(kSeed);
    int accepted = 0;
    for (int n = 0; n < kMutations; ++n) {
        std::string bytes = good;
        for (int64_t edits = random.between(1, 3); edits > 0; --edits) {
            const auto place = static_cast<size_t>(random.between(0, static_cast<int64_t>(header_end)));
            const auto length = static_cast<size_t>(random.between(0, 12));
            switch (random.between(0, 5)) {
                case 0:
                    bytes[place % bytes.size()] = static_cast<char>(random.bits());
                    break;
                case 1:
                    bytes.erase(std::min(place, bytes.size()), length);
                    break;
                case 2:
                    bytes.insert(std::min(place, bytes.size()),
                                 random.pick(std::span<const std::string>(pieces)));
                    break;
                case 3:
                    bytes.resize(static_cast<size_t>(random.between(0, static_cast<int64_t>(bytes.size()))));
                    break;
                case 4:
                    bytes.insert(std::min(place, bytes.size()),
                                 bytes.substr(place % (bytes.size() + 1), length));
                    break;
                default: {  // a header length that is nearly right
                    const uint64_t stated = header_end - 8 + static_cast<uint64_t>(random.between(-9, 9));
                    if (bytes.size() >= 8) std::memcpy(bytes.data(), &stated, 8);
                }
            }
            if (bytes.empty()) bytes = "x";
        }
        write(bytes);
        try {
            const SafetensorsFile file(path());
            double sum = 0;
            for (const StoredTensor& tensor : file.tensors()) {
                for (const double value : file.to_f64(tensor)) sum += value;
            }
            ++accepted;
        } catch (const SafetensorsError& e) {
            const std::string what = e.what();
            ASSERT_TRUE(what.starts_with(path() + ": "))
                << "seed " << kSeed << ", mutation " << n << ": " << what;
            ASSERT_EQ(what.find('\n'), std::string::npos)
                << "seed " << kSeed << ", mutation " << n << ": " << what;
        }
    }
    // Some mutations change data or a name only; most must be refused.
    EXPECT_LT(accepted, kMutations / 2);
    EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace attnc
