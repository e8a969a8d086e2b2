"""Jobs that really run: containers on real kubelets, seen from the host. `make e2e` runs them."""
