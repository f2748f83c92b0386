"""What machines, hosts and stores share: effects, requests to stores, and the small values in both."""
