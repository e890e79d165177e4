"""Flows over the links of a cluster, and the closed forms that symmetry gives."""

from dataclasses import replace
from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.network.collectives import cost
from hyscale_model.network.groups import Group
from hyscale_model.network.topology import cluster_graph, flows, gpu, load, members, route

sizes = st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(1, 6))


@pytest.fixture(scope="module")
def cluster(resolve):
    return resolve().scenario.cluster


@given(shape=sizes, kind=st.sampled_from(["all_gather", "reduce_scatter", "all_to_all"]), payload=st.floats(1, 1e10))
def test_the_busiest_link_takes_what_the_closed_form_says(cluster, shape, kind, payload):
    local, nodes = shape
    ranks = Group(local * nodes, local)
    # Rings of a single rank a node leave NVLink idle; the closed form bounds them by it all the same.
    per_byte, _ = cost(kind, ranks, cluster)
    found = load(kind, ranks, cluster, payload).seconds
    if kind == "all_to_all" and nodes > 1 and local > 1:
        # Copies for other rails pass over NVLink too, which the closed form leaves to the adapters to bound.
        assert found == pytest.approx(payload * per_byte, rel=0.3)
    else:
        assert found == pytest.approx(payload * per_byte, rel=1e-9)


@given(shape=sizes, kind=st.sampled_from(["all_gather", "all_to_all"]))
def test_every_byte_that_leaves_arrives(cluster, shape, kind):
    local, nodes = shape
    found = load(kind, Group(local * nodes, local), cluster, 1e9).graph
    for name in found.nodes:
        into = sum(link["bytes"] for _, _, link in found.in_edges(name, data=True))
        out = sum(link["bytes"] for _, _, link in found.out_edges(name, data=True))
        assert into == pytest.approx(out)


@given(shape=sizes)
def test_every_rank_is_reached_and_nothing_goes_through_the_spine(cluster, shape):
    local, nodes = shape
    ranks = Group(local * nodes, local)
    graph = cluster_graph(cluster, nodes)
    assert nx.is_strongly_connected(graph)
    pairs = flows("all_to_all", ranks, 1.0)
    assert len(pairs) == ranks.size * (ranks.size - 1)
    assert sum(pairs.values()) == pytest.approx(ranks.size - 1)
    for one, other in pairs:
        way = route(one, other)
        assert way[0] == one
        assert way[-1] == other
        assert all(graph.has_edge(*pair) for pair in pairwise(way))
        assert "spine" not in way


def test_a_gather_over_two_nodes_is_bound_by_the_adapters(cluster):
    found = load("all_gather", Group(16, 8), cluster, 16e9)
    assert found.graph.edges[found.busiest]["kind"] == "adapter"
    # Each of eight rails carries an eighth of the fifteen sixteenths that every rank lacks.
    assert found.by_kind()["adapter"] == pytest.approx(16e9 * 15 / 16 / 8)
    assert members(Group(4, 2)) == [gpu(0, 0), gpu(0, 1), gpu(1, 0), gpu(1, 1)]


def test_a_slower_adapter_is_the_bottleneck_for_longer(cluster):
    slow = replace(cluster, nic_gbit_per_gpu=cluster.nic_gbit_per_gpu / 2)
    fast, halved = (load("all_to_all", Group(16, 8), each, 1e9).seconds for each in (cluster, slow))
    assert halved == pytest.approx(2 * fast)
