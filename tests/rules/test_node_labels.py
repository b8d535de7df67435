"""Labels of Kubernetes nodes that name what machines share: only those of the table, only values that say something."""

import pytest

from hangdog_models.errors import OurFault
from hangdog_models.rules import node_labels
from hangdog_models.rules.node_labels import TABLE, fault_domains, parse

#: A node as topograph and GKE label it, shortened, among labels that have nothing to do with its place.
GKE = {
    "kubernetes.io/hostname": "gke-a4-1",
    "topology.kubernetes.io/zone": "us-central1-b",
    "cloud.google.com/gce-topology-block": "f1e2",
    "cloud.google.com/gce-topology-subblock": "77aa",
    "cloud.google.com/gce-topology-host": "0b0b",
}


def test_the_packaged_table_reads_and_names_each_label_once() -> None:
    labels = [label for family in node_labels.families() for label in family.labels]
    assert len(labels) == len(set(labels)) > 20
    assert TABLE.startswith("node_labels@")


def test_a_node_s_labels_say_what_it_shares_as_kubectl_selects_it_narrowest_first() -> None:
    assert fault_domains(GKE) == (
        "cloud.google.com/gce-topology-subblock=77aa",
        "cloud.google.com/gce-topology-block=f1e2",
        "topology.kubernetes.io/zone=us-central1-b",
    )


@pytest.mark.parametrize("value", ["", "unknown", "None", "a b", "x\n", "-", "x" * 64, 7, None, ["x"], "\x1b[31m"])
def test_a_value_that_says_nothing_or_is_no_label_s_is_left_out(value: object) -> None:
    assert fault_domains({"topology.kubernetes.io/rack": value}) == ()


@pytest.mark.parametrize(
    "text",
    [
        "no toml [",
        "family = 3",
        '[[family]]\nlabels = ["a"]\n',
        '[[family]]\nlabels = []\nsource = "x"\n',
        '[[family]]\nlabels = ["a"]\nsource = "x"\nwhy = "y"\n',
        '[[family]]\nlabels = ["a"]\nsource = "x"\n[[family]]\nlabels = ["b"]\nwide = ["a"]\nsource = "x"\n',
    ],
)
def test_a_table_that_is_wrong_is_our_own_fault(text: str) -> None:
    with pytest.raises(OurFault):
        parse(text)
