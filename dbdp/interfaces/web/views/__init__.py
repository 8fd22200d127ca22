"""What pages show: templates, bars, receipts, refusals."""
