"""Ceilings are FLOP and bytes over median times; small ones, on the CPU, with a clock of our own."""

import pytest


class Device:
    name = "cpu"

    def milliseconds(self, run, samples, warm_up):
        run()
        return [2.0] * samples


@pytest.mark.parametrize(("capability", "fp8"), [((9, 0), 2.0 * 64**3 / 2e-3 / 1e12), ((8, 0), None)])
def test_ceilings(monkeypatch, capability, fp8):
    torch = pytest.importorskip("torch", reason="torch is optional")
    from hyscale_calibration.benches import ceilings

    monkeypatch.setattr(ceilings, "SIDE", 64)
    monkeypatch.setattr(ceilings, "COPIED_BYTES", 1000)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert ceilings.measure_ceilings(Device()) == {
        "copy_tb_per_s": pytest.approx(2 * 1000 / 2e-3 / 1e12),
        "bf16_tflops": pytest.approx(2.0 * 64**3 / 2e-3 / 1e12),
        "fp8_tflops": fp8 and pytest.approx(fp8),
    }
