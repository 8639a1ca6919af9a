"""Studies: contenders on equal terms."""
