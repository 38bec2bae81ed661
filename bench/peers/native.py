"""What libattnc_bench_peers.so has: attnc's layer, plain loops in C++, and the probe of the multiply-add rate."""

import ctypes

import numpy as np

from .peer import Absent

ERROR_BYTES = 1024
MODES = {"tokens": 0, "decode": 1, "memory": 2}


class Problem(ctypes.Structure):
    _fields_ = [
        ("problem", ctypes.c_char_p),
        ("lengths", ctypes.c_void_p),
        ("mode", ctypes.c_int64),
        ("cached_keys", ctypes.c_void_p),
        ("cached_values", ctypes.c_void_p),
    ]


class Weights(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("wq", "wk", "wv", "wo", "bq", "bk", "bv", "bo")]


class Call(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("query", "key", "out", "probs")]


def address(array):
    return None if array is None else array.ctypes.data


class Native:
    def __init__(self, path, threads):
        self.library = ctypes.CDLL(str(path))
        self.threads = threads
        self.error = ctypes.create_string_buffer(ERROR_BYTES)
        for name, result in (
            ("pool_create", ctypes.c_void_p),
            ("probe", ctypes.c_double),
            ("probe_name", ctypes.c_char_p),
            ("layer_create", ctypes.c_void_p),
            ("layer_workspace_bytes", ctypes.c_int64),
            ("layer_target", ctypes.c_char_p),
            ("naive_create", ctypes.c_void_p),
        ):
            self.function(name).restype = result
        self.pool = ctypes.c_void_p(self.made(self.function("pool_create")(ctypes.c_int64(threads), self.error)))

    def function(self, name):
        return getattr(self.library, f"bench_{name}")

    def made(self, pointer):
        if not pointer:
            raise RuntimeError(self.error.value.decode())
        return pointer

    def probe(self):
        """Floating-point operations a second of all threads together."""
        return self.function("probe")(self.pool)

    def probe_name(self):
        return self.function("probe_name")().decode()


class NativeLayer:
    """A layer behind the helper's functions: `kind` is "layer" or "naive"."""

    def __init__(self, native, kind, shape, data, probs, paths=()):
        self.native, self.shape, self.data, self.probs = native, shape, data, probs
        mode = "decode" if shape.decode else "memory" if shape.memory else "tokens"
        problem = Problem(
            shape.problem.encode(),
            address(data.lengths),
            MODES[mode],
            address(data.past_k),
            address(data.past_v),
        )
        weights = Weights(*(address(data.weights[name]) for name, _ in Weights._fields_))
        extra = (ctypes.c_int64(probs),) if kind == "layer" else ()
        self.layer = ctypes.c_void_p(
            native.made(
                native.function(f"{kind}_create")(
                    *(str(path).encode() for path in paths),
                    ctypes.byref(problem),
                    ctypes.byref(weights),
                    native.pool,
                    *extra,
                    native.error,
                )
            )
        )
        out_shape = (shape.batch, shape.seq_q, shape.d_model)
        probs_shape = (shape.batch, shape.num_heads, shape.seq_q, shape.seq_kv)
        self.outs = [np.zeros(out_shape, np.float32) for _ in range(data.sets)]
        self.weights_of_heads = [np.zeros(probs_shape, np.float32) if probs else None for _ in range(data.sets)]
        self.calls = [
            Call(address(query), address(key) if shape.cross else None, address(out), address(weight))
            for query, key, out, weight in zip(data.queries, data.keys, self.outs, self.weights_of_heads, strict=True)
        ]
        self.references = [ctypes.byref(call) for call in self.calls]
        self.run = native.function(f"{kind}_call")
        self.destroy = native.function(f"{kind}_destroy")

    def __call__(self, index):
        if self.run(self.layer, self.references[index], self.native.error):
            raise RuntimeError(self.native.error.value.decode())
        return index

    def result(self, index):
        return self.outs[index], self.weights_of_heads[index]

    def close(self):
        self.destroy(self.layer)


class Attnc(NativeLayer):
    def __init__(self, native, shape, data, probs, command, archive):
        super().__init__(native, "layer", shape, data, probs, (command, archive))

    def target(self):
        return self.native.function("layer_target")(self.layer).decode()

    def workspace_bytes(self):
        return self.native.function("layer_workspace_bytes")(self.layer)


class Naive(NativeLayer):
    OPERATIONS_A_SECOND = 2e10  # of a thread, about
    MOST_SECONDS = 3

    def __init__(self, native, shape, data, probs):
        if shape.cached:
            raise Absent("plain loops keep no cache")
        if shape.operations > self.MOST_SECONDS * self.OPERATIONS_A_SECOND * native.threads:
            raise Absent(f"plain loops take more than {self.MOST_SECONDS} s a call")
        super().__init__(native, "naive", shape, data, probs)
