"""Traces as the PyTorch profiler writes them, of kernels that a test names."""

import gzip
import json


class Recorder:
    """Events of one process and its GPU; times in microseconds."""

    def __init__(self):
        self.events = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}]
        self.correlation = 0

    def operation(self, name, start, duration, category="cpu_op", thread=1):
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": start, "dur": duration}
        )

    def step(self, number, start, duration):
        self.operation(f"ProfilerStep#{number}", start, duration, "user_annotation")

    def kernel(self, name, start, duration, *, stream=7, launched=None, thread=1, category="kernel", device=0, **more):
        self.correlation += 1
        place = {"device": device, "stream": stream, "correlation": self.correlation}
        self.events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": device,
                "tid": stream,
                "ts": start,
                "dur": duration,
                "args": place | more,
            }
        )
        if launched is not None:
            self.operation("cudaLaunchKernel", launched, 1, "cuda_runtime", thread)
            self.events[-1]["args"] = {"correlation": self.correlation}

    def collective(self, name, start, duration, group="", ranks=8, **more):
        told = {"Process Group Description": group, "Group size": ranks} if group else {}
        self.kernel(f"ncclDevKernel_{name}_RING_LL(ncclDevKernelArgsStorage<4096ul>)", start, duration, **told, **more)

    def write(self, path, **facts):
        text = json.dumps({"schemaVersion": 1, **facts, "traceEvents": self.events, "traceName": "x"})
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
        return path
