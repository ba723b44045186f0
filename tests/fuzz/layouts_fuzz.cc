// Input: numbers that choose GPTQ's or ModelOpt's layout, change a quantization_config, and say for
// each tensor that a layer may have whether it is there, its dtype, shape and data.
#include "fuzzing.h"
#include "io/gptq_layout.h"
#include "io/modelopt.h"
#include "random_tensors.h"

using namespace curvq;

namespace {

struct Model {
  Model() {
    directory.link("config.json", config);
    directory.link("model.safetensors", tensors);
  }
  fuzzing::MemoryFile config, tensors;
  fuzzing::ScratchDirectory directory;
};

// With a few bytes replaced, mostly none.
std::string changed(std::string text, FuzzedDataProvider* input) {
  if (input->ConsumeIntegralInRange(0, 3) > 0) return text;
  for (int i = input->ConsumeIntegralInRange(1, 3); i > 0; --i) {
    const auto at = input->ConsumeIntegralInRange<size_t>(0, text.size() - 1);
    text[at] = static_cast<char>(input->ConsumeIntegral<uint8_t>());
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Model model;
  FuzzedDataProvider input(data, size);
  const bool gptq = input.ConsumeBool(), v2 = input.ConsumeBool();
  io::ModelLayer layer{"m", Scheme::nvfp4(), input.ConsumeIntegralInRange(1, 4) * 8,
                       input.ConsumeIntegralInRange(1, 4) * 32};
  if (gptq) {
    layer.scheme =
        input.ConsumeBool()
            ? Scheme::int4(input.PickValueInArray<int64_t>({0, 8, 32}), input.ConsumeBool())
            : Scheme::int8(input.PickValueInArray<int64_t>({0, 32}), input.ConsumeBool());
  }
  OrderedJson config;
  std::vector<TensorInfo> fitting;
  fuzzing::accepts([&] {
    config["quantization_config"] =
        gptq ? io::gptq_config(layer.scheme, v2) : io::modelopt_config(InputFormat::kNone, {});
    fitting = gptq ? io::gptq_infos(layer) : io::modelopt_infos(layer);
  });
  if (fitting.empty()) return 0;
  model.config.set(changed(dump_json(config), &input));
  std::vector<TensorData> tensors;
  for (const TensorInfo& info : fitting) {
    if (input.ConsumeIntegralInRange(0, 15) > 0)
      tensors.push_back(fuzzing::choose_tensor(info.name, &info, &input));
  }
  for (const char* name : {"m.bias", "m.input_scale"}) {
    if (input.ConsumeIntegralInRange(0, 7) == 0)
      tensors.push_back(fuzzing::choose_tensor(name, nullptr, &input));
  }
  fuzzing::write_file_of(tensors, model.tensors.path());
  fuzzing::accepts([] {
    const io::ModelLayers layers(model.directory.path());
    for (const io::ModelLayer& found : layers.layers()) {
      fuzzing::accepts([&] {
        const QuantizedMatrix matrix = layers.read(found);
        std::vector<float> values(static_cast<size_t>(matrix.rows() * matrix.cols()));
        dequantize(matrix, values.data());
      });
    }
  });
  return 0;
}
