"""Dashboard, alerts and page name metrics that exist, and every metric is documented."""

import json
import re
import shutil
import subprocess
from typing import Any

import pytest
from ruamel.yaml import YAML

from fanout.metrics import METRICS
from tests.support import ROOT
from tests.test_docs import HEADING, anchor, rows, section, words

PAGE = (ROOT / "docs" / "operations.md").read_text()
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "fanout.json").read_text())
NAME = re.compile(r"\bfanout_\w+")
BY_NAME = {metric.name: metric for metric in METRICS}
# What Prometheus makes of a histogram.
SHOWN = {
    name: metric
    for metric in METRICS
    for name in (
        [f"{metric.name}_{end}" for end in ("bucket", "count", "sum")] if metric.kind == "histogram" else [metric.name]
    )
}


def alerts() -> list[dict[str, Any]]:
    return [rule for group in YAML(typ="safe").load(RULES)["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    shown = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    return shown + [str(rule["expr"]) for rule in alerts()]


def test_every_expression_is_about_metrics_and_labels_that_exist() -> None:
    for expression in expressions():
        named = set(NAME.findall(expression))
        assert named <= set(SHOWN), expression
        assert named or "temporal_" in expression
        for name, selector in re.findall(r"(fanout_\w+)\{([^}]*)\}", expression):
            assert set(re.findall(r"(\w+)=", selector)) <= set(SHOWN[name].labels), expression
        allowed = {label for name in named for label in SHOWN[name].labels} | {"le", "worker_type"}
        for grouping in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
            assert set(grouping.replace(" ", "").split(",")) <= allowed, expression


def test_every_metric_of_ours_stands_on_the_dashboard() -> None:
    shown = {
        name for panel in DASHBOARD["panels"] for target in panel["targets"] for name in NAME.findall(target["expr"])
    }
    assert {SHOWN[name].name for name in shown} == set(BY_NAME)


def test_a_counter_is_never_shown_without_a_rate() -> None:
    for expression in expressions():
        for name in NAME.findall(expression):
            bare = SHOWN[name].kind != "gauge" and not re.search(rf"(rate|increase)\({name}", expression)
            assert not bare, expression


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_every_metric_is_documented_with_its_labels() -> None:
    documented = {row[0].strip("`"): words(row[1]) for row in rows(section(PAGE, "## Metrics")) if "fanout_" in row[0]}
    assert documented == {metric.name: set(metric.labels) for metric in METRICS}


def test_every_alert_has_its_page_in_the_run_book() -> None:
    anchors = set(map(anchor, HEADING.findall(PAGE)))
    for rule in alerts():
        page, _, place = rule["annotations"]["runbook"].partition("#")
        assert (page, place) == ("docs/operations.md", rule["alert"].lower())
        assert place in anchors
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Prometheus' promtool is not installed")
def test_the_rules_fire_when_they_should() -> None:
    command = ["promtool", "test", "rules", "alerts_test.yml"]
    done = subprocess.run(command, cwd=RULES.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
