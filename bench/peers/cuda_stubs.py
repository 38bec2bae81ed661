"""Empty libraries in place of CUDA's, so that the torch wheel imports on a machine without them.

The x86-64 Linux wheels of torch on PyPI are linked with CUDA, whose packages hold 5 GB that a measurement on CPUs never
calls. Each library that is missing becomes one whose functions all return cudaErrorInsufficientDriver: torch then finds
no device, as it would on any machine without a driver.
"""

import re
import subprocess
import tempfile
from pathlib import Path

CUDA_NAME = re.compile(r"lib(cu|nccl|nv)[A-Za-z_]*\.so\.\d+$")
CUDA_SYMBOL = re.compile(r"(cu|__cu|nccl|nv)\w+$")
INSUFFICIENT_DRIVER = 35


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed_libraries(library):
    return re.findall(r"\(NEEDED\).*\[(.+)\]", output_of("readelf", "-d", library))


def needed_versions(library):
    """{library's name: version of its symbols} for those whose symbols have one."""
    return dict(re.findall(r"File: (\S+) .*\n.*Name: (\S+) ", output_of("readelf", "-V", "-W", library)))


def undefined_symbols(library):
    lines = output_of("nm", "-D", "--undefined-only", library).splitlines()
    return {line.split()[-1].split("@")[0] for line in lines}


def is_installed(name, torch_lib):
    nvidia = torch_lib.parent.parent / "nvidia"
    return any(nvidia.glob(f"*/lib/{name}"))


def write_stub(path, source, version):
    """All of the functions in each library: which has which is nobody's business here."""
    with tempfile.NamedTemporaryFile("w", suffix=".map") as script:
        command = ["cc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{path.name}", "-o", str(path)]
        if version:
            script.write(f"{version} {{ global: *; }};\n")
            script.flush()
            command.append(f"-Wl,--version-script={script.name}")
        subprocess.run([*command, "-x", "c", "-"], check=True, input=source, text=True)


def write_stubs(torch_lib):
    """Fills the gaps in `torch_lib`, the folder of torch's own shared objects. Returns the names it made."""
    libraries = [str(path) for path in sorted(torch_lib.glob("lib*torch*.so")) + sorted(torch_lib.glob("libc*.so"))]
    needed = {name for library in libraries for name in needed_libraries(library)}
    missing = sorted(n for n in needed if CUDA_NAME.match(n) and not is_installed(n, torch_lib))
    if not missing:
        return []
    symbols = sorted({s for library in libraries for s in undefined_symbols(library) if CUDA_SYMBOL.match(s)})
    source = "".join(f"int {symbol}(void) {{ return {INSUFFICIENT_DRIVER}; }}\n" for symbol in symbols)
    versions = {}
    for library in libraries:
        versions |= needed_versions(library)
    for name in missing:
        write_stub(torch_lib / name, source, versions.get(name))
    return missing


def main():
    import importlib.util

    spec = importlib.util.find_spec("torch")
    if spec is None:
        raise SystemExit("cuda_stubs: torch is not installed")
    write_stubs(Path(spec.origin).parent / "lib")


if __name__ == "__main__":
    main()
