"""The layer as ONNX: a graph of standard operators as exporters write it, or ONNX Runtime's fused operator between the
projections. Inputs: query, key for cross-attention, bias for padding, past_k and past_v for a cache."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
MICROSOFT = "com.microsoft"


class Graph:
    def __init__(self):
        self.nodes, self.constants, self.inputs, self.outputs = [], [], [], []

    def constant(self, name, value):
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def input(self, name, *extent):
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, extent))
        return name

    def output(self, name, *extent):
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, extent))

    def node(self, operator, *inputs, out, **attributes):
        self.nodes.append(helper.make_node(operator, inputs, [out], name=f"node_{out}", **attributes))
        return out

    def model(self):
        graph = helper.make_graph(self.nodes, "attention", self.inputs, self.outputs, self.constants)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return model.SerializeToString()


def linear(graph, x, data, name):
    weight = graph.constant(f"w{name}", np.ascontiguousarray(data.weights[f"w{name}"].T))
    product = graph.node("MatMul", x, weight, out=f"{name}_product")
    return graph.node("Add", product, graph.constant(f"b{name}", data.weights[f"b{name}"]), out=f"{name}_linear")


def split_heads(graph, x, shape, seq, heads, name, last_axes=(1, 3)):
    extent = graph.constant(f"{name}_extent", np.array([shape.batch, seq, heads, shape.head_dim], np.int64))
    split = graph.node("Reshape", x, extent, out=f"{name}_split")
    return graph.node("Transpose", split, out=f"{name}_heads", perm=[0, 2, *last_axes])


def repeat_heads(graph, x, shape, seq, name, transposed):
    """[batch, kv_heads, ...] to [batch, heads, ...], as exporters write it: Expand of a new axis, Reshape."""
    group = shape.num_heads // shape.num_kv_heads
    if group == 1:
        return x
    inner = [shape.head_dim, seq] if transposed else [seq, shape.head_dim]
    axis = graph.constant(f"{name}_axis", np.array([2], np.int64))
    wide = graph.constant(f"{name}_wide", np.array([shape.batch, shape.num_kv_heads, group, *inner], np.int64))
    full = graph.constant(f"{name}_full", np.array([shape.batch, shape.num_heads, *inner], np.int64))
    one = graph.node("Unsqueeze", x, axis, out=f"{name}_one")
    return graph.node("Reshape", graph.node("Expand", one, wide, out=f"{name}_many"), full, out=f"{name}_repeated")


def common_inputs(graph, shape):
    d, kv_heads = shape.d_model, shape.num_kv_heads
    query = graph.input("query", shape.batch, shape.seq_q, d)
    key = graph.input("key", shape.batch, shape.seq_kv, d) if shape.cross else query
    past = None
    if shape.cached:
        extent = (shape.batch, kv_heads, shape.cached, shape.head_dim)
        past = graph.input("past_k", *extent), graph.input("past_v", *extent)
    return query, key, past


def plain_model(shape, data):
    """MatMul, Add, Reshape, Transpose, Softmax."""
    graph = Graph()
    query, key, past = common_inputs(graph, shape)
    heads, kv_heads, seq = shape.num_heads, shape.num_kv_heads, shape.seq_kv
    q = split_heads(graph, linear(graph, query, data, "q"), shape, shape.seq_q, heads, "q")
    if past is None:
        k = split_heads(graph, linear(graph, key, data, "k"), shape, seq, kv_heads, "k", last_axes=(3, 1))
        v = split_heads(graph, linear(graph, key, data, "v"), shape, seq, kv_heads, "v")
    else:
        k, v = cached_heads(graph, shape, data, query, past)
        k = graph.node("Transpose", k, out="k_transposed", perm=[0, 1, 3, 2])
    k = repeat_heads(graph, k, shape, seq, "k", True)
    v = repeat_heads(graph, v, shape, seq, "v", False)
    scores = graph.node("MatMul", q, k, out="scores")
    scores = graph.node("Mul", scores, graph.constant("scale", np.float32(shape.head_dim**-0.5)), out="scaled")
    if data.lengths is not None:
        graph.input("bias", shape.batch, 1, 1, seq)
        scores = graph.node("Add", scores, "bias", out="biased")
    if shape.causal and not shape.decode:
        scores = graph.node("Add", scores, graph.constant("causal", causal_bias(shape)), out="masked")
    probs = graph.node("Softmax", scores, out="probs", axis=-1)
    context = graph.node("MatMul", probs, v, out="context")
    merged = graph.node("Transpose", context, out="merged", perm=[0, 2, 1, 3])
    width = heads * shape.head_dim
    extent = graph.constant("merged_extent", np.array([shape.batch, shape.seq_q, width], np.int64))
    flat = graph.node("Reshape", merged, extent, out="flat")
    finish(graph, shape, data, flat)
    if shape.probs:
        graph.output("probs", shape.batch, heads, shape.seq_q, seq)
    return graph.model()


def cached_heads(graph, shape, data, query, past):
    """Of a memory the past itself; of a step the past and the step's own, which are outputs too, as in a decoder."""
    if shape.memory:
        return past
    present = []
    for name, before in zip("kv", past, strict=True):
        projected = linear(graph, query, data, name)
        own = split_heads(graph, projected, shape, shape.seq_q, shape.num_kv_heads, name)
        present.append(graph.node("Concat", before, own, out=f"present_{name}", axis=2))
        graph.output(f"present_{name}", shape.batch, shape.num_kv_heads, shape.seq_kv, shape.head_dim)
    return present


