"""ONNX Runtime: the graph of standard operators, which its optimiser fuses as far as it knows how, and its own fused
operators. Inputs and outputs are bound once, so that a call copies none of them."""

import numpy as np
import onnxruntime as ort

from . import onnx_graph
from .peer import Absent, refuse_scores_beyond_memory


class OnnxRuntimePeer:
    def __init__(self, shape, data, threads):
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        self.session = ort.InferenceSession(self.model(shape, data), options, ["CPUExecutionProvider"])
        self.kept = []  # memory that is bound
        self.outputs = [output.name for output in self.session.get_outputs()]
        shared = {} if data.lengths is None else {"bias": self.bias(shape, data)}
        shared |= self.cache(shape, data)
        self.bindings = [self.bind(shape, data, index, shared) for index in range(data.sets)]

    def bind(self, shape, data, index, shared):
        named = {"query": data.queries[index], **shared}
        if shape.cross:
            named["key"] = data.keys[index]
        binding = self.session.io_binding()
        for name, array in named.items():
            value = ort.OrtValue.ortvalue_from_numpy(array)
            self.kept.append((array, value))
            binding.bind_ortvalue_input(name, value)
        for output in self.session.get_outputs():
            array = named.get(self.reused_for(output.name))
            if array is None:
                array = np.empty(output.shape, np.float32)
            value = ort.OrtValue.ortvalue_from_numpy(array)
            self.kept.append((array, value))
            binding.bind_ortvalue_output(output.name, value)
        return binding

    @staticmethod
    def bias(shape, data):
        return onnx_graph.padding_bias(shape, data, 1)

    @staticmethod
    def cache(shape, data):
        return {"past_k": data.past_k, "past_v": data.past_v} if shape.cached else {}

    @staticmethod
    def reused_for(_output):
        return None

    def __call__(self, index):
        self.session.run_with_iobinding(self.bindings[index])
        return index

    def result(self, index):
        arrays = dict(zip(self.outputs, self.bindings[index].copy_outputs_to_cpu(), strict=True))
        return arrays["out"], arrays.get("probs")

    def close(self):
        self.bindings = self.session = None


class OnnxRuntimeGraph(OnnxRuntimePeer):
    def model(self, shape, data):
        refuse_scores_beyond_memory(shape)
        return onnx_graph.plain_model(shape, data)


class OnnxRuntimeFused(OnnxRuntimePeer):
    """MultiHeadAttention; GroupQueryAttention for causal layers with grouped heads and for decoding."""

    def model(self, shape, data):
        if shape.probs:
            raise Absent("its fused operators return no weights")
        if shape.memory:
            raise Absent("its fused operators have no memory that is read only")
        if shape.decode or shape.num_kv_heads != shape.num_heads:
            return onnx_graph.grouped_model(shape, data)
        if shape.causal or data.lengths is not None:  # without, it goes over keys in blocks
            refuse_scores_beyond_memory(shape)
        return onnx_graph.fused_model(shape, data)

    @staticmethod
    def bias(shape, data):
        return onnx_graph.padding_bias(shape, data, shape.seq_q)

    @staticmethod
    def cache(shape, data):
        """With room for the step's own keys, which the operator writes there."""
        if not shape.decode:
            return {}
        room = ((0, 0), (0, 0), (0, shape.seq_kv - shape.cached), (0, 0))
        return {"past_k": np.pad(data.past_k, room), "past_v": np.pad(data.past_v, room)}

    @staticmethod
    def reused_for(output):
        return output.replace("present", "past")
