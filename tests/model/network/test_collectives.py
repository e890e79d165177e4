from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.batch import assign, case_of
from hyscale_model.layers.operation import Transfer
from hyscale_model.layers.sizes import Sizes
from hyscale_model.network.collectives import Network, cost, deepep_cost
from hyscale_model.network.groups import Group, group
from hyscale_model.rates.cost import Coefficients

KINDS = ("all_gather", "reduce_scatter", "all_to_all", "send")
ADAPTER, NVLINK = 50e9, 450e9


@pytest.fixture(scope="module")
def cluster(resolve):
    found = resolve().scenario.cluster
    assert found.gpu.nvlink_bytes_per_s == NVLINK
    assert found.nic_gbit_per_gpu * 1e9 / 8 == ADAPTER
    return found


def seconds(kind, ranks, cluster, payload):
    per_byte, latency = cost(kind, ranks, cluster)
    return payload * per_byte + latency


groups = st.builds(
    lambda local, nodes: Group(local * nodes, local), local=st.sampled_from((1, 2, 4, 8)), nodes=st.integers(1, 64)
)


@pytest.mark.parametrize("kind", KINDS)
def test_one_rank_sends_nothing(cluster, kind):
    assert seconds(kind, Group(1, 1), cluster, 1e12) == 0


def test_an_all_gather_over_128_ranks_by_hand(cluster):
    """A node of 8 takes in what it lacks over its eight rails; ring hops are 112 inside nodes and 16 between them."""
    payload = 1e9
    rails = 8 * ADAPTER * cluster.nic_efficiency
    latency = 112 * cluster.nvlink_latency_s + 16 * cluster.nic_latency_s
    assert rails < NVLINK * cluster.nvlink_efficiency
    by_hand = payload * 127 / 128 / rails + latency
    assert seconds("all_gather", Group(128, 8), cluster, payload) == pytest.approx(by_hand, rel=1e-12)


def test_an_all_gather_inside_a_node_by_hand(cluster):
    by_hand = 1e9 * 7 / 8 / (NVLINK * cluster.nvlink_efficiency) + 7 * cluster.nvlink_latency_s
    assert seconds("all_gather", Group(8, 8), cluster, 1e9) == pytest.approx(by_hand, rel=1e-12)


def test_an_all_to_all_over_128_ranks_by_hand(cluster):
    """Of what a rank sends, 120 of 128 parts leave the node over its own adapter."""
    by_hand = 1e9 * 120 / 128 / (ADAPTER * cluster.alltoall_efficiency)
    latency = 15 * cluster.nic_latency_s + cluster.nvlink_latency_s
    assert seconds("all_to_all", Group(128, 8), cluster, 1e9) == pytest.approx(by_hand + latency, rel=1e-12)


@given(kind=st.sampled_from(KINDS), ranks=groups, payload=st.floats(0, 1e12), factor=st.floats(1, 10))
def test_more_bytes_never_take_less_time(cluster, kind, ranks, payload, factor):
    assert 0 <= seconds(kind, ranks, cluster, payload) <= seconds(kind, ranks, cluster, payload * factor)


@given(
    kind=st.sampled_from(KINDS),
    ranks=groups,
    payload=st.floats(0, 1e12),
    name=st.sampled_from(("nic_gbit_per_gpu", "nic_efficiency", "alltoall_efficiency", "nvlink_efficiency")),
    factor=st.floats(0.1, 1),
)
def test_less_bandwidth_is_never_faster(cluster, kind, ranks, payload, name, factor):
    slower = replace(cluster, **{name: getattr(cluster, name) * factor})
    fast, slow = (seconds(kind, ranks, of, payload) for of in (cluster, slower))
    assert slow >= fast * (1 - 1e-12)


@given(kind=st.sampled_from(("all_gather", "reduce_scatter")), ranks=groups, payload=st.floats(1, 1e12))
def test_gathering_takes_in_what_a_rank_and_a_node_lack(cluster, kind, ranks, payload):
    taken = seconds(kind, ranks, cluster, payload)
    if ranks.nodes == 1:
        assert taken >= payload * (ranks.size - 1) / ranks.size / NVLINK
    else:
        foreign = payload * (ranks.nodes - 1) / ranks.nodes
        assert taken >= foreign / (ranks.local * ADAPTER)


