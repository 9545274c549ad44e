"""Convolutional encoders: images [B, channels, height, width] to features [B, output_size]."""
