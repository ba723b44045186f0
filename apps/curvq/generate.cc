#include "curvq/eval/generate.h"

#include <filesystem>
#include <memory>

#include "commands.h"
#include "curvq/core/error.h"
#include "curvq/core/log.h"
#include "curvq/io/tokenizer.h"
#include "curvq/nn/decoder.h"
#include "data.h"

namespace curvq::cli {
namespace {

void declare(Options& options) {
  options.add_positional("MODEL", "model directory, original or quantized, or a .gguf")
      .add_text("prompt", "TEXT", "what to continue; empty: start from the beginning-of-text token",
                "")
      .add_flag("no-special-tokens",
                "do not put the tokenizer's beginning-of-text token before the prompt")
      .add_integer("max-new-tokens", "N", "tokens to write", 1, int64_t{1} << 31, 256)
      .add_number("temperature", "T",
                  "0: the most likely token each time; else sample at this temperature", 0, 1e6, 0)
      .add_number("top-p", "P", "sample among the most likely tokens of this mass", 0, 1, 1)
      .add_flag("ignore-eos", "go on behind an end-of-text token")
      .add_choice(
          "engine", engine_names(),
          "run packed weights as they are (with inputs in float32, in bfloat16, which is fast "
          "where "
          "the processor has AMX, or those of 4-bit layers as integers of 15 or 8 bits), or as "
          "float32 matrices",
          "packed")
      .add_seed()
      .add_threads()
      .add_device()
      .add_example("generate Llama-3.2-1B-NVFP4 --prompt 'Once upon a time'");
}

int run(const Options& options, Output& output) {
  const std::string path = options.positional("MODEL");
  GenerateOptions generate_options;
  generate_options.max_new_tokens = options.integer("max-new-tokens");
  generate_options.temperature = options.number("temperature");
  generate_options.top_p = options.number("top-p");
  generate_options.seed = static_cast<uint64_t>(options.integer("seed"));
  generate_options.validate();
  const Engine engine = parse_engine(options.text("engine"));
  const auto model = std::make_shared<DecoderModel>(path, engine);
  const DecoderConfig& config = model->config();
  config.require_head("generating text");
  if (!options.flag("ignore-eos")) generate_options.stop_ids = config.eos_ids;
  const Tokenizer tokenizer = load_tokenizer(path);
  std::vector<int32_t> prompt =
      tokenizer.encode(options.text("prompt"), !options.flag("no-special-tokens"));
  if (prompt.empty() && !config.bos_ids.empty()) prompt = {config.bos_ids.front()};
  if (prompt.empty())
    throw UsageError(
        "--prompt is empty and the model has no beginning-of-text token; give a prompt");

  // Ids become text as soon as it cannot change any more: all but a piece that ends in half a
  // character.
  std::vector<int32_t> ids = prompt;
  std::string printed;
  const auto print_new = [&](bool last) {
    const std::string text = tokenizer.decode(ids, true);
    const bool partial = text.size() >= 3 && text.compare(text.size() - 3, 3, "\xEF\xBF\xBD") == 0;
    if ((partial && !last) || text.compare(0, printed.size(), printed) != 0) return;
    output.text(text.substr(printed.size()));
    printed = text;
  };
  print_new(false);
  const GenerateResult result = generate(model, prompt, generate_options, [&](int32_t id) {
    ids.push_back(id);
    print_new(false);
  });
  print_new(true);
  output.text("\n");
  const double rate = result.ids.size() > 1 ? (result.ids.size() - 1) / result.decode_seconds : 0;
  log_info(format("%zu tokens of prompt in %.3f s, %zu new ones at %.1f tokens/s", prompt.size(),
                  result.prefill_seconds, result.ids.size(), rate));
  output.inputs()["model"] = {{"path", path}};
  output.results() = {{"text", tokenizer.decode(ids, true)},
                      {"prompt_ids", prompt},
                      {"ids", result.ids},
                      {"stopped", result.stopped},
                      {"prefill_seconds", result.prefill_seconds},
                      {"decode_seconds", result.decode_seconds},
                      {"tokens_per_second", rate}};
  return 0;
}

}  // namespace

const Command kGenerateCommand = {"generate", "text from a model", declare, run};

}  // namespace curvq::cli
