#!/usr/bin/env python3
"""Make the tokenizers and the expected ids of tests/io/tokenizer_test.cc with the `tokenizers` package.

    pip install tokenizers==0.23.3
    make_tokenizer_golden.py

Beside this script it writes bytelevel.json (Digits and ByteLevel), gpt4.json (NFC, Split with a pattern of the GPT-4 kind,
ignore_merges), metaspace.json (Metaspace, prepend_scheme first, tokens of all kinds), wordpiece.json (BERT), text.json (the lines of
tokenizer_text.py), golden.json (ids and decoded text) and variants.json (characters.json with other components).
stories260K.json is read.
"""
import collections
import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import tokenizer_text

HERE = pathlib.Path(__file__).resolve().parent
GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+")


def write(name: str, value: object) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    (HERE / name).write_bytes(text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").encode() + b"\n")


def train(tok: Tokenizer, lines: list[str], special: list[str], alphabet: list[str], size: int) -> dict:
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    tok.train_from_iterator(lines, trainer)
    return json.loads(tok.to_str())


def byte_level(lines: list[str]) -> dict:
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tok.decoder = decoders.ByteLevel()
    return train(tok, lines, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], pre_tokenizers.ByteLevel.alphabet(), 1000)


def gpt4(lines: list[str]) -> dict:
    tok = Tokenizer(models.BPE(ignore_merges=True))
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(GPT4), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    out = train(tok, lines, [], pre_tokenizers.ByteLevel.alphabet(), 900)
    # Words that only ignore_merges reaches, and merges in the older notation.
    vocab = out["model"]["vocab"]
    for word in (" international", "supercalifragilistic" * 20, "caf\u00e9", " crates"):
        symbols = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(word)[0][0]
        vocab.setdefault(symbols, len(vocab))
    out["model"]["merges"] = [" ".join(pair) for pair in out["model"]["merges"]]
    tok = Tokenizer.from_str(json.dumps(out))
    tok.add_special_tokens(["<|begin_of_text|>", "<|eot_id|>"])
    tok.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("</tool_call>", normalized=False)])
    bos, eot = tok.token_to_id("<|begin_of_text|>"), tok.token_to_id("<|eot_id|>")
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(
            single="<|begin_of_text|> $A <|eot_id|>", pair="<|begin_of_text|> $A <|begin_of_text|> $B:1",
            special_tokens=[("<|begin_of_text|>", bos), ("<|eot_id|>", eot)])])
    out = json.loads(tok.to_str())
    out["model"]["merges"] = [" ".join(pair) for pair in out["model"]["merges"]]
    return out


def metaspace(lines: list[str]) -> dict:
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tok.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(r"[\r\n]+"), " "), normalizers.Replace("``", '"')])
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tok.decoder = decoders.Metaspace(prepend_scheme="first")
    latin = [line for line in lines if line.isascii()]
    train(tok, latin, ["<unk>", "<s>", "</s>"], [], 700)
    tok.add_special_tokens([AddedToken("[MASK]", lstrip=True), AddedToken("<pad>", rstrip=True, normalized=False)])
    tok.add_tokens([
        AddedToken("yesterday", single_word=True), AddedToken("<caf\u00e9>", normalized=True),
        AddedToken("<sep>", lstrip=True, rstrip=True, normalized=False), AddedToken("\ufb01x", normalized=True)])
    tok.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    return json.loads(tok.to_str())


def word_piece(lines: list[str]) -> dict:
    """Tokens are the commonest parts of words and most letters; the package's trainer breaks ties by chance."""
    tok = Tokenizer(models.WordPiece(vocab={}, unk_token="[UNK]", max_input_chars_per_word=24))
    tok.normalizer = normalizers.BertNormalizer()
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.WordPiece()
    tok.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    counts = collections.Counter()
    for line in lines:
        for word, _ in tok.pre_tokenizer.pre_tokenize_str(tok.normalizer.normalize_str(line)):
            for begin in range(len(word)):
                for end in range(begin + 1, min(begin + 8, len(word)) + 1):
                    counts[("##" if begin > 0 else "") + word[begin:end]] += end - begin
    known = sorted(counts, key=lambda piece: (-counts[piece], piece))[:600]
    letters = {letter for piece in counts for letter in piece.removeprefix("##") if ord(letter) % 16}
    known += sorted({prefix + letter for letter in letters for prefix in ("", "##")} - set(known))
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    out = json.loads(tok.to_str())
    out["model"]["vocab"] = {token: i for i, token in enumerate(special + known)}
    tok = Tokenizer.from_str(json.dumps(out))
    tok.add_special_tokens(special)
    tok.add_tokens(["Caf\u00e9-X"])
    return json.loads(tok.to_str())


