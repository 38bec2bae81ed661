"""A process for each shape and thread count, forked from one that has the peers' modules loaded."""

import multiprocessing
import os
import signal


def prepare_environment(folder):
    """Before any peer is imported: what their libraries read once."""
    os.environ |= {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "OPENVINO_TELEMETRY": "0",
        "TORCH_LOGS": "-all",
    }


def preload():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["peers.imports"])
    return context


def run_shape(context, shape, threads, seconds, tree, time_limit):
    """The row of one measurement; RuntimeError with a line where there is none."""
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(sender, shape, threads, seconds, tree))
    process.start()
    sender.close()
    try:
        if not receiver.poll(time_limit):
            raise RuntimeError(f"took longer than {time_limit:.0f} s")
        answer = receiver.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"the process died: {death(process.exitcode)}") from None
    finally:
        process.kill()
        process.join()
    if isinstance(answer, str):
        raise RuntimeError(answer)
    return answer


def death(code):
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}"


def work(sender, shape, threads, seconds, tree):
    silence()
    from .measure import measure
    from .peer import one_line

    try:
        answer = measure(shape, threads, seconds, tree)
    except Exception as error:
        answer = f"{type(error).__name__}: {one_line(error)}"
    sender.send(answer)
    sender.close()


def silence():
    """Warnings of peers about missing accelerators are nothing for a table."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
