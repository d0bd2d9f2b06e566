package read

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRCCLLogs reads the logs that the nccl source reads; their sources are there.
func TestRCCLLogs(t *testing.T) {
	for name, tc := range map[string]struct {
		want []string
		errs string
	}{
		"2.7-ib": {[]string{"network IB mlx5_3:1/IB @mlx5_3", "network IB mlx5_2:1/IB @mlx5_2", "network IB mlx5_1:1/IB @mlx5_1",
			"network IB mlx5_0:1/IB @mlx5_0", "network IB"}, ""},
		"2.7-no-gdr": {[]string{"network IB mlx5_0:1/RoCE @mlx5_0", "network IB", "GPUDirect RDMA disabled, IB @mlx5_0"}, ""},
		"2.16-socket": {[]string{`warning: Missing "amd_iommu=on" from kernel command line which can lead to system instablity or hang!`,
			`warning: Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!`,
			`warning: Missing "HSA_FORCE_FINE_GRAIN_PCIE=1" from environment which can lead to low RCCL performance, system instablity or hang!`,
			"channels via NET/Socket/1 ?", "channels via NET/Socket/2 ?"}, ""},
		"2.18-settings": {[]string{`warning: Missing "amd_iommu=on" from kernel command line which can lead to system instablity or hang!`,
			`warning: Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!`,
			`warning: Missing "HSA_FORCE_FINE_GRAIN_PCIE=1" from environment which can lead to low RCCL performance, system instablity or hang!`,
			"library RCCL 2.18.3+hip5.5 develop:6ecf771+", "warning: hipIpcGetMemHandle failed : invalid argument"}, ""},
		"2.20-torchrun": {[]string{`warning: Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!`,
			"DMA-BUF not available: Dmabuf feature disabled without NCCL_DMABUF_ENABLE=1", "library RCCL 2.20.5+hip6.2 Unknown"}, ""},
		"2.21-one-node": {[]string{"DMA-BUF not available: Dmabuf feature disabled without NCCL_DMABUF_ENABLE=1", "library RCCL 2.21.5-HEAD:9a0e6a1",
			"libibverbs is missing in the image", "network Socket eno2np1", "network Socket"}, ""},
		"2.21-dmabuf": {[]string{"DMA-BUF available", "library RCCL 2.21.5-Unknown", "network IB mlx5_0:1/RoCE @mlx5_0",
			"peer memory of the GPUs not available", "network IB"}, ""},
		"2.22-vllm": {[]string{`warning: Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!`,
			"library RCCL 2.22.3-HEAD:271856d", "libibverbs is missing in the image ?", "network Socket enp203s0", "network Socket br-03e037269530",
			"network Socket veth18cd3f2"}, ""},
		"2.26-ray-socket": {[]string{"libibverbs is missing in the image ?", "network Socket enp165s0f1np1", "network Socket ?"}, ""},
		"2.27-fatal": {[]string{`warning: Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!`,
			"DMA-BUF not available: Dmabuf feature disabled without NCCL_DMABUF_ENABLE=1", "library RCCL 2.27.7-HEAD:29e1567",
			"network IB: no device found ?", "network Socket eth0", "network Socket eth1", "network Socket ?",
			"warning: hipIpcGetMemHandle failed : invalid argument"}, "23: nccl failed: HIP failure: 'invalid argument'"},
		"2.27-ionic": {[]string{"network IB", "network IB ionic_0:1/RoCE @ionic_0", "network IB ionic_1:1/RoCE @ionic_1", "network IB ionic_2:1/RoCE @ionic_2",
			"network IB ionic_3:1/RoCE @ionic_3", "network IB ionic_4:1/RoCE @ionic_4", "network IB ionic_5:1/RoCE @ionic_5",
			"network IB ionic_6:1/RoCE @ionic_6", "network IB ionic_7:1/RoCE @ionic_7"}, ""},
		"2.27-anp": {[]string{"network IB ionic_0:1/RoCE @ionic_0", "network IB ionic_1:1/RoCE @ionic_1", "network RCCL-ANP",
			"channels via NET/RCCL-ANP/0/GDRDMA"}, ""},
		"2.30-roce-ray": {[]string{"network IB virtual device of 1 @rocep3s0f0", "channels via NET/IB/0"}, ""},
		"2.30-cumem":    {[]string{"warning: cuMem support requires VMM RDMA support", "DMA-BUF available", "library RCCL 2.30.4-HEAD:2b22ab0"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("../../collector/nccl/testdata", "rccl-"+name+".log"))
			if err != nil {
				t.Fatal(err)
			}
			for _, before := range []string{"", "2026-07-01T10:00:00.123Z ", "[1,0]<stdout>: ", "[pod/train-0/worker] ", " 12: ", "node-b: "} { // kubectl, mpirun, srun, pdsh
				var log strings.Builder
				for line := range strings.Lines(string(text)) {
					log.WriteString(before + line)
				}
				got, errs := rows(log.String())
				for i := range got {
					got[i] = strings.TrimPrefix(got[i], "nccl ")
				}
				if diff := cmp.Diff(tc.want, got); diff != "" || errs != tc.errs {
					t.Errorf("%q: errors %q, want %q (-want +got)\n%s", before, errs, tc.errs, diff)
				}
			}
		})
	}
}
