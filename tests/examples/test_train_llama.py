"""The training scripts are plain PyTorch: nothing in them is ours."""

import ast
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    "script", ["train_llama", "train_llama_3d", "train_overlapped", "train_pipeline"]
)
def test_the_script_imports_nothing_of_ours(script: str) -> None:
    tree = ast.parse((EXAMPLES / f"{script}.py").read_text("utf-8"))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} - {"time"} == {"argparse", "torch"}
