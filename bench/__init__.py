"""What Calyrex costs beside LoRA and beside the plain base, measured: ``python -m bench``."""
