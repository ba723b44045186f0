"""llama.cpp by its C interface (llama.h), as the package xllamacpp has it compiled in.

Structs that are passed by value are blocks of the size that the pinned version's have, of which only the first fields are
named; Model checks that the defaults stand where they are expected.
"""

import ctypes
import pathlib
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int8, c_int32, c_uint32, c_uint64, c_void_p

import numpy as np
import xllamacpp


class ModelParams(ctypes.Structure):
    _fields_ = [("opaque", c_uint64 * 10)]


class ContextParams(ctypes.Structure):
    _fields_ = [(name, c_uint32) for name in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_rs_seq", "n_outputs_max")]
    _fields_ += [("n_threads", c_int32), ("n_threads_batch", c_int32), ("opaque", c_uint64 * 17)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", c_int32), ("token", POINTER(c_int32)), ("embd", c_void_p), ("pos", POINTER(c_int32)),
                ("n_seq_id", POINTER(c_int32)), ("seq_id", POINTER(POINTER(c_int32))), ("logits", POINTER(c_int8))]


LIB = ctypes.CDLL(str(next(pathlib.Path(xllamacpp.__file__).parent.glob("xllamacpp*.so"))))
for name, result, *arguments in (
    ("llama_model_default_params", ModelParams),
    ("llama_context_default_params", ContextParams),
    ("llama_model_load_from_file", c_void_p, c_char_p, ModelParams),
    ("llama_model_get_vocab", c_void_p, c_void_p),
    ("llama_model_free", None, c_void_p),
    ("llama_init_from_model", c_void_p, c_void_p, ContextParams),
    ("llama_free", None, c_void_p),
    ("llama_get_memory", c_void_p, c_void_p),
    ("llama_memory_clear", None, c_void_p, c_bool),
    ("llama_batch_init", Batch, c_int32, c_int32, c_int32),
    ("llama_batch_free", None, Batch),
    ("llama_decode", c_int32, c_void_p, Batch),
    ("llama_get_logits", POINTER(c_float), c_void_p),
    ("llama_vocab_n_tokens", c_int32, c_void_p),
    ("llama_tokenize", c_int32, c_void_p, c_char_p, c_int32, POINTER(c_int32), c_int32, c_bool, c_bool),
    ("llama_token_to_piece", c_int32, c_void_p, c_int32, c_char_p, c_int32, c_int32, c_bool),
):
    function = getattr(LIB, name)
    function.restype, function.argtypes = result, list(arguments)
SILENT = ctypes.CFUNCTYPE(None, ctypes.c_int, c_char_p, c_void_p)(lambda level, text, data: None)
LIB.llama_log_set(SILENT, None)
LIB.llama_backend_init()


class Model:
    def __init__(self, path, context=512, threads=1):
        params = LIB.llama_context_default_params()
        found = (params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max)
        assert found == (512, 2048, 512, 1), f"llama.h has changed: {found}"
        params.n_ctx = params.n_batch = params.n_ubatch = context
        params.n_threads = params.n_threads_batch = threads
        self.model = LIB.llama_model_load_from_file(str(path).encode(), LIB.llama_model_default_params())
        assert self.model, f"llama.cpp does not load {path}"
        self.context = LIB.llama_init_from_model(self.model, params)
        assert self.context, f"llama.cpp makes no context for {path}"
        self.vocabulary = LIB.llama_model_get_vocab(self.model)

    def close(self):
        LIB.llama_free(self.context)
        LIB.llama_model_free(self.model)

    def logits(self, ids, position=0):
        """[len(ids), vocabulary]; at position 0 what came before is forgotten."""
        if position == 0:
            LIB.llama_memory_clear(LIB.llama_get_memory(self.context), True)
        batch = LIB.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = int(token), position + i, 1, 1
            batch.seq_id[i][0] = 0
        status = LIB.llama_decode(self.context, batch)
        assert status == 0, f"llama_decode gave {status}"
        shape = (len(ids), LIB.llama_vocab_n_tokens(self.vocabulary))
        out = np.ctypeslib.as_array(LIB.llama_get_logits(self.context), shape).astype(np.float64)
        LIB.llama_batch_free(batch)
        return out

    def perplexity(self, windows):
        losses = []
        for ids in windows:
            x = self.logits(ids)[:-1]
            top = x.max(axis=1)
            losses.append(np.log(np.exp(x - top[:, None]).sum(axis=1)) + top - x[np.arange(len(x)), ids[1:]])
        return float(np.exp(np.concatenate(losses).mean()))

    def tokenize(self, text, special=True):
        data, out = text.encode(), (c_int32 * (len(text) + 8))()
        return list(out[: LIB.llama_tokenize(self.vocabulary, data, len(data), out, len(out), special, True)])

    def greedy(self, ids, count):
        """The next `count` tokens, the likeliest each time."""
        out, logits = [], self.logits(ids)
        for i in range(count):
            out.append(int(logits[-1].argmax()))
            logits = self.logits(out[-1:], len(ids) + i)
        return out

    def text(self, ids):
        pieces, buffer = b"", ctypes.create_string_buffer(256)
        for token in ids:
            size = LIB.llama_token_to_piece(self.vocabulary, token, buffer, len(buffer), 0, False)
            pieces += buffer.raw[:size]
        return pieces.decode(errors="replace")
