"""Links watched for hours or days: with `--soak TIME`, such as 72h; see docs/how-to/soak.md.

Without the option this is deselected. A run that was killed is gone on with by `--soak-resume`.
"""

import pytest


@pytest.mark.limits("soak")
def test_links_stay_up(soak, measure):
    """Plans are held, or take turns; a link that is lost meanwhile has flapped."""
    soak()
    measure.judge("soak")