@given(ranks=groups, payload=st.floats(1, 1e12))
def test_an_all_to_all_sends_what_leaves_the_node_over_one_adapter(cluster, ranks, payload):
    taken = seconds("all_to_all", ranks, cluster, payload)
    assert taken >= payload * (ranks.size - ranks.local) / ranks.size / ADAPTER
    assert taken >= payload * (ranks.local - 1) / ranks.size / NVLINK


@given(payload=st.floats(1, 1e12), nodes=st.integers(2, 64))
def test_a_send_between_nodes_passes_an_adapter(cluster, payload, nodes):
    assert seconds("send", Group(nodes, 1), cluster, payload) >= payload / ADAPTER


def test_a_pipeline_over_two_nodes_is_no_faster_than_its_hop_between_them(cluster):
    assert seconds("send", Group(4, 2), cluster, 1e9) >= 1e9 / ADAPTER


def members(name, layout, dp):
    """Global ranks of the group of rank 0, in Megatron-LM's order: tensor, context, data, pipeline.

    The ranks of a stage are numbered once more for experts: expert-tensor, expert, expert-data.
    """
    stage = layout.tp * layout.cp * dp
    experts = layout.ep * layout.etp
    found = {"etp": range(layout.etp), "ep": range(0, experts, layout.etp), "edp": range(0, stage, experts)}
    if name in found:
        return list(found[name])
    ranks = [
        (tensor, context, data, stage)
        for stage in range(layout.pp)
        for data in range(dp)
        for context in range(layout.cp)
        for tensor in range(layout.tp)
    ]
    varying = {"tp": (0,), "cp": (1,), "dp": (1, 2), "pp": (3,)}[name]
    return [
        number for number, rank in enumerate(ranks) if all(rank[axis] == 0 for axis in range(4) if axis not in varying)
    ]


@pytest.mark.parametrize("name", ["tp", "cp", "dp", "pp", "ep", "etp", "edp"])
def test_groups_lie_where_the_order_of_ranks_puts_them(resolve, name):
    scenario = resolve().scenario
    for tp, cp, pp, etp in product((1, 2, 4, 8), (1, 2, 8, 16), (1, 2, 4), (1, 2)):
        layout = replace(scenario.layout, tp=tp, cp=cp, pp=pp, vpp=1, ep=16, etp=etp)
        case = case_of(replace(scenario, layout=layout), scenario.systems[0])
        found = group(name, case, Sizes.of(case))
        ranks = members(name, layout, 512 // (tp * cp * pp))
        assert found.size == len(ranks), layout
        assert found.local == sum(rank < 8 for rank in ranks), layout
        assert found.nodes == len({rank // 8 for rank in ranks}), layout


def test_a_network_prices_a_transfer_over_its_group(resolve, cluster):
    scenario = assign(resolve().scenario, {"layout.cp": 128})
    case = case_of(scenario, scenario.systems[0])
    network = Network(case, Sizes.of(case), Coefficients(1))
    found = network.seconds(Transfer(kind="all_gather", group="cp", payload_bytes=1e9))
    assert found == pytest.approx(seconds("all_gather", Group(128, 8), cluster, 1e9), rel=1e-12)
    assert network.seconds(Transfer(kind="all_gather", group="tp", payload_bytes=1e9)) == 0


def test_an_all_reduce_scatters_and_gathers(cluster):
    ranks = Group(16, 8)
    both = [seconds(kind, ranks, cluster, 1e9) for kind in ("reduce_scatter", "all_gather")]
    assert seconds("all_reduce", ranks, cluster, 1e9) == pytest.approx(sum(both), rel=1e-12)


@given(shape=groups, nodes=st.floats(1, 8), more=st.floats(1, 3))
def test_deepep_takes_the_slower_of_its_two_links(cluster, shape, nodes, more):
    """Copies to other nodes over the adapter, copies to ranks over NVLink."""
    per_byte, _ = deepep_cost(shape, cluster, nodes, nodes * more)
    adapter = cluster.nic_gbit_per_gpu * 1e9 / 8 * cluster.alltoall_efficiency
    nvlink = min(NVLINK * cluster.nvlink_efficiency, cluster.gpu.deepep_bytes_per_s)
    times = (
        nodes * (1 - 1 / shape.nodes) / adapter,
        nodes * more * (1 - 1 / shape.local) / nvlink,
    )
    assert per_byte == pytest.approx(max(times) if shape.size > 1 else 0.0)
