"""CEL selectors on devices of the model."""

from __future__ import annotations

import pytest

from atoll.fit.devices import SelectionError
from atoll.fit.devices.selection import Selection
from atoll.model.devices import Attribute, Capacity, Device, DeviceId

GPU = Device(
    DeviceId("gpu.example.com", "p", "a"),
    {
        "gpu.example.com/model": Attribute("string", ("H100",)),
        "gpu.example.com/driverVersion": Attribute("version", ("550.1.0",)),
        "gpu.example.com/fabrics": Attribute("string", ("x", "y"), is_list=True),
        "resource.kubernetes.io/numaNode": Attribute("int", (1,)),
    },
    {"memory": Capacity("80Gi")},
    shared=True,
)


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ('device.driver == "gpu.example.com"', True),
        ('device.attributes["gpu.example.com"].model == "A100"', False),
        ('device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("549.0.0"))', True),
        ('device.attributes["gpu.example.com"].fabrics.includes("y")', True),
        ('device.attributes["resource.kubernetes.io"].numaNode == 1', True),
        ('device.capacity["gpu.example.com"].memory.isLessThan(quantity("80Gi"))', False),
        ("device.allowMultipleAllocations", True),
    ],
)
def test_expression_sees_the_device_as_its_driver_published_it(expression: str, selected: bool):
    assert Selection(list_attributes=True)(expression, GPU) is selected


@pytest.mark.parametrize("expression", ["device.", "device.nosuch", 'device.attributes["gpu.example.com"].nosuch == 1'])
def test_expression_without_an_answer_is_an_error_that_quotes_it(expression: str):
    with pytest.raises(SelectionError) as raised:
        Selection()(expression, GPU)
    assert repr(expression) in str(raised.value)
