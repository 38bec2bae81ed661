"""OpenVINO, from the ONNX graph of standard operators; one stream, float32 throughout."""

import openvino

from . import onnx_graph
from .peer import refuse_scores_beyond_memory


class OpenVino:
    def __init__(self, shape, data, threads):
        refuse_scores_beyond_memory(shape)
        core = openvino.Core()
        model = core.read_model(onnx_graph.plain_model(shape, data), b"")
        settings = {
            "INFERENCE_NUM_THREADS": str(threads),
            "NUM_STREAMS": "1",
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",  # its default on CPUs with bf16 is bf16
            "ENABLE_CPU_PINNING": "NO",
        }
        self.compiled = core.compile_model(model, "CPU", settings)
        self.probs = shape.probs
        self.requests = []
        self.kept = []
        for index in range(data.sets):
            request = self.compiled.create_infer_request()
            for name, array in onnx_graph.feeds(shape, data, index).items():
                tensor = openvino.Tensor(array, shared_memory=True)
                self.kept.append((array, tensor))
                request.set_tensor(name, tensor)
            self.requests.append(request)

    def __call__(self, index):
        self.requests[index].infer(share_inputs=True, share_outputs=True)
        return index

    def result(self, index):
        request = self.requests[index]
        return request.get_tensor("out").data, request.get_tensor("probs").data if self.probs else None

    def close(self):
        self.requests = self.compiled = None
