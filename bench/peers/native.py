"""Layers behind C functions: attnc's, plain loops in C++ and oneDNN's primitives; and the probe of the multiply-add rate."""

import ctypes

import numpy as np

from .peer import Absent, refuse_scores_beyond_memory

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


class Library:
    """A shared object with functions bench_…; `results` says what they return where that isn't int."""

    def __init__(self, path, results):
        self.library = ctypes.CDLL(str(path))
        self.error = ctypes.create_string_buffer(ERROR_BYTES)
        for name, result in results.items():
            self.function(name).restype = result

    def function(self, name):
        return getattr(self.library, f"bench_{name}")

    def made(self, pointer):
        if not pointer:
            raise RuntimeError(self.error.value.decode())
        return ctypes.c_void_p(pointer)


class Native(Library):
    """attnc's layer, plain loops and the probe, with the threads that they share."""

    def __init__(self, path, threads):
        results = {"pool_create": ctypes.c_void_p, "probe": ctypes.c_double, "probe_name": ctypes.c_char_p}
        results |= {"layer_create": ctypes.c_void_p, "layer_workspace_bytes": ctypes.c_int64}
        super().__init__(path, results | {"layer_target": ctypes.c_char_p, "naive_create": ctypes.c_void_p})
        self.threads = threads
        self.pool = self.made(self.function("pool_create")(ctypes.c_int64(threads), self.error))

    def probe(self):
        """Floating-point operations a second of all threads together."""
        return self.function("probe")(self.pool)

    def probe_name(self):
        return self.function("probe_name")().decode()


class NativeLayer:
    """A layer that `create` makes from a problem and weights, called and destroyed by functions of its kind."""

    def __init__(self, library, kind, shape, data, probs, create):
        self.library = library
        mode = "decode" if shape.decode else "memory" if shape.memory else "tokens"
        problem = Problem(
            shape.problem.encode(), address(data.lengths), MODES[mode], address(data.past_k), address(data.past_v)
        )
        weights = Weights(*(address(data.weights[name]) for name, _ in Weights._fields_))
        self.layer = library.made(create(ctypes.byref(problem), ctypes.byref(weights)))
        out_shape = (shape.batch, shape.seq_q, shape.d_model)
        probs_shape = (shape.batch, shape.num_heads, shape.seq_q, shape.seq_kv)
        self.outs = [np.zeros(out_shape, np.float32) for _ in range(data.sets)]
        self.weights_of_heads = [np.zeros(probs_shape, np.float32) if probs else None for _ in range(data.sets)]
        self.kept = data  # whose memory the layer reads
        self.calls = [
            Call(address(query), address(key) if shape.cross else None, address(out), address(weight))
            for query, key, out, weight in zip(data.queries, data.keys, self.outs, self.weights_of_heads, strict=True)
        ]
        self.references = [ctypes.byref(call) for call in self.calls]
        self.run = library.function(f"{kind}_call")
        self.destroy = library.function(f"{kind}_destroy")

    def __call__(self, index):
        if self.run(self.layer, self.references[index], self.library.error):
            raise RuntimeError(self.library.error.value.decode())
        return index

    def result(self, index):
        return self.outs[index], self.weights_of_heads[index]

    def close(self):
        self.destroy(self.layer)


class Attnc(NativeLayer):
    def __init__(self, native, shape, data, probs, command, archive):
        def create(problem, weights):
            paths = str(command).encode(), str(archive).encode()
            options = native.pool, ctypes.c_int64(probs), native.error
            return native.function("layer_create")(*paths, problem, weights, *options)

        super().__init__(native, "layer", shape, data, probs, create)

    def target(self):
        return self.library.function("layer_target")(self.layer).decode()

    def workspace_bytes(self):
        return self.library.function("layer_workspace_bytes")(self.layer)


class Naive(NativeLayer):
    OPERATIONS_A_SECOND = 2e10  # of a thread, about
    MOST_SECONDS = 3

    def __init__(self, native, shape, data):
        if shape.cached:
            raise Absent("plain loops keep no cache")
        if shape.operations > self.MOST_SECONDS * self.OPERATIONS_A_SECOND * native.threads:
            raise Absent(f"plain loops take more than {self.MOST_SECONDS} s a call")

        def create(problem, weights):
            return native.function("naive_create")(problem, weights, native.pool, native.error)

        super().__init__(native, "naive", shape, data, shape.probs, create)


class Onednn(NativeLayer):
    """oneDNN's primitives; `path` is a shared object that was built if oneDNN was there."""

    def __init__(self, path, shape, data, threads):
        if shape.num_kv_heads != shape.num_heads:
            raise Absent("not written for grouped heads")
        refuse_scores_beyond_memory(shape)
        library = onednn_library(path)

        def create(problem, weights):
            return library.function("onednn_create")(problem, weights, ctypes.c_int64(threads), library.error)

        super().__init__(library, "onednn", shape, data, shape.probs, create)


def onednn_library(path):
    if not path.exists():
        raise Absent("the Debian package libdnnl-dev was not there when the benchmark was built")
    return Library(path, {"onednn_create": ctypes.c_void_p, "onednn_version": ctypes.c_char_p})


def onednn_version(path):
    """Or None."""
    try:
        return onednn_library(path).function("onednn_version")().decode()
    except (Absent, OSError):
        return None