def causal_bias(shape):
    bias = np.zeros((shape.seq_q, shape.seq_kv), np.float32)
    bias[np.triu_indices(shape.seq_q, 1)] = np.finfo(np.float32).min
    return bias


def fused_model(shape, data):
    """com.microsoft.MultiHeadAttention between projections."""
    graph = Graph()
    query, key, _ = common_inputs(graph, shape)
    q, k, v = linear(graph, query, data, "q"), linear(graph, key, data, "k"), linear(graph, key, data, "v")
    bias = graph.input("bias", shape.batch, 1, shape.seq_q, shape.seq_kv) if data.lengths is not None else ""
    inputs = [q, k, v, "", "", bias] if bias else [q, k, v]
    options = {"num_heads": shape.num_heads, "unidirectional": int(shape.causal)}
    context = graph.node("MultiHeadAttention", *inputs, out="context", domain=MICROSOFT, **options)
    finish(graph, shape, data, context)
    return graph.model()


def grouped_model(shape, data):
    """com.microsoft.GroupQueryAttention: causal, and past and present may be the same memory."""
    graph = Graph()
    query = graph.input("query", shape.batch, shape.seq_q, shape.d_model)
    q, k, v = (linear(graph, query, data, name) for name in "qkv")
    past = ["", ""]
    extent = (shape.batch, shape.num_kv_heads, shape.seq_kv, shape.head_dim)
    if shape.decode:
        past = [graph.input("past_k", *extent), graph.input("past_v", *extent)]
    outputs = ["context", "present_k", "present_v"]
    for name in outputs[1:]:
        graph.output(name, *extent)
    lengths = graph.constant("last_index", np.full(shape.batch, shape.seq_kv - 1, np.int32))
    total = graph.constant("total", np.array([shape.seq_kv], np.int32))
    options = {"num_heads": shape.num_heads, "kv_num_heads": shape.num_kv_heads, "domain": MICROSOFT}
    graph.nodes.append(
        helper.make_node("GroupQueryAttention", [q, k, v, *past, lengths, total], outputs, name="attention", **options)
    )
    finish(graph, shape, data, "context")
    return graph.model()


def finish(graph, shape, data, context):
    product = linear(graph, context, data, "o")
    graph.node("Identity", product, out="out")
    graph.outputs.insert(0, helper.make_tensor_value_info("out", TensorProto.FLOAT, (shape.batch, shape.seq_q, shape.d_model)))


def padding_bias(shape, data, rows):
    """[batch, 1, rows, seq_kv]: 0 for a key within its item's length."""
    keep = np.arange(shape.seq_kv) < data.lengths[:, None]
    bias = np.where(keep, np.float32(0), np.finfo(np.float32).min).astype(np.float32)
    return np.broadcast_to(bias[:, None, None, :], (shape.batch, 1, rows, shape.seq_kv)).copy()


def feeds(shape, data, index, bias_rows=1):
    """Inputs of a set by name."""
    named = {"query": data.queries[index]}
    if shape.cross:
        named["key"] = data.keys[index]
    if data.lengths is not None:
        named["bias"] = padding_bias(shape, data, bias_rows)
    if shape.cached:
        named |= {"past_k": data.past_k, "past_v": data.past_v}
    return named
