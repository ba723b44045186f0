#include "inspect_blocks.h"

#include <cctype>

#include "curvq/core/log.h"
#include "curvq/report/numbers.h"

namespace curvq::cli {
namespace {

// A run of tensors whose names begin with the same "PREFIX.NUMBER.", or one without a number.
struct Block {
  std::string prefix, first, last;  // "model.layers.", "0", "29"
  std::vector<const StoredTensor*> tensors;
  int64_t count = 1;  // how many blocks like this one follow each other
};

// Where the first all-digit component of `name` begins and ends; false if there is none.
bool find_number(const std::string& name, size_t* begin, size_t* end) {
  for (*begin = 0; *begin < name.size(); *begin = *end + 1) {
    *end = std::min(name.find('.', *begin), name.size());
    size_t digits = *begin;
    while (digits < *end && std::isdigit(static_cast<unsigned char>(name[digits]))) ++digits;
    if (digits == *end && *end > *begin && *end < name.size()) return true;
  }
  return false;
}

std::vector<Block> split_blocks(const std::vector<StoredTensor>& tensors) {
  std::vector<Block> blocks;
  for (const StoredTensor& tensor : tensors) {
    Block block;
    size_t begin, end;
    if (find_number(tensor.name, &begin, &end)) {
      block.prefix = tensor.name.substr(0, begin);
      block.first = block.last = tensor.name.substr(begin, end - begin);
    }
    const bool continues = !blocks.empty() && !block.first.empty() &&
                           blocks.back().prefix == block.prefix &&
                           blocks.back().first == block.first;
    if (!continues) blocks.push_back(std::move(block));
    blocks.back().tensors.push_back(&tensor);
  }
  return blocks;
}

std::string rest_of(const Block& block, const StoredTensor& tensor, const std::string& number) {
  return tensor.name.substr(block.prefix.size() + number.size());
}

bool alike(const Block& a, const Block& b) {
  if (a.first.empty() || a.prefix != b.prefix || a.tensors.size() != b.tensors.size()) return false;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const StoredTensor &x = *a.tensors[i], &y = *b.tensors[i];
    if (x.shape != y.shape || x.format() != y.format()) return false;
    if (rest_of(a, x, a.first) != rest_of(b, y, b.first)) return false;
  }
  return true;
}

void merge_alike(std::vector<Block>* blocks) {
  std::vector<Block> merged;
  for (Block& block : *blocks) {
    if (!merged.empty() && alike(merged.back(), block)) {
      merged.back().last = block.last;
      ++merged.back().count;
    } else {
      merged.push_back(std::move(block));
    }
  }
  *blocks = std::move(merged);
}

}  // namespace

double bits_per_weight(const StoredTensor& tensor) {
  const int64_t elements = tensor.num_elements();
  return elements == 0 ? 0 : 8.0 * tensor.stored_bytes() / elements;
}

Table tensor_table(const std::vector<StoredTensor>& tensors, bool merge_blocks) {
  using Align = Table::Align;
  Table table({{"tensor"},
               {"shape", Align::kRight},
               {"format"},
               {"bytes", Align::kRight},
               {"bits", Align::kRight}});
  std::vector<Block> blocks = split_blocks(tensors);
  if (merge_blocks) merge_alike(&blocks);
  for (const Block& block : blocks) {
    if (table.num_rows() > 0) table.add_rule();
    for (const StoredTensor* tensor : block.tensors) {
      std::string name = tensor->name;
      if (block.count > 1) {
        name = block.prefix + "{" + block.first + ".." + block.last + "}" +
               rest_of(block, *tensor, block.first);
      }
      table.add_row({name, shape_string(tensor->shape), tensor->format(),
                     bytes_text(tensor->stored_bytes()), format("%.3f", bits_per_weight(*tensor))});
    }
  }
  return table;
}

}  // namespace curvq::cli
