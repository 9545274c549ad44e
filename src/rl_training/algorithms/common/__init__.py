"""The mathematics and machinery that the algorithms share."""
