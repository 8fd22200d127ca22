"""The published algorithms, a folder for each class of proof."""
