"""Speed of dbdp compared with other ways of training."""
