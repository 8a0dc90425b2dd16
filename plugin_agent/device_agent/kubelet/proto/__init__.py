"""The kubelet's messages, generated and checked in: `regenerate.sh` writes them from the .proto files beside them."""
