// Whatever the records of a TorchScript archive hold, ScriptModel answers or refuses by an Error.
// The archive around them stays whole: the checksums of a zip would hide what lies behind them.
#include <caffe2/serialize/inline_container.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "curvq/core/error.h"
#include "curvq/nn/script_model.h"

namespace curvq {
namespace {

struct Record {
  std::string name, data;
};

std::vector<Record> read_records(const std::string& path) {
  caffe2::serialize::PyTorchStreamReader reader{path};
  std::vector<Record> records;
  for (const std::string& name : reader.getAllRecords()) {
    if (name == ".data/serialization_id") continue;  // the writer makes it
    const auto [data, size] = reader.getRecord(name);
    records.push_back({name, std::string(static_cast<const char*>(data.get()), size)});
  }
  return records;
}

void write_records(const std::string& path, const std::vector<Record>& records) {
  std::ofstream out(path, std::ios::binary);
  caffe2::serialize::PyTorchStreamWriter writer([&](const void* data, size_t size) {
    out.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
    return size;
  });
  for (const Record& record : records)
    writer.writeRecord(record.name, record.data.data(), record.data.size());
  writer.writeEndOfFile();
}

// Up to four bits flipped, bytes set, pieces left out or repeated elsewhere.
void mutate(std::string* data, std::mt19937* generator) {
  const auto below = [&](size_t end) { return (*generator)() % end; };
  for (size_t i = 0, count = 1 + below(4); i < count && !data->empty(); ++i) {
    const size_t at = below(data->size());
    switch (below(4)) {
      case 0:
        (*data)[at] ^= static_cast<char>(1 << below(8));
        break;
      case 1:
        (*data)[at] = static_cast<char>(below(256));
        break;
      case 2:
        data->erase(at, 1 + below(8));
        break;
      default:
        data->insert(at, data->substr(below(data->size()), 1 + below(16)));
    }
  }
}

// CURVQ_MUTATIONS=N tries N of them for each file, CURVQ_MUTATIONS_SEED begins elsewhere.
unsigned setting(const char* name, unsigned otherwise) {
  const char* text = std::getenv(name);
  return text ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : otherwise;
}

class ScriptMutationsTest : public testing::TestWithParam<const char*> {};

TEST_P(ScriptMutationsTest, EndInAnAnswerOrAnError) {
  const std::string source = std::string(CURVQ_TEST_DATA) + "/digits/" + GetParam();
  const std::string path = testing::TempDir() + "mutated_" + std::to_string(getpid()) + ".pt";
  const std::vector<Record> records = read_records(source);
  const torch::Tensor x = torch::zeros({1, 64});
  write_records(path, records);
  ASSERT_NO_THROW(ScriptModel(path).forward(x));  // what is refused below is so for its mutation
  unsigned refused = 0;
  const unsigned count = setting("CURVQ_MUTATIONS", 400);
  for (unsigned i = 0; i < count; ++i) {
    std::mt19937 generator(setting("CURVQ_MUTATIONS_SEED", 0) + i);
    std::vector<Record> mutated = records;
    Record& record = mutated[generator() % mutated.size()];
    mutate(&record.data, &generator);
    write_records(path, mutated);
    SCOPED_TRACE(record.name + ", mutation " + std::to_string(i));
    try {
      const ScriptModel model(path);
      model.forward(x);
    } catch (const Error& error) {
      ++refused;
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find("file ()"), std::string::npos) << error.what();
    }  // anything else ends the test
  }
  std::filesystem::remove(path);
  EXPECT_GT(refused, count / 4);
}

INSTANTIATE_TEST_SUITE_P(Nets, ScriptMutationsTest,
                         testing::Values("digits_mlp_script.pt", "digits_cnn_script.pt"),
                         [](const auto& info) { return std::string(info.param).substr(7, 3); });

}  // namespace
}  // namespace curvq
