package gpudirect

import "github.com/railscope/railscope/collector"

type table struct {
	collector.Table
	peermem, dmabuf, supported, info *collector.Metric
}

func newTable() *table {
	const (
		refPeermem = "NVIDIA driver README, GPUDirect RDMA Peer Memory Client"
		refDMABuf  = "Linux 5.12 (ib_umem_dmabuf_get, drivers/infiniband/core/umem_dmabuf.c); NVIDIA driver README " +
			"from 515 on, Open Linux Kernel Modules"
		refGB10 = "NVIDIA, DGX Spark GPUDirect RDMA, forums.developer.nvidia.com/t/348787"
		refAMD  = "RCCL, src/transport/net_ib.cc; Linux 6.15, amdgpu_dma_buf_pin in drivers/gpu/drm/amd/amdgpu/" +
			"amdgpu_dma_buf.c; docs/amd.md"

		version, release, information = "driver/nvidia/version", "sys/kernel/osrelease",
			"driver/nvidia/gpus/*/information"
		peers, config = "kernel/mm/memory_peers/amdkfd/version", "/boot/config-RELEASE"
	)
	t := &table{Table: collector.Table{Source: "gpudirect"}}
	t.peermem = t.Group(refPeermem+"; "+refAMD).Gauge("gpudirect_peermem_loaded", "1 while the kernel module through "+
		"which RDMA adapters reach GPU memory by peer memory is loaded, and for AMD's GPUs while amdkfd is a client "+
		"of it, else 0.", "module/nvidia_peermem", "module/nv_peer_mem", peers)
	t.dmabuf = t.Group(refDMABuf+"; "+refAMD).Gauge("gpudirect_dmabuf_possible", "1 where kernel (5.12) and NVIDIA "+
		"driver (515, open kernel modules) are new enough for RDMA to GPU memory by dma-buf, 0 where one is not, and "+
		"on a GB10; by version only, a distribution may have backported it. For AMD's GPUs 1 where the kernel is new "+
		"enough and has CONFIG_PCI_P2PDMA and CONFIG_DMABUF_MOVE_NOTIFY.", version, release, config)
	t.supported = t.Group(refGB10).Gauge("gpudirect_supported", "0 where RDMA cannot reach the GPU by design (GB10, "+
		"DGX Spark), whatever is loaded, otherwise 1.", information)
	all := t.Group(refPeermem+"; "+refDMABuf+"; "+refGB10+"; "+refAMD, "mode", "reason")
	t.info = all.Gauge("gpudirect_info", "How RDMA can "+
		"reach GPU memory here, always 1: mode is peermem, dmabuf, none or unsupported; peermem where both are "+
		"possible; with none and unsupported every transfer is copied through host memory. With GPUs of both vendors, "+
		"the worse one.", "module/nvidia_peermem", version, information, release, peers, config)
	return t
}
