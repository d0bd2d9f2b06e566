package ncclnet

import "testing"

func TestOf(t *testing.T) {
	for _, tc := range []struct {
		network, provider string
		want              Carrier
	}{
		{"IB", "", RDMA}, {"IBext", "", RDMA}, {"IBext_v10", "", RDMA}, {"gIB", "", RDMA},
		{"Socket", "", Sockets}, {"FastSocket", "", Sockets},
		{"AWS Libfabric", "efa", RDMA}, {"AWS Libfabric", "tcp", Sockets}, {"AWS Libfabric", "tcp;ofi_rxm", Sockets},
		{"Libfabric", "verbs;ofi_rxm", RDMA}, {"OFI", "cxi", RDMA}, {"OFI", "sockets", Sockets},
		{"AWS Libfabric", "", Unknown}, {"AWS Libfabric", "brandnew", Unknown},
		{"UCX", "", Unknown}, {"GPUDirectTCPX_v7", "", Unknown}, {"IBM", "", Unknown}, {"", "", Unknown},
	} {
		if got := Of(tc.network, tc.provider); got != tc.want {
			t.Errorf("%q by %q is %d, want %d", tc.network, tc.provider, got, tc.want)
		}
	}
}

func TestMessages(t *testing.T) {
	for message, want := range map[string]string{
		"NET/OFI Selected Provider is efa (found 4 nics)":                         "efa",
		"NET/OFI Selected provider is tcp, fabric is 10.36.0.0/16 (found 1 nics)": "tcp",
		"NET/OFI Selected provider is verbs;ofi_rxm (found 2 nics)":               "verbs;ofi_rxm",
		"NET/OFI Using transport protocol SENDRECV":                               "",
	} {
		if got := Provider(message); got != want {
			t.Errorf("%q: %q, want %q", message, got, want)
		}
	}
	for message, want := range map[string]bool{
		"Failed to open libibverbs.so[.1]": true, "Count not open libibverbs.so.1": true,
		"Count not open libibverbs.so": false, "Failed to open libmlx5.so[.1]": false,
	} {
		if NoVerbs(message) != want {
			t.Errorf("%q", message)
		}
	}
	for message, want := range map[string]bool{
		"NET/IB : mlx5_0:1 speed change detected: 400000 -> 200000 Mbps": true,
		"NET/IB : mlx5_0:1 speed change detected: 200000 -> 40000 Mbps":  true,
		"NET/IB : mlx5_0:1 speed change detected: 40000 -> 200000 Mbps":  false,
		"NET/IB : mlx5_0:1 speed change detected: 400000 -> N/A Mbps":    false,
		"NET/IB : mlx5_0:1 GID table changed":                            false,
	} {
		device, _, _, slower := Slower(message)
		if slower != want || slower && device != "mlx5_0" {
			t.Errorf("%q: %q, %v", message, device, slower)
		}
	}
}
