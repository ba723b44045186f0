// config.json by itself.
#include "curvq/core/error.h"
#include "eval/verify_context.h"

namespace curvq::verify {

using Severity = VerifyProblem::Severity;

void check_config(Context* context) {
  constexpr const char* kConfig = "config.json";
  if (!context->is_directory) return;
  const std::string path = context->directory / kConfig;
  if (!std::filesystem::exists(path)) {
    context->error(kConfig, "", "missing: loaders need it; names and shapes are not checked");
    return;
  }
  try {
    context->config = read_json_file(path);
    if (!context->config.is_object()) throw FormatError("not a JSON object");
  } catch (const Error& error) {
    context->config = Json();
    context->add_exception(Severity::kUnreadable, kConfig, error.what());
    return;
  }

  const auto quantization = context->config.find("quantization_config");
  if (quantization != context->config.end() && !quantization->is_null()) {
    try {
      context->quantization = parse_quantization_config(*quantization, path);
    } catch (const UnsupportedError& error) {
      context->quantization_unread = true;
      context->add_exception(Severity::kUnreadable, kConfig, error.what());
    } catch (const Error& error) {
      context->quantization_unread = true;
      context->add_exception(Severity::kError, kConfig, error.what());
    }
  }
  try {
    context->vocab_size = json_int(context->config, "vocab_size", -1, kConfig);
    context->decoder = DecoderConfig::from_directory(context->directory);
  } catch (const UnsupportedError& error) {
    context->add_exception(Severity::kWarning, kConfig,
                           std::string(error.what()) + "; names and shapes are not checked");
  } catch (const Error& error) {
    // What is wrong with generation_config.json is for check_tokens to say.
    const std::string generation = context->directory / "generation_config.json";
    if (std::string(error.what()).starts_with(generation)) return;
    context->add_exception(Severity::kError, kConfig, error.what());
  }
}

}  // namespace curvq::verify
