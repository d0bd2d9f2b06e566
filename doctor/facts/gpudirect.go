package facts

import (
	"path/filepath"

	"github.com/railscope/railscope/internal/gpudirect"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/sysfs"
)

// readNVIDIA reads how adapters reach the memory of GPUs, as the source
// gpudirect does, and opens no GPU either.
func (g *Gatherer) readNVIDIA(r *reader) func(*Facts) {
	dir := filepath.Join(g.o.Procfs, "driver/nvidia")
	if !isDir(dir) {
		return nil
	}
	var d GPUDirect
	for _, module := range gpudirect.Modules() {
		if d.Module == "" && isDir(filepath.Join(g.o.Sysfs, "module", module)) {
			d.Module = module
		}
	}
	unsupported := g.readModels(r, filepath.Join(dir, "gpus"), &d)
	var kernel *gpudirect.Kernel
	var driver *gpudirect.Driver
	release := r.text(g.o.Procfs, "sys/kernel/osrelease")
	if k, err := gpudirect.ParseKernel(release); err == nil {
		kernel, d.Kernel = &k, Clean(release)
	}
	if v, err := gpudirect.ParseDriver(r.text(dir, "version")); err == nil {
		driver, d.Driver = &v, Clean(v.Version)
	}
	possible, why, known := gpudirect.Possible(kernel, driver)
	switch {
	case unsupported:
		d.Mode, d.Reason = "unsupported", string(gpudirect.GB10)
	case len(r.unread) > 0: // the GPU that could not be read might be a GB10
	case d.GPUs == 0:
		d.Mode, d.Reason = "none", string(gpudirect.NoGPU)
	case d.Module != "":
		d.Mode, d.Reason = "peermem", string(gpudirect.Peermem)
	case !known:
		r.say("GPUDirect: neither %s nor the kernel's release says whether dma-buf is possible; compare with nvidia-smi",
			filepath.Join(dir, "version"))
	case possible:
		d.Mode, d.Reason = "dmabuf", string(why)
	default:
		d.Mode, d.Reason = "none", string(why)
	}
	return func(f *Facts) { f.GPUDirect = d }
}

// readModels counts the GPUs, each in a lane of its own: a wedged one holds its
// file.
func (g *Gatherer) readModels(r *reader, dir string, d *GPUDirect) (unsupported bool) {
	entries, err := sysfs.List(dir)
	if err != nil {
		r.say("GPUDirect: %v; is the NVIDIA driver loaded? compare with nvidia-smi", err)
		return false
	}
	var addresses []string
	for _, e := range entries[:min(len(entries), maxPorts)] {
		addresses = append(addresses, e.Name)
	}
	for _, res := range g.models.Run(g.o.Budget*9/10, addresses, func(address string) string {
		text, _ := sysfs.ReadString(dir, address, "information")
		return gpudirect.Model(text)
	}) {
		if res.State != lane.Done || res.Value == "" {
			r.say("GPUDirect: %s has no model; compare with nvidia-smi and dmesg", filepath.Join(dir, res.Key, "information"))
			continue
		}
		d.GPUs++
		if d.Model == "" {
			d.Model = Clean(res.Value)
		}
		unsupported = unsupported || gpudirect.Unsupported(res.Value)
	}
	return unsupported
}
