from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from hyscale_model import catalog
from hyscale_model.scenario.schema import Cluster, Gpu

MIB = 2**20
GPU, CLUSTER = TypeAdapter(Gpu), TypeAdapter(Cluster)

# What the driver reports.
MEMORY_MIB = {
    "a100": 81920,
    "b200": 183359,
    "b300": 275040,
    "gb200": 189471,
    "gb300": 284208,
    "h100": 81559,
    "h20-141": 143771,
    "h20-96": 97871,
    "h200": 143771,
    "h800": 81559,
}

GPUS_OF_CLUSTERS = {
    "1024xh100": 1024,
    "256xb200": 256,
    "32xh200": 32,
    "32xh800": 32,
    "512xh20": 512,
    "512xh20-141": 512,
    "512xh200": 512,
    "64xh100": 64,
    "72xgb200": 72,
    "72xgb300": 72,
}


def gpu(name: str) -> Gpu:
    return GPU.validate_python({"name": name, **catalog.entry("gpus", name).values})


@pytest.mark.parametrize("name", catalog.names("gpus"))
def test_every_gpu_is_of_the_schema(name: str) -> None:
    entry = catalog.entry("gpus", name)
    # Some state no power limit, and most have an x86 host behind PCIe.
    assert set(entry.values) | {"power_watts", "c2c_bytes_per_s", "host_slowdown"} == set(Gpu.__dataclass_fields__) - {
        "name"
    }
    assert gpu(name).memory_bytes == MEMORY_MIB[name] * MIB


@pytest.mark.parametrize("name", catalog.names("gpus"))
def test_fp8_is_twice_bf16(name: str) -> None:
    found = gpu(name)
    if found.architecture == "ampere":
        assert found.fp8_flops is None
    else:
        assert found.fp8_flops is not None
        assert found.fp8_flops / found.bf16_flops == pytest.approx(2, rel=1e-3)


@pytest.mark.parametrize("name", catalog.names("gpus"))
def test_tensor_cores_reach_the_peak_at_the_stated_clock(name: str) -> None:
    found = gpu(name)
    a_cycle = {"ampere": 2048, "hopper": 4096, "blackwell": 8192}[found.architecture]
    reached = found.sms * found.boost_hz * a_cycle
    # H20 has the SMs but not the tensor rate; other boost clocks are up to 9 % above what tensor cores sustain.
    ratio = 4.27 if name.startswith("h20-") else 1.0
    assert reached / found.bf16_flops / ratio == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("name", catalog.names("clusters"))
def test_every_cluster_is_of_the_schema(name: str) -> None:
    values = dict(catalog.entry("clusters", name).values)
    assert "usd_per_gpu_hour" not in values
    cluster = CLUSTER.validate_python({"name": name, **values, "gpu": gpu(values["gpu"])})
    assert cluster.nodes * cluster.gpus_per_node == GPUS_OF_CLUSTERS[name]
    assert cluster.gpu.name in catalog.names("gpus")