def bert_characters() -> list:
    """What becomes of each character between two letters: [first of those that do the same, ids], and so on."""
    vocab = {"a": 0, "b": 1, "##b": 2, "[UNK]": 3}
    tok = Tokenizer(models.WordPiece(vocab=vocab, unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer()
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    out = []
    for code_point in (*range(1, 0xD800), *range(0xE000, 0x30000), *range(0xE0000, 0xE0200)):
        ids = tok.encode(f"a{chr(code_point)}b").ids
        if not out or out[-1][1] != ids:
            out.append([code_point, ids])
    return [json.loads(tok.to_str()), out]


def characters(lines: list[str]) -> dict:
    """Merges over spaces, digits and punctuation, so that each cut shows in the ids."""
    tok = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    tok.decoder = decoders.Fuse()
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    out = train(tok, lines, ["<unk>"] + bytes_, sorted(pre_tokenizers.ByteLevel.alphabet()), 1400)
    out["added_tokens"] = []
    return out


def variants() -> list[dict]:
    def split(pattern: dict, behavior: str, invert: bool = False) -> dict:
        return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}

    def sequence(key: str, *parts: dict) -> dict:
        return {"type": "Sequence", key: list(parts)}

    def replace(pattern: dict, content: str) -> dict:
        return {"type": "Replace", "pattern": pattern, "content": content}

    def meta(scheme: str, cut: bool = True) -> dict:
        return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": cut}

    behaviors = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
    pre = [split({"String": "a"}, b) for b in behaviors] + [split({"Regex": r"\s+"}, b, True) for b in behaviors]
    pre += [split({"Regex": r}, "Isolated") for r in (
        r"\w+", r"\W", r"[\D\h]|_", r"\b", r"\p{N}{1,3}+", r"\p{Lu}?\p{Ll}{,3}", r"^.|.$", r"\h{2}|\u0301|\x{4e00}", "",
        r"[\S\r]+", r"\p{Han}+|\p{^L}", r"(?i:STRASSE|k)|(?i)apple|(?<q>q)u", r"[^\r\n\p{L}\p{N}]?+\p{L}++",
        r"\s++$|\s*[\r\n]|\s+(?!\S)|\s", r"(?=[aeiou])", r"(?<![a-z])[a-z]+?(?=s)")]
    pre += [{"type": t} for t in ("Whitespace", "WhitespaceSplit")]
    pre += [{"type": "Punctuation", "behavior": b} for b in behaviors]
    pre += [{"type": "Digits", "individual_digits": b} for b in (True, False)]
    pre += [meta("always"), meta("never"), meta("first", False)]
    pre += [{"type": "ByteLevel", "add_prefix_space": p, "use_regex": r, "trim_offsets": True}
            for p in (True, False) for r in (True, False)]
    pre += [sequence("pretokenizers", {"type": "WhitespaceSplit"}, meta("first")),
            sequence("pretokenizers", {"type": "Punctuation", "behavior": "Isolated"}, meta("always"), {"type": "Whitespace"})]
    norm = [{"type": t} for t in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")]
    norm += [{"type": "Strip", "strip_left": a, "strip_right": b} for a, b in ((True, True), (True, False), (False, True))]
    norm += [{"type": "Prepend", "prepend": "\u2581x"}, replace({"String": "s"}, "zz"), replace({"String": ""}, "-"),
             replace({"Regex": r"\s{2,}"}, " "), replace({"Regex": r"x*"}, "y"),
             sequence("normalizers", {"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, {"type": "NFC"})]
    def bert(clean: bool, spaced: bool, accents: bool | None, lower: bool) -> dict:
        return {"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": spaced, "strip_accents": accents,
                "lowercase": lower}

    pre += [{"type": "BertPreTokenizer"}]
    norm += [bert(True, True, None, True), bert(False, True, None, False), bert(True, False, True, False),
             bert(False, False, False, True)]
    out = [{"pre_tokenizer": p} for p in pre] + [{"normalizer": n} for n in norm]
    out += [{"normalizer": n, "pre_tokenizer": meta("first")} for n in (
        {"type": "Strip", "strip_left": True, "strip_right": False}, replace({"Regex": "^.{2}"}, "qq"), {"type": "NFKD"},
        {"type": "Prepend", "prepend": "w"})]
    fuse, fallback = {"type": "Fuse"}, {"type": "ByteFallback"}
    out += [{"decoder": d} for d in (
        None, {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, fallback,
        sequence("decoders", fallback, replace({"String": "e"}, "E"), replace({"Regex": r"\d"}, "#"), fuse,
                 {"type": "Strip", "content": " ", "start": 2, "stop": 1}),
        sequence("decoders", {"type": "Strip", "content": "s", "start": 1, "stop": 0}, meta("never")), meta("always"))]
    out += [{"model": m} for m in (
        {"byte_fallback": False}, {"byte_fallback": False, "fuse_unk": True}, {"byte_fallback": False, "unk_token": None},
        {"ignore_merges": True})]
    return out


def patched(base: dict, variant: dict) -> dict:
    return base | {key: (base[key] | value if key == "model" else value) for key, value in variant.items()}


def expected(tok: Tokenizer, text: str) -> dict:
    plain = tok.encode(text, add_special_tokens=False).ids
    special = tok.encode(text).ids
    start = next(i for i in range(len(special) + 1) if special[i:i + len(plain)] == plain)
    return {"ids": plain, "before": special[:start], "after": special[start + len(plain):],
            "decoded": tok.decode(special, skip_special_tokens=False), "skipped": tok.decode(special)}


def main() -> None:
    lines = tokenizer_text.lines()
    whole = "\n".join(lines)
    write("text.json", lines)
    made = {"bytelevel": byte_level(lines), "gpt4": gpt4(lines), "metaspace": metaspace(lines),
            "wordpiece": word_piece(lines)}
    for name, tok in made.items():
        write(f"{name}.json", tok)
    write("bert_characters.json", bert_characters())
    golden = {}
    for name in ["stories260K", *made]:
        tok = Tokenizer.from_file(str(HERE / f"{name}.json"))
        golden[name] = {"lines": [expected(tok, line) for line in lines], "whole": expected(tok, whole)}
    write("golden.json", golden)
    base = characters(lines)
    write("characters.json", base)
    some = lines[1::9]
    results = []
    for variant in variants():
        tok = Tokenizer.from_str(json.dumps(patched(base, variant)))
        if "decoder" in variant:
            results.append(variant | {"decoded": [tok.decode(tok.encode(text).ids) for text in some]})
        else:
            results.append(variant | {"ids": [tok.encode(text).ids for text in some]})
    write("variants.json", {"text": some, "variants": results})


if __name__ == "__main__":
    main()
