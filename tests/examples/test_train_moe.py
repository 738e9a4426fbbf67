"""The script of experts is plain PyTorch."""

import ast
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "train_moe.py"


def test_the_script_imports_nothing_of_lightrig() -> None:
    tree = ast.parse(SCRIPT.read_text("utf-8"))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} == {"argparse", "torch"}
