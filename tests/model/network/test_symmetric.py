"""One node that stands for all of a group carries what the whole graph does."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.layers.operation import Transfer
from hyscale_model.network.collectives import cost, deepep_cost
from hyscale_model.network.groups import Group
from hyscale_model.network.symmetric import HOST, SWITCH, gpu, kept, leaf, node_graph, node_load
from hyscale_model.network.topology import load

sizes = st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(1, 6))


@pytest.fixture(scope="module")
def cluster(resolve):
    return resolve().scenario.cluster


def transfer(kind, payload, **copies):
    return Transfer(kind=kind, group="cp", payload_bytes=payload, **copies)


@given(shape=sizes, kind=st.sampled_from(["all_gather", "reduce_scatter", "all_to_all"]), payload=st.floats(1, 1e12))
def test_links_carry_what_the_graph_of_all_nodes_says(cluster, shape, kind, payload):
    local, nodes = shape
    ranks = Group(local * nodes, local)
    found = node_load(transfer(kind, payload), ranks, 8)
    whole = load(kind, ranks, cluster, payload).by_kind()
    assert found.get((gpu(0), SWITCH), 0.0) == pytest.approx(whole["nvlink"])
    if nodes > 1:
        assert found[gpu(0), leaf(0)] == pytest.approx(whole["adapter"])


@given(shape=sizes, stride=st.sampled_from([1, 2, 4, 8]))
def test_every_gpu_of_a_node_carries_the_same(shape, stride):
    local, nodes = shape
    found = node_load(transfer("all_to_all", 1e9), Group(local * nodes, min(local, 8 // stride), stride), 8)
    for ends in ([SWITCH] * 8, [leaf(index) for index in range(8)]):
        loads = [found.get((gpu(index), end), 0.0) for index, end in enumerate(ends)]
        assert max(loads) == pytest.approx(min(loads))
    for (one, other), size in found.items():
        assert found[other, one] == pytest.approx(size)


@given(nodes=st.integers(1, 16), to_nodes=st.floats(1, 4), to_ranks=st.floats(1, 8))
def test_deepep_takes_as_long_as_its_closed_form(cluster, nodes, to_nodes, to_ranks):
    ranks, work = Group(8 * nodes, 8), transfer("deepep", 1e9, node_copies=to_nodes, rank_copies=to_ranks)
    graph = node_graph(cluster)
    seconds = max(
        size / (graph.edges[link]["bytes_per_s"] * kept(work, graph.edges[link]["kind"], cluster))
        for link, size in node_load(work, ranks, 8).items()
    )
    assert seconds == pytest.approx(1e9 * deepep_cost(ranks, cluster, to_nodes, to_ranks)[0])


def test_a_send_crosses_one_adapter_and_a_copy_pcie():
    assert node_load(transfer("send", 5.0), Group(4, 1, 128), 8)[gpu(3), leaf(3)] == 5.0
    out = node_load(Transfer(kind="to_host", group="host", payload_bytes=7.0), Group(1, 1), 8)
    assert out == {(gpu(index), HOST): 7.0 for index in range(8)}
    back = node_load(Transfer(kind="from_host", group="host", payload_bytes=7.0), Group(1, 1), 8)
    assert back == {(HOST, gpu(index)): 7.0 for index in range(8)}


def test_a_reduced_message_passes_twice():
    once, twice = (node_load(transfer(kind, 8.0), Group(16, 8), 8) for kind in ("all_gather", "all_reduce"))
    assert twice == {link: 2 * size for link, size in once.items()}


def test_sixteen_thousand_gpus_are_no_larger_than_sixty_four(cluster):
    """The same graph, and the busiest link still takes what the closed form says."""
    small, large = Group(64, 8), Group(16384, 8)
    loads = [node_load(transfer("all_to_all", 1e9), ranks, 8) for ranks in (small, large)]
    assert set(loads[0]) == set(loads[1])
    rate = node_graph(replace(cluster, nodes=2048)).edges[gpu(0), leaf(0)]["bytes_per_s"]
    seconds = loads[1][gpu(0), leaf(0)] / (rate * cluster.alltoall_efficiency)
    assert seconds == pytest.approx(1e9 * cost("all_to_all", large, cluster)[0], rel=1e-9)
