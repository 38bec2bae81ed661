"""The columns of the benchmark. Names and titles are for every page; makers are imported where a peer runs."""

import importlib
from dataclasses import dataclass

OURS = "attnc"
OURS_WITHOUT_PROBS = "attnc_without_probs"
HELPER, ONEDNN = "libattnc_bench_peers.so", "libattnc_bench_onednn.so"

AUTOSCHEDULERS = ("Adams2019", "Mullapudi2016", "Li2018")


@dataclass(frozen=True)
class Column:
    id: str
    title: str
    distribution: str  # whose version is reported
    maker: str = ""  # "module:Class", made from (shape, data, threads)
    peer: bool = True
    rival: bool = True  # counts among those that attnc is to be faster than


COLUMNS = (
    Column(OURS, "attnc", "", peer=False),
    Column(OURS_WITHOUT_PROBS, "attnc, no weights returned", "", peer=False),
    Column("torch_eager", "PyTorch eager class", "torch", "torch_peers:TorchEager"),
    Column("torch_mha", "PyTorch nn.MultiheadAttention", "torch", "torch_peers:TorchMultihead"),
    Column("torch_sdpa", "PyTorch SDPA", "torch", "torch_peers:TorchSdpa"),
    Column("torch_compile", "PyTorch compiled", "torch", "torch_peers:TorchCompile"),
    Column("onnxruntime", "ONNX Runtime graph", "onnxruntime", "onnxruntime_peers:OnnxRuntimeGraph"),
    Column("onnxruntime_fused", "ONNX Runtime fused", "onnxruntime", "onnxruntime_peers:OnnxRuntimeFused"),
    Column("openvino", "OpenVINO", "openvino", "openvino_peer:OpenVino"),
    Column("onednn", "oneDNN primitives", "onednn"),
    *(Column(f"halide_{name.lower()}", f"Halide {name}", "", rival=False) for name in AUTOSCHEDULERS),
    Column("naive", "plain C++ loops", "", rival=False),
)
BY_ID = {column.id: column for column in COLUMNS}
RIVALS = [column for column in COLUMNS if column.peer and column.rival]
PEERS = [column for column in COLUMNS if column.peer]
MODULES = ("torch", "onnxruntime", "openvino")


def maker(column):
    module, _, name = column.maker.partition(":")
    return getattr(importlib.import_module(f".{module}", __package__), name)


def versions(folder):
    """{name: version} of those that are installed; `folder` has the shared objects of the benchmark."""
    from importlib import metadata

    from .native import onednn_version

    onednn = onednn_version(folder / ONEDNN)
    found = {"onednn": onednn} if onednn else {}
    for name in sorted({column.distribution for column in COLUMNS if column.distribution}):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return found
