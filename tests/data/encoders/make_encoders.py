"""Writes small random encoders beside this file, and what transformers computes with them.

    .deps/client/bin/python tests/data/encoders/make_encoders.py [OUT]

Each directory gets `reference.safetensors`, all in float32 from the weights as stored: `input_ids` and
`attention_mask` [n, t] int64, sentences of several lengths filled up with id 0; `hidden` [n, t, hidden], the last
hidden states; `embeddings` [n, hidden], their means over a sentence's tokens, of length 1. Weights are scaled so
that attention is not flat; norms and biases are far from 1 and 0, so that leaving one out shows.
"""

import math
import pathlib
import shutil
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModel, BertConfig, BertForMaskedLM, BertModel

HERE = pathlib.Path(__file__).resolve().parent
LENGTHS = (24, 17, 3, 24, 9, 40)
COMMON = dict(
    vocab_size=1280,  # above the ids of tests/data/tokenizer/wordpiece.json
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=48,
    type_vocab_size=2,
    pad_token_id=0,
)
# Directory: class and settings. A model with a head of its own holds the encoder under a prefix.
CASES = {
    "bert": (BertModel, {}),
    "bert_masked_lm": (BertForMaskedLM, dict(hidden_act="relu", layer_norm_eps=1e-5, num_attention_heads=2)),
}


def randomize(model: torch.nn.Module, generator: torch.Generator) -> None:
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim == 1 and name.endswith("weight"):
            parameter.data = 0.5 + torch.rand(parameter.shape, generator=generator)
        elif parameter.ndim == 1:
            parameter.data = 0.3 * noise
        elif "embeddings" in name:
            parameter.data = 0.4 * noise
        else:
            parameter.data = 1.5 / math.sqrt(parameter.shape[1]) * noise


def write_reference(directory: pathlib.Path, generator: torch.Generator) -> None:
    model = AutoModel.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.randint(5, model.config.vocab_size, (len(LENGTHS), max(LENGTHS)), generator=generator)
    mask = (torch.arange(max(LENGTHS))[None, :] < torch.tensor(LENGTHS)[:, None]).long()
    ids = ids * mask
    with torch.no_grad():
        hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
    means = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
    embeddings = torch.nn.functional.normalize(means, dim=-1)
    print(f"{directory.name}: hidden states {hidden.std():.2f}, cosines {(embeddings @ embeddings.T).min():.2f} ..")
    save_file(
        {"input_ids": ids, "attention_mask": mask, "hidden": hidden.contiguous(), "embeddings": embeddings},
        directory / "reference.safetensors",
    )


def main(out: pathlib.Path) -> None:
    for seed, (name, (kind, options)) in enumerate(CASES.items()):
        generator = torch.Generator().manual_seed(seed)
        model = kind(BertConfig(**(COMMON | options)))
        randomize(model, generator)
        shutil.rmtree(out / name, ignore_errors=True)
        model.to(torch.bfloat16).save_pretrained(out / name)
        (out / name / "generation_config.json").unlink(missing_ok=True)
        write_reference(out / name, generator)
        for file in (out / name).iterdir():
            file.chmod(0o644)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
